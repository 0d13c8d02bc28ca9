//! The answers to commands. An answer is sent once the roster shows what it says.

use std::time::Duration;

use teamd_shared::control::StopOutcome;
use teamd_shared::request::Status;

use super::{DaemonEnd, DaemonStage, Dispatcher};
use crate::core::caller::Answer;
use crate::core::caller::ReplyTo;
use crate::core::incarnation::Incarnation;
use crate::core::io::{Io, IoFailed};

/// How long commands wait for a roster that cannot be written. What their answers say is in the
/// journal.
const ROSTER_PATIENCE: Duration = Duration::from_secs(5);

/// The answers that are not sent yet.
#[derive(Debug, Default)]
pub(super) struct AnswerQueue {
    /// Those that wait until the roster shows what they say.
    unshown: Vec<(ReplyTo, Answer)>,
    /// Since when they wait for a roster that cannot be written.
    waiting_since: Option<Duration>,
    /// Those that can be sent now.
    ready: Vec<(ReplyTo, Answer)>,
}

impl AnswerQueue {
    /// Adds an answer that waits for the roster.
    pub(super) fn push(&mut self, client: ReplyTo, answer: Answer) {
        self.unshown.push((client, answer));
    }

    /// Adds answers that wait for the roster.
    pub(super) fn extend(&mut self, answers: Vec<(ReplyTo, Answer)>) {
        self.unshown.extend(answers);
    }

    /// Adds answers that say nothing that the roster shows.
    pub(super) fn extend_ready(&mut self, answers: Vec<(ReplyTo, Answer)>) {
        self.ready.extend(answers);
    }
}

impl Dispatcher {
    /// Tells whether a command waits for [`Dispatcher::answer`].
    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.unshown.is_empty() || matches!(self.stage, DaemonStage::Closed)
    }

    /// Writes the roster, then lets the answers be sent. While the roster cannot be written, the
    /// answers and the end of the daemon wait, for up to [`ROSTER_PATIENCE`].
    pub(crate) fn answer(&mut self, io: &mut dyn Io) {
        let now = io.now().monotonic;
        let since = *self.answers.waiting_since.get_or_insert(now);
        let written = io.write_roster(&self.team);
        if let Err(IoFailed) = written {
            self.try_again_later(io.now());
            if now.saturating_sub(since) < ROSTER_PATIENCE && self.end().is_none() {
                return;
            }
        }
        self.answers.waiting_since = None;
        let shown = std::mem::take(&mut self.answers.unshown);
        self.answers.extend_ready(shown);
        if matches!(self.stage, DaemonStage::Closed) {
            self.end_with(DaemonEnd::Stopped);
        }
    }

    /// Takes out the answers that can be given now.
    pub(crate) fn take_replies(&mut self) -> Vec<(ReplyTo, Answer)> {
        std::mem::take(&mut self.answers.ready)
    }

    /// Answers the commands that wait until nothing happens any more, with what is stuck. The last
    /// report of a worker does not count the mail that has just been sent. So each inbox is
    /// examined, once all messages of the daemon are in it.
    pub(super) fn answer_quiet(&mut self, io: &mut dyn Io) {
        let settles = self.has_undecided() || self.has_unfinished_effects();
        if settles || !self.waiters.seems_quiet(&self.team, &self.runtime) {
            return;
        }
        for member in self.team.members.values().map(|state| &state.record) {
            let incarnation = Incarnation::of(member);
            if let Some(read) = self
                .runtime
                .of(&incarnation)
                .map(|worker| worker.state.read)
            {
                self.runtime
                    .record_unread(&incarnation, io.has_unread(&member.name, read));
            }
        }
        self.answers
            .extend(self.waiters.quiet(&self.team, &self.runtime));
    }

    /// Answers the commands that wait for the stop, with the teammates that have rejected it.
    pub(super) fn answer_rejected_stop(&mut self) {
        let mut unwilling = Vec::new();
        for (name, state) in &self.team.members {
            if let Some(request) = self.team.shutdown_of(name)
                && !state.record.phase.is_ended()
                && request.status == Status::Rejected
            {
                let reason = request.reason.clone().unwrap_or_default();
                unwilling.push((name.clone(), reason));
            }
        }
        self.answers
            .extend(self.waiters.stopped(&StopOutcome::Rejected(unwilling)));
    }

    /// Ends the daemon after the last line of the journal: the commands that wait for the stop are
    /// answered first.
    pub(super) fn journal_closed(&mut self) {
        self.answers
            .extend(self.waiters.stopped(&StopOutcome::Stopped));
        self.stage = DaemonStage::Closed;
    }
}
