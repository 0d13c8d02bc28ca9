//! The steps of a turn: the model is asked, its calls run one after the other, each result is
//! recorded before the next call begins. What a step does next is not decided here.

use teamd_shared::member::{ApproveBy, Gate};
use teamd_shared::message::{LEAD, USER};
use teamd_shared::mutant;
use teamd_shared::name::Name;
use teamd_shared::request::Status;
use teamd_shared::task::TaskId;
use teamd_shared::transcript::{Block, Event};

use crate::session::{Session, stands};
use crate::tools::{Runs, Tools};
use crate::transcript::TranscriptError;
use teamd_worker_core::state::{IncarnationEnd, Judged, NextStep, ShutdownAnswer, Why};
use teamd_worker_core::submission::{self, Asks, LeadQuestion};
use teamd_worker_core::tools::{Action, AfterCrash, Call, LocalAction, Outcome, PlanApproval};
use teamd_worker_model::{CallProgress, ModelError};

/// The error of a call that a closed gate refuses.
const GATE_CLOSED: &str = "refused: your gate is closed, so nothing may be changed; submit a plan with plan_approval and wait for \
     the verdict";

/// The error of such a call while the work of this teammate is checked where it works.
fn checking(task: TaskId) -> String {
    format!(
        "your work on task {task} is being checked here, and nothing may be changed meanwhile; end your turn: a message reports the result of the check"
    )
}

