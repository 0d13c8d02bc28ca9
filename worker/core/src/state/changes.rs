//! How the state follows what the outside says, and what came of the steps. Facts only: what they
//! mean is decided in `step`.

use std::time::Duration;

use teamd_shared::control::{Directive, PendingShutdown};
use teamd_shared::id::RequestId;
use teamd_shared::member::Waiting;
use teamd_shared::message::{AnsweredBy, IdleReason, Relevance};
use teamd_shared::request::Status;
use teamd_shared::transcript::Event;

use super::{
    Arrived, Budget, Compaction, IncarnationEnd, OpenShutdown, REWRITES, ShutdownAnswer, State,
    Writing,
};
use crate::at::{At, Pending, SubmissionProgress};
use crate::submission::LeadQuestion;

/// How long the decision waits after an answer could not be written.
const RETRY: Duration = Duration::from_secs(1);

/// The longest time that a model has to decide: much longer ones end no clock.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// How long mail waits for more of its kind: what several teammates say when they have finished is
/// one turn.
const MORE_MAIL: Duration = Duration::from_secs(2);

/// What the outside says.
impl State {
    /// Applies a directive of the daemon. The mail was read to its end before. Returns the shutdown
    /// whose answer is decided by this.
    pub fn directive(&mut self, directive: Directive, now: Duration) -> Option<RequestId> {
        if directive.seq < self.directed.directive.seq {
            return None;
        }
        self.shutdown = directive
            .shutdown
            .clone()
            .map(|pending| match self.shutdown.take() {
                Some(open) if open.directive.request_id == pending.request_id => open,
                _ => OpenShutdown::begun(
                    pending,
                    now,
                    self.arrived.mail == Relevance::Work || self.arrived.rest,
                ),
            });
        self.release.is_recorded |= directive.release;
        let answered = self.answer.as_ref().map(|answer| answer.request_id.clone());
        let decided = answered.filter(|answered| self.pending_shutdown() != Some(answered));
        if decided.is_some() {
            // While the incarnation lives, its shutdown does not expire.
            let status = if directive.release {
                Status::Approved
            } else {
                Status::Rejected
            };
            self.answer_ended(Ok(status), now);
        }
        self.directed.settled = self.directed.settled.max(directive.settles);
        self.directed.directive = directive;
        self.act();
        decided
    }

    /// The daemon has recorded a plan or a question.
    pub fn recorded(&mut self, request_id: &RequestId, status: Status) {
        if let Some(plan) = self.pending_mut(request_id) {
            plan.progress = SubmissionProgress::Recorded(status);
        }
    }

    /// The daemon does not count an answer or a plan; `taken`: its id belongs to another request.
    pub fn refused(&mut self, request_id: &RequestId, (why, taken): (String, bool), now: Duration) {
        if self
            .answer
            .as_ref()
            .is_some_and(|answer| answer.request_id == *request_id)
        {
            self.answer_ended(Err(why), now);
        } else if let Some(plan) = self.pending_mut(request_id) {
            plan.lost += u32::from(!taken);
            plan.progress = if taken {
                SubmissionProgress::Taken
            } else if plan.lost <= REWRITES {
                SubmissionProgress::Nothing
            } else {
                SubmissionProgress::Refused(why)
            };
        }
    }

    /// The daemon has decided about an answer to a shutdown, or has refused it. The model first
    /// gets the outcome of its own.
    fn answer_ended(&mut self, outcome: Result<Status, String>, now: Duration) {
        match &mut self.answer {
            Some(answer) if answer.by == AnsweredBy::Model => {
                answer.outcome.get_or_insert(outcome);
            }
            _ => {
                self.answer = None;
                if outcome.is_err() {
                    self.answer_failed(now);
                }
            }
        }
    }

    /// The lead ends the turn. An idle worker has none, unless it writes a summary.
    pub fn interrupt(&mut self) {
        self.interrupted = self.work.at != At::Idle || self.compaction.runs.is_some();
    }

    /// The incarnation ends in any case; the first reason counts.
    pub fn end(&mut self, end: IncarnationEnd) {
        self.end.get_or_insert(end);
    }

