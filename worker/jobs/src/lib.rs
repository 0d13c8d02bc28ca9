//! `team-worker job` does for the daemon what takes time. All that it runs is confined as the
//! commands of a teammate are.
//!
//! The daemon writes the order to standard input, and leaves that open while it wants the job. When
//! it ends, also because the daemon has died, this process ends; its shims then end the commands.
//! The next daemon has the job done again: that waits for the lock until nothing of the earlier one
//! is left.

mod check;
mod git;
mod locks;

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use rustix::fs::{FlockOperation, OFlags, flock};
use teamd_shared::environment::Environment;
use teamd_shared::job::{JobOrder, JobReport};
use teamd_shared::logging;
use teamd_shared::process::{deny_tracing, survive_file_limit};
use teamd_shared::team_dir::{TeamDir, TeamPath};
use tokio::sync::oneshot;

use teamd_worker_sandbox::{ConfinementArgs, OwnCgroup};

pub use git::for_checkout;
pub use locks::{Whose, born, remove_stale};

/// Which team a job is for, and by which means it is done.
#[derive(Debug, clap::Args)]
pub struct JobArgs {
    /// The team directory
    #[arg(long, value_name = "DIR")]
    pub team_dir: PathBuf,
    /// The cgroup that the daemon has made for it: it is entered before the first command
    #[arg(long, value_name = "DIR")]
    pub cgroup: Option<PathBuf>,
    /// The means to confine its commands
    #[command(flatten)]
    pub confinement: ConfinementArgs,
}

/// Which team a job is for, and by which means it is done.
pub(crate) struct JobSetting {
    pub(crate) dir: Arc<TeamDir>,
    pub(crate) confinement: ConfinementArgs,
    /// The cgroup of its commands, if they have one.
    pub(crate) cgroup: Option<Arc<OwnCgroup>>,
}

/// Does a job; returns 0 if it could be done, with any result.
pub fn job_main(args: &JobArgs) -> ExitCode {
    logging::to_stderr();
    let text = run(args)
        .and_then(|report| serde_json::to_string(&report).context("cannot write the report"));
    let (text, code) = match text {
        Ok(text) => (text, ExitCode::SUCCESS),
        // The daemon reads the reason there.
        Err(error) => (format!("{error:#}"), ExitCode::FAILURE),
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_or(ExitCode::FAILURE, |()| code)
}

fn run(args: &JobArgs) -> anyhow::Result<JobReport> {
    if let Err(errno) = nix::unistd::setsid() {
        tracing::debug!("no session of its own: {errno}");
    }
    deny_tracing();
    survive_file_limit().context("cannot catch a signal")?;
    let (order, unwanted) = read_order()?;
    let setting = JobSetting {
        dir: Arc::new(TeamDir::open(&args.team_dir)?),
        confinement: args.confinement.clone(),
        cgroup: args.cgroup.clone().map(OwnCgroup::begin),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.context("cannot make the runtime")?.block_on(async {
        tokio::select! {
            report = perform(&setting, &order) => report,
            // Its shims end what it runs.
            _ = unwanted => Err(anyhow::anyhow!("it is no longer wanted")),
        }
    })
}

async fn perform(setting: &JobSetting, order: &JobOrder) -> anyhow::Result<JobReport> {
    match order {
        JobOrder::Check(order) => {
            let lock = begin(setting, &TeamPath::checks(), &order.environment)?;
            check::run(setting, order, lock)
                .await
                .map(JobReport::Checked)
        }
        JobOrder::Git(order) => {
            let lock = begin(setting, &TeamPath::job(&order.name), &order.environment)?;
            git::run(setting, order, &lock).await
        }
        JobOrder::Protected { root, patterns } => Ok(JobReport::Protected(check::baseline(
            root.as_ref(),
            patterns,
        ))),
    }
}

/// Waits until nothing is left of an earlier job that used the same.
fn begin(setting: &JobSetting, path: &TeamPath, environment: &Environment) -> anyhow::Result<File> {
    let lock = setting.dir.open_file(path, OFlags::RDWR | OFlags::CREATE)?;
    flock(&lock, FlockOperation::LockExclusive).with_context(|| format!("cannot lock {path}"))?;
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(environment.umask));
    Ok(lock)
}

/// Reads the order. The receiver is done when standard input ends.
fn read_order() -> anyhow::Result<(JobOrder, oneshot::Receiver<()>)> {
    let mut orders =
        serde_json::Deserializer::from_reader(std::io::stdin()).into_iter::<JobOrder>();
    let order = orders
        .next()
        .context("no order")?
        .context("cannot read the order")?;
    let (end, unwanted) = oneshot::channel();
    std::thread::Builder::new()
        .name("wanted".to_owned())
        .spawn(|| {
            // It says nothing more: this waits for the end.
            while std::io::stdin()
                .read(&mut [0; 64])
                .is_ok_and(|read| read > 0)
            {}
            drop(end);
        })?;
    Ok((order, unwanted))
}
