//! `--fix`: sets right what can be set right now, and tells each thing that it did. It deletes no
//! data, and while a daemon runs it touches nothing that is the daemon's.

use std::io;

use rustix::process::Signal;
use serde::Serialize;
use teamd_client::connection::hold_off_daemon;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_shared::cgroup;
use teamd_shared::process::{Identity, ProcessHandle};
use teamd_shared::team_dir::{TeamDir, TeamPath};

use super::finding::{CheckFinding, Fix};

/// What came of it.
#[derive(Debug, Default, Serialize)]
pub(super) struct Fixed {
    /// What was done, one line each.
    #[serde(rename = "fixed")]
    pub(super) done: Vec<String>,
    /// What could not be done, and why.
    pub(super) failed: Vec<String>,
}

/// Sets right what the findings say can be. What needs that no daemon runs is done while none can
/// start.
pub(super) fn all(dir: &TeamDir, findings: &[CheckFinding]) -> Fixed {
    let mut fixes: Vec<&Fix> = Vec::new();
    for fix in findings.iter().filter_map(|finding| finding.fix.as_ref()) {
        if !fixes.contains(&fix) {
            fixes.push(fix);
        }
    }
    let mut fixed = Fixed::default();
    let mut note = |result: Result<String, CommandError>| match result {
        Ok(done) => fixed.done.push(done),
        Err(error) => {
            let hint = error
                .next_step()
                .map(|hint| format!("; {hint}"))
                .unwrap_or_default();
            fixed.failed.push(format!("{}{hint}", error.message()));
        }
    };
    let (at_any_time, at_rest): (Vec<_>, Vec<_>) = fixes
        .into_iter()
        .partition(|fix| matches!(fix, Fix::Close(_)));
    for fix in at_any_time {
        note(apply(dir, fix));
    }
    if at_rest.is_empty() {
        return fixed;
    }
    match hold_off_daemon(dir) {
        Some(_lock) => {
            for fix in at_rest {
                note(apply(dir, fix));
            }
        }
        None => {
            let message = "a daemon has started meanwhile: its files were left to it";
            note(Err(CommandError::new(ExitCode::Conflict, message)));
        }
    }
    fixed
}

fn apply(dir: &TeamDir, fix: &Fix) -> Result<String, CommandError> {
    let failed = |what: String| {
        move |error: io::Error| {
            CommandError::new(ExitCode::Failed, format!("cannot {what}: {error}"))
        }
    };
    match fix {
        Fix::Close(at) => {
            dir.close_to_others(at.as_ref())?;
            let what = at
                .as_ref()
                .map_or_else(|| "the team directory".to_owned(), TeamPath::to_string);
            Ok(format!("{what}: only its user may use it now"))
        }
        Fix::Cgroup(folder) => {
            let shown = folder.display();
            cgroup::remove(folder).map_err(failed(format!("remove {shown}")))?;
            Ok(format!("{shown}: removed"))
        }
        Fix::End(identity) => {
            end(identity).map_err(failed(format!("signal process {}", identity.pid)))
        }
    }
}

/// Tells a process to end. It is held by its pidfd: another process that has the pid by now is not
/// touched. The next look tells whether it is still there.
fn end(identity: &Identity) -> io::Result<String> {
    let pid = identity.pid;
    let told = ProcessHandle::open(identity.clone()).and_then(|handle| {
        // A stopped process receives the first only after the second.
        handle
            .signal(Signal::TERM)
            .and_then(|()| handle.signal(Signal::CONT))
    });
    match told {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(format!("process {pid}: has ended by itself"))
        }
        told => told.map(|()| format!("process {pid}: told to end")),
    }
}
