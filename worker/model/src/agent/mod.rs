//! Agents that live longer than a piece of work: one file for each driver, and the mind that uses
//! the drivers.
//!
//! A driver turns what happened into lines of its agent's protocol, and lines of the agent into
//! what happened. It is pure, and knows nothing of teams: it gets their tools as data.

mod acp;
mod acp_known;
mod claude;
mod codex;
mod known;
mod mcp;
mod mind;
mod process;
mod team_calls;

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use serde_json::Value;
use teamd_shared::member::{Permissions, Protocol};
use teamd_shared::terms::{Published, Version};
use teamd_shared::transcript::Usage;
use uuid::Uuid;

use acp::Acp;
pub use acp::{TeamCall, TeamServer};
use claude::Claude;
use codex::Codex;
pub use known::Known;
pub use mind::{AgentMessage, AgentMind, CallProgress};
pub use process::{AgentEnds, AgentInput, AgentProcess, Launch};
use teamd_worker_core::submission::Permission;
use teamd_worker_core::tools::{Outcome, ToolText};

/// A tool of the team, which the session runs.
#[derive(Debug, Clone)]
pub(crate) struct TeamTool {
    pub text: ToolText,
    pub(crate) immediate_reply: Option<ImmediateReply>,
}

/// The reply to a call whose outcome may take days: that follows as a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ImmediateReply {
    pub text: &'static str,
    /// Why a further such call is refused before that outcome; none if it is accepted.
    pub refusal: Option<&'static str>,
}

/// What a driver has read of its agent's output.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentOutput {
    /// It is ready for messages.
    Ready,
    /// A message is part of its turn.
    Taken(Uuid),
    /// A piece of the text that follows whole.
    Piece(String),
    /// A text of its model.
    Text(String),
    /// It calls a tool.
    Call {
        /// The id of the call.
        id: String,
        /// The name of the tool.
        name: String,
        /// The input of the tool.
        input: Value,
        /// Whether it is a team tool; else it is one of the agent's own.
        is_of_team: bool,
        /// Why it was refused at once, if it was.
        refused: Option<&'static str>,
    },
    /// It asks whether it may use a tool of its own, and waits for the reply.
    Asks(Permission),
    /// The outcome of a call of a tool of its own.
    Outcome {
        /// The id of the call.
        id: String,
        /// The text for the model.
        content: String,
        /// Whether that is an error.
        is_error: bool,
    },
    /// Its model is asked for another answer.
    Begins,
    /// The cost of its model since the last report.
    Cost(Usage),
    /// Its service does not answer; the agent tries again.
    Retry(String),
    /// Its turn has ended.
    TurnEnded {
        /// Why it has failed, if so.
        failure: Option<String>,
    },
    /// It cannot continue and must be ended.
    Unusable(String),
    /// It cannot resume the session that it has kept.
    NotResumed(String),
    /// A line that is not of its protocol.
    Nonsense(String),
}

/// A session that a process begins or, if the agent has kept it, resumes.
#[derive(Debug, Default)]
pub struct AgentSession {
    /// Its id, which the agent gets.
    pub id: Uuid,
    /// The file in which the agent keeps it.
    pub history: Option<PathBuf>,
    /// What is in that file.
    pub kept: String,
    /// Where the agent works.
    pub workspace: PathBuf,
    /// The address of the gateway, if there is one.
    pub gateway: Option<String>,
}