    /// This has arrived. Mail that may wait for more of its kind does so from the first of it on,
    /// however much comes.
    pub fn arrived(&mut self, arrived: Arrived, now: Duration) {
        self.arrived = arrived;
        self.take_in_at = match arrived.mail {
            Relevance::Soon => self.take_in_at.or(Some(now + MORE_MAIL)),
            Relevance::None | Relevance::News | Relevance::Work => None,
        };
    }

    /// A person asks for a summary of the conversation. The daemon that takes over asks again.
    pub fn asks_to_compact(&mut self, id: RequestId) {
        if !self.compaction.asked.contains(&id) {
            self.compaction.asked.push(id);
        }
    }

    /// Background commands run, or the last has ended.
    pub fn background(&mut self, running: bool) {
        self.background = running;
        self.act();
    }
}

/// What came of the steps.
impl State {
    /// An entry was recorded.
    pub fn follow(&mut self, event: &Event) {
        let is_in_call = matches!(self.work.at, At::Call | At::Calling { .. });
        self.work.follow(event);
        match event {
            Event::Messages { messages } => {
                self.has_news |=
                    is_in_call && messages.iter().any(|message| self.work.is_work(message));
            }
            Event::Asked { .. } => {
                if let Some(shutdown) = &mut self.shutdown {
                    shutdown.shown = true;
                }
            }
            Event::Result { .. } => {
                self.release.keeps_calls &= !self.work.calls.is_empty();
                self.act();
            }
            // The model is asked again.
            Event::Compacted { at_rest: true, .. } => {}
            Event::Compacted { .. } => self.dropped(),
            // The other model is asked. Its service is not known to be unavailable.
            Event::Fallback { .. } => {
                self.service.pause = None;
                self.compaction.runs = None;
                if let At::Thinking { results } = self.work.at {
                    self.work.at = At::Turn { results };
                }
            }
            Event::Idle { .. } => {
                self.interrupted = false;
                self.has_news = false;
            }
            _ => {}
        }
    }

