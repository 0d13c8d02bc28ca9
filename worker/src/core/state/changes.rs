//! How the state follows what the outside says, and what came of the steps. Facts only: what they mean is decided
//! in `step`.

use std::time::Duration;

use teamd_shared::control::{Directive, PendingShutdown};
use teamd_shared::id::RequestId;
use teamd_shared::member::Waiting;
use teamd_shared::message::{AnsweredBy, IdleReason};
use teamd_shared::request::Status;
use teamd_shared::transcript::Usage;

use super::{
    AnswerOutcome, At, Budget, End, Mail, OpenShutdown, PendingPlan, REWRITES, ShutdownAnswer, State,
    SubmissionState, report,
};

/// How long the decision waits after an answer could not be written.
const RETRY: Duration = Duration::from_secs(1);

/// The longest time that a model has to decide: much longer ones end no clock.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// How long mail waits for more of its kind: what several teammates say when they have finished is one turn.
const SETTLES: Duration = Duration::from_secs(2);

/// What the outside says.
impl State {
    /// The daemon says how things stand. The mail was read to its end before.
    pub(crate) fn directive(&mut self, directive: Directive, now: Duration) {
        (self.away, self.plan_wanted) = (false, false);
        if directive.seq < self.directive.seq {
            return;
        }
        let pending =
            directive.shutdown.clone().filter(|pending| Some(&pending.request_id) != self.settled.as_ref());
        self.shutdown = pending.map(|pending| match self.shutdown.take() {
            Some(known) if known.directive.request_id == pending.request_id => known,
            _ => OpenShutdown::begun(pending, now, self.mail == Mail::Work || self.rest),
        });
        if directive.release {
            self.release = true;
            if let Some(answer) = &mut self.answer {
                answer.outcome.get_or_insert(AnswerOutcome::Recorded(Status::Approved));
            }
        }
        self.directive = directive;
        self.act();
    }

    /// The daemon is gone. What it had decided last it may have left in the inbox alone; its next directive tells.
    pub(crate) fn away(&mut self) {
        self.away = true;
    }

    /// A request for a plan stands in the inbox: the gate may be closed. A line opens and closes nothing for good.
    pub(crate) fn plan_wanted(&mut self) {
        self.plan_wanted = true;
    }

    /// The daemon has recorded an answer or a plan.
    pub(crate) fn recorded(&mut self, request_id: &RequestId, status: Status) {
        if let Some(answer) = self.answer.as_mut().filter(|answer| answer.request_id == *request_id) {
            answer.outcome = Some(AnswerOutcome::Recorded(status));
        } else if let Some(plan) = self.plan_mut(request_id) {
            plan.submission = SubmissionState::Recorded(status);
        }
    }

    /// The daemon does not count an answer or a plan; `taken`: its id belongs to another request.
    pub(crate) fn refused(&mut self, request_id: &RequestId, why: String, taken: bool) {
        if let Some(answer) = self.answer.as_mut().filter(|answer| answer.request_id == *request_id) {
            answer.outcome = Some(AnswerOutcome::Refused(why));
        } else if let Some(plan) = self.plan_mut(request_id) {
            plan.lost += u32::from(!taken);
            plan.submission = match taken {
                true => SubmissionState::Taken,
                false if plan.lost <= REWRITES => SubmissionState::Nothing,
                false => SubmissionState::Refused(why),
            };
        }
    }

    /// The lead ends the turn. An idle worker has none.
    pub(crate) fn interrupt(&mut self) {
        self.interrupted = self.at != At::Idle;
    }

    /// The incarnation ends in any case; the first reason counts.
    pub(crate) fn end(&mut self, end: End) {
        self.end.get_or_insert(end);
    }

    /// This mail waits. What may wait for more of its kind does so from the first of it on, however much comes.
    pub(crate) fn mail(&mut self, mail: Mail, now: Duration) {
        self.mail = mail;
        self.settled_at = match mail {
            Mail::Soon => self.settled_at.or(Some(now + SETTLES)),
            Mail::None | Mail::News | Mail::Work => None,
        };
    }

    /// More mail stands in the inbox than was looked at, or none does.
    pub(crate) fn rest(&mut self, rest: bool) {
        self.rest = rest;
    }

    /// Something of the person waits, or nothing does.
    pub(crate) fn spoken_to(&mut self, spoken_to: bool) {
        self.spoken_to = spoken_to;
    }

    /// Background commands run, or none does any more.
    pub(crate) fn background(&mut self, running: bool) {
        self.background = running;
        self.act();
    }
}

