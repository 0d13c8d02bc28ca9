//! `--fix`: sets right what can be set right now, and tells each thing that it did. It deletes no data, and while a daemon
//! runs it touches nothing that is the daemon's.

use std::sync::Arc;

use rustix::process::Signal;
use serde::Serialize;
use teamd_shared::process::{Identity, ProcessHandle};
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};
use teamd_shared::{cgroup, clock};

use super::finding::{Finding, Fix};
use crate::error::CommandError;
use crate::upkeep::{AtRest, TakeLock};

/// What came of it.
#[derive(Debug, Default, Serialize)]
pub(super) struct Fixed {
    /// What was done, one line each.
    #[serde(rename = "fixed")]
    pub(super) done: Vec<String>,
    /// What could not be done, and why.
    pub(super) failed: Vec<String>,
}

/// Sets right what the findings say can be. What needs that no daemon runs is done under the daemon's own lock.
pub(super) fn all(dir: &Arc<TeamDir>, findings: &[Finding], take_lock: TakeLock) -> Fixed {
    let mut fixed = Fixed::default();
    let mut fixes: Vec<&Fix> = Vec::new();
    for fix in findings.iter().filter_map(|finding| finding.fix.as_ref()) {
        if !fixes.contains(&fix) {
            fixes.push(fix);
        }
    }
    let (at_any_time, at_rest): (Vec<_>, Vec<_>) =
        fixes.into_iter().partition(|fix| matches!(fix, Fix::Close(_)));
    for fix in at_any_time {
        fixed.note(apply(dir, fix, None));
    }
    if at_rest.is_empty() {
        return fixed;
    }
    match take_lock(dir) {
        Ok(Some(lock)) => at_rest.into_iter().for_each(|fix| fixed.note(apply(dir, fix, Some(&*lock)))),
        Ok(None) => fixed.failed.push("a daemon has started meanwhile: its files were left to it".to_owned()),
        Err(error) => fixed.failed.push(error.message().to_owned()),
    }
    fixed
}

impl Fixed {
    fn note(&mut self, result: Result<String, String>) {
        match result {
            Ok(done) => self.done.push(done),
            Err(why) => self.failed.push(why),
        }
    }
}

fn apply(dir: &TeamDir, fix: &Fix, lock: Option<&dyn AtRest>) -> Result<String, String> {
    let said = |error: DirError| error.to_string();
    match (fix, lock) {
        (Fix::Close(at), _) => {
            dir.restore_mode(at.as_ref()).map_err(said)?;
            let what = at.as_ref().map_or_else(|| "the team directory".to_owned(), TeamPath::to_string);
            Ok(format!("{what}: only its user may use it now"))
        }
        (Fix::Journal, Some(lock)) => lock.cut_journal().map_err(message),
        (Fix::Roster, Some(lock)) => lock.rebuild_roster().map_err(message),
        (Fix::Remove(at), Some(_)) => dir.remove(at).map(|()| format!("{at}: removed")).map_err(said),
        (Fix::Archive(at), Some(_)) => archive(dir, at).map_err(said),
        (Fix::Cgroup(folder), Some(_)) => {
            let shown = folder.display();
            let removed = cgroup::remove(folder).map(|()| format!("{shown}: removed"));
            removed.map_err(|error| format!("cannot remove {shown}: {error}"))
        }
        (Fix::End(identity), Some(_)) => end(identity),
        (_, None) => Err("a daemon runs".to_owned()),
    }
}

fn message(error: CommandError) -> String {
    match error.next_step() {
        Some(hint) => format!("{}; {hint}", error.message()),
        None => error.message().to_owned(),
    }
}

/// Moves a file to a name in the archive that nothing has.
fn archive(dir: &TeamDir, at: &TeamPath) -> Result<String, DirError> {
    let folder = at.folder().map(|folder| format!("{folder}.")).unwrap_or_default();
    let mut to = TeamPath::archive(&format!("{:.3}.{folder}{}", clock::wall(), at.file_name()));
    while dir.identity(&to)?.is_some() {
        to = to.with_suffix("+");
    }
    dir.rename(at, &to)?;
    Ok(format!("{at}: moved to {to}"))
}

/// Tells a process to end. It is held by its pidfd: another process that has the pid by now is not touched. The next look
/// tells whether it is still there.
fn end(identity: &Identity) -> Result<String, String> {
    let pid = identity.pid;
    let told = ProcessHandle::open(identity.clone()).and_then(|handle| {
        // A stopped process receives the first only after the second.
        handle.signal(Signal::TERM).and_then(|()| handle.signal(Signal::CONT))
    });
    match told {
        Ok(()) => Ok(format!("process {pid}: told to end")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(format!("process {pid}: has ended by itself"))
        }
        Err(error) => Err(format!("cannot signal process {pid}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_only_has_the_pid_is_left_alone() {
        let mut child = Command::new("sleep").arg("300").spawn().unwrap();
        let it = Identity::of(child.id()).unwrap();
        let (pid, before) = (it.pid, Identity { start_ticks: it.start_ticks - 1, ..it.clone() });
        assert_eq!(end(&before), Ok(format!("process {pid}: has ended by itself")));
        assert!(child.try_wait().unwrap().is_none(), "it runs");
        assert_eq!(end(&it), Ok(format!("process {pid}: told to end")));
        child.wait().unwrap();
    }
}
