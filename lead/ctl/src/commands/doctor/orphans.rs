//! Processes that should not be there, with the evidence: liveness locks in other hands, workers
//! and shims that the journal does not know.

use teamd_client::read::processes::ProcessEntry;
use teamd_shared::member::Member;
use teamd_shared::process::Identity;

use super::finding::Severity::Problem;
use super::finding::{Check, Fix};
use super::seen::Seen;

/// Judges who holds the liveness locks: each its worker.
pub(super) fn locks(seen: &Seen, check: &mut Check) -> Option<String> {
    seen.team()?;
    let mut held = 0;
    for (found, name) in seen.owned("transcript") {
        let worker = seen
            .running()
            .find(|member| member.name == name)
            .and_then(|it| it.process.as_ref());
        for pid in seen.holders(found.identity) {
            let holder = seen.processes.get(pid);
            if holder.is_some()
                && worker.is_some_and(|worker| worker.pid == pid && worker.is_alive())
            {
                held += 1;
                continue;
            }
            // A lock outlives the process that took it where another process inherited it: a shim.
            let holder = holder.map_or_else(
                || format!("what process {pid} left"),
                ProcessEntry::describe,
            );
            check.problem(
                format!("{holder} holds the liveness lock of {name}, and is not its worker"),
                &format!("{name} cannot be started, and its end cannot be recorded, as long as that is so"),
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
pub(super) fn orphans(seen: &Seen, check: &mut Check) -> Option<String> {
    seen.team()?;
    let root = seen.dir.root();
    for process in seen.processes.all() {
        let is_known = |member: &Member| {
            member
                .process
                .as_ref()
                .is_some_and(|it| it.pid == process.pid)
        };
        if let Some((name, incarnation)) = process.command().worker_in(root) {
            if !seen
                .running()
                .any(|member| member.name == name && is_known(member))
            {
                report(
                    seen,
                    check,
                    process,
                    &format!("a worker of {name} (incarnation {incarnation})"),
                );
            }
        } else if process.is_shim_in(root)
            && seen
                .processes
                .get(process.stat.parent)
                .is_none_or(|parent| parent.command().worker_in(root).is_none())
        {
            report(seen, check, process, "a shim whose worker has ended");
        }
    }
    Some("each worker and shim of this team directory is known to the journal".to_owned())
}

/// Tells of an orphan, with the evidence. `--fix` ends it only if it holds no lock anywhere, no
/// lock here is held by what an ended process left, and no daemon has started it.
fn report(seen: &Seen, check: &mut Check, process: &ProcessEntry, what: &str) {
    let pid = process.pid;
    let mut holders = seen
        .owned("transcript")
        .flat_map(|(found, _)| seen.holders(found.identity));
    let left = holders.any(|holder| seen.processes.get(holder).is_none());
    let holds = seen.locks.iter().any(|held| held.pid == pid);
    let lock = if holds { "a lock" } else { "no lock" };
    let what = format!(
        "{} is {what}; the journal does not know it; it holds {lock}",
        process.describe()
    );
    let has_daemon = seen
        .processes
        .get(process.stat.parent)
        .is_some_and(|parent| parent.command().is_daemon());
    let identity = if !(seen.locked || holds || left || has_daemon) {
        Identity::of(pid).ok()
    } else {
        None
    };
    if let Some(identity) = identity {
        check.fixable(
            Problem,
            what,
            "no daemon will ever welcome it",
            Fix::End(identity),
        );
    } else {
        let means = "a daemon adopts it or tells it to leave, perhaps the daemon of a directory that was moved away";
        check.problem(
            what,
            means,
            &format!(
                "look at its parent (process {}), then `kill {pid}`",
                process.stat.parent
            ),
        );
    }
}
