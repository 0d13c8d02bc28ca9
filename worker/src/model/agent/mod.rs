//! Agents that live longer than a piece of work: one file a driver, and the mind that uses them.
//!
//! A driver turns what happened into lines of its agent's protocol, and lines of the agent into what happened. It is pure, and knows
//! nothing of teams: neither their tools, which it is handed, nor their requests.

mod claude;
mod mind;

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use serde_json::Value;
use teamd_shared::transcript::Usage;
use uuid::Uuid;

use super::prompt::ToolText;
pub(crate) use claude::Claude;
pub(crate) use mind::AgentMind;

/// A tool that the agent is handed.
#[derive(Debug, Clone)]
pub(crate) struct HandedTool {
    pub(crate) text: ToolText,
    /// What the agent is told at once, where the outcome may take days: that follows as a message.
    pub(crate) at_once: Option<&'static str>,
}

/// What a driver has heard of its agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Heard {
    /// It takes messages.
    Ready,
    /// A message is part of its turn.
    Taken(Uuid),
    /// Its model says something.
    Text(String),
    /// It calls a tool: one of its own, or one that it was handed (`is_handed`).
    Call { id: String, name: String, input: Value, is_handed: bool },
    /// What came of a call of a tool of its own.
    Outcome { id: String, content: String, is_error: bool },
    /// What its model has cost since the last time.
    Cost(Usage),
    /// Its service does not answer, and is asked again.
    Retry(String),
    /// Its turn has ended; `failure`: why to no good.
    TurnEnded { failure: Option<String> },
    /// A line that makes no sense.
    Nonsense(String),
}

/// How a worker drives an agent.
pub(crate) trait AgentDriver: Debug + Send {
    /// Returns the arguments of a process that begins a session, or goes on with it.
    fn arguments(&self, session: Uuid, resumes: bool) -> Vec<String>;
    /// Returns the file in which the agent keeps a session, if it is there; `state`: its state directory.
    fn history(&self, state: &Path, session: Uuid) -> Option<PathBuf>;
    /// Returns the first lines that the agent reads.
    fn begin(&mut self) -> String;
    /// Hears a line; returns the lines that answer it at once, and what it means.
    fn hear(&mut self, line: &str) -> (String, Vec<Heard>);
    /// Returns the lines that tell the agent a message.
    fn say(&mut self, id: Uuid, text: &str) -> String;
    /// Returns the lines that tell the agent the outcome of a call of a handed tool; empty if they are told later.
    fn answer(&mut self, id: &str, content: &str, is_error: bool) -> String;
}
