//! How the output of a turn becomes answers and results.

use serde_json::Value;
use teamd_shared::member::Permissions;
use teamd_shared::transcript::{Block, Event};

use super::super::AgentOutput;
use super::output::{GONE, start_of};
use super::{AgentMind, CallProgress, NO_OUTCOME};
use crate::{ModelError, Progress};
use teamd_worker_core::state::Budget;
use teamd_worker_core::submission::Permission;
use teamd_worker_core::tools::Outcome;

/// How often the agent is restarted in one piece of work when it ends by itself.
const RESTARTS: u32 = 3;

/// What to do about an agent without team tools.
const WITHOUT_TOOLS: &str = "have it use MCP servers over HTTP that its client names in `session/new` (its settings or its log may say why it does not), or use `protocol = \"run\"`, which needs no team tools";

impl AgentMind {
    /// Waits for the next answer: the output of the agent until it calls a tool, or its turn ends.
    ///
    /// # Errors
    /// [`ModelError::Gone`] if the agent has ended and must be started again; [`ModelError::Spent`]
    /// if its model is asked again although the budget is spent; [`ModelError::Failed`].
    pub async fn answer(
        &mut self,
        budget: Budget,
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Event, ModelError> {
        let mut content = Vec::new();
        let mut spent = std::pin::pin!(self.spent());
        loop {
            let output = tokio::select! {
                biased;
                output = self.next_in_order() => output,
                () = &mut spent => return Err(ModelError::Spent),
            };
            match output.map_err(|how| self.ended(how))? {
                AgentOutput::Begins if self.cost.exceeds(&budget) => return Err(ModelError::Spent),
                AgentOutput::Piece(piece) => observe(Progress::Text(&piece)),
                AgentOutput::Retry(_) if self.is_spent() => return Err(ModelError::Spent),
                // Its model is asked again.
                AgentOutput::Retry(_) => observe(Progress::Again),
                AgentOutput::Text(text) => content.push(Block::Text { text }),
                AgentOutput::Call {
                    id, name, input, ..
                } => {
                    content.push(tool_use(id, name, input));
                    return Ok(self.entry(content));
                }
                AgentOutput::TurnEnded { failure } => {
                    if !self.state.end_turn() {
                        continue;
                    }
                    self.forget_turn();
                    if let Some(why) = failure {
                        return Err(self.failure(why));
                    }
                    if !self.knows_team_tools().await {
                        return Err(self.without_team_tools(&content));
                    }
                    return Ok(self.entry(content));
                }
                // Its calls are known when it asks.
                AgentOutput::Asks(question) if self.permissions == Permissions::Ask => {
                    self.permit(&question.id, Some("refused: no call of this tool is known"));
                }
                AgentOutput::Nonsense(line) => {
                    let line = start_of(&line);
                    tracing::warn!(
                        "the agent printed a line that is not of its protocol: {line:?}"
                    );
                }
                _ => {}
            }
        }
    }

    /// Returns the next output, beginning with what was put off.
    async fn next_in_order(&mut self) -> Result<AgentOutput, String> {
        match self.backlog.pop_front() {
            Some(output) => Ok(output),
            None => self.next().await,
        }
    }

    /// Returns whether a model call of this turn was refused because the budget is spent.
    fn is_spent(&self) -> bool {
        let running = self.state.running();
        running.is_some_and(|running| running.process.meter.refused().is_some())
    }

    /// Returns the error of an agent that has ended by itself.
    fn ended(&mut self, how: String) -> ModelError {
        if self.restarts < RESTARTS {
            self.restarts += 1;
            return ModelError::Gone(how);
        }
        let name = &self.setup.agent.name;
        ModelError::Failed(format!("the agent {name} {how}"))
    }

    async fn knows_team_tools(&mut self) -> bool {
        match self.state.running_mut() {
            Some(running) => running.process.knows_team_tools().await,
            None => true,
        }
    }

    /// Returns the error of a turn of an agent without team tools: it can submit no plan, and answer
    /// no one. What it said in the end is part of that.
    fn without_team_tools(&self, content: &[Block]) -> ModelError {
        let texts = content.iter().filter_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            _ => None,
        });
        let said = texts.collect::<Vec<_>>().join("\n");
        let name = &self.setup.agent.name;
        ModelError::Unusable {
            message: format!(
                "the agent {name} has no team tools: it never asked the MCP server that it was given for their list; it said: {:?}",
                start_of(&said)
            ),
            hint: WITHOUT_TOOLS.to_owned(),
        }
    }

    /// Returns the error of a turn that has failed: what the gateway knows says more.
    fn failure(&self, why: String) -> ModelError {
        if self.is_spent() {
            return ModelError::Spent;
        }
        let running = self.state.running();
        let trouble = running.and_then(|running| running.process.meter.trouble());
        trouble.map_or(ModelError::Failed(why), |trouble| trouble.error)
    }

    /// Returns the entry of an answer.
    pub(super) fn entry(&mut self, mut content: Vec<Block>) -> Event {
        if let Some(note) = self.restart_note.take() {
            let text = format!("[{note}]");
            content.insert(0, Block::Text { text });
        }
        self.cost.is_answering = false;
        let (usage, model_calls) = self.cost.take();
        Event::Answer {
            content,
            usage,
            cut: None,
            length: None,
            model_calls,
        }
    }

    /// Returns the entry of a call that the agent makes beside another one, with the texts before.
    pub(super) fn call_entry(&mut self, id: String, name: String, input: Value) -> Event {
        let mut content = self.take_texts();
        content.push(tool_use(id, name, input));
        self.entry(content)
    }

    /// Takes out the texts that are in no entry yet.
    pub(super) fn take_texts(&mut self) -> Vec<Block> {
        let mut texts = Vec::new();
        for output in std::mem::take(&mut self.backlog) {
            match output {
                AgentOutput::Text(text) => texts.push(Block::Text { text }),
                output => self.backlog.push_back(output),
            }
        }
        texts
    }

    /// Takes out the next result that is known of a call that the agent runs; not of `except`.
    pub(super) fn next_result(&mut self, except: Option<&str>) -> Option<Event> {
        let otherwise = match self.state.running() {
            Some(_) => None,
            None => Some(GONE),
        };
        self.calls.next_result(except, otherwise)
    }

    /// Takes a question that was put off while another one was open.
    fn take_question(&mut self) -> Option<Permission> {
        let mut backlog = self.backlog.iter();
        let at = backlog.position(|output| matches!(output, AgentOutput::Asks(_)))?;
        match self.backlog.remove(at) {
            Some(AgentOutput::Asks(question)) => Some(question),
            _ => None,
        }
    }

    /// Waits for the outcome of a call that runs in the agent.
    pub async fn outcome(&mut self, id: &str) -> CallProgress {
        loop {
            if let Some(outcome) = self.calls.take_outcome(id) {
                return CallProgress::Outcome(outcome);
            }
            if let Some(event) = self.next_result(Some(id)) {
                return CallProgress::Beside(event);
            }
            if let Some(question) = self.take_question() {
                if self.permissions == Permissions::Ask {
                    return CallProgress::Asks(question);
                }
                self.permit(&question.id, None);
            }
            // The turn may have ended while the outcome of another call was waited for.
            let mut backlog = self.backlog.iter();
            if backlog.any(|output| matches!(output, AgentOutput::TurnEnded { .. })) {
                return CallProgress::Outcome(Outcome::error(NO_OUTCOME));
            }
            if self.state.running().is_none() {
                return CallProgress::Outcome(Outcome::error(GONE));
            }
            match self.next().await {
                Ok(AgentOutput::Asks(question)) if self.permissions == Permissions::Ask => {
                    return CallProgress::Asks(question);
                }
                Ok(AgentOutput::Call {
                    id, name, input, ..
                }) => return CallProgress::Beside(self.call_entry(id, name, input)),
                Ok(output @ (AgentOutput::TurnEnded { .. } | AgentOutput::Text(_))) => {
                    self.backlog.push_back(output);
                }
                Ok(AgentOutput::Cost(_)) => return CallProgress::Cost,
                Ok(_) => {}
                Err(how) => {
                    let error = format!("the agent {how}; the call may have run");
                    return CallProgress::Outcome(Outcome::error(error));
                }
            }
        }
    }
}

fn tool_use(id: String, name: String, input: Value) -> Block {
    Block::ToolUse {
        id,
        name,
        input,
        message_id: None,
        request_id: None,
    }
}
