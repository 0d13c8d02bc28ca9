//! Spawns of a name that was forgotten, and whose files are still in their places: they wait until those are in the archive.

use teamd_shared::journal::Team;

use super::Batcher;
use crate::daemon::core::decide::is_being_archived;
use crate::daemon::core::event::{Client, Event, Now};

impl Batcher {
    /// Somebody wants a name that something is left to be done for: what has failed is tried again now.
    pub(super) fn try_again_for_spawns(&mut self, now: Now) {
        if self.retry_at.is_some() && self.events.iter().any(|event| waits_for_the_archive(&self.team, event))
        {
            self.retry_at = Some(now.monotonic);
        }
    }

    /// Tells whether an event is a spawn of a name that will be free in a moment. If something has failed, nobody knows when:
    /// it is refused.
    pub(super) fn must_wait(&self, event: &Event) -> bool {
        self.retry_at.is_none() && waits_for_the_archive(&self.team, event)
    }

    /// The lead agent has ended: what it still wanted is nobody's order any more, and nobody waits for the answer.
    pub(super) fn drop_orders_of_the_agent(&mut self) {
        self.parked.retain(|event| !matches!(event, Event::Spawn(Client { agent: true, .. }, ..)));
    }

    /// Tells whether something that somebody wants, or that has happened, is not decided on yet.
    pub(crate) fn has_undecided(&self) -> bool {
        !self.events.is_empty() || !self.parked.is_empty()
    }

    /// Takes up the spawns that waited.
    pub(super) fn unpark(&mut self) {
        self.events.extend(self.parked.drain(..));
    }
}

/// Tells whether an event is a spawn of a name whose earlier bearer is not in the archive yet.
fn waits_for_the_archive(team: &Team, event: &Event) -> bool {
    matches!(event, Event::Spawn(_, _, order, _) if is_being_archived(team, &order.name))
}
