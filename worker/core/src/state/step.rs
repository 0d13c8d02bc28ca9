//! The next step, from what is known.

use std::time::Duration;

use teamd_shared::id::RequestId;
use teamd_shared::member::{Gate, Waiting};
use teamd_shared::message::{IDLE, IdleReason, Relevance};
use teamd_shared::request::Status;
use teamd_shared::task::TaskId;
use teamd_shared::transcript::Usage;

use super::{ShutdownAnswer, State};
use crate::at::{At, Pending, SubmissionProgress};
use crate::submission::Judged;

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum NextStep {
    /// Nothing, until something happens or this time has come.
    Wait(Option<Duration>),
    /// Take the mail in.
    TakeIn,
    /// Show the shutdown to the model.
    Show {
        /// The request.
        request_id: RequestId,
        /// Why.
        reason: String,
    },
    /// Ask the model.
    Think,
    /// Put the conversation into a summary.
    Compact,
    /// Run the next call.
    Call,
    /// Give every call that has no result one that says why it does not run.
    Skip(Why),
    /// Write the line of the plan or question, and submit it.
    Submit,
    /// Choose another id for it.
    Renumber,
    /// Tell the model what became of it.
    Resolve(Judged),
    /// Say no to the shutdown for the model.
    Refuse {
        /// The request.
        request_id: RequestId,
        /// Why the runtime answers so.
        reason: String,
    },
    /// Answer the shutdown for the model.
    Approve {
        /// The request.
        request_id: RequestId,
        /// Why the runtime answers.
        reason: String,
    },
    /// Tell the model what became of its answer to a shutdown.
    ResolveAnswer(ShutdownAnswer),
    /// End the work, and tell the lead.
    Finish(IdleReason),
    /// End the incarnation.
    Leave(IncarnationEnd),
}

/// Why a call does not run, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The lead interrupted the turn.
    Interrupted,
    /// The shutdown is approved.
    Released,
    /// The model did not answer the shutdown in time.
    Overdue,
    /// A shutdown is asked for while a call waits for a person.
    Asked,
    /// The person says something else while a call waits for an answer.
    SpokenTo,
    /// The gate closes while a call waits that could write.
    Closed,
    /// Its work is checked where it works, and the call could write there.
    Checked(TaskId),
    /// The incarnation ends.
    Ends(IncarnationEnd),
}

/// Why an incarnation ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IncarnationEnd {
    /// The daemon has recorded the approval.
    Approved,
    /// SIGTERM came.
    Terminated,
    /// The daemon does not know this incarnation, or the team is gone.
    Unknown(String),
}

const WAIT: NextStep = NextStep::Wait(None);

impl State {
    /// Decides what to do next. While something runs, [`State::hold`] is to be asked.
    pub fn next(&self, now: Duration) -> NextStep {
        if let Some(end) = &self.end {
            return self.ending(end);
        }
        if let Some(answer) = &self.answer {
            return if answer.outcome.is_some() {
                NextStep::ResolveAnswer(answer.clone())
            } else {
                WAIT
            };
        }
        match self.work.at {
            At::Done(reason) => return NextStep::Finish(reason),
            At::Call | At::Pending(_) if self.interrupted => {
                return NextStep::Skip(Why::Interrupted);
            }
            At::Turn { .. } if self.interrupted => {
                return NextStep::Finish(IdleReason::Interrupted);
            }
            At::Call if self.release.is_recorded && !self.release.keeps_calls => {
                return NextStep::Skip(Why::Released);
            }
            At::Pending(_) if self.release.is_recorded => return NextStep::Skip(Why::Released),
            At::Idle | At::Turn { .. } if self.release.is_recorded => {
                return NextStep::Leave(IncarnationEnd::Approved);
            }
            _ => {}
        }
        if let Some(approve) = self.approve(now) {
            return approve;
        }
        match &self.work.at {
            At::Idle if self.may_compact() => NextStep::Compact,
            At::Idle if self.arrived.mail == Relevance::None || self.waits_for_more_mail(now) => {
                self.wait(now)
            }
            At::Idle if self.leaves_mail() => WAIT,
            At::Idle => NextStep::TakeIn,
            At::Turn { .. } if let Some(reason) = self.limit_reached() => NextStep::Finish(reason),
            // Before the mail, which would stand in the summary in excerpts alone.
            At::Turn { .. } if self.may_compact() => NextStep::Compact,
            // After the limits: what arrives when one is reached begins the next piece of work.
            At::Turn { .. } if self.arrived.mail != Relevance::None && !self.leaves_mail() => {
                NextStep::TakeIn
            }
            At::Turn { results } => self.show(*results).unwrap_or(NextStep::Think),
            At::Call => NextStep::Call,
            At::Pending(plan) => self.verdict_step(plan, now),
            At::Done(reason) => NextStep::Finish(*reason),
            At::Thinking { .. } | At::Calling { .. } | At::Held { .. } | At::Asking => WAIT,
        }
    }

