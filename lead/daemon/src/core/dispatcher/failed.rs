//! An append that failed. The state is as before, the commands are refused, and the other events
//! stay at the front of the queue. Nothing else is decided until those events can be journaled. A
//! command or a signal brings the next attempt at once.
//!
//! A person can end processes all the same: what a command ends by force at once, or a second
//! signal ends, is killed, and journaled later.

use teamd_shared::control::{Command, Refusal, RefusalCode};

use super::{Batch, Dispatcher, End, RETRY};
use crate::core::event::{Action, Event, Incarnation, Now};
use crate::core::owners::{NotWritten, Owners};
use teamd_shared::unwritten;

impl Dispatcher {
    /// Undoes the batch that could not be written: the state becomes what the file says, and every
    /// command is told why. The daemon ends if it cannot know what the file says.
    pub(super) fn not_written(&mut self, batch: Batch, error: NotWritten, owners: &mut dyn Owners) {
        match error.journal {
            Err(unknown) => self.end = Some(End::Failed(unknown)),
            Ok(team) => {
                // The line that says what is complete was not written; it is complete all the same.
                let done = self.team.done;
                self.team = *team;
                self.team.mark_done(done);
                self.lead = self.team.lead;
                self.stuck_until = Some(owners.now().monotonic + RETRY);
                let why = format!("cannot write the journal: {}", error.why);
                self.trouble = Some(why.clone());
                self.take_back(batch, why, owners);
            }
        }
    }

    fn take_back(&mut self, batch: Batch, why: String, owners: &mut dyn Owners) {
        let ends = self.live.terminations > 1;
        for event in batch.events.into_iter().rev() {
            let forced = self.forced(&event);
            for incarnation in &forced {
                self.kill(incarnation, owners);
            }
            let stops = matches!(event, Event::Command(_, _, Command::Stop { force: true }));
            if stops || ends {
                let why = "told to end by force, and the journal cannot be written: its teammates were killed";
                self.end = Some(End::Failed(why.to_owned()));
            }
            if let Some(client) = self.live.client(&event) {
                let hint = hint((&event, &why), stops, &forced);
                let refusal = Refusal::new(RefusalCode::Failed, why.clone()).hint(hint);
                self.replies.push((client, Err(refusal)));
                for it in forced {
                    self.events.push_front(Event::Forced { incarnation: it });
                }
                if let Event::JobEnded { job, .. } = event {
                    self.drop_job(job);
                }
                continue;
            }
            match event {
                // A worker that is still silent is found again.
                Event::Deadline | Event::Silent { .. } => {}
                Event::Terminate => {
                    self.live.terminations -= 1;
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
                self.kill(&incarnation, owners);
            }
        }
        self.replies
            .extend(self.waiters.cannot_become_ready(&self.live, &why));
        // What workers have said holds nevertheless.
        owners.show(&self.team, &self.live, &batch.touched);
    }

    /// Forgets a job whose command was refused. A task whose branch it has begun is offered again.
    fn drop_job(&mut self, job: u64) {
        let ended = self.live.jobs.end(job);
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
                        Event::Terminate => self.live.terminations > 1,
                        _ => false,
                    })
            })
            .map(Incarnation::of)
            .collect()
    }

    /// Queues an event. While the journal cannot be written, only the last of a worker's repeated
    /// reports is queued: a disk may be full for a long time.
    pub(super) fn queue(&mut self, event: Event) {
        if self.stuck_until.is_some() {
            self.events.retain(|earlier| !replaces(&event, earlier));
            if self.live.client(&event).is_some() || matches!(event, Event::Terminate) {
                self.stuck_until = Some(std::time::Duration::ZERO);
            }
        }
        self.events.push_back(event);
    }

    /// Tells whether nothing is decided now, because the journal cannot be written.
    pub(super) fn is_stuck(&self, now: Now) -> bool {
        self.stuck_until.is_some_and(|until| until > now.monotonic)
    }

    /// Forgets what could not be journaled: a mutant breaks the rule with it.
    #[cfg(test)]
    pub(crate) fn forget_undecided(&mut self) {
        self.events.clear();
    }

    /// Returns why the journal cannot be written now, if it cannot.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Has what failed tried again after [`RETRY`].
    pub(crate) fn try_again_later(&mut self, now: Now) {
        self.retry_at.get_or_insert(now.monotonic + RETRY);
    }

    /// Tells whether something that failed has not been tried again yet.
    pub(crate) fn waits_to_try_again(&self) -> bool {
        self.retry_at.is_some() || self.stuck_until.is_some()
    }

    /// Tells whether something has failed just now.
    pub(crate) fn has_just_failed(&self, now: Now) -> bool {
        self.retry_at.is_some_and(|at| at > now.monotonic)
    }
}

/// Returns the next step after a command that could not be journaled.
fn hint((event, why): (&Event, &str), stops: bool, forced: &[Incarnation]) -> String {
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
