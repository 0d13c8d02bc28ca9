//! The steps of a turn: the model is asked, its calls run one after the other, each result is recorded before
//! the next call begins. What a step does next is not decided here.

use teamd_shared::member::Gate;
use teamd_shared::message::{AnsweredBy, Body, LEAD};
use teamd_shared::mutant;
use teamd_shared::name::Name;
use teamd_shared::request::Status;
use teamd_shared::transcript::{Block, Event as Entry};

use crate::agent::session::{Session, stands};
use crate::agent::transcript::TranscriptError;
use crate::core::plan::{self, Submission};
use crate::core::replay::{calls_of, closing};
use crate::core::state::{AnswerOutcome, End, PlanOutcome, ShutdownAnswer, Why};
use crate::model::{Answer, Compaction, ModelError};
use crate::tools::{Action, AfterCrash, Call, LocalAction, Outcome, PlanApproval, Runs, Tools};

/// What a call is told that a closed gate refuses.
const GATE_CLOSED: &str = "refused: the gate is closed, nothing may be changed; submit a plan with plan_approval and wait for \
     the verdict";

impl<T: Tools> Session<T> {
    /// Asks the model. A call that is dropped leaves nothing behind but what it cost.
    pub(crate) async fn think(&mut self) -> Result<(), TranscriptError> {
        self.dispatcher.state.thinking();
        if self.model.is_full() {
            return self.compact().await;
        }
        let Self { dispatcher, model, live, .. } = self;
        if model.streams() {
            live.begin();
        }
        let budget = dispatcher.state.tokens_left();
        let came = dispatcher.run_until(model.answer(budget, &mut |heard| live.observe(heard))).await;
        self.record_usage()?;
        match came {
            Ok(Ok(answer)) => self.answered(answer)?,
            // It is cut, and the model is asked again.
            Ok(Err(ModelError::TooLong(_))) if self.model.is_full() => self.dispatcher.state.dropped(),
            Ok(Err(error)) => self.failed(&error),
            Err(_) => self.dispatcher.state.dropped(),
        }
        Ok(())
    }

    /// Records what was charged for an answer that does not come.
    fn record_usage(&mut self) -> Result<(), TranscriptError> {
        let usage = self.model.take_unrecorded();
        if !usage.is_nothing() {
            self.record(&Entry::Charged { usage })?;
            self.dispatcher.state.count_usage(usage);
        }
        Ok(())
    }

    /// Ends the work that no answer can be had for.
    fn failed(&mut self, error: &ModelError) {
        // That the budget is spent is told as it is told between two answers.
        if matches!(error, ModelError::Spent) {
            return self.dispatcher.state.dropped();
        }
        let told = format!("{error} (hint: {})", error.hint());
        tracing::error!("no answer: {told}");
        self.closing = told;
        self.dispatcher.state.failed();
    }

    /// Puts a summary in the place of the beginning of the conversation.
    async fn compact(&mut self) -> Result<(), TranscriptError> {
        let budget = self.dispatcher.state.tokens_left();
        let came = self.dispatcher.run_until(self.model.compact(budget)).await;
        self.record_usage()?;
        match came {
            Ok(Ok(Compaction { summary, kept, usage })) => {
                self.record(&Entry::Compacted { summary, kept, usage })?;
                self.dispatcher.state.count_usage(usage);
                self.dispatcher.state.dropped();
            }
            // Nothing is cut: the service may be there again for the next piece of work.
            Ok(Err(error)) => self.failed(&error),
            Err(_) => self.dispatcher.state.dropped(),
        }
        Ok(())
    }

    /// Records an answer with the ids of what its calls will send, before the first of them runs.
    fn answered(&mut self, answer: Answer) -> Result<(), TranscriptError> {
        let Answer { mut content, usage, cut, length } = answer;
        for block in &mut content {
            if let Block::ToolUse { name, message_id, request_id, .. } = block
                && self.caller.after_crash(name) == AfterCrash::RunAgainWithIds
            {
                *message_id = Some(self.ids.message());
                *request_id = (name == "plan_approval").then(|| self.ids.request());
            }
        }
        self.closing = closing(&content, cut);
        self.calls = calls_of(&content);
        self.record(&Entry::Answer { content, usage, cut, length })?;
        self.dispatcher.state.count_usage(usage);
        if !self.calls.is_empty() && !mutant::is_on("answer-not-synced") {
            self.transcript.sync()?;
        }
        self.dispatcher.state.answered(!self.calls.is_empty());
        Ok(())
    }

    /// Runs the next call.
    pub(crate) async fn call(&mut self) -> Result<(), TranscriptError> {
        let Some(next) = self.calls.front() else { return Ok(()) };
        let (message_id, request_id, repeated) = (next.message_id, next.request_id.clone(), next.repeated);
        let Call { activity, action } = match self.caller.parse(&next.name, &next.input) {
            Ok(call) => call,
            Err(why) => return self.end_call(Outcome::error(why)),
        };
        let message_id = message_id.unwrap_or_else(|| self.ids.message());
        match action {
            Action::Local(action) => self.run_tool(activity, action).await,
            Action::Team(action) => {
                self.dispatcher.state.calling(activity, false);
                let outcome = self.act_on_team(action, message_id, repeated).await;
                self.end_call(outcome)
            }
            Action::ReadInbox => self.read_inbox(),
            Action::AnswerShutdown(response) => self.answer_shutdown(response, message_id, repeated),
            Action::SubmitPlan(PlanApproval { plan }) => {
                let request_id = request_id.unwrap_or_else(|| self.ids.request());
                self.dispatcher.state.planning(request_id.clone());
                self.submission = Some(Submission { plan, message_id, request_id });
                Ok(())
            }
        }
    }