impl<T: Tools> Session<T> {
    /// Asks the model. A call that is dropped leaves nothing behind but its cost.
    pub(crate) async fn think(&mut self) -> Result<(), TranscriptError> {
        self.dispatcher.state.thinking();
        if let Err(why) = self.ready_agent().await {
            self.dispatcher.state.failed(why);
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

    /// Makes sure that the agent runs, if the model is one, and that its gate is set before it gets
    /// its messages.
    async fn ready_agent(&mut self) -> Result<(), String> {
        if self.model.agent().is_none() {
            return Ok(());
        }
        self.close_gate().await;
        self.start_agent().await?;
        self.dispatcher.toolbox.opened().await;
        Ok(())
    }

    /// Closes the gate of the agent, if it must be closed.
    async fn close_gate(&mut self) {
        if self.dispatcher.state.must_end_background() {
            self.dispatcher.toolbox.end_background().await;
            self.dispatcher.state.background(false);
        }
    }

    /// Sends the agent what the transcript holds for it. The transcript is synced before: what it
    /// lost after the agent got it would be sent again.
    fn send_news(&mut self) -> Result<(), TranscriptError> {
        let Some(agent) = self.model.agent() else {
            return Ok(());
        };
        agent.permissions = self.dispatcher.state.permissions();
        let news = agent.news();
        if !news.is_empty() {
            self.dispatcher
                .toolbox
                .allow(Some(self.dispatcher.state.budget_left()));
        }
        if !news.is_empty() && !mutant::is_on("told-before-it-lasts") {
            self.transcript.sync()?;
        }
        agent.send(news);
        Ok(())
    }

    /// Starts the agent, if the model is one that does not run.
    pub(crate) async fn start_agent(&mut self) -> Result<(), String> {
        let Some(agent) = self.model.agent() else {
            return Ok(());
        };
        let gate = self.dispatcher.state.gate();
        agent.follow_gate(gate);
        let Some(launch) = agent.launch() else {
            return Ok(());
        };
        self.dispatcher.toolbox.agent_ended().await;
        agent.attach(self.dispatcher.toolbox.start_process(launch, gate)?);
        self.dispatcher
            .state
            .background(self.dispatcher.toolbox.has_background());
        Ok(())
    }

    /// Waits for a call that runs in the agent.
    async fn follow_call(&mut self, name: &str, id: &str) -> Result<(), TranscriptError> {
        self.dispatcher.state.calling(name.to_owned(), false, true);
        let Self {
            dispatcher,
            model,
            ids,
            ..
        } = self;
        let Some(agent) = model.agent() else {
            return Ok(());
        };
        agent.permissions = dispatcher.state.permissions();
        let progress = dispatcher
            .run_unless(agent.outcome(id), |state| state.news().is_some())
            .await;
        let outcome = match progress {
            // The call is the next step again.
            Ok(None) => {
                dispatcher.state.call_goes_on();
                return Ok(());
            }
            Ok(Some(CallProgress::Cost)) => {
                dispatcher.state.call_goes_on();
                return self.charge();
            }
            Ok(Some(CallProgress::Beside(event))) => {
                dispatcher.state.call_goes_on();
                return self.beside(event);
            }
            Ok(Some(CallProgress::Outcome(outcome))) => outcome,
            Ok(Some(CallProgress::Asks(permission))) => {
                let asks = Asks::Permission(permission);
                let message_id = ids.message();
                let request_id = ids.request();
                dispatcher.state.submitting(LeadQuestion {
                    asks,
                    message_id,
                    request_id,
                });
                return Ok(());
            }
            Err(why) => {
                self.stop_agent(&why).await?;
                Outcome::error(self.broken_off(&why))
            }
        };
        self.end_call(outcome)?;
        // It may have asked a model.
        self.charge()
    }

    /// Ends the turn of the agent, or the agent itself if it must not continue in any case.
    async fn stop_agent(&mut self, why: &Why) -> Result<(), TranscriptError> {
        let Self {
            dispatcher, model, ..
        } = self;
        match (model.agent(), why) {
            (Some(agent), Why::Interrupted) => dispatcher.run_to_end(agent.interrupt()).await,
            (Some(agent), _) => agent.abandon(),
            (None, _) => return Ok(()),
        }
        self.charge()
    }

    /// Sends an agent what has arrived while its turn continues in a call.
    async fn pass_on_news(&mut self) -> Result<(), TranscriptError> {
        if self.model.agent().is_none() || self.dispatcher.state.news().is_none() {
            return Ok(());
        }
        match self.dispatcher.state.news() {
            Some(NextStep::Show { request_id, reason }) => {
                self.record(Event::Asked { request_id, reason })?
            }
            _ => drop(self.consume()?),
        }
        self.close_gate().await;
        self.send_news()
    }

    /// Records an answer with the ids of what its calls will send, before the first of them runs.
    fn answered(&mut self, mut entry: Event) -> Result<(), TranscriptError> {
        if let Event::Answer {
            content,
            usage,
            model_calls,
            ..
        } = &mut entry
        {
            let due = self.due(*usage, *model_calls);
            *usage = due.usage;
            *model_calls = due.calls;
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
        let message_id = next.message_id;
        let request_id = next.request_id.clone();
        let repeated = next.repeated;
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
            let why = match self.dispatcher.state.checking() {
                Some(task) => format!("refused: {}", checking(task)),
                None => GATE_CLOSED.to_owned(),
            };
            return self.end_call(Outcome::error(why));
        }
        let is_mind = action.is_mind();
        self.dispatcher
            .state
            .calling(activity, action.changes(gate), is_mind);
        if is_mind {
            self.dispatcher
                .toolbox
                .allow(Some(self.dispatcher.state.budget_left()));
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
            let Outcome { content, is_error } = outcome;
            self.record(Event::Result {
                tool_use_id,
                content,
                is_error,
            })?;
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

    /// Sends an agent the verdict on its plan, if a turn of it runs.
    async fn send_verdict(&mut self) -> Result<(), TranscriptError> {
        let is_in_turn = self.model.agent().is_some_and(|agent| agent.is_in_turn());
        if !is_in_turn || self.dispatcher.state.work.calls.is_empty() {
            return Ok(());
        }
        self.close_gate().await;
        self.dispatcher.toolbox.opened().await;
        self.send_news()
    }

    /// Writes the line of the plan or question, unless an earlier incarnation has written it, and
    /// submits it.
    pub(crate) async fn submit(&mut self) -> Result<(), TranscriptError> {
        let Some(submission) = self.dispatcher.state.submission().cloned() else {
            return Ok(());
        };
        let to = match (&submission.asks, self.spawner.terms.approve_by) {
            // The lead agent is not woken for what only a person answers.
            (Asks::Permission(_), ApproveBy::Person) => USER,
            _ => LEAD,
        };
        let body = submission.body(self.incarnation);
        let request_id = submission.request_id;
        let message = self.outbox.message(submission.message_id, to, body);
        match self.outbox.send(&Name::lead(), &message, true) {
            Ok(line) => {
                self.dispatcher.state.submitted();
                self.dispatcher.link.submit(request_id, line);
                Ok(())
            }
            Err(error) => self.resolve(&Err(error.to_string())).await,
        }
    }

    /// Chooses other ids: those of the plan or question belong to another request.
    pub(crate) fn renumber(&mut self) {
        self.stop_submitting();
        if let Some(submission) = self.dispatcher.state.submission().cloned() {
            self.dispatcher.state.submitting(submission.renumbered());
        }
    }

    /// No longer submits the plan or question. Returns whether there is one.
    fn stop_submitting(&self) -> bool {
        let submission = self.dispatcher.state.submission();
        submission
            .inspect(|pending| self.dispatcher.link.stop_submitting(&pending.request_id))
            .is_some()
    }

    /// Gives the model the verdict on its plan, or the agent the reply to its question. The calls
    /// behind a plan that was not approved are refused.
    pub(crate) async fn resolve(&mut self, verdict: &Judged) -> Result<(), TranscriptError> {
        self.stop_submitting();
        let submission = self.dispatcher.state.submission().cloned();
        if let Some(LeadQuestion {
            asks: Asks::Permission(asked),
            ..
        }) = submission
        {
            let refusal = submission::refusal_of(verdict);
            self.dispatcher.state.call_goes_on();
            // With what comes of the call, its model reads what has arrived meanwhile.
            self.pass_on_news().await?;
            if let Some(agent) = self.model.agent() {
                agent.permit(&asked.id, refusal.as_deref());
            }
            return Ok(());
        }
        self.end_call(submission::result_of(
            verdict,
            self.dispatcher.state.directed_gate(),
        ))?;
        if !matches!(verdict, Ok((Status::Approved, _))) {
            self.end_calls(submission::BEHIND_A_REJECTED)?;
        }
        self.send_verdict().await
    }

    /// Gives the model the daemon's reply to its answer to a shutdown.
    pub(crate) fn resolve_answer(
        &mut self,
        answer: &ShutdownAnswer,
    ) -> Result<(), TranscriptError> {
        let now = self.dispatcher.now();
        self.dispatcher.state.answer_told(now);
        self.end_call(match &answer.outcome {
            Some(Ok(status)) if stands(answer.approve, *status) => Outcome::ok(match status {
                Status::Approved => "approved: you leave when the calls of this answer have run",
                _ => "rejected: the lead has your reason; continue your work",
            }),
            Some(Ok(status)) => Outcome::error(format!(
                "your answer does not count: the request is {} already",
                status.as_str()
            )),
            Some(Err(why)) => Outcome::error(format!("your answer does not count: {why}")),
            None => Outcome::error("your answer was not recorded"),
        })
    }
}
