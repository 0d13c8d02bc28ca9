//! `--fix`: sets right what can be set right now, and reports each change. It deletes no data, and
//! while a daemon runs it touches nothing that is the daemon's.

use std::io;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use serde::Serialize;
use teamd_client::daemon_lock::hold_off_daemon;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_shared::process::{Identity, ProcessHandle};
use teamd_shared::team_dir::{TeamDir, TeamPath};

use super::finding::{CheckFinding, Fix};

/// How long a process may take to end.
const GRACE: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// What was done.
#[derive(Debug, Default, Serialize)]
pub(super) struct Fixes {
    /// What was set right, one line each.
    pub(super) fixed: Vec<String>,
    /// What could not be set right, and why.
    pub(super) failed: Vec<String>,
}

/// Sets right what the findings allow.
pub(super) fn all(dir: &TeamDir, findings: &[CheckFinding]) -> Fixes {
    let mut fixes = Fixes::default();
    for fix in findings.iter().filter_map(|finding| finding.fix.as_ref()) {
        match apply(dir, fix) {
            Ok(fixed) => fixes.fixed.push(fixed),
            Err(error) => {
                let hint = error.next_step().map(|hint| format!("; {hint}"));
                let hint = hint.unwrap_or_default();
                fixes.failed.push(format!("{}{hint}", error.message()));
            }
        }
    }
    fixes
}

fn apply(dir: &TeamDir, fix: &Fix) -> Result<String, CommandError> {
    match fix {
        Fix::Close(path) => {
            dir.close_to_others(path.as_ref())?;
            let what = path
                .as_ref()
                .map_or_else(|| "the team directory".to_owned(), TeamPath::to_string);
            Ok(format!("{what}: only its user may use it now"))
        }
        Fix::End(identity) => {
            let Some(_lock) = hold_off_daemon(dir) else {
                let message = "a daemon has started meanwhile: its processes were left to it";
                return Err(CommandError::new(ExitCode::Conflict, message));
            };
            let pid = identity.pid;
            end(identity.clone()).map_err(|error| {
                let message = format!("cannot end process {pid}: {error}");
                CommandError::new(ExitCode::Failed, message)
            })?;
            Ok(format!("process {pid}: ended"))
        }
    }
}

/// Ends a process. It is held by its pidfd: another process that has the pid by now is not touched.
fn end(identity: Identity) -> io::Result<()> {
    let handle = match ProcessHandle::open(identity) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    handle.signal(Signal::TERM)?;
    // A stopped process receives the first only after the second.
    handle.signal(Signal::CONT)?;
    let mut ended = [PollFd::new(&handle, PollFlags::IN)];
    match poll(&mut ended, Some(&GRACE))? {
        0 => Err(io::Error::from(io::ErrorKind::TimedOut)),
        _ => Ok(()),
    }
}
