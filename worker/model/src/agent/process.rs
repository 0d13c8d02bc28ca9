//! The process of an agent that runs for many turns, as the mind sees it: its input, its output,
//! and how it has ended. The code that starts the process has the other ends.

use std::time::Duration;

use teamd_shared::member::{Gate, Permissions};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use super::{AgentDriver, AgentMessage, AgentOutput, Known};
use crate::service::Meter;
use teamd_worker_core::tools::Outcome;

/// How many outputs may wait for the mind before the agent is slowed down.
const MAX_UNREAD: usize = 256;

/// How long the worker waits for the end of an agent that has closed its output.
const GRACE: Duration = Duration::from_secs(2);

/// How long after a turn an agent may ask for the list of the team tools.
const LISTED_WITHIN: Duration = Duration::from_secs(5);

/// How an agent is to be started.
#[derive(Debug)]
pub struct Launch {
    /// How it is driven.
    pub driver: Box<dyn AgentDriver>,
    /// The session that it resumes, or begins.
    pub session: Uuid,
    /// The messages that the session may hold.
    pub messages: Vec<AgentMessage>,
    /// Whether it begins a new session; the file of the old one is then put aside.
    pub is_new_session: bool,
}

/// What the mind sends to an agent.
#[derive(Debug)]
pub enum AgentInput {
    /// A message.
    Message {
        /// Its id.
        id: Uuid,
        /// The text.
        text: String,
        /// Whether the agent asks before it uses its tools.
        permissions: Permissions,
    },
    /// The outcome of a call of a team tool.
    Outcome {
        /// The id of the call.
        call: String,
        /// What came of it.
        outcome: Outcome,
    },
    /// The reply to a question.
    Permission {
        /// The id of the question.
        question: String,
        /// Why the agent may not use the tool; none if it may.
        refusal: Option<String>,
    },
    /// The turn ends.
    Interrupt,
}

/// The process of an agent. If it is dropped, the agent and all that it started are ended.
#[derive(Debug)]
pub struct AgentProcess {
    /// The messages that its session holds already.
    pub(super) known: Known,
    /// Whether its session is a new one.
    pub(super) is_new: bool,
    /// The gate that it began with, if that does not change while it runs.
    pub(super) fixed: Option<Gate>,
    /// What counts its model calls, and says which limit one was refused for.
    pub(super) meter: Meter,
    /// Whether it has asked for the list of the team tools, if it has to.
    is_listed: Option<watch::Receiver<bool>>,
    output: mpsc::Receiver<AgentOutput>,
    input: mpsc::UnboundedSender<AgentInput>,
    ended: Option<oneshot::Receiver<String>>,
    /// How it has ended, if that is known.
    how: Option<String>,
    /// When its output was first seen closed.
    closed_at: Option<Instant>,
    /// The tasks that serve it; they end with it.
    _tasks: JoinSet<()>,
}

/// The other ends, for the code that runs the process.
#[derive(Debug)]
pub struct AgentEnds {
    /// What the mind sends.
    pub input: mpsc::UnboundedReceiver<AgentInput>,
    /// What the mind reads.
    pub output: mpsc::Sender<AgentOutput>,
}

impl AgentProcess {
    /// Makes the process of an agent. `ended` reports its end; dropping the sender of `ended` ends
    /// the process. `known`: what its session holds, unless that is a new one; `fixed`: its gate,
    /// if that does not change while it runs.
    pub fn new(
        known: Option<Known>,
        fixed: Option<Gate>,
        meter: Meter,
        ended: oneshot::Receiver<String>,
    ) -> (Self, AgentEnds) {
        let (sends_output, output) = mpsc::channel(MAX_UNREAD);
        let (input, reads_input) = mpsc::unbounded_channel();
        let process = Self {
            is_new: known.is_none(),
            known: known.unwrap_or_default(),
            fixed,
            meter,
            is_listed: None,
            output,
            input,
            ended: Some(ended),
            how: None,
            closed_at: None,
            _tasks: JoinSet::new(),
        };
        let ends = AgentEnds {
            input: reads_input,
            output: sends_output,
        };
        (process, ends)
    }

    /// Makes it one that has to ask for the list of the team tools; `is_listed`: whether it has.
    #[must_use]
    pub fn with_list(self, is_listed: Option<watch::Receiver<bool>>) -> Self {
        Self { is_listed, ..self }
    }

    /// Returns whether it knows the team tools, and waits for that a moment: some agents connect to
    /// servers while their turn runs.
    pub(super) async fn knows_team_tools(&mut self) -> bool {
        let Some(is_listed) = &mut self.is_listed else {
            return true;
        };
        let listed = is_listed.wait_for(|is_listed| *is_listed);
        let listed = tokio::time::timeout(LISTED_WITHIN, listed).await;
        matches!(listed, Ok(Ok(_)))
    }

    /// Ends these tasks together with the process.
    #[must_use]
    pub fn with_tasks(self, tasks: JoinSet<()>) -> Self {
        Self {
            _tasks: tasks,
            ..self
        }
    }

    /// Waits for the next output of the agent. Dropping the future loses nothing.
    ///
    /// # Errors
    /// How it has ended.
    pub(super) async fn next_output(&mut self) -> Result<AgentOutput, String> {
        if let Some(output) = self.output.recv().await {
            return Ok(output);
        }
        let closed_at = *self.closed_at.get_or_insert_with(Instant::now);
        let ended = tokio::time::timeout_at(closed_at + GRACE, self.gone()).await;
        match (ended, &self.how) {
            (Ok(()), Some(how)) => Err(how.clone()),
            _ => Err("has closed its output".to_owned()),
        }
    }

    /// Waits for the end of its process. Dropping the future loses nothing.
    async fn gone(&mut self) {
        if let Some(ended) = &mut self.ended {
            self.how = Some(ended.await.unwrap_or_else(|_| "has ended".to_owned()));
            self.ended = None;
        }
    }

    /// Sends the agent a message.
    pub(super) fn send_message(&self, id: Uuid, text: String, permissions: Permissions) {
        self.send(AgentInput::Message {
            id,
            text,
            permissions,
        });
    }

    /// Sends the agent the outcome of a call of a team tool.
    pub(super) fn send_outcome(&self, call: &str, outcome: Outcome) {
        self.send(AgentInput::Outcome {
            call: call.to_owned(),
            outcome,
        });
    }

    /// Replies to a question: that it may, or why not.
    pub(super) fn permit(&self, question: &str, refusal: Option<&str>) {
        self.send(AgentInput::Permission {
            question: question.to_owned(),
            refusal: refusal.map(str::to_owned),
        });
    }

    /// Ends its turn.
    pub(super) fn interrupt(&self) {
        self.send(AgentInput::Interrupt);
    }

    fn send(&self, input: AgentInput) {
        if self.input.send(input).is_err() {
            tracing::debug!("the agent has ended, and reads nothing");
        }
    }
}
