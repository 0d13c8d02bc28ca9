//! `team-worker check`: runs the commands that say whether work is done, confined as the commands of a teammate are.
//!
//! The daemon writes the order to standard input, and leaves that open while it wants the check. When it ends, also because
//! the daemon has died, this process ends; its shims then end the commands. The next daemon runs the check again: it
//! waits for the lock until nothing of the earlier one is left.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::fs::{FlockOperation, OFlags, flock};
use teamd_shared::check::{CheckOrder, CheckReport};
use teamd_shared::fingerprint::fingerprint;
use teamd_shared::logging;
use teamd_shared::name::Name;
use teamd_shared::process::{deny_tracing, survive_file_limit};
use teamd_shared::team_dir::{TeamDir, TeamPath};
use tokio::sync::oneshot;

use crate::args::CheckArgs;
use crate::tools::{Toolbox, ToolboxConfig};

/// How much of the output the owner is told, in characters.
const TOLD: usize = 4_000;

/// Runs a check; 0 if it could be run, whatever it said.
pub(crate) fn check_main(args: &CheckArgs) -> ExitCode {
    logging::to_stderr();
    match run(args) {
        Ok(report) => {
            let text = serde_json::to_string(&report).unwrap_or_default();
            match std::io::stdout().write_all(text.as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            // The daemon takes what stands there for the reason.
            drop(write!(std::io::stdout(), "{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &CheckArgs) -> anyhow::Result<CheckReport> {
    if let Err(errno) = nix::unistd::setsid() {
        tracing::debug!("no session of its own: {errno}");
    }
    deny_tracing();
    survive_file_limit().context("cannot catch a signal")?;
    let (order, unwanted) = read_order()?;
    let dir = Arc::new(TeamDir::open(&args.team_dir)?);
    let lock = dir.open_file(&TeamPath::checks(), OFlags::RDWR | OFlags::CREATE)?;
    flock(&lock, FlockOperation::LockExclusive).context("cannot lock run/checks")?;
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(order.environment.umask));
    let toolbox = Toolbox::new(ToolboxConfig {
        workspace: PathBuf::from(&order.workspace),
        team_dir: Arc::clone(&dir),
        name: Name::lead(),
        // No name of a teammate has a dot.
        temp_name: "check.".to_owned(),
        liveness_lock: lock,
        environment: order.environment.clone(),
        territory: order.territory.iter().map(PathBuf::from).collect(),
        sandbox: order.sandbox.clone(),
        bounds: order.bounds,
        cgroup: None,
        confinement: (&args.confinement).into(),
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot make the runtime")?.block_on(async {
        tokio::select! {
            report = commands(toolbox, &order, &dir) => report,
            // Its shims end what it runs.
            _ = unwanted => Err(anyhow::anyhow!("the check is not wanted any more")),
        }
    })
}

/// Reads the order. The receiver is done when standard input ends.
fn read_order() -> anyhow::Result<(CheckOrder, oneshot::Receiver<()>)> {
    let mut orders = serde_json::Deserializer::from_reader(std::io::stdin()).into_iter::<CheckOrder>();
    let order = orders.next().context("no order")?.context("cannot read the order")?;
    let (end, unwanted) = oneshot::channel();
    std::thread::Builder::new().name("wanted".to_owned()).spawn(|| {
        // It says nothing more: this waits for the end.
        while std::io::stdin().read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        drop(end);
    })?;
    Ok((order, unwanted))
}

async fn commands(mut toolbox: Toolbox, order: &CheckOrder, dir: &TeamDir) -> anyhow::Result<CheckReport> {
    let touched_protected = order.protected.as_ref().is_some_and(|before| {
        // What cannot be looked at is not known to be untouched.
        fingerprint(Path::new(&order.protect_in), &order.protect).ok().as_ref() != Some(before)
    });
    let began = Instant::now();
    let until = began + Duration::from_secs_f64(order.timeout);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    let mut log = dir.open_file(&TeamPath::check_log(order.task), flags)?;
    let mut report = CheckReport {
        command: 0,
        exit: None,
        how: String::new(),
        seconds: 0.0,
        output: String::new(),
        touched_protected,
    };
    for (number, command) in order.commands.iter().enumerate() {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let mut running =
            toolbox.start_check(command.clone(), left.as_secs_f64()).map_err(anyhow::Error::msg)?;
        let (exit, output, failure) = running.finish_check().await;
        let how = failure.unwrap_or_else(|| "exit code 0".to_owned());
        // A full disk costs the log, and not the check.
        if let Err(error) = write!(log, "$ {command}\n{}\n[{how}]\n", output.trim_end()) {
            tracing::warn!("cannot write the log of the check of task {}: {error}", order.task);
        }
        (report.command, report.exit, report.how) = (number, exit, how);
        let from = output.char_indices().rev().nth(TOLD - 1).map_or(0, |(at, _)| at);
        output[from..].clone_into(&mut report.output);
        if exit != Some(0) {
            break;
        }
    }
    report.seconds = began.elapsed().as_secs_f64();
    Ok(report)
}
