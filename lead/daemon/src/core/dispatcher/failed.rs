//! An append that failed. The state is as before, the commands are refused, and the other events
//! stay at the front of the queue. Nothing else is decided until those events can be journaled. A
//! command or a signal causes the next attempt at once.
//!
//! A person can still end processes: a command that ends one by force, or a second signal, kills
//! it, and that is journaled later.

use std::time::Duration;

use teamd_shared::control::{Command, Refusal, RefusalCode};

use super::batch::DecisionBatch;
use super::{DaemonEnd, Dispatcher, RETRY};
use crate::core::event::{Action, Event, Now};
use crate::core::incarnation::Incarnation;
use crate::core::io::{Io, NotWritten};
use teamd_shared::unwritten;

/// Whether lines can be appended to the journal.
#[derive(Debug, Default)]
pub(super) enum JournalState {
    /// Nothing prevents it.
    #[default]
    Writable,
    /// The last line could not be appended.
    Failing {
        why: String,
        /// When events that wait are decided again; none: none waits.
        retry_at: Option<Duration>,
    },
}

impl JournalState {
    /// Returns when the events that wait are decided again, since the daemon began.
    pub(super) fn retry_at(&self) -> Option<Duration> {
        match self {
            Self::Writable => None,
            Self::Failing { retry_at, .. } => *retry_at,
        }
    }

    /// Tells whether nothing is decided now.
    pub(super) fn is_blocked(&self, now: Now) -> bool {
        self.retry_at().is_some_and(|at| at > now.monotonic)
    }

    /// Ends the pause before the next attempt.
    fn retry_at_once(&mut self) {
        if let Self::Failing { retry_at, .. } = self {
            *retry_at = Some(Duration::ZERO);
        }
    }

    /// Tells whether an attempt was due, and counts it as made.
    pub(super) fn take_retry(&mut self) -> bool {
        match self {
            Self::Writable => false,
            Self::Failing { retry_at, .. } => retry_at.take().is_some(),
        }
    }
}

impl Dispatcher {
    /// Undoes the batch that could not be written: the state becomes what the file says, and every
    /// command is refused with the reason. The daemon ends if it cannot know what the file says.
    pub(super) fn not_written(&mut self, batch: DecisionBatch, error: NotWritten, io: &mut dyn Io) {
        match error.journal {
            Err(unknown) => self.end_with(DaemonEnd::Failed(unknown)),
            Ok(team) => {
                // The line that says what is complete was not written; it is complete all the same.
                let done = self.team.done;
                self.team = *team;
                self.team.mark_done(done);
                self.lead = self.team.lead;
                let why = format!("cannot write the journal: {}", error.why);
                self.journal = JournalState::Failing {
                    why: why.clone(),
                    retry_at: Some(io.now().monotonic + RETRY),
                };
                self.take_back(batch, why, io);
            }
        }
    }

    fn take_back(&mut self, batch: DecisionBatch, why: String, io: &mut dyn Io) {
        let ends = self.runtime.terminations > 1;
        for event in batch.events.into_iter().rev() {
            let forced = self.forced(&event);
            for incarnation in &forced {
                self.kill(incarnation, io);
            }
            let stops = matches!(event, Event::Command(_, _, Command::Stop { force: true }));
            if stops || ends {
                let why = "it was ended by force while the journal could not be written; its teammates were killed";
                self.end_with(DaemonEnd::Failed(why.to_owned()));
            }
            if let Some(client) = self.runtime.client(&event) {
                let hint = hint(&event, &why, stops, &forced);
                let refusal = Refusal::new(RefusalCode::Failed, why.clone()).hint(hint);
                self.answers.extend_ready(vec![(client, Err(refusal))]);
                for incarnation in forced {
                    self.events.push_front(Event::Forced { incarnation });
                }
                if let Event::JobEnded { job, .. } = event {
                    self.drop_job(job);
                }
                continue;
            }
            match event {
                // A worker that is still silent is found again.
                Event::Deadline | Event::Silent { .. } => {}
                // What is still due then is found again.
                Event::Orders => self.runtime.orders.look_again(),
                Event::Terminate => {
                    self.runtime.terminations -= 1;
                    self.events.push_front(Event::Terminate);
                }
                other => self.events.push_front(other),
            }
        }
        // The reason for a kill was journaled earlier.
        for action in batch.actions {
            if let Action::Kill(incarnation) = action
                && self
                    .team
                    .members
                    .get(&incarnation.name)
                    .is_some_and(|state| state.record.ending.is_some())
            {
                self.kill(&incarnation, io);
            }
        }
        let refused = self.waiters.cannot_become_ready(&self.runtime, &why);
        self.answers.extend_ready(refused);
        // The reports of workers hold nevertheless.
        io.show(&self.team, &self.runtime, &batch.touched);
    }