    /// What was fetched of the mail was consumed; `rest`: there is more of it.
    pub fn consumed(&mut self, rest: bool) {
        self.arrived.mail = Relevance::None;
        self.take_in_at = None;
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.mail_first &= rest;
        }
    }

    /// A model call begins.
    pub fn thinking(&mut self) {
        let results = matches!(self.work.at, At::Turn { results: true });
        self.work.at = At::Thinking { results };
        self.service.pause = None;
        self.service.outage = None;
        self.has_news = false;
    }

    /// A summary begins to be written that was asked for; returns what that may cost, and whether
    /// there is no work.
    pub fn compacting(&mut self) -> (Budget, bool) {
        let at_rest = self.work.at == At::Idle;
        if !at_rest {
            let budget = self.budget_left();
            self.thinking();
            self.compaction.runs = Some(Writing::InWork);
            return (budget, at_rest);
        }
        // What a piece of work may cost is not spent yet.
        self.service.pause = None;
        self.compaction.runs = Some(Writing::AtRest);
        (self.limits.within_total(self.total_left()), at_rest)
    }

    /// It is written, or is not going to be; returns who has asked for it.
    pub fn compacted(&mut self) -> Vec<RequestId> {
        let Compaction { asked, runs } = std::mem::take(&mut self.compaction);
        match runs {
            // Nothing else was interrupted.
            Some(Writing::AtRest) => self.interrupted = false,
            Some(Writing::InWork) if matches!(self.work.at, At::Thinking { .. }) => self.dropped(),
            Some(Writing::InWork) | None => {}
        }
        asked
    }

    /// The model call waits for its service, or continues.
    pub fn pause(&mut self, pause: Option<Waiting>) {
        self.service.pause = pause;
    }

    /// The model call was dropped, as if it had never begun.
    pub fn dropped(&mut self) {
        let results = matches!(self.work.at, At::Thinking { results: true });
        self.service.outage = self
            .service
            .pause
            .take()
            .filter(Waiting::is_outage)
            .map(|pause| pause.why);
        self.work.at = At::Turn { results };
    }

    /// The model could not answer, for this reason.
    pub fn failed(&mut self, told: String) {
        self.work.closing = told;
        self.work.at = At::Done(IdleReason::Failed);
    }

    /// The work has reached a limit in the middle of a turn.
    pub fn stopped(&mut self, limit: IdleReason) {
        self.work.at = At::Done(limit);
    }

    /// A call begins; `gated`: an open gate let it through; `is_mind`: it is the agent itself at
    /// work.
    pub fn calling(&mut self, activity: String, gated: bool, is_mind: bool) {
        self.work.at = At::Calling {
            activity,
            gated,
            is_mind,
        };
    }

    /// A call waits for memory, with so many before it; `gated`: an open gate lets it through.
    pub fn holding(&mut self, before: u32, gated: bool) {
        self.work.at = At::Held { before, gated };
        self.act();
    }

    /// A call begins to wait for a person.
    pub fn asking(&mut self) {
        self.work.at = At::Asking;
    }

    /// An answer to a shutdown that is on its way no longer decides anything: its call has another
    /// result.
    pub fn drop_answer(&mut self) {
        self.answer = None;
    }

    /// A plan is submitted: the gate closes. Or a permission is asked for.
    pub fn submitting(&mut self, submission: LeadQuestion) {
        let progress = SubmissionProgress::Nothing;
        self.work.at = At::Pending(Pending {
            submission,
            progress,
            lost: 0,
        });
        self.act();
    }

    /// The line of it is being submitted.
    pub fn submitted(&mut self) {
        if let At::Pending(plan) = &mut self.work.at {
            plan.progress = SubmissionProgress::Submitted;
        }
    }

    /// The call is next again: the agent continues with it, and has the answer to its question, or
    /// was told something.
    pub fn call_goes_on(&mut self) {
        self.work.at = At::Call;
        self.act();
    }

    /// An answer to the shutdown is being submitted.
    pub fn answering(&mut self, request_id: RequestId, approve: bool, by: AnsweredBy) {
        self.answer = Some(ShutdownAnswer {
            request_id,
            approve,
            by,
            outcome: None,
        });
    }

    /// An answer could not be written, or changed nothing. While the daemon's directive calls the
    /// shutdown pending, it is answered again, a little later.
    pub fn answer_failed(&mut self, now: Duration) {
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.not_before = now + RETRY;
        }
    }

    /// The model gets to know what became of its answer.
    pub fn answer_told(&mut self, now: Duration) {
        match self.answer.take().and_then(|answer| answer.outcome) {
            Some(Ok(status)) => self.release.keeps_calls = status == Status::Approved,
            Some(Err(_)) => self.answer_failed(now),
            None => {}
        }
    }

    /// Tells whether work that is broken off leaves some: it has arrived during a call, and the
    /// model was not asked since.
    pub fn has_news(&self) -> bool {
        self.has_news
    }

    /// Returns what this piece of work may still cost.
    pub fn budget_left(&self) -> Budget {
        let turns = self.limits.turns.saturating_sub(self.work.turns);
        let left = self.left_of(
            self.limits.less_granted(self.work.granted),
            &self.work.spent,
        );
        let price = self.price_of_answers();
        let left = left.within_total(self.total_left());
        Budget {
            turns,
            cost: left.cost.map(|(most, _)| (most, price)),
            ..left
        }
    }

    /// The incarnation ends now, but for the background commands.
    pub fn leaving(&mut self) {
        self.leaving = true;
    }
}

impl OpenShutdown {
    fn begun(directive: PendingShutdown, now: Duration, mail_first: bool) -> Self {
        // A negative time or NaN counts as zero, infinity as `FOREVER`.
        let within = match Duration::try_from_secs_f64(directive.decide_within) {
            Ok(within) => within.min(FOREVER),
            Err(_) if directive.decide_within > 0.0 => FOREVER,
            Err(_) => Duration::ZERO,
        };
        Self {
            directive,
            decide_by: now.saturating_add(within),
            shown: false,
            mail_first,
            not_before: now,
        }
    }
}