    async fn run_tool(&mut self, activity: String, action: LocalAction) -> Result<(), TranscriptError> {
        let gate = self.dispatcher.state.gate();
        if gate == Gate::Closed && action.needs_open_gate() {
            return self.end_call(Outcome::error(GATE_CLOSED));
        }
        self.dispatcher.state.calling(activity, action.changes(gate));
        let mut running = self.dispatcher.toolbox.start(action, gate);
        let outcome = match self.dispatcher.run_until(running.finish()).await {
            Ok(outcome) => outcome,
            Err(why) => self.dispatcher.run_to_end(running.cancel(&self.broken_off(&why))).await,
        };
        self.end_call(outcome)
    }

    /// Records the result of the call that is next, or runs.
    pub(crate) fn end_call(&mut self, outcome: Outcome) -> Result<(), TranscriptError> {
        if let Some(ended) = self.calls.pop_front() {
            let Outcome { content, is_error } = outcome;
            self.record(&Entry::Result { tool_use_id: ended.id, content, is_error })?;
        }
        self.dispatcher.state.background(self.dispatcher.toolbox.has_background());
        self.dispatcher.state.call_ended(!self.calls.is_empty());
        // What has arrived reaches the model with this result, whenever the watch may say so.
        self.dispatcher.fetch();
        Ok(())
    }

    /// Says why something is broken off, or does not begin.
    pub(crate) fn broken_off(&self, why: &Why) -> String {
        match why {
            Why::Interrupted => self.caller.interrupted(),
            Why::Released => "the shutdown is approved",
            Why::Overdue => "the shutdown was not answered in time",
            Why::Asked => "you are asked to leave",
            Why::SpokenTo => "the person has written to you first",
            Why::Ends(End::Terminated) => "interrupted: SIGTERM ends the worker",
            Why::Ends(End::Approved | End::Unknown(_)) => "interrupted: the worker ends",
        }
        .to_owned()
    }

    /// Gives every call without a result one that says why it does not run.
    pub(crate) fn skip(&mut self, why: &Why) -> Result<(), TranscriptError> {
        let submission = self.submission.take();
        if let Some(submission) = &submission {
            self.dispatcher.link.settle(&submission.request_id);
        }
        if submission.is_some() || self.dispatcher.state.is_answering() {
            self.end_call(Outcome::error(format!("no reply: {}", self.broken_off(why))))?;
        }
        while !self.calls.is_empty() {
            self.end_call(Outcome::error(format!("not run: {}", self.broken_off(why))))?;
        }
        self.dispatcher.state.skipped();
        Ok(())
    }

    /// Writes the line of the plan, unless an earlier incarnation has written it, and submits it.
    pub(crate) fn submit_plan(&mut self) -> Result<(), TranscriptError> {
        let Some(Submission { plan, message_id, request_id }) = self.submission.clone() else {
            return Ok(());
        };
        let incarnation = Some(self.incarnation);
        let body = Body::PlanApprovalRequest { request_id: request_id.clone(), plan, incarnation };
        let message = self.outbox.message(message_id, LEAD, body);
        match self.outbox.send(&Name::lead(), &message, true) {
            Ok(line) => {
                self.dispatcher.state.submitted();
                self.dispatcher.link.submit(&request_id, line);
                Ok(())
            }
            Err(error) => self.resolve(&PlanOutcome::Refused(error.to_string())),
        }
    }

    /// Chooses other ids: those of the plan belong to another request.
    pub(crate) fn renumber_plan(&mut self) {
        if let Some(before) = self.submission.take() {
            self.dispatcher.link.settle(&before.request_id);
            let submission = before.renumbered();
            self.dispatcher.state.planning(submission.request_id.clone());
            self.submission = Some(submission);
        }
    }

    /// Tells the model what became of its plan; the calls behind one that was not approved are refused.
    pub(crate) fn resolve(&mut self, verdict: &PlanOutcome) -> Result<(), TranscriptError> {
        if let Some(submission) = self.submission.take() {
            self.dispatcher.link.settle(&submission.request_id);
        }
        self.end_call(plan::result_of(verdict))?;
        if !matches!(verdict, PlanOutcome::Decided { status: Status::Approved, .. }) {
            while !self.calls.is_empty() {
                self.end_call(Outcome::error(plan::BEHIND_A_REJECTED))?;
            }
        }
        Ok(())
    }

    /// Goes on with what the daemon made of an answer to a shutdown; the model is told of its own.
    pub(crate) fn settle(&mut self, answer: &ShutdownAnswer) -> Result<(), TranscriptError> {
        let now = self.dispatcher.now();
        self.dispatcher.state.settled(now);
        // A line that was refused is not meant again.
        self.approval = None;
        if answer.by == AnsweredBy::Runtime {
            return Ok(());
        }
        self.end_call(match &answer.outcome {
            Some(AnswerOutcome::Recorded(status)) if stands(answer.approve, *status) => {
                Outcome::ok(match status {
                    Status::Approved => "approved: you leave when the calls of this answer have run",
                    _ => "rejected: the lead has your reason; go on with your work",
                })
            }
            Some(AnswerOutcome::Recorded(status)) => Outcome::error(format!(
                "your answer does not count: the request is {} already",
                status.as_str()
            )),
            Some(AnswerOutcome::Refused(why)) => Outcome::error(format!("your answer does not count: {why}")),
            None => Outcome::error("your answer was not recorded"),
        })
    }
}
