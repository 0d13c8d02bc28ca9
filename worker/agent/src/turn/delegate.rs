//! The call of `delegate`: a subagent with a conversation of its own, which uses the tools of the
//! machine under the gate and the limits of its member, until it answers or is interrupted.
//!
//! Each of its entries carries the id of the call. A later incarnation does not go on with it: the
//! call is answered as interrupted then.

use teamd_shared::member::Gate;
use teamd_shared::transcript::Event;

use super::admission::{CallOwner, after_wait};
use super::refusal_of_gate;
use crate::session::Session;
use crate::tools::{Runs, Tools};
use crate::transcript::TranscriptError;
use teamd_worker_core::cut::CUT_CALL;
use teamd_worker_core::state::Why;
use teamd_worker_core::tool_use::ToolUse;
use teamd_worker_core::tools::{Action, Call, Caller, Delegate, Outcome};
use teamd_worker_model::ModelError;

/// What becomes of a step of the subagent.
enum Step {
    /// There is a next one.
    GoesOn,
    /// The call of `delegate` has this outcome.
    Ends(Outcome),
}

/// The call of `delegate` that runs.
struct Delegating {
    id: String,
    /// In a few words.
    activity: String,
}

impl<T: Tools> Session<T> {
    /// Runs a subagent, and records its answer as the result of the call that is next.
    pub(super) async fn delegate(
        &mut self,
        activity: String,
        Delegate { prompt }: &Delegate,
    ) -> Result<(), TranscriptError> {
        let Some(next) = self.dispatcher.state.work.calls.front() else {
            return Ok(());
        };
        let id = next.id.clone();
        if !self.model.begin_subagent(&id, prompt) {
            let why = "this model has no subagent: do the work yourself";
            return self.end_call(Outcome::error(why));
        }
        let delegating = Delegating { id, activity };
        let outcome = loop {
            if let Step::Ends(outcome) = self.step_of_subagent(&delegating).await? {
                break outcome;
            }
        };
        self.model.end_subagent();
        self.end_call(outcome)
    }

    /// Asks the model of the subagent once, and runs what it calls.
    async fn step_of_subagent(&mut self, delegating: &Delegating) -> Result<Step, TranscriptError> {
        // A turn of quick calls must not outrun the daemon's directive.
        self.dispatcher.catch_up().await;
        if self.dispatcher.state.limit_reached().is_some() {
            return Ok(interrupted("a limit of your piece of work is reached"));
        }
        if self.dispatcher.state.work.subagent.cut.must_be_told() {
            let told = self.cut_message();
            self.record_of_subagent(delegating, told)?;
        }
        self.as_mind(delegating);
        let asked = self.dispatcher.state.budget_left();
        let Self {
            dispatcher, model, ..
        } = self;
        let answered = dispatcher.run_until(model.answer_subagent(asked)).await;
        let limit = self.dispatcher.toolbox.refused();
        self.charge()?;
        let mut answer = match answered {
            Ok(Ok(answer)) => answer,
            Err(why) => return Ok(interrupted(&self.broken_off(&why))),
            Ok(Err(ModelError::Spent)) if limit.is_some() => {
                return Ok(interrupted("a limit of your piece of work is reached"));
            }
            Ok(Err(error)) => {
                let why = format!("the subagent gave no answer: {error}");
                return Ok(Step::Ends(Outcome::error(why)));
            }
        };
        if matches!(answer, Event::Fallback { .. }) {
            // It holds for the member, too.
            self.record(answer)?;
            return Ok(Step::GoesOn);
        }
        self.count_answer(&mut answer);
        self.record_of_subagent(delegating, answer.clone())?;
        let Event::Answer { cut, .. } = answer else {
            // Its conversation was cut, and goes on.
            return Ok(Step::GoesOn);
        };
        let work = &self.dispatcher.state.work;
        if work.subagent.calls.is_empty() {
            if work.subagent.cut.goes_on() {
                return Ok(Step::GoesOn);
            }
            let text = work.subagent.text.as_str();
            return Ok(Step::Ends(answer_of_subagent(text, cut.is_some())));
        }
        self.transcript.sync()?;
        while let Some(next) = self.dispatcher.state.work.subagent.calls.front() {
            let next = next.clone();
            if let Step::Ends(outcome) = self.call_of_subagent(delegating, next).await? {
                return Ok(Step::Ends(outcome));
            }
        }
        Ok(Step::GoesOn)
    }

