//! What workers and commands are told: the welcome, the directive, and answers. An answer goes out once the roster shows what
//! it says.

use std::time::Duration;

use teamd_shared::control::{StopOutcome, ToWorker};
use teamd_shared::name::Name;
use teamd_shared::request::Status;

use super::{Batcher, End, Introduction, Journal, Step};
use crate::daemon::core::directive::{directive, welcome};
use crate::daemon::core::event::{Incarnation, Now};

/// How long commands wait for a roster that cannot be written: what they are told is in the journal.
const ROSTER_PATIENCE: Duration = Duration::from_secs(5);

impl Batcher {
    /// Notes one half of a worker's start, and welcomes the worker once both halves have happened: the journal holds the
    /// incarnation with its process, and the worker has greeted, which it does under its liveness lock. A welcome that waited
    /// in a socket could let the worker begin after its daemon had died and the next one had recorded its end.
    pub(crate) fn introduce(&mut self, incarnation: &Incarnation, half: Introduction) {
        let is_present = self.team.members.get(&incarnation.name).is_some_and(|state| {
            state.record.incarnation == incarnation.number && !state.record.phase.is_ended()
        });
        if !is_present {
            self.introductions.remove(incarnation);
            return;
        }
        if self.introductions.get(incarnation).is_none_or(|other| *other == half) {
            self.introductions.insert(incarnation.clone(), half);
            return;
        }
        self.introductions.remove(incarnation);
        if let Some(welcome) = welcome(&self.team, &self.live, incarnation) {
            self.steps.push_back(Step::Say(incarnation.clone(), ToWorker::Welcome(Box::new(welcome))));
        }
    }

    /// Tells whether an incarnation was begun and is not welcomed yet.
    pub(crate) fn is_unwelcomed(&self, incarnation: &Incarnation) -> bool {
        self.introductions.contains_key(incarnation)
    }

    pub(super) fn push_directive(&mut self, name: &Name) {
        let Some(member) = self.team.members.get(name) else { return };
        let incarnation = Incarnation::of(&member.record);
        // A worker that is not welcomed yet hears everything in its welcome.
        if !self.live.of(&incarnation).is_some_and(|alive| alive.connected) {
            return;
        }
        if let Some(directive) = directive(&self.team, &self.live, name) {
            self.steps.push_back(Step::Say(incarnation, ToWorker::Directive(directive)));
        }
    }

    /// Tells whether a command waits for [`Batcher::answer`].
    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty() || self.journal == Journal::Closed && self.end.is_none()
    }

    /// Has the commands answered after the roster shows what they are told. While the roster cannot be written they wait, for
    /// up to [`ROSTER_PATIENCE`]; so does the end of the daemon.
    pub(crate) fn answer(&mut self, now: Now) {
        self.unshown.get_or_insert(now.monotonic);
        self.steps.push_back(Step::WriteRoster);
    }

    /// Takes in whether the roster was written.
    pub(crate) fn shown(&mut self, written: bool, now: Now) {
        let waited = self.unshown.map_or(Duration::ZERO, |since| now.monotonic.saturating_sub(since));
        if written || waited >= ROSTER_PATIENCE || self.end.is_some() {
            self.reply();
        }
    }

    fn reply(&mut self) {
        self.unshown = None;
        self.steps.extend(self.answers.drain(..).map(|(client, answer)| Step::Reply(client, answer)));
        if self.journal == Journal::Closed {
            self.end.get_or_insert(End::Stopped);
        }
    }

    /// Tells the commands that wait for the stop which teammates have rejected it.
    pub(super) fn answer_rejected_stop(&mut self) {
        let rejected = |name: &Name| {
            let request = self.team.shutdown_of(name)?;
            let reason = request.reason.clone().unwrap_or_default();
            (request.status == Status::Rejected).then(|| (name.clone(), reason))
        };
        let alive = self.team.members.iter().filter(|(_, state)| !state.record.phase.is_ended());
        let unwilling = alive.filter_map(|(name, _)| rejected(name)).collect();
        self.answers.extend(self.waiters.stopped(&StopOutcome::Rejected(unwilling)));
    }

    /// Takes in that the journal is closed: the commands that wait for the stop are answered, and the daemon ends.
    pub(super) fn journal_closed(&mut self) {
        self.answers.extend(self.waiters.stopped(&StopOutcome::Stopped));
        self.journal = Journal::Closed;
    }
}
