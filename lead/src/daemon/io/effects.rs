//! What follows from the journal in the files: inbox lines, quarantine, the archive, and their syncs. No command waits for the
//! notices to all teammates and for the sync of many inboxes: they are done in small pieces between events, or in another
//! thread.

use std::sync::Arc;

use teamd_shared::inbox::Durability;
use teamd_shared::journal::Team;
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;
use tokio::task::JoinHandle;

use super::inboxes::{EffectError, Progress, Synced};

/// How many members get notices at once: a millisecond or two of work.
const AT_ONCE: usize = 64;

/// What was done: up to which line of the journal all effects last, if that was looked at.
pub(crate) type Outcome = Result<Option<u64>, Failed>;

/// Something failed, which stands in the log, and is to be tried again.
#[derive(Debug)]
pub(crate) struct Failed;

/// The effects of the lines that are not done yet.
#[derive(Debug)]
pub(crate) struct Effects {
    dir: Arc<TeamDir>,
    durability: Durability,
    progress: Progress,
    syncing: Syncing,
}

/// What another thread syncs.
#[derive(Debug, Default)]
struct Syncing {
    names: Vec<Name>,
    thread: Option<JoinHandle<Synced>>,
}

impl Effects {
    pub(crate) fn new(dir: Arc<TeamDir>, durability: Durability) -> Self {
        Self { dir, durability, progress: Progress::default(), syncing: Syncing::default() }
    }

    /// Does the effects that are due, oldest first; `again`: also what failed, or an earlier daemon may have done.
    pub(crate) fn complete(&mut self, team: &Team, again: bool) -> Outcome {
        self.progress.go_on(&self.dir, team, again).map(|()| None).map_err(|(seq, error)| {
            tracing::error!("cannot complete line {seq} of the journal (tried again): {error}");
            Failed
        })
    }

    /// Syncs all effects now, the notices to all teammates too.
    pub(crate) fn settle_all(&mut self, team: &Team) -> Outcome {
        let mut outcome: Outcome = Ok(None);
        while self.progress.fan_out.is_waiting() {
            outcome = self.notify_some().and(outcome);
        }
        let settled = self.settle(team);
        outcome.and(settled)
    }

    /// Syncs the effects now.
    pub(crate) fn settle(&mut self, team: &Team) -> Outcome {
        // Nothing may be said to be done before what another thread syncs is synced, too: it is synced here.
        let Syncing { names, thread } = std::mem::take(&mut self.syncing);
        if thread.is_some() {
            self.progress.not_synced(names);
        }
        self.progress.settle(&self.dir, team, self.durability).map(Some).map_err(|error| unsettled(&error))
    }

    /// Syncs the effects. If there is much to sync, another thread does it: no other event waits for the disk.
    pub(crate) fn settle_in_time(&mut self, team: &Team) -> Outcome {
        if self.syncing.thread.is_some() {
            return Ok(None);
        }
        if !self.progress.has_much_to_sync() || self.durability != Durability::Disk {
            return self.settle(team);
        }
        let (dir, sync) = (Arc::clone(&self.dir), self.progress.take_unsynced(team));
        self.syncing.names = sync.names().to_vec();
        self.syncing.thread = Some(tokio::task::spawn_blocking(move || sync.report(&dir)));
        Ok(None)
    }

    /// Waits until the other thread is done, and takes in what it has synced; for ever if there is none. Dropping the future
    /// loses nothing.
    pub(crate) async fn synced(&mut self) -> Outcome {
        let Some(thread) = &mut self.syncing.thread else { return std::future::pending().await };
        let done = thread.await;
        let Syncing { names, .. } = std::mem::take(&mut self.syncing);
        let left = match done {
            Ok(Synced { up_to, outcome: Ok(()), .. }) => return Ok(Some(up_to)),
            Ok(Synced { outcome: Err((left, error)), .. }) => {
                tracing::error!("cannot complete the effects of the journal (tried again): {error}");
                left
            }
            Err(error) => {
                tracing::error!("the thread that syncs inboxes has died: {error}");
                names
            }
        };
        self.progress.not_synced(left);
        Err(Failed)
    }

    /// Tells a few members which teammates have ended.
    pub(crate) fn notify_some(&mut self) -> Outcome {
        self.progress.tell_ended(&self.dir, AT_ONCE).map(|()| None).map_err(|error| {
            tracing::error!("cannot tell which teammates have ended (tried again): {error}");
            Failed
        })
    }

    /// Tells whether there are notices left that can be written.
    pub(crate) fn has_notices(&self) -> bool {
        self.progress.fan_out.is_waiting()
    }
}

fn unsettled(error: &EffectError) -> Failed {
    tracing::error!("cannot complete the effects of the journal (tried again): {error}");
    Failed
}