    /// Runs one call of the subagent, and records its result.
    async fn call_of_subagent(
        &mut self,
        delegating: &Delegating,
        ToolUse {
            id, name, input, ..
        }: ToolUse,
    ) -> Result<Step, TranscriptError> {
        if self.dispatcher.state.work.subagent.cut.has_calls() {
            return self.end_call_of_subagent(delegating, id, Outcome::error(CUT_CALL));
        }
        self.dispatcher.catch_up().await;
        self.as_mind(delegating);
        let now = self.dispatcher.now();
        if let Err(why) = self.dispatcher.state.hold(now) {
            return self.break_off_subagent(delegating, id, &why);
        }
        let (activity, action) = match Caller::Subagent.parse(&name, &input) {
            Ok(Call {
                activity,
                action: Action::Local(action),
            }) => (activity, action),
            Ok(_) => {
                let why = format!("{name} is not for a subagent");
                return self.end_call_of_subagent(delegating, id, Outcome::error(why));
            }
            Err(why) => return self.end_call_of_subagent(delegating, id, Outcome::error(why)),
        };
        let gate = self.dispatcher.state.gate();
        if gate == Gate::Closed && action.needs_open_gate() {
            // It cannot submit a plan: its member can.
            let why = refusal_of_gate(self.dispatcher.state.checking());
            self.end_call_of_subagent(delegating, id, Outcome::error(why.as_str()))?;
            return Ok(interrupted(&format!("its call of {name} was {why}")));
        }
        let admission = match self.admit(&action, gate, CallOwner::Subagent).await? {
            Ok(admission) => admission,
            Err(why) => return self.break_off_subagent(delegating, id, &why),
        };
        let activity = format!("{} · {activity}", delegating.activity);
        self.dispatcher
            .state
            .calling(activity, action.changes(gate), false);
        let mut running = self.dispatcher.toolbox.start(action, gate);
        let has_background = self.dispatcher.toolbox.has_background();
        self.dispatcher.state.background(has_background);
        match self.dispatcher.run_until(running.finish()).await {
            Ok(outcome) => {
                let outcome = after_wait(admission, outcome);
                self.end_call_of_subagent(delegating, id, outcome)
            }
            Err(why) => {
                let told = self.broken_off(&why);
                let outcome = self.dispatcher.run_to_end(running.cancel(&told)).await;
                self.end_call_of_subagent(delegating, id, outcome)?;
                Ok(interrupted(&told))
            }
        }
    }

    /// The subagent is next: a shutdown waits for it as for a model, and a gate that is to be closed
    /// is closed now.
    fn as_mind(&mut self, delegating: &Delegating) {
        let activity = delegating.activity.clone();
        self.dispatcher.state.calling(activity, false, true);
        let has_background = self.dispatcher.toolbox.has_background();
        self.dispatcher.state.background(has_background);
    }

    fn break_off_subagent(
        &mut self,
        delegating: &Delegating,
        id: String,
        why: &Why,
    ) -> Result<Step, TranscriptError> {
        let told = self.broken_off(why);
        let not_run = Outcome::error(format!("not run: {told}"));
        self.end_call_of_subagent(delegating, id, not_run)?;
        Ok(interrupted(&told))
    }

    fn end_call_of_subagent(
        &mut self,
        delegating: &Delegating,
        id: String,
        outcome: Outcome,
    ) -> Result<Step, TranscriptError> {
        self.as_mind(delegating);
        self.record_of_subagent(delegating, outcome.into_result(id))?;
        Ok(Step::GoesOn)
    }

    fn record_of_subagent(
        &mut self,
        delegating: &Delegating,
        event: Event,
    ) -> Result<(), TranscriptError> {
        let entry = self.append(Some(delegating.id.clone()), event)?;
        self.model.observe_subagent(&entry.event);
        self.dispatcher.state.work.follow_subagent(&entry.event);
        Ok(())
    }
}

fn interrupted(why: &str) -> Step {
    let begin = if why.starts_with("interrupted") {
        ""
    } else {
        "interrupted: "
    };
    Step::Ends(Outcome::error(format!(
        "{begin}{why}; the subagent may have changed files before"
    )))
}

/// Returns what the member reads of the answer that ends the subagent's work.
fn answer_of_subagent(text: &str, is_cut: bool) -> Outcome {
    if text.trim().is_empty() {
        return Outcome::error("the subagent gave an empty answer");
    }
    if is_cut {
        return Outcome::error(format!("{text}\n[the answer was cut here]"));
    }
    Outcome::ok(text)
}