    /// Returns which limit is reached, if one is.
    pub fn limit_reached(&self) -> Option<IdleReason> {
        let most = self
            .limits
            .turns
            .saturating_add(u32::from(self.limits.asks_itself));
        let turns = (self.work.turns >= most).then_some(IdleReason::MaxTurns);
        let limits = self.limits.less_granted(self.work.granted);
        // Such a model is not asked, so it would use nothing that a limit could count.
        let has_price = self.limits.cost.is_none()
            || self.work.fallback.is_none()
            || self.price_of_answers().is_some();
        turns
            .or_else(|| (!has_price).then_some(IdleReason::MaxCost))
            .or_else(|| self.total_left().reached(&Usage::default()))
            .or_else(|| {
                self.left_of(limits, &self.work.spent)
                    .reached(&Usage::default())
            })
    }

    /// Returns what an agent gets to read while its turn continues in a call: it reads that with
    /// what comes of the call.
    pub fn news(&self) -> Option<NextStep> {
        let ends = self.end.is_some() || self.interrupted || self.release.is_recorded;
        if ends
            || self.limit_reached().is_some()
            || !matches!(self.work.at, At::Call | At::Calling { .. })
        {
            return None;
        }
        let takes_in = self.arrived.mail != Relevance::None && !self.leaves_mail();
        if takes_in {
            Some(NextStep::TakeIn)
        } else {
            self.show(true)
        }
    }

    /// Tells whether work that has arrived is left for later: while what it did before is checked,
    /// it could change nothing. So it knows that its gate is open again before it reads what came
    /// of the check. What was there before a shutdown it must read.
    fn leaves_mail(&self) -> bool {
        self.directed.directive.checking.is_some()
            && self.arrived.mail == Relevance::Work
            && self.shutdown.is_none()
    }

    /// Decides whether the model call or the tool call that runs continues; returns the time until
    /// which it does in any case.
    ///
    /// # Errors
    /// [`Why`] it does not.
    pub fn hold(&self, now: Duration) -> Result<Option<Duration>, Why> {
        if let Some(end) = &self.end {
            return Err(Why::Ends(end.clone()));
        }
        if let At::Calling {
            gated: true,
            is_mind: false,
            ..
        }
        | At::Held { gated: true, .. } = &self.work.at
            && let Some(task) = self.directed.directive.checking
        {
            return Err(Why::Checked(task));
        }
        if self.compaction.runs.is_some() {
            return self.hold_summary();
        }
        match (&self.work.at, &self.shutdown) {
            (At::Thinking { .. } | At::Calling { .. } | At::Held { .. } | At::Asking, _)
                if self.interrupted =>
            {
                Err(Why::Interrupted)
            }
            (At::Asking | At::Held { .. }, Some(_)) => Err(Why::Asked),
            (At::Held { .. }, None) if self.release.is_recorded && !self.release.keeps_calls => {
                Err(Why::Released)
            }
            (At::Held { gated: true, .. }, None) if self.gate() == Gate::Closed => Err(Why::Closed),
            // The person who is asked says something else first, and must be heard.
            (At::Asking, None) if self.arrived.of_person => Err(Why::SpokenTo),
            (At::Thinking { .. }, _) if self.release.is_recorded => Err(Why::Released),
            // Between two attempts there is no model call that could be answered.
            (At::Thinking { .. }, Some(shutdown))
                if self.has_outage() && now >= shutdown.not_before =>
            {
                Err(Why::Overdue)
            }
            (At::Thinking { .. } | At::Calling { is_mind: true, .. }, Some(shutdown)) => {
                match shutdown.decide_by.max(shutdown.not_before) {
                    over if now >= over => Err(Why::Overdue),
                    later => Ok(Some(later)),
                }
            }
            _ => Ok(None),
        }
    }

    /// As [`State::hold`], of a summary that is being written: nothing that ends a turn or the
    /// incarnation waits for it. Mail does.
    fn hold_summary(&self) -> Result<Option<Duration>, Why> {
        if self.interrupted {
            return Err(Why::Interrupted);
        }
        if self.release.is_recorded {
            return Err(Why::Released);
        }
        if self.shutdown.is_some() {
            return Err(Why::Asked);
        }
        Ok(None)
    }

    fn ending(&self, end: &IncarnationEnd) -> NextStep {
        match self.work.at {
            At::Call | At::Calling { .. } | At::Held { .. } | At::Asking | At::Pending(_) => {
                NextStep::Skip(Why::Ends(end.clone()))
            }
            At::Done(reason) => NextStep::Finish(reason),
            At::Idle | At::Turn { .. } | At::Thinking { .. } => NextStep::Leave(end.clone()),
        }
    }

