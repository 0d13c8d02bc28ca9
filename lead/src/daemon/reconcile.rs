//! What a starting daemon makes of the lives in the journal: it adopts those that are there, and sees the
//! others off.
//!
//! A life is there if its process is the one of the journal: boot, pid and start. If only its lock is held, a keeper is still
//! ending a call. In a copied team directory, which holds no locks, nobody of the original is adopted, signalled or buried; in
//! the one that the journal was written in, a lock that is not seen (somebody has moved the transcript) makes nobody dead.

use std::io;

use teamd_shared::member::Member;
use teamd_shared::name::Name;
use teamd_shared::process::{Identity, is_gone};

use super::dispatcher::Dispatcher;
use super::event::{Event, Life};
use super::see_off::life_lock_is_held;

/// What was found, in one line for people.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Found {
    pub(super) adopted: usize,
    pub(super) ended: usize,
}

/// Looks at every life that has not ended in the journal. Returns the events of those that were found alive;
/// the others report later, when nothing is left of them.
///
/// # Errors
/// The system's error where it cannot be told whether somebody is alive: a start that fails buries nobody.
pub(super) fn reconcile(dispatcher: &mut Dispatcher) -> Result<(Vec<Event>, Found), (Name, io::Error)> {
    let lives: Vec<(Life, Member)> = dispatcher
        .batcher
        .team
        .members
        .values()
        .filter(|state| !state.record.phase.is_ended())
        .map(|state| {
            let member = state.record.clone();
            (Life { name: member.name.clone(), incarnation: member.incarnation }, member)
        })
        .collect();
    let mut found = Found::default();
    let mut events = Vec::new();
    for (life, member) in lives {
        dispatcher.supervisor.recall(&life, &member);
        let process = member.process;
        if adopt(dispatcher, &life, process.as_ref()).map_err(|error| (life.name.clone(), error))? {
            found.adopted += 1;
            events.push(Event::Found { life });
        } else {
            found.ended += 1;
            // A child only if this program has taken the place of the one that started it.
            let how = process.as_ref().map(Identity::reap).unwrap_or_default();
            dispatcher.see_off(life, how);
        }
    }
    Ok((events, found))
}

fn adopt(dispatcher: &mut Dispatcher, life: &Life, process: Option<&Identity>) -> io::Result<bool> {
    let Some(process) = process else { return Ok(false) };
    let name: &Name = &life.name;
    let daemon = dispatcher.batcher.team.daemon.as_ref();
    let may_be_of_a_copy = daemon.is_none_or(|daemon| !daemon.is_of(&dispatcher.dir));
    if may_be_of_a_copy && !life_lock_is_held(&dispatcher.dir, name) {
        return Ok(false);
    }
    let age = process.age();
    match dispatcher.supervisor.adopt(life.clone(), process.clone()) {
        Ok(()) => {
            dispatcher.batcher.live.aged(life, age);
            Ok(true)
        }
        Err(error) if is_gone(&error) => {
            tracing::info!("{name} is not there any more: {error}");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