    /// Forgets a job whose command was refused. A task whose branch it has begun is offered again.
    fn drop_job(&mut self, job: u64) {
        let ended = self.runtime.jobs.end(job);
        if ended.is_some_and(|then| then.branch().is_some()) {
            self.offer();
        }
    }

    /// Returns the incarnations that an event ends by force.
    fn forced(&self, event: &Event) -> Vec<Incarnation> {
        let members = self.team.members.values().map(|state| &state.record);
        members
            .filter(|it| {
                !it.phase.is_ended()
                    && (match event {
                        Event::Command(_, _, Command::Shutdown(order)) => {
                            order.force_after.is_some_and(|after| after <= 0.0)
                                && order.name == it.name
                        }
                        Event::Command(_, _, Command::Stop { force }) => *force,
                        Event::Terminate => self.runtime.terminations > 1,
                        _ => false,
                    })
            })
            .map(Incarnation::of)
            .collect()
    }

    /// Queues an event. While the journal cannot be written, only the last of a worker's repeated
    /// reports is queued: a disk may be full for a long time.
    pub(super) fn queue(&mut self, event: Event) {
        if self.journal.retry_at().is_some() {
            self.events.retain(|earlier| !replaces(&event, earlier));
            if self.runtime.client(&event).is_some() || matches!(event, Event::Terminate) {
                self.journal.retry_at_once();
            }
        }
        self.events.push_back(event);
    }

    /// Forgets what could not be journaled: a mutant breaks the rule with it.
    #[cfg(test)]
    pub(crate) fn forget_undecided(&mut self) {
        self.events.clear();
    }

    /// Returns why the journal cannot be written now, if it cannot.
    pub(crate) fn trouble(&self) -> Option<&str> {
        match &self.journal {
            JournalState::Writable => None,
            JournalState::Failing { why, .. } => Some(why),
        }
    }

    /// Has what failed tried again after [`RETRY`].
    pub(crate) fn try_again_later(&mut self, now: Now) {
        self.retry_at.get_or_insert(now.monotonic + RETRY);
    }

    /// Tells whether something that failed has not been tried again yet.
    pub(crate) fn waits_to_try_again(&self) -> bool {
        self.retry_at.is_some() || self.journal.retry_at().is_some()
    }

    /// Tells whether something has failed just now.
    pub(crate) fn has_just_failed(&self, now: Now) -> bool {
        self.retry_at.is_some_and(|at| at > now.monotonic)
    }
}

/// Returns the next step after a command that could not be journaled.
fn hint(event: &Event, why: &str, stops: bool, forced: &[Incarnation]) -> String {
    let next = unwritten::next_step(why);
    let hint = match (event, forced) {
        _ if stops => {
            format!(
                "every teammate was killed, and the daemon ends, without a record of it; {next} before the next `teamd start`"
            )
        }
        (_, [_, ..]) => {
            format!("its process was killed all the same; that is recorded later: {next}")
        }
        _ => format!("nothing was changed; {next}, and try again"),
    };
    match event {
        Event::Command(_, _, Command::Shutdown(order))
            if order.force_after.is_some() && forced.is_empty() =>
        {
            format!(
                "{hint}; `teamctl shutdown {} --force --timeout 0s` kills it at once",
                order.name
            )
        }
        _ => hint.to_owned(),
    }
}

/// Tells whether an event says all that an earlier one said.
fn replaces(event: &Event, earlier: &Event) -> bool {
    match (event, earlier) {
        (
            Event::Said { incarnation, .. },
            Event::Said {
                incarnation: before,
                ..
            },
        )
        | (
            Event::Pong { incarnation, .. },
            Event::Pong {
                incarnation: before,
                ..
            },
        ) => incarnation == before,
        (Event::Deadline, Event::Deadline) => true,
        (Event::LeadRead { .. }, Event::LeadRead { rejected, .. }) => rejected.is_empty(),
        _ => false,
    }
}
