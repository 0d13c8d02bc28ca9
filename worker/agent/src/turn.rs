//! The steps of a turn: the model is asked, its calls run one after the other, each result is
//! recorded before the next call begins. What a step does next is not decided here.

mod admission;
mod agent;
mod compact;
mod delegate;
mod submission;

use teamd_shared::clock;
use teamd_shared::member::Gate;
use teamd_shared::message::{Body, Message, RUNTIME};
use teamd_shared::mutant;
use teamd_shared::task::TaskId;
use teamd_shared::tool_set::ToolSet;
use teamd_shared::transcript::{Block, Event};

use crate::session::Session;
use crate::tools::{Runs, Tools};
use crate::transcript::TranscriptError;
use admission::{CallOwner, after_wait};
use teamd_worker_core::cut::{CONTINUE, CUT_CALL};
use teamd_worker_core::state::{IncarnationEnd, Why};
use teamd_worker_core::submission::{Asks, LeadQuestion};
use teamd_worker_core::tools::{
    Action, AfterCrash, Call, LocalAction, Outcome, PlanApproval, group_of,
};
use teamd_worker_model::ModelError;

/// The error of a call that a closed gate refuses.
const GATE_CLOSED: &str = "refused: your gate is closed, so nothing may be changed; submit a plan with plan_approval and wait for \
     the verdict";

/// Returns the error of a tool of a group that the conversation was not offered.
fn not_offered(tools: &ToolSet, tool: &str) -> Option<String> {
    let group = group_of(tool)?;
    (!tools.has(group)).then(|| {
        format!(
            "there is no tool {tool:?} in this conversation: `[tools] groups` of team.toml offers it to a new one"
        )
    })
}

/// The error of such a call while the work of this teammate is checked where it works.
fn checking(task: TaskId) -> String {
    format!(
        "your work on task {task} is being checked here, and nothing may be changed meanwhile; end your turn: you get a message if the check fails"
    )
}

/// Returns the error of a call that the gate refuses; `task`: the task for which it is closed,
/// if it is for one alone.
fn refusal_of_gate(task: Option<TaskId>) -> String {
    match task {
        Some(task) => format!("refused: {}", checking(task)),
        None => GATE_CLOSED.to_owned(),
    }
}

impl<T: Tools> Session<T> {
    /// Asks the model. A call that is dropped leaves nothing behind but its cost.
    pub(crate) async fn think(&mut self) -> Result<(), TranscriptError> {
        if self.dispatcher.state.work.cut.must_be_told() {
            self.tell_of_cut()?;
        }
        self.dispatcher.state.thinking();
        if let Err(why) = self.ready_agent().await {
            self.dispatcher.state.failed(why);
            return Ok(());
        }
        if let Err(why) = self.list_mcp_tools().await {
            self.stop_agent(&why).await?;
            self.dispatcher.state.dropped();
            return Ok(());
        }
        self.send_news()?;
        let Self {
            dispatcher,
            model,
            live,
            ..
        } = self;
        if model.streams() {
            live.begin();
        }
        let asked = (dispatcher.state.budget_left(), dispatcher.state.gate());
        let progress = dispatcher
            .run_until(model.answer(asked, &mut |piece| live.observe(piece)))
            .await;
        let limit = self.dispatcher.toolbox.refused();
        self.charge()?;
        match progress {
            Ok(Ok(entry)) => return self.answered(entry),
            // A spent budget is reported as between two answers.
            Err(why) => {
                self.stop_agent(&why).await?;
                self.dispatcher.state.dropped();
            }
            Ok(Err(ModelError::Spent)) => match limit {
                Some(limit) => self.dispatcher.state.stopped(limit),
                None => self.dispatcher.state.dropped(),
            },
            Ok(Err(ModelError::Gone(how))) => {
                tracing::warn!("the agent {how}; the worker starts it again");
                self.dispatcher.state.dropped();
            }
            Ok(Err(error)) => {
                let reason = format!("{error} (hint: {})", error.hint());
                tracing::error!("no answer: {reason}");
                self.dispatcher.state.failed(reason);
            }
        }
        Ok(())
    }

    /// Tells the model that its last answer was cut. It is no mail, so no inbox has it.
    fn tell_of_cut(&mut self) -> Result<(), TranscriptError> {
        let told = self.cut_message();
        self.record(told)
    }