    /// The runtime answers at once where there is no work, and where the model had its time.
    fn approve(&self, now: Duration) -> Option<NextStep> {
        let shutdown = self
            .shutdown
            .as_ref()
            .filter(|shutdown| now >= shutdown.not_before)?;
        let overdue = now >= shutdown.decide_by;
        // It was asked since it was idle, and something came meanwhile.
        let has_mail = self.arrived.mail >= Relevance::Soon || self.arrived.rest;
        let has_work = self.work.at != At::Idle || shutdown.mail_first || has_mail;
        if shutdown.directive.reason == IDLE && has_work {
            return Some(NextStep::Refuse {
                request_id: shutdown.directive.request_id.clone(),
                reason: "not idle any more".to_owned(),
            });
        }
        let reason = match self.work.at {
            // It is read first, but a worker that gets news without a pause answers all the same.
            At::Idle if self.arrived.mail == Relevance::News && !overdue => return None,
            At::Idle if self.arrived.mail == Relevance::Work && shutdown.mail_first => return None,
            At::Idle if shutdown.shown => "the turn ended without an answer".to_owned(),
            At::Idle => "idle".to_owned(),
            At::Pending(_) if self.has_plan() => "waiting for a verdict on its plan".to_owned(),
            At::Pending(_) => "waiting for a permission".to_owned(),
            At::Turn { .. } if let Some(why) = &self.service.outage => {
                format!("no model could answer: {why}")
            }
            At::Turn { .. } | At::Call if overdue => {
                format!("no answer within {} s", shutdown.directive.decide_within)
            }
            _ => return None,
        };
        Some(NextStep::Approve {
            request_id: shutdown.directive.request_id.clone(),
            reason,
        })
    }

    /// Tells whether the model call that runs waits until its service serves again.
    fn has_outage(&self) -> bool {
        self.service.pause.as_ref().is_some_and(Waiting::is_outage)
    }

    /// The model learns of a shutdown together with results, so that work that came before it has
    /// begun.
    fn show(&self, results: bool) -> Option<NextStep> {
        let shutdown = self
            .shutdown
            .as_ref()
            .filter(|shutdown| results && !shutdown.shown)?;
        let directive = shutdown.directive.clone();
        Some(NextStep::Show {
            request_id: directive.request_id,
            reason: directive.reason,
        })
    }

    fn verdict_step(&self, plan: &Pending, now: Duration) -> NextStep {
        let verdict = self
            .directed
            .directive
            .verdict
            .as_ref()
            .filter(|verdict| verdict.request_id == plan.submission.request_id);
        // Unless it is recorded for this incarnation, it expired with the one that had submitted
        // it; the conversation continues, and so does its plan, which an incarnation between may
        // have submitted under another id.
        let of_this_incarnation = matches!(plan.progress, SubmissionProgress::Recorded(_));
        if !of_this_incarnation && verdict.is_some_and(|verdict| verdict.status == Status::Expired)
        {
            return NextStep::Renumber;
        }
        if let Some(verdict) = verdict.filter(|verdict| verdict.status != Status::Pending) {
            let feedback = verdict.feedback.clone();
            return NextStep::Resolve(Ok((verdict.status, feedback)));
        }
        match &plan.progress {
            // Nothing that an open gate let through may run when the plan is recorded.
            SubmissionProgress::Nothing if self.background && self.has_plan() => self.wait(now),
            SubmissionProgress::Nothing => NextStep::Submit,
            SubmissionProgress::Submitted | SubmissionProgress::Recorded(Status::Pending) => {
                self.wait(now)
            }
            SubmissionProgress::Recorded(status) => NextStep::Resolve(Ok((*status, String::new()))),
            SubmissionProgress::Taken => NextStep::Renumber,
            SubmissionProgress::Refused(why) => NextStep::Resolve(Err(why.clone())),
        }
    }

    /// Tells whether a summary is asked for.
    pub(super) fn must_compact(&self) -> bool {
        !self.compaction.asked.is_empty()
    }

    /// Tells whether it can be written now: a shutdown is answered first.
    fn may_compact(&self) -> bool {
        self.must_compact() && self.shutdown.is_none()
    }

    /// Tells whether mail that is there waits for more of its kind.
    fn waits_for_more_mail(&self, now: Duration) -> bool {
        self.take_in_at.is_some_and(|time| time > now)
    }

    /// Waits; not beyond the time when the answer to a shutdown is to be tried again, or mail is to
    /// be consumed.
    fn wait(&self, now: Duration) -> NextStep {
        let again = self.shutdown.as_ref().map(|shutdown| shutdown.not_before);
        let until = [again, self.take_in_at]
            .into_iter()
            .flatten()
            .filter(|&time| time > now)
            .min();
        NextStep::Wait(until)
    }
}
