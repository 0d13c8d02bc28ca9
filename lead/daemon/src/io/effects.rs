//! Does what follows from the journal in the files: inbox lines, quarantine, the archive, and their
//! syncs.
//!
//! Everything here can be done again: the journal has the ids of the lines, a quarantined line is
//! known by its offset, and a file that was moved is not there any more. The lines of a batch are
//! appended before a worker or command gets an answer, and another thread syncs them afterwards.
//! Until then the journal does not count them as done, so a loss of power undoes nothing.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::Arc;

use teamd_shared::background;
use teamd_shared::inbox::{self, AppendError, Appender, Durability};
use teamd_shared::journal::Team;
use teamd_shared::mutant;
use teamd_shared::name::Name;
use teamd_shared::state::StateDir;
use teamd_shared::team_dir::{DirError, MEMBER_FOLDERS, TeamDir, TeamPath};
use tokio::task::JoinHandle;

use crate::core::effect_queues::{Effect, EffectQueues, PendingEffect, addressed};
use crate::core::io::IoFailed;
use crate::core::notices::archived;

/// For how many members effects are done at once between two events: a millisecond or two of work.
const AT_ONCE: usize = 64;

/// The effects that are not done, or not synced.
#[derive(Debug)]
pub(crate) struct Effects {
    dir: Arc<TeamDir>,
    durability: Durability,
    queues: EffectQueues,
    unsynced: Unsynced,
    /// What another thread syncs.
    syncing: Option<(Unsynced, JoinHandle<Result<(), EffectError>>)>,
}

/// What may not outlive a loss of power.
#[derive(Debug, Default, Clone)]
struct Unsynced {
    /// The members whose inbox has grown.
    inboxes: BTreeSet<Name>,
    /// Whether files were moved into the archive.
    moved: bool,
    /// The last line of the journal up to which all effects are done, once this is synced.
    up_to: u64,
}

/// Why an effect is not done yet.
#[derive(Debug, thiserror::Error)]
enum EffectError {
    #[error("cannot append to the inbox of {to}: {why}")]
    Append { to: Name, why: AppendError },
    #[error(transparent)]
    Dir(#[from] DirError),
}

impl Effects {
    pub(crate) fn new(dir: Arc<TeamDir>, durability: Durability) -> Self {
        let queues = EffectQueues::default();
        let unsynced = Unsynced::default();
        Self {
            dir,
            durability,
            queues,
            unsynced,
            syncing: None,
        }
    }

    /// Does the effects of new lines that a command or a worker waits for. `again`: an earlier
    /// daemon may have done them, and what failed is tried again.
    pub(crate) fn complete(&mut self, team: &Team, again: bool) -> Result<(), IoFailed> {
        self.queues.take_in(team, again);
        let mut all = Ok(());
        while let Some((name, effects)) = self.queues.next_urgent() {
            all = self.perform(name, effects).and(all);
        }
        all
    }

    /// Does the effects for a few members.
    pub(crate) fn do_some(&mut self) -> Result<(), IoFailed> {
        let mut all = Ok(());
        for _ in 0..AT_ONCE {
            let Some((name, effects)) = self.queues.next() else {
                break;
            };
            all = self.perform(name, effects).and(all);
        }
        all
    }

    /// Tells whether there are effects that can be done now.
    pub(crate) fn is_waiting(&self) -> bool {
        self.queues.is_waiting()
    }

    /// Does and syncs all effects. Returns the last line of the journal up to which they are
    /// complete.
    pub(crate) fn finish(&mut self) -> Result<u64, IoFailed> {
        let mut all = Ok(());
        while self.is_waiting() {
            all = self.do_some().and(all);
        }
        // Nothing counts as done before what another thread syncs is synced, too: it is synced
        // here.
        if let Some((unsynced, _)) = self.syncing.take() {
            self.put_back(unsynced);
        }
        let unsynced = self.take_unsynced();
        let synced = sync(&self.dir, &unsynced, self.durability);
        all.and(self.synced_as(unsynced, synced))
    }

    /// Has another thread sync what is done. Returns the last line of the journal up to which all
    /// effects are complete, if there is nothing to sync.
    pub(crate) fn sync_in_background(&mut self) -> Option<u64> {
        if self.syncing.is_some() {
            return None;
        }
        let dir = Arc::clone(&self.dir);
        let unsynced = self.take_unsynced();
        let durability = self.durability;
        if durability != Durability::Disk || unsynced.inboxes.is_empty() && !unsynced.moved {
            return Some(unsynced.up_to);
        }
        let job = unsynced.clone();
        let thread = tokio::task::spawn_blocking(move || sync(&dir, &job, durability));
        self.syncing = Some((unsynced, thread));
        None
    }

    /// Waits until the other thread is done; for ever if there is none. Returns the last line of
    /// the journal up to which all effects are complete. Dropping the future loses nothing.
    pub(crate) async fn synced(&mut self) -> Result<u64, IoFailed> {
        let Some((_, thread)) = &mut self.syncing else {
            return std::future::pending().await;
        };
        let synced = thread
            .await
            .unwrap_or_else(|error| resume_unwind(error.into_panic()));
        let unsynced = self
            .syncing
            .take()
            .map(|(unsynced, _)| unsynced)
            .unwrap_or_default();
        self.synced_as(unsynced, synced)
    }

    fn take_unsynced(&mut self) -> Unsynced {
        Unsynced {
            up_to: self.queues.up_to(),
            ..std::mem::take(&mut self.unsynced)
        }
    }

