//! The output of the agent while the session waits for nothing of it: its plan or its question is on
//! its way, or its work has ended.

use std::future::pending;

use teamd_shared::member::Permissions;
use teamd_shared::transcript::Event;

use super::super::AgentOutput;
use super::{AgentMind, NO_OUTCOME};
use teamd_worker_core::tools::Outcome;

/// How many texts and calls may be put off before the mind stops reading output. This slows down an
/// agent that floods.
const MAX_BACKLOG: usize = 1024;

/// How many answers its model may begin before the agent is ended: each costs.
const MAX_BEGUN: u32 = 8;

/// The outcome of a call that the agent makes while there is no work.
const NO_TURN: &str = "not run: your plan waits for its verdict, or your work has ended. End your turn now: what comes next arrives as a message.";

impl AgentMind {
    /// Applies output until there is an entry to be recorded, or the agent has cost something, or
    /// its turn ends. Dropping the future loses nothing.
    ///
    /// While a question of the agent is open (`is_question`), its turn does not end. Else a call of
    /// a team tool is refused. Output outside of any work belongs to the next answer.
    ///
    /// # Errors
    /// How the agent has ended.
    pub async fn listen(&mut self, is_question: bool) -> Result<Option<Event>, String> {
        loop {
            // The outcome of the call that is asked about comes after the reply.
            let asked_about = match self.calls.first_running() {
                Some(call) if is_question => Some(call.to_owned()),
                _ => None,
            };
            if let Some(result) = self.next_result(asked_about.as_deref()) {
                return Ok(Some(result));
            }
            if self.backlog.len() >= MAX_BACKLOG {
                return pending().await;
            }
            let Some(running) = self.state.running_mut() else {
                return pending().await;
            };
            let output = running.process.next_output().await;
            match self.apply(output)? {
                AgentOutput::Call {
                    id,
                    name,
                    input,
                    is_of_team,
                    refused,
                } => {
                    if is_of_team && refused.is_none() && !is_question {
                        self.refuse(&id);
                    }
                    if self.is_work {
                        return Ok(Some(self.call_entry(id, name, input)));
                    }
                    self.backlog.push_back(AgentOutput::Call {
                        id,
                        name,
                        input,
                        is_of_team,
                        refused,
                    });
                }
                output @ AgentOutput::Text(_) => self.backlog.push_back(output),
                output @ (AgentOutput::Asks(_) | AgentOutput::TurnEnded { .. }) if is_question => {
                    self.backlog.push_back(output);
                }
                _ if is_question => {}
                AgentOutput::Asks(question) if self.permissions == Permissions::Ask => {
                    self.permit(&question.id, Some(NO_TURN));
                }
                AgentOutput::TurnEnded { failure } => return Ok(self.end_turn_unwatched(failure)),
                // It is ended: whether it obeys an interrupt must not matter. The next process
                // resumes its session.
                AgentOutput::Begins if self.cost.begun_in_vain > MAX_BEGUN => {
                    tracing::warn!("the agent does not end its turn; the worker ends the agent");
                    self.abandon();
                    return Ok(None);
                }
                AgentOutput::Cost(_) if self.cost.is_answering && self.is_work => {}
                AgentOutput::Begins | AgentOutput::Cost(_) => return Ok(None),
                _ => {}
            }
        }
    }

    /// Applies that the turn has ended behind a plan: every call of it has its outcome now. Returns
    /// the entry of its texts.
    fn end_turn_unwatched(&mut self, failure: Option<String>) -> Option<Event> {
        if let Some(why) = failure {
            tracing::warn!("the turn of the agent has failed: {why}");
        }
        self.state.end_turn();
        self.cost.is_answering = false;
        for output in &self.backlog {
            if let AgentOutput::Call { id, .. } = output {
                self.calls.fail(id, NO_OUTCOME);
            }
        }
        self.calls.end_running(NO_OUTCOME);
        if !self.is_work {
            return None;
        }
        let texts = self.take_texts();
        if texts.is_empty() {
            return None;
        }
        Some(self.entry(texts))
    }

    /// Refuses a call of a team tool.
    fn refuse(&mut self, id: &str) {
        if let Some(running) = self.state.running() {
            running.process.send_outcome(id, Outcome::error(NO_TURN));
            self.calls.refuse(id, NO_TURN);
        }
    }
}
