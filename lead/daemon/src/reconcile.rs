//! What a starting daemon makes of the incarnations in the journal: it adopts those that are alive,
//! and waits until nothing of the others is left.
//!
//! An incarnation is alive if its lock is held and its process is the one of the journal: boot, pid
//! and start. If only the lock is held, a shim is still ending a call. A copied team directory
//! holds no locks: no worker of the original is adopted, signalled or recorded as ended. In the
//! directory that the journal was written in, no worker is dead because another process has moved
//! the transcript, or put another file in its place (`sed -i`, an editor), and the lock went with
//! it.

use std::io;

use teamd_shared::locks;
use teamd_shared::member::Member;
use teamd_shared::name::Name;
use teamd_shared::process::{Identity, is_gone};
use teamd_shared::team_dir::TeamPath;

use super::core::event::Event;
use super::core::incarnation::Incarnation;
use super::event_loop::EventLoop;
use super::io::lock::liveness_lock_is_held;

/// Looks at every incarnation that has not ended in the journal. Returns the events of those that
/// were found alive; the others report later, when nothing is left of them.
///
/// # Errors
/// The system's error if it is unknown whether a worker is alive: a start that fails records
/// no end.
pub(super) fn reconcile(daemon: &mut EventLoop) -> Result<Vec<Event>, (Name, io::Error)> {
    let members = daemon
        .dispatcher
        .team
        .members
        .values()
        .map(|state| state.record.clone());
    // A host reports its own when it is reached.
    let unended: Vec<Member> = members
        .filter(|member| !member.phase.is_ended() && member.terms.host.is_none())
        .collect();
    let mut events = Vec::new();
    for member in unended {
        let incarnation = Incarnation::of(&member);
        daemon.resources.supervisor.recall(&incarnation, &member);
        let process = member.process;
        if adopt(daemon, &incarnation, process.as_ref()).map_err(|error| (member.name, error))? {
            events.push(Event::Found { incarnation });
        } else {
            tracing::info!(
                "{} is not adopted: its end follows once nothing of it is left",
                incarnation.name
            );
            // The process is a child only if this program has taken the place of the one that
            // started it.
            let how = process.as_ref().map(Identity::reap).unwrap_or_default();
            daemon.wait_until_empty(incarnation, how);
        }
    }
    Ok(events)
}

/// Tells whether the process of an incarnation may hold its lock on a file that is not at the path
/// of its transcript. A process without a lock has not begun, or is no worker of this team.
fn is_locked_elsewhere(daemon: &EventLoop, name: &Name, process: &Identity) -> bool {
    let before = daemon.dispatcher.team.daemon.as_ref();
    let is_no_copy = before.is_some_and(|before| before.is_of(&daemon.resources.dir));
    if !is_no_copy || !process.is_alive() {
        return false;
    }
    let is_moved = matches!(
        daemon.resources.dir.identity(&TeamPath::transcript(name)),
        Ok(None)
    );
    // A process that cannot be examined is not taken for gone: it is the process of the journal.
    is_moved
        || locks::list().map_or(true, |locks| {
            locks.iter().any(|held| held.pid == process.pid)
        })
}

fn adopt(
    daemon: &mut EventLoop,
    incarnation: &Incarnation,
    process: Option<&Identity>,
) -> io::Result<bool> {
    let Some(process) = process else {
        return Ok(false);
    };
    let name: &Name = &incarnation.name;
    let is_locked = liveness_lock_is_held(&daemon.resources.dir, name);
    if !is_locked && !is_locked_elsewhere(daemon, name, process) {
        return Ok(false);
    }
    let age = process.age();
    match daemon
        .resources
        .supervisor
        .adopt(incarnation.clone(), process.clone())
    {
        Ok(()) => {
            if !is_locked {
                tracing::warn!(
                    "{name} is alive, and its transcript is not the file that it writes: was it replaced?"
                );
                daemon.resources.supervisor.is_unlocked(incarnation.clone());
            }
            daemon.dispatcher.runtime.aged(incarnation, age);
            Ok(true)
        }
        Err(error) if is_gone(&error) => {
            tracing::info!("{name} is not there any more: {error}");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