    /// Makes the entry that tells a model that its answer was cut.
    fn cut_message(&mut self) -> Event {
        let owner = self.outbox.from().as_str();
        let id = self.ids.message();
        let message = Message::new(id, RUNTIME, owner, clock::wall(), Body::Message);
        let messages = vec![message.with_content(CONTINUE).to_json()];
        Event::Messages { messages }
    }

    /// Finds out which tools the MCP servers have, if that is not known. A call of theirs may be the
    /// first step of an incarnation: its answer was recorded in an earlier one.
    async fn list_mcp_tools(&mut self) -> Result<(), Why> {
        let gate = self.dispatcher.state.gate();
        match self.dispatcher.toolbox.list_mcp_tools(gate) {
            Some(listing) => self.dispatcher.run_until(listing).await,
            None => Ok(()),
        }
    }

    /// Records an answer with the ids of what its calls will send, before the first of them runs.
    fn answered(&mut self, mut entry: Event) -> Result<(), TranscriptError> {
        self.count_answer(&mut entry);
        if let Event::Answer { content, .. } = &mut entry {
            for block in content {
                if let Block::ToolUse {
                    name,
                    message_id,
                    request_id,
                    ..
                } = block
                    && self.caller.after_crash(name) == AfterCrash::RunAgainWithIds
                {
                    *message_id = Some(self.ids.message());
                    *request_id = (name == "plan_approval").then(|| self.ids.request());
                }
            }
        }
        self.record(entry)?;
        if self.dispatcher.state.work.calls.is_empty() || mutant::is_on("answer-not-synced") {
            return Ok(());
        }
        self.transcript.sync()
    }

    /// Sets what is recorded as the cost of an answer.
    fn count_answer(&mut self, entry: &mut Event) {
        if let Event::Answer {
            usage, model_calls, ..
        } = entry
        {
            let due = self.due(*usage, *model_calls);
            *usage = due.usage;
            *model_calls = due.calls;
        }
    }

    /// Records what an agent does while an earlier call of it waits.
    pub(crate) fn beside(&mut self, event: Event) -> Result<(), TranscriptError> {
        if matches!(event, Event::Answer { .. }) {
            self.answered(event)
        } else {
            self.record(event)
        }
    }

    /// Runs the next call.
    pub(crate) async fn call(&mut self) -> Result<(), TranscriptError> {
        self.pass_on_news().await?;
        let Some(next) = self.dispatcher.state.work.calls.front() else {
            return Ok(());
        };
        if self
            .model
            .agent()
            .is_some_and(|agent| agent.runs(&next.id, &next.name))
        {
            let name = next.name.clone();
            let id = next.id.clone();
            return self.follow_call(&name, &id).await;
        }
        if self.dispatcher.state.work.cut.has_calls() {
            return self.end_call(Outcome::error(CUT_CALL));
        }
        let message_id = next.message_id;
        let request_id = next.request_id.clone();
        let repeated = next.repeated;
        if let Some(why) = not_offered(&self.tools, &next.name) {
            return self.end_call(Outcome::error(why));
        }
        let Call { activity, action } = match self.caller.parse(&next.name, &next.input) {
            Ok(call) => call,
            Err(why) => return self.end_call(Outcome::error(why)),
        };
        let bytes = next.input.to_string().len();
        if action.reaches_the_team() {
            let receivers = if action.is_for_all() {
                self.outbox.receivers()
            } else {
                1
            };
            if let Err(why) = self.allowance.spend(bytes, receivers) {
                return self.end_call(Outcome::error(why));
            }
        }
        let message_id = message_id.unwrap_or_else(|| self.ids.message());
        match action {
            Action::Local(action) => self.run_tool(activity, action).await,
            Action::Team(action) => {
                self.dispatcher.state.calling(activity, false, false);
                let outcome = self.act_on_team(action, message_id, repeated).await;
                self.end_call(outcome)
            }
            Action::ReadInbox => self.read_inbox(),
            Action::Delegate(delegate) => self.delegate(activity, &delegate).await,
            Action::Todo(list) => self.end_call(Outcome::ok(list.summary())),
            Action::AnswerShutdown(response) => {
                self.answer_shutdown(response, message_id, repeated)
            }
            Action::SubmitPlan(PlanApproval { plan }) => {
                let request_id = request_id.unwrap_or_else(|| self.ids.request());
                self.dispatcher.state.submitting(LeadQuestion {
                    asks: Asks::Plan(plan),
                    message_id,
                    request_id,
                });
                Ok(())
            }
        }
    }

