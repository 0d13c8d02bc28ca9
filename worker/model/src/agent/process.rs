//! The process of an agent that runs for many turns, as its mind knows it: what is said to the
//! agent, what is heard of it, and how it has ended. Who starts the process holds the other ends.

use std::time::Duration;

use teamd_shared::member::{Gate, Permissions};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use super::{AgentDriver, Heard, Known, Line};
use crate::service::Meter;

/// How much an agent may have said that the mind has not taken.
const UNHEARD: usize = 256;

/// How long the end of an agent is waited for that has closed its output.
const GRACE: Duration = Duration::from_secs(2);

/// What is wanted of an agent that is to be started.
#[derive(Debug)]
pub struct Launch {
    /// How it is driven.
    pub driver: Box<dyn AgentDriver>,
    /// The session that it goes on with, or begins.
    pub session: Uuid,
    /// What it was told, unless the session does not hold it.
    pub lines: Vec<Line>,
    /// Whether it is to begin a new session, and what there is of the old one is put aside.
    pub afresh: bool,
}

/// What the mind says to an agent.
#[derive(Debug)]
pub enum Said {
    /// A message, with its id, and whether the agent asks before it uses its tools.
    Message(Uuid, String, Permissions),
    /// The outcome of a call of a handed tool: its id, the text, and whether that is an error.
    Outcome(String, String, bool),
    /// The answer to a question: its id, and why not, if it may not.
    Permit(String, Option<String>),
    /// That its turn ends.
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
    heard: mpsc::Receiver<Heard>,
    says: mpsc::UnboundedSender<Said>,
    ended: Option<oneshot::Receiver<String>>,
    /// How it has ended, if that is known.
    how: Option<String>,
    /// When its output was found to be closed.
    closed_at: Option<Instant>,
    /// What serves it: it ends with this.
    _tasks: JoinSet<()>,
}

/// The ends of who runs the process: what is said to the agent comes out, what is heard of it goes
/// in.
#[derive(Debug)]
pub struct AgentEnds {
    /// What the mind says.
    pub said: mpsc::UnboundedReceiver<Said>,
    /// What the mind hears.
    pub hears: mpsc::Sender<Heard>,
}

impl AgentProcess {
    /// Makes that of an agent whose end `ended` tells, and which is ended when that is dropped.
    /// `known`: what its session holds, unless that is a new one; `fixed`: its gate, if that does
    /// not change while it runs.
    pub fn new(
        known: Option<Known>,
        fixed: Option<Gate>,
        meter: Meter,
        ended: oneshot::Receiver<String>,
    ) -> (Self, AgentEnds) {
        let (hears, heard) = mpsc::channel(UNHEARD);
        let (says, said) = mpsc::unbounded_channel();
        let process = Self {
            is_new: known.is_none(),
            known: known.unwrap_or_default(),
            fixed,
            meter,
            heard,
            says,
            ended: Some(ended),
            how: None,
            closed_at: None,
            _tasks: JoinSet::new(),
        };
        (process, AgentEnds { said, hears })
    }

    /// Has these tasks end with it.
    #[must_use]
    pub fn with_tasks(self, tasks: JoinSet<()>) -> Self {
        Self {
            _tasks: tasks,
            ..self
        }
    }

    /// Waits for what the agent says next. Dropping the future loses nothing.
    ///
    /// # Errors
    /// How it has ended.
    pub(super) async fn heard(&mut self) -> Result<Heard, String> {
        if let Some(heard) = self.heard.recv().await {
            return Ok(heard);
        }
        let closed_at = *self.closed_at.get_or_insert_with(Instant::now);
        let patience = tokio::time::timeout_at(closed_at + GRACE, self.gone()).await;
        let closed = || "says nothing any more: it has closed its output".to_owned();
        Err(patience.map_or_else(|_| closed(), |()| self.how.clone().unwrap_or_else(closed)))
    }

    /// Waits for the end of its process. Dropping the future loses nothing.
    async fn gone(&mut self) {
        if let Some(ended) = &mut self.ended {
            self.how = Some(ended.await.unwrap_or_else(|_| "has ended".to_owned()));
            self.ended = None;
        }
    }

    /// Tells the agent a message.
    pub(super) fn say(&self, id: Uuid, text: &str, permissions: Permissions) {
        self.send(Said::Message(id, text.to_owned(), permissions));
    }

    /// Tells the agent the outcome of a call of a handed tool.
    pub(super) fn answer(&self, call: &str, content: &str, is_error: bool) {
        self.send(Said::Outcome(call.to_owned(), content.to_owned(), is_error));
    }

    /// Answers a question: that it may, or why not.
    pub(super) fn permit(&self, question: &str, refusal: Option<&str>) {
        self.send(Said::Permit(
            question.to_owned(),
            refusal.map(str::to_owned),
        ));
    }

    /// Ends its turn.
    pub(super) fn interrupt(&self) {
        self.send(Said::Interrupt);
    }

    fn send(&self, said: Said) {
        if self.says.send(said).is_err() {
            tracing::debug!("the agent has ended, and hears nothing");
        }
    }
}
