//! The commands that say whether work is done, confined as the commands of a teammate are.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use teamd_shared::check::{CheckOrder, CheckReport};
use teamd_shared::checkout::Checkout;
use teamd_shared::fingerprint::fingerprint;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use crate::job::Setting;
use crate::tools::{Toolbox, ToolboxConfig};

/// How much of the output the owner is told, in characters.
const TOLD: usize = 4_000;

/// Runs a check.
pub(crate) async fn run(setting: &Setting, order: &CheckOrder, lock: File) -> anyhow::Result<CheckReport> {
    let toolbox = Toolbox::new(ToolboxConfig {
        workspace: PathBuf::from(&order.workspace),
        team_dir: setting.dir.clone(),
        name: Name::lead(),
        // No name of a teammate has a dot.
        temp_name: "check.".to_owned(),
        liveness_lock: lock,
        environment: order.environment.clone(),
        territory: order.territory.iter().map(PathBuf::from).collect(),
        sandbox: order.sandbox.clone(),
        shown: Checkout::shown(order.checkout.as_ref()),
        agent: None,
        sealed: Vec::new(),
        bounds: order.bounds,
        cgroup: None,
        confinement: setting.confinement.clone(),
    })?;
    let touched = order.protected.as_ref().is_some_and(|before| {
        // What cannot be looked at is not known to be untouched.
        fingerprint(Path::new(&order.protect_in), &order.protect).ok().as_ref() != Some(before)
    });
    commands(toolbox, order, &setting.dir, touched).await
}

/// Runs the commands of a check, in turn.
pub(crate) async fn commands(
    mut toolbox: Toolbox,
    order: &CheckOrder,
    dir: &TeamDir,
    touched_protected: bool,
) -> anyhow::Result<CheckReport> {
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
        merged: None,
        conflicts: Vec::new(),
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
