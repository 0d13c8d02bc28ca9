//! Processes that should not be there while no daemon runs, with the evidence: liveness locks in
//! other hands, workers and shims that the journal does not know.

use teamd_client::read::processes::ProcessEntry;
use teamd_shared::member::Member;
use teamd_shared::process::Identity;

use super::finding::Severity::Problem;
use super::finding::{DoctorCheck, Fix};
use super::snapshot::Snapshot;

/// Judges who holds the liveness locks: each its worker.
pub(super) fn locks(snapshot: &Snapshot, check: &mut DoctorCheck) -> Option<String> {
    snapshot.team()?;
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

/// Reports an orphan, with the evidence. `--fix` ends it only if it holds no lock anywhere, if
/// nothing that an ended process left holds a lock here, and if no daemon has started it.
fn report(snapshot: &Snapshot, check: &mut DoctorCheck, process: &ProcessEntry, what: &str) {
    let pid = process.pid;
    let parent = process.stat.parent;
    let holds_lock = snapshot.locks.iter().any(|held| held.pid == pid);
    let lock = if holds_lock { "a lock" } else { "no lock" };
    let process = process.describe();
    let what = format!("{process} is {what}; the journal does not know it; it holds {lock}");
    let is_inherited = snapshot
        .owned("transcript")
        .flat_map(|(transcript, _)| snapshot.holders(transcript))
        .any(|holder| snapshot.processes.get(holder).is_none());
    let has_daemon = snapshot
        .processes
        .get(parent)
        .is_some_and(|parent| parent.command().is_daemon());
    if !(holds_lock || is_inherited || has_daemon)
        && let Ok(identity) = Identity::of(pid)
    {
        let means = "no daemon will ever adopt it";
        check.fixable(Problem, what, means, Fix::End(identity));
    } else {
        let means = "the next daemon adopts it or tells it to leave, perhaps the daemon of a directory that was moved away";
        let next = format!("look at its parent (process {parent}), then `kill {pid}`");
        check.problem(what, means, &next);
    }
}