/// How a worker drives an agent.
pub trait AgentDriver: Debug + Send {
    /// Returns the arguments of a process for a session; `variables`: those by which it finds its
    /// model.
    fn arguments(
        &self,
        session: &AgentSession,
        variables: &[(&'static str, String)],
    ) -> Vec<String>;
    /// Returns the variables by which the agent is set up.
    fn settings(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// Returns further such variables, given those by which it finds its model, and its state
    /// directory.
    fn set_up(
        &self,
        _variables: &[(&'static str, String)],
        _state: &Path,
    ) -> Vec<(&'static str, String)> {
        Vec::new()
    }
    /// Makes what serves the team tools over HTTP, for an agent that does not get them by its pipe.
    fn team_server(&mut self) -> Option<TeamServer> {
        None
    }
    /// Returns the name of the file, below the state directory, in which the worker records what
    /// the agent does not show of its session.
    fn record_name(&self, _session: Uuid) -> Option<PathBuf> {
        None
    }
    /// Returns whether a session can be resumed, given what is in its file.
    fn can_resume(&self, _history: &str) -> bool {
        true
    }
    /// Takes the lines for that file. They must last before the lines that come with them are
    /// written.
    fn take_record(&mut self) -> String {
        String::new()
    }
    /// Takes what the lines that were returned last mean.
    fn take_output(&mut self) -> Vec<AgentOutput> {
        Vec::new()
    }
    /// Applies a call of a team tool that has come over HTTP.
    fn call_team(&mut self, _call: TeamCall) -> Vec<AgentOutput> {
        Vec::new()
    }
    /// Returns why the agent cannot run in this workspace, if settings of the project there would lead
    /// its calls past the gateway.
    fn refuses(&self, _workspace: &Path) -> Option<String> {
        None
    }
    /// Returns the file in which the agent keeps a session, if it is there; `state`: its state
    /// directory.
    fn history(&self, state: &Path, session: Uuid) -> Option<PathBuf>;
    /// Returns whether an entry of that file is this message, in the conversation.
    fn holds(&self, entry: &Value, message: Uuid) -> bool;
    /// Returns whether an entry of that file says that the conversation may have this message, or may
    /// not.
    fn may_hold(&self, _entry: &Value, _message: Uuid) -> bool {
        false
    }
    /// Returns whether a session may lack the last messages that its file holds: they are in there
    /// before they are sent.
    fn may_lack_sent(&self) -> bool {
        false
    }
    /// Returns the texts of messages at the end of that file that have no id there; `history`: what
    /// is in it.
    fn texts_without_id(&self, _history: &str) -> Vec<String> {
        Vec::new()
    }
    /// Returns the first lines that the agent reads.
    fn begin(&mut self, session: &AgentSession) -> String;
    /// Parses a line of output. Returns the lines that answer it at once, and what it means.
    fn parse_line(&mut self, line: &str) -> (String, Vec<AgentOutput>);
    /// Returns the lines that send the agent a message; `permissions`: whether it is to ask before
    /// it uses its tools, if it can be set so.
    fn send_message(&mut self, id: Uuid, text: &str, permissions: Permissions) -> String;
    /// Returns the lines that send the agent the outcome of a call of a team tool; empty if it has
    /// not asked yet.
    fn send_outcome(&mut self, id: &str, outcome: Outcome) -> String;
    /// Returns the lines that answer a question: that it may, or why not.
    fn permit(&mut self, question: &str, refusal: Option<&str>) -> String;
    /// Returns the lines that end the turn.
    fn interrupt(&mut self) -> String;
}

/// Opens a file in which an agent keeps a session: it may have put anything there.
///
/// # Errors
/// The system's error.
pub fn open_kept(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?.into())
}

/// Returns why an agent cannot be driven, given its version; one without a version can.
fn too_old(name: &str, protocol: Protocol, version: &str) -> Option<AgentOutput> {
    let published = Published::of(name, protocol)?;
    let version = Version::read(version)?;
    let why = published.too_old(version)?;
    Some(AgentOutput::Unusable(format!("cannot be driven: {why}")))
}

/// Returns why a turn failed, given the status of its service's answer.
fn why_it_failed(status: Option<u64>, message: &str) -> String {
    let Some(status) = status else {
        return message.to_owned();
    };
    let what = match status {
        401 | 403 => "refuses the key",
        404 => "does not know the model",
        429 => "limits its requests",
        500..=599 => "is overloaded or fails",
        _ => "refuses the request",
    };
    format!("its service {what} (status {status}): {message}")
}

/// Returns a text of a frame; empty if there is none.
fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns a number of a frame; 0 if there is none.
fn number_of(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}