    async fn run_tool(
        &mut self,
        activity: String,
        action: LocalAction,
    ) -> Result<(), TranscriptError> {
        let gate = self.dispatcher.state.gate();
        if gate == Gate::Closed && action.needs_open_gate() {
            let why = refusal_of_gate(self.dispatcher.state.checking());
            return self.end_call(Outcome::error(why));
        }
        let is_mind = action.is_mind();
        let admission = match self.admit(&action, gate, CallOwner::Member).await? {
            Ok(admission) => admission,
            Err(why) => return self.end_call(self.not_run(&why)),
        };
        self.dispatcher
            .state
            .calling(activity, action.changes(gate), is_mind);
        if is_mind {
            self.dispatcher
                .toolbox
                .allow(Some(self.dispatcher.state.budget_left()));
        }
        if matches!(action, LocalAction::McpCall(_) | LocalAction::McpLook(_)) {
            if let Err(why) = self.list_mcp_tools().await {
                return self.end_call(Outcome::error(self.broken_off(&why)));
            }
            // A server may have run behind the gate that has just been opened.
            self.dispatcher.toolbox.opened().await;
        }
        let mut running = self.dispatcher.toolbox.start(action, gate);
        self.dispatcher
            .state
            .background(self.dispatcher.toolbox.has_background());
        let outcome = match self.dispatcher.run_until(running.finish()).await {
            Ok(outcome) => self.explained(outcome),
            Err(why) => {
                self.dispatcher
                    .run_to_end(running.cancel(&self.broken_off(&why)))
                    .await
            }
        };
        let outcome = after_wait(admission, outcome);
        let limit = if is_mind && outcome.is_error {
            self.dispatcher.toolbox.refused()
        } else {
            None
        };
        self.end_call(outcome)?;
        if let Some(limit) = limit {
            self.charge()?;
            self.dispatcher.state.stopped(limit);
        }
        Ok(())
    }

    /// Adds to the error of a command that nothing can be changed during a check, if one runs.
    fn explained(&self, mut outcome: Outcome) -> Outcome {
        if outcome.is_error
            && let Some(task) = self.dispatcher.state.checking()
        {
            outcome.content.push_str(&format!("\n[{}]", checking(task)));
        }
        outcome
    }

    /// Records the result of the call that is next, or runs.
    pub(crate) fn end_call(&mut self, outcome: Outcome) -> Result<(), TranscriptError> {
        self.dispatcher
            .state
            .background(self.dispatcher.toolbox.has_background());
        if let Some(ended) = self.dispatcher.state.work.calls.front() {
            let tool_use_id = ended.id.clone();
            self.record(outcome.into_result(tool_use_id))?;
        }
        // What has arrived reaches the model with this result, whenever the watch may say so.
        self.dispatcher.fetch();
        Ok(())
    }

    /// Returns why a step is broken off or does not begin.
    pub(crate) fn broken_off(&self, why: &Why) -> String {
        match why {
            Why::Checked(task) => return checking(*task),
            Why::Interrupted => self.caller.interrupted(),
            Why::Closed => GATE_CLOSED.trim_start_matches("refused: "),
            Why::Released => "the shutdown is approved",
            Why::Overdue => "the shutdown was not answered in time",
            Why::Asked => "you are asked to leave",
            Why::SpokenTo => "the person has written to you first",
            Why::Ends(IncarnationEnd::Terminated) => "interrupted: SIGTERM ends the worker",
            Why::Ends(IncarnationEnd::Approved | IncarnationEnd::Unknown(_)) => {
                "interrupted: the worker ends"
            }
        }
        .to_owned()
    }

    /// Gives every call without a result an error that explains why it does not run.
    pub(crate) fn skip(&mut self, why: &Why) -> Result<(), TranscriptError> {
        let reason = self.broken_off(why);
        if self.stop_submitting() || self.dispatcher.state.is_answering() {
            self.end_call(Outcome::error(format!("no reply: {reason}")))?;
        }
        self.end_calls(&format!("not run: {reason}"))?;
        // What an agent does beside them runs.
        while !self.dispatcher.state.work.calls.is_empty() {
            self.end_call(Outcome::error(reason.as_str()))?;
        }
        self.dispatcher.state.drop_answer();
        Ok(())
    }

    /// Gives every call of one answer that has no result this one.
    fn end_calls(&mut self, error: &str) -> Result<(), TranscriptError> {
        while self
            .dispatcher
            .state
            .work
            .calls
            .front()
            .is_some_and(|next| !next.is_beside)
        {
            self.end_call(Outcome::error(error))?;
        }
        Ok(())
    }
}
