//! Processes that should not be there while no daemon runs, with the evidence: liveness locks in
//! other hands, workers and shims that the journal does not know.

use teamd_client::read::processes::ProcessEntry;
use teamd_shared::member::Member;

use super::finding::Severity::Problem;
use super::finding::{DoctorCheck, Fix};
use super::snapshot::Snapshot;

/// Judges who holds the liveness locks: each its worker.
pub(super) fn locks(snapshot: &Snapshot, check: &mut DoctorCheck) -> Option<String> {
    snapshot.team()?;
    if let Err(error) = &snapshot.locks {
        check.problem(
            format!("cannot read /proc/locks: {error}"),
            "it is not known which processes hold liveness locks, and `--fix` ends no process",
            "run it where /proc is mounted and readable",
        );
        return None;
    }
    let mut held = 0;
    for (transcript, name) in snapshot.owned("transcript") {
        let worker = snapshot.running().find(|member| member.name == name);
        for pid in snapshot.holders(transcript) {
            let holder = snapshot.processes.get(pid);
            if holder.is_some() && worker.is_some_and(|worker| is_process_of(worker, pid)) {
                held += 1;
                continue;
            }
            // A lock outlives the process that took it if another process, a shim, inherited it.
            let holder = holder.map_or_else(
                || format!("what process {pid} left"),
                ProcessEntry::describe,
            );
            check.problem(
                format!("{holder} holds the liveness lock of {name}, and is not its worker"),
                &format!(
                    "{name} cannot be started, and its end cannot be recorded, while the lock is held"
                ),
                &format!(
                    "end it, if it is yours: `kill {pid}`, or see `ps -eo pid,ppid,args | grep team-shim`"
                ),
            );
        }
    }
    Some(format!(
        "{held} liveness locks are held, each by its worker"
    ))
}

/// Judges the workers and shims of this team directory that the journal does not know.
pub(super) fn orphans(snapshot: &Snapshot, check: &mut DoctorCheck) -> Option<String> {
    snapshot.team()?;
    let root = snapshot.dir.root();
    for process in snapshot.processes.all() {
        if let Some((name, incarnation)) = process.command().worker_in(root) {
            let is_known = snapshot
                .running()
                .any(|member| member.name == name && is_process_of(member, process.pid));
            if !is_known {
                let what = format!("a worker of {name} (incarnation {incarnation})");
                report(snapshot, check, process, &what);
            }
        } else if process.is_shim_in(root)
            && snapshot
                .processes
                .get(process.stat.parent)
                .is_none_or(|parent| parent.command().worker_in(root).is_none())
        {
            report(snapshot, check, process, "a shim whose worker has ended");
        }
    }
    Some("each worker and shim of this team directory is known to the journal".to_owned())
}

fn is_process_of(member: &Member, pid: u32) -> bool {
    member
        .process
        .as_ref()
        .is_some_and(|process| process.pid == pid)
}

/// Reports an orphan, with the evidence. `--fix` ends it only if it is known to hold no lock
/// anywhere, no lock here is held by what an ended process left, and no daemon has started it.
fn report(snapshot: &Snapshot, check: &mut DoctorCheck, process: &ProcessEntry, what: &str) {
    let pid = process.pid;
    let parent = process.stat.parent;
    let locks = snapshot.locks.as_ref().ok();
    let holds_lock = locks.map(|locks| locks.iter().any(|held| held.pid == pid));
    let lock = match holds_lock {
        Some(true) => "it holds a lock",
        Some(false) => "it holds no lock",
        None => "its locks cannot be listed",
    };
    let description = process.describe();
    let what = format!("{description} is {what}; the journal does not know it; {lock}");
    let is_inherited = snapshot
        .owned("transcript")
        .flat_map(|(transcript, _)| snapshot.holders(transcript))
        .any(|holder| snapshot.processes.get(holder).is_none());
    let has_daemon = snapshot
        .processes
        .get(parent)
        .is_some_and(|parent| parent.command().is_daemon());
    // Another process may have its pid by now.
    if holds_lock == Some(false)
        && !is_inherited
        && !has_daemon
        && let Ok(identity) = process.identity()
    {
        let means = "no daemon will ever adopt it";
        check.fixable(Problem, what, means, Fix::End(identity));
    } else {
        let means = "the next daemon adopts it or tells it to leave, perhaps the daemon of a directory that was moved away";
        let next = format!("look at its parent (process {parent}), then `kill {pid}`");
        check.problem(what, means, &next);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::process::Command;
    use std::sync::Arc;

    use teamd_shared::team_dir::TeamDir;

    use super::*;
    use crate::commands::doctor::finding::{CheckFinding, run};

    /// Reports a process that has ended since it was looked at, with or without the list of locks.
    fn reported(are_locks_listed: bool) -> (Vec<CheckFinding>, Vec<CheckFinding>, u32) {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let mut snapshot = Snapshot::take(&dir);
        if !are_locks_listed {
            snapshot.locks = Err(io::Error::other("no access"));
        }
        let pid = child.id();
        child.kill().unwrap();
        child.wait().unwrap();
        let process = snapshot.processes.get(pid).unwrap();
        let of_locks = run("locks", |check| locks(&snapshot, check));
        let of_orphan = run("orphans", |check| {
            report(&snapshot, check, process, "a worker");
            None
        });
        (of_locks, of_orphan, pid)
    }

    #[test]
    fn what_may_be_ended_is_the_process_that_was_looked_at() {
        let (_, findings, pid) = reported(true);
        let Some(Fix::End(identity)) = &findings[0].fix else {
            panic!("{findings:?}")
        };
        assert_eq!(identity.pid, pid);
        assert!(!identity.is_alive());
    }

    #[test]
    fn locks_that_cannot_be_listed_are_a_problem_and_nothing_is_ended() {
        let (of_locks, of_orphan, _) = reported(false);
        assert_eq!(of_locks[0].what, "cannot read /proc/locks: no access");
        assert!(of_orphan[0].fix.is_none(), "{of_orphan:?}");
    }
}