/// What came of the steps.
impl State {
    /// The mail was taken in; `work`: some of it starts a turn; `rest`: there is more of it, not even looked at.
    pub(crate) fn taken_in(&mut self, work: bool, rest: bool) {
        self.mail = Mail::None;
        self.settled_at = None;
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.mail_first &= rest;
        }
        if self.at == At::Idle && work {
            (self.turns, self.spent) = (0, 0);
            self.trouble.clear();
            self.at = At::Turn { results: false };
        }
    }

    /// The model was shown the shutdown.
    pub(crate) fn shown(&mut self) {
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.shown = true;
        }
    }

    /// A model call begins.
    pub(crate) fn thinking(&mut self) {
        let results = matches!(self.at, At::Turn { results: true });
        self.at = At::Thinking { results };
        self.pause = None;
    }

    /// The model call waits for its service, or goes on.
    pub(crate) fn pause(&mut self, pause: Option<Waiting>) {
        self.pause = pause;
    }

    /// The model call was dropped, as if it had never begun.
    pub(crate) fn dropped(&mut self) {
        let results = matches!(self.at, At::Thinking { results: true });
        self.at = At::Turn { results };
    }

    /// The model did something that costs.
    pub(crate) fn count_usage(&mut self, usage: Usage) {
        self.usage += usage;
        self.spent = self.spent.saturating_add(usage.billed());
    }

    /// The model answered; without `calls`, the work has ended.
    pub(crate) fn answered(&mut self, calls: bool) {
        self.turns += 1;
        self.at = if calls { At::Call } else { At::Done(IdleReason::Available) };
    }

    /// The model could not answer.
    pub(crate) fn failed(&mut self) {
        self.at = At::Done(IdleReason::Failed);
    }

    /// A call begins; `gated`: an open gate let it through.
    pub(crate) fn calling(&mut self, activity: String, gated: bool) {
        self.at = At::Calling { activity, gated };
    }

    /// A call begins to wait for a person.
    pub(crate) fn asking(&mut self) {
        self.at = At::Asking;
    }

    /// A call has its result; `more`: the answer holds more calls.
    pub(crate) fn call_ended(&mut self, more: bool) {
        self.at = if more { At::Call } else { At::Turn { results: true } };
        self.keep_calls &= more;
        self.act();
    }

    /// All calls of the answer have results.
    pub(crate) fn skipped(&mut self) {
        self.answer = None;
        self.call_ended(false);
    }

    /// The model submits a plan: the gate closes.
    pub(crate) fn planning(&mut self, request_id: RequestId) {
        self.at = At::PendingPlan(PendingPlan { request_id, submission: SubmissionState::Nothing, lost: 0 });
        self.act();
    }

    /// The line of the plan is being submitted.
    pub(crate) fn submitted(&mut self) {
        if let At::PendingPlan(plan) = &mut self.at {
            plan.submission = SubmissionState::Submitted;
        }
    }

    /// An answer to the shutdown is being submitted.
    pub(crate) fn answering(&mut self, request_id: RequestId, approve: bool, by: AnsweredBy) {
        self.answer = Some(ShutdownAnswer { request_id, approve, by, outcome: None });
    }

    /// The runtime's answer could not be written: the next attempt comes a little later.
    pub(crate) fn answer_failed(&mut self, now: Duration) {
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.not_before = now + RETRY;
        }
    }

    /// What became of the answer is known to the model.
    ///
    /// One that was refused changed nothing: while the daemon's directive calls the shutdown pending, it is answered again, a
    /// little later.
    pub(crate) fn settled(&mut self, now: Duration) {
        let Some(answer) = self.answer.take() else { return };
        if let Some(AnswerOutcome::Refused(_)) = answer.outcome {
            self.answer_failed(now);
            return;
        }
        if answer.outcome == Some(AnswerOutcome::Recorded(Status::Approved)) {
            self.release = true;
            self.keep_calls = answer.by == AnsweredBy::Model;
        }
        if self.pending_shutdown() == Some(&answer.request_id) {
            self.shutdown = None;
        }
        self.settled = Some(answer.request_id);
    }

    /// The lead was told that the work has ended, and what it came to.
    pub(crate) fn finished(&mut self, reason: IdleReason, told: &str) {
        self.at = At::Idle;
        self.interrupted = false;
        self.rests(reason, told);
    }

    /// The last piece of work ended so, in this incarnation or an earlier one.
    pub(crate) fn rests(&mut self, reason: IdleReason, told: &str) {
        self.trouble = report::trouble(reason, told);
    }

    /// Returns what one piece of work may cost.
    pub(crate) fn limits(&self) -> Budget {
        self.limits
    }

    /// Returns how many tokens this piece of work may still cost, if there is a limit.
    pub(crate) fn tokens_left(&self) -> Option<u64> {
        self.limits.tokens.map(|most| most.saturating_sub(self.spent))
    }

    /// The incarnation ends now, but for the background commands.
    pub(crate) fn leaving(&mut self) {
        self.leaving = true;
    }
}

impl OpenShutdown {
    fn begun(directive: PendingShutdown, now: Duration, mail_first: bool) -> Self {
        // What is no time (negative, not a number) is none; what is no end of time is a long one.
        let within = match Duration::try_from_secs_f64(directive.decide_within) {
            Ok(within) => within.min(FOREVER),
            Err(_) if directive.decide_within > 0.0 => FOREVER,
            Err(_) => Duration::ZERO,
        };
        Self { directive, decide_by: now.saturating_add(within), shown: false, mail_first, not_before: now }
    }
}
