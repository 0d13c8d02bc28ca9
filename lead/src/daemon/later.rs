//! The dispatcher's work that nobody waits for: to tell the news, and to sync many inboxes. Each is done in small pieces
//! between events, or in another thread.

use std::sync::Arc;

use teamd_shared::inbox::Durability;
use teamd_shared::name::Name;
use tokio::task::JoinHandle;

use super::dispatcher::Dispatcher;
use super::io::inboxes::Synced;

/// How many members are told the news at once: a millisecond or two of work.
const AT_ONCE: usize = 64;

/// What another thread syncs.
#[derive(Debug, Default)]
pub(super) struct Syncing {
    names: Vec<Name>,
    thread: Option<JoinHandle<Synced>>,
}

impl Syncing {
    /// Waits until it is done; for ever if nothing is synced. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The inboxes that are not known to be synced, if the thread has died.
    pub(super) async fn done(&mut self) -> Result<Synced, Vec<Name>> {
        let Some(thread) = &mut self.thread else { return std::future::pending().await };
        let done = thread.await;
        let Self { names, .. } = std::mem::take(self);
        done.map_err(|error| {
            tracing::error!("the thread that syncs inboxes has died: {error}");
            names
        })
    }
}

impl Dispatcher {
    /// Tells some members the news of those who have ended.
    pub(super) fn tell_some_news(&mut self) {
        if let Err(error) = self.progress.tell_news(&self.dir, AT_ONCE) {
            tracing::error!("cannot tell who has ended (tried again): {error}");
            self.batcher.try_again_later(self.now());
        }
    }

    /// Tells everybody all news.
    pub(super) fn tell_all_news(&mut self) {
        while self.progress.news.is_waiting() {
            self.tell_some_news();
        }
    }

    /// Makes the effects last. Where that is much, another thread does it: nobody else waits for the disk.
    pub(super) fn settle_in_time(&mut self) {
        // What has just failed is not tried again in the same breath.
        if self.syncing.thread.is_some() || self.batcher.has_just_failed(self.now()) {
            return;
        }
        if !self.progress.has_much_to_sync() || self.settings.durability != Durability::Disk {
            self.settle();
        } else {
            let (dir, sync) = (Arc::clone(&self.dir), self.progress.take_unsynced(&self.batcher.team));
            self.syncing.names = sync.names().to_vec();
            self.syncing.thread = Some(tokio::task::spawn_blocking(move || sync.report(&dir)));
        }
    }

    /// Takes in what another thread has synced.
    pub(super) fn synced(&mut self, synced: Result<Synced, Vec<Name>>) {
        let left = match synced {
            Ok(Synced { up_to, outcome: Ok(()), .. }) => return self.batcher.settled(up_to),
            Ok(Synced { outcome: Err((left, error)), .. }) => {
                tracing::error!("cannot complete the effects of the journal (tried again): {error}");
                left
            }
            Err(left) => left,
        };
        self.progress.not_synced(left);
        self.batcher.try_again_later(self.now());
    }

    /// What another thread syncs is synced here: nothing may be said to be done before all of it is.
    pub(super) fn take_over_sync(&mut self) {
        let Syncing { names, thread } = std::mem::take(&mut self.syncing);
        if thread.is_some() {
            self.progress.not_synced(names);
        }
    }
}
