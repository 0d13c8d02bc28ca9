//! What commands are told. An answer goes out once the roster shows what it says.

use std::time::Duration;

use teamd_shared::control::StopOutcome;
use teamd_shared::name::Name;
use teamd_shared::request::Status;

use super::{Answer, Dispatcher, End};
use crate::core::event::{Incarnation, ReplyTo};
use crate::core::owners::{Failed, Owners};

/// How long commands wait for a roster that cannot be written: what they are told is in the
/// journal.
const ROSTER_PATIENCE: Duration = Duration::from_secs(5);

impl Dispatcher {
    /// Tells whether a command waits for [`Dispatcher::answer`].
    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty() || self.is_closed && self.end.is_none()
    }

    /// Has the commands answered after the roster shows what they are told. While the roster cannot
    /// be written they wait, for up to [`ROSTER_PATIENCE`]; so does the end of the daemon.
    pub(crate) fn answer(&mut self, owners: &mut dyn Owners) {
        let now = owners.now().monotonic;
        let since = *self.unshown.get_or_insert(now);
        let written = owners.write_roster(&self.team);
        if let Err(Failed) = written {
            self.try_again_later(owners.now());
            if now.saturating_sub(since) < ROSTER_PATIENCE && self.end.is_none() {
                return;
            }
        }
        self.unshown = None;
        self.replies.append(&mut self.answers);
        if self.is_closed {
            self.end.get_or_insert(End::Stopped);
        }
    }

    /// Takes out the answers that can be given now.
    pub(crate) fn take_replies(&mut self) -> Vec<(ReplyTo, Answer)> {
        std::mem::take(&mut self.replies)
    }

    /// Tells the commands that wait until nothing happens any more what is stuck. Mail that has
    /// just been sent is not read yet, as its reader has last said: so each inbox is looked at,
    /// once all messages of the daemon are in them.
    pub(super) fn answer_quiet(&mut self, owners: &mut dyn Owners) {
        let settles = self.has_undecided() || self.has_unfinished_effects();
        if settles || !self.waiters.seems_quiet(&self.team, &self.live) {
            return;
        }
        for member in self.team.members.values().map(|state| &state.record) {
            let incarnation = Incarnation::of(member);
            if let Some(read) = self.live.of(&incarnation).map(|alive| alive.said.read) {
                self.live
                    .note_unread(&incarnation, owners.has_unread(&member.name, read));
            }
        }
        self.answers
            .extend(self.waiters.quiet(&self.team, &self.live));
    }

    /// Tells the commands that wait for the stop which teammates have rejected it.
    pub(super) fn answer_rejected_stop(&mut self) {
        let rejected = |name: &Name| {
            let request = self.team.shutdown_of(name)?;
            let reason = request.reason.clone().unwrap_or_default();
            (request.status == Status::Rejected).then(|| (name.clone(), reason))
        };
        let alive = self
            .team
            .members
            .iter()
            .filter(|(_, state)| !state.record.phase.is_ended());
        let unwilling = alive.filter_map(|(name, _)| rejected(name)).collect();
        self.answers
            .extend(self.waiters.stopped(&StopOutcome::Rejected(unwilling)));
    }

    /// Takes in that the journal is closed: the commands that wait for the stop are answered, and
    /// the daemon ends.
    pub(super) fn journal_closed(&mut self) {
        self.answers
            .extend(self.waiters.stopped(&StopOutcome::Stopped));
        self.is_closed = true;
    }
}