    fn put_back(&mut self, unsynced: Unsynced) {
        self.unsynced.inboxes.extend(unsynced.inboxes);
        self.unsynced.moved |= unsynced.moved;
    }

    fn synced_as(
        &mut self,
        unsynced: Unsynced,
        synced: Result<(), EffectError>,
    ) -> Result<u64, IoFailed> {
        match synced {
            Ok(()) => Ok(unsynced.up_to),
            Err(error) => {
                tracing::error!("cannot sync the effects of the journal (tried again): {error}");
                self.put_back(unsynced);
                Err(IoFailed)
            }
        }
    }

    /// Does the effects for a member in their order. What cannot be done waits, with all that comes
    /// after it; for a line that cannot be put into quarantine no other effect waits.
    fn perform(&mut self, name: Name, mut effects: Vec<PendingEffect>) -> Result<(), IoFailed> {
        let mut failed = Vec::new();
        while let Some(first) = effects.first() {
            let notices = effects
                .iter()
                .take_while(|it| matches!(it.effect, Effect::Tell(_)))
                .count();
            let done = match &first.effect {
                Effect::Tell(_) => self.tell(&name, &effects[..notices]),
                Effect::Quarantine { bad, at } => inbox::quarantine(&self.dir, &name, bad, *at)
                    .map(drop)
                    .map_err(EffectError::from),
                Effect::Archive => {
                    // An earlier daemon may have moved them, and not synced that.
                    self.unsynced.moved = true;
                    forget_agent(&self.dir, &name);
                    archive(&self.dir, &name, first.seq).map_err(EffectError::from)
                }
            };
            if let Err(error) = done {
                let seq = first.seq;
                tracing::error!(
                    "cannot do what follows from line {seq} of the journal (tried again): {error}"
                );
                let independent = matches!(first.effect, Effect::Quarantine { .. });
                failed.extend(effects.drain(..if independent { 1 } else { effects.len() }));
                continue;
            }
            self.queues.done(&effects[..notices.max(1)]);
            effects.drain(..notices.max(1));
        }
        if failed.is_empty() {
            return Ok(());
        }
        self.queues.failed(name, failed);
        Err(IoFailed)
    }

    /// Appends notices with one write, but for those that an earlier attempt has appended.
    fn tell(&mut self, to: &Name, notices: &[PendingEffect]) -> Result<(), EffectError> {
        self.unsynced.inboxes.insert(to.clone());
        let mut new = Vec::new();
        for notice in notices {
            let Effect::Tell(message) = &notice.effect else {
                continue;
            };
            if !(notice.again
                && message
                    .id
                    .is_some_and(|id| inbox::holds(&self.dir, to, id).unwrap_or(false)))
            {
                new.push(addressed(message, to));
            }
        }
        match Appender::new(to).append_all(&self.dir, &new) {
            // Its owner was forgotten.
            Err(AppendError::NoInbox(_)) => {
                tracing::info!("{to} has no inbox: a message to it is dropped")
            }
            // It was checked before it was recorded. A line that never fits must not be tried for
            // ever.
            Err(AppendError::TooLarge(why)) => {
                tracing::error!("a message to {to} is dropped: {why}")
            }
            Err(why) => {
                return Err(EffectError::Append {
                    to: to.clone(),
                    why,
                });
            }
            Ok(()) => {}
        }
        Ok(())
    }
}

/// Makes what is done outlive a loss of power.
fn sync(dir: &TeamDir, unsynced: &Unsynced, durability: Durability) -> Result<(), EffectError> {
    if durability != Durability::Disk || mutant::is_on("done-before-it-lasts") {
        return Ok(());
    }
    // The archive comes first: a file must not be lost from both folders.
    if unsynced.moved {
        for folder in std::iter::once("archive").chain(MEMBER_FOLDERS) {
            dir.sync_folder(Some(folder))?;
        }
    }
    for to in &unsynced.inboxes {
        match inbox::sync(dir, to) {
            Ok(()) | Err(AppendError::NoInbox(_)) => {}
            Err(why) => {
                return Err(EffectError::Append {
                    to: to.clone(),
                    why,
                });
            }
        }
    }
    Ok(())
}

/// Removes the files of a member's agent. There may be many, so another thread does it.
pub(crate) fn forget_agent(dir: &Arc<TeamDir>, name: &Name) {
    let dir = Arc::clone(dir);
    let name = name.clone();
    let thread = std::thread::Builder::new().name("forget".to_owned());
    let started = thread.spawn(move || {
        let removed = StateDir::of_process().and_then(|state| state.remove_of_agent(&dir, &name));
        if let Err(error) = removed {
            tracing::warn!("cannot remove the files of {name}'s agent: {error}");
        }
    });
    if let Err(error) = started {
        tracing::warn!("cannot remove the files of an agent: {error}");
    }
}

/// Moves the files of a member into the archive, under a number.
pub(crate) fn archive(dir: &TeamDir, name: &Name, seq: u64) -> Result<(), DirError> {
    let logs = background::numbers(dir, name)?.into_iter();
    let logs = logs.map(|number| TeamPath::background_log(name, &number.to_string()));
    for file in TeamPath::of_member(name).into_iter().chain(logs) {
        // What is in the archive already is never written over: a stub that was made since stays
        // where it is.
        if dir.identity(&archived(&file, seq))?.is_some() {
            continue;
        }
        match dir.rename(&file, &archived(&file, seq)) {
            Err(error) if error.is_not_found() => {}
            other => other?,
        }
    }
    Ok(())
}
