//! One message: a JSON line in, a JSON line out.
//!
//! Reading is generous (other writers spell the same things differently, and add fields of their
//! own); writing is exact: only the names of the table in `docs/protocol.md`. An unknown field is
//! kept, an unknown type is delivered as text.

mod audience;
mod permission;
mod read;
mod returned;
mod schema;
mod write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::id::RequestId;

pub use audience::{ASKED_BY, MEMORY, Relevance};
pub(crate) use permission::permission_text;
pub use read::{ParseError, is_nested_within};
pub use returned::returned_id;
pub use schema::{UUID, schema};
pub use write::{TooLarge, to_json_line};

/// The longest line that is written or read, newline included, in bytes (1 MiB).
pub const MAX_LINE: usize = 1 << 20;

/// How deeply a line that is read may be nested, in levels of arrays and objects, its own included.
/// Readers of JSON have limits (127 levels here), and a message is part of an entry of a
/// transcript, which must also be readable.
pub const MAX_NEST: usize = 64;

/// How much of one message or prompt the model behind a service is shown, in characters: a window
/// must have room for more than one. A note in the middle says what is left out.
pub const MAX_SHOWN: usize = 100_000;

/// The longest `summary` of an idle notification, in characters.
pub const MAX_SUMMARY: usize = 200;

/// How much of a message comes back to its sender with [`Body::Returned`], in characters.
pub const MAX_RETURNED_TEXT: usize = 200;

/// The sender or receiver that represents the person.
pub const USER: &str = "user";
/// The sender of the daemon's own messages.
pub const TEAMD: &str = "teamd";
/// Why the daemon asks a teammate to leave that was idle for as long as it may be. Not what a person
/// types: their reasons are for the model.
pub const IDLE: &str = "idle (max_idle)";
/// Who tells a teammate what became of what it has started: its own worker.
pub const RUNTIME: &str = "runtime";
/// The receiver of a broadcast.
pub const ALL: &str = "all";
/// The lead, as sender and receiver.
pub const LEAD: &str = "lead";

/// One message of an inbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The id, if the sender gave a UUID. Another sort of id stays in `extra` and means nothing.
    pub id: Option<Uuid>,
    /// The sender, by its own account. Any program can write anything here: no decision rests on it
    /// alone.
    pub from: String,
    /// The receiver, if the sender named one.
    pub to: Option<String>,
    /// Seconds since 1970, if the sender gave a time.
    pub timestamp: Option<f64>,
    /// The text. It repeats the reason, plan or feedback, for readers that know only `content`.
    pub content: String,
    /// The fields of its type.
    pub body: Body,
    /// The fields that this version does not know, as they were.
    pub extra: Map<String, Value>,
}

/// The fields of each type of message, as they are written.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Body {
    /// A message to one receiver.
    Message,
    /// A message to all others.
    Broadcast,
    /// The lead asks a teammate to leave.
    ShutdownRequest {
        /// The request.
        request_id: RequestId,
        /// The incarnation that is asked; a request for an earlier one is ignored.
        incarnation: Option<u32>,
        /// Why.
        reason: String,
        /// Seconds that the model has to decide, before the runtime approves.
        decide_within: Option<f64>,
    },
    /// A teammate answers a shutdown request.
    ShutdownResponse {
        /// The request that is answered.
        request_id: RequestId,
        /// Whether it leaves.
        approve: bool,
        /// Why, or why not.
        reason: String,
        /// Who decided.
        #[serde(skip_serializing_if = "Option::is_none")]
        answered_by: Option<AnsweredBy>,
    },
    /// The lead asks for a plan; the gate is closed. It is no request: no id, no state.
    PlanRequest {
        /// The line of the journal that closes the gate with it, if one does: the message can
        /// arrive before the directive.
        #[serde(skip_serializing_if = "Option::is_none")]
        gate_closed: Option<u64>,
    },
    /// A teammate submits a plan.
    PlanApprovalRequest {
        /// The request.
        request_id: RequestId,
        /// The plan.
        plan: String,
        /// The incarnation that asks.
        incarnation: Option<u32>,
    },
    /// The verdict on a plan.
    PlanApprovalResponse {
        /// The request that is answered.
        request_id: RequestId,
        /// Whether the gate opens.
        approve: bool,
        /// What to change, or what to watch for.
        feedback: String,
    },
    /// Submitted work is to be reviewed. `content` says what it is.
    ReviewRequest {
        /// The request.
        request_id: RequestId,
        /// The task; none if another writer left it out.
        task_id: Option<u32>,
    },
    /// An agent asks whether it may use one of its own tools.
    PermissionRequest {
        /// The request.
        request_id: RequestId,
        /// The tool.
        tool: String,
        /// Its input.
        input: Value,
        /// The incarnation that asks.
        incarnation: Option<u32>,
    },
    /// A teammate has ended a piece of work.
    IdleNotification {
        /// How it ended.
        idle_reason: IdleReason,
        /// The first line of the final answer, at most [`MAX_SUMMARY`] characters.
        summary: String,
    },
    /// The daemon saw a teammate end. Never starts a turn.
    TeammateTerminated {
        /// Who ended.
        name: String,
        /// How: `code`, `signal`, `at` and `request_id` of the `exit` object of `config.json`.
        exit: Value,
        /// Messages that it had not read.
        unread: u64,
    },
    /// The daemon has given a teammate a task. `content` says what is to be done.
    TaskAssignment {
        /// The task; none if another writer left it out.
        task_id: Option<u32>,
        /// What is to be done, in one line.
        subject: String,
        /// The line of the journal that closes the gate with it, if one does: the message can
        /// arrive before the directive.
        #[serde(skip_serializing_if = "Option::is_none")]
        gate_closed: Option<u64>,
    },
    /// A message comes back to its sender: its receiver has ended, and had not read it. Never
    /// starts a turn.
    Returned {
        /// The message; none if another writer left it out.
        message_id: Option<Uuid>,
        /// Whom it was sent to.
        name: String,
        /// What the receiver is now: `shutdown`, `killed`, `crashed`, `lost` or `forgotten`.
        why: String,
        /// Its first [`MAX_RETURNED_TEXT`] characters.
        text: String,
    },
    /// A type that this version does not know: delivered as text.
    #[serde(untagged)]
    Unknown {
        /// The type as it was written.
        #[serde(rename = "type")]
        kind: String,
    },
}

/// Who decided a shutdown request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnsweredBy {
    /// The teammate's model, with the `shutdown_response` tool.
    Model,
    /// The teammate's runtime: it was idle, or the time to decide was over.
    Runtime,
}

/// Why a teammate became idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum IdleReason {
    /// The work is done.
    Available,
    /// The model could not be reached, or failed.
    Failed,
    /// The turn limit was reached.
    MaxTurns,
    /// The token limit was reached.
    MaxTokens,
    /// The limit of cost was reached.
    MaxCost,
    /// The work was interrupted.
    Interrupted,
}

impl IdleReason {
    /// Returns the reason as it is written.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Message {
    /// Returns the line of the journal that closes the gate of its reader with it, if one does:
    /// only messages of the daemon have one.
    pub fn gate_closed(&self) -> Option<u64> {
        match &self.body {
            Body::PlanRequest { gate_closed } | Body::TaskAssignment { gate_closed, .. } => {
                if [LEAD, TEAMD].contains(&self.from.as_str()) {
                    *gate_closed
                } else {
                    None
                }
            }
            _ => None,
        }
    }

    /// Makes a message as this project writes it: with an id, a receiver and a time (seconds since
    /// 1970).
    pub fn new(id: Uuid, from: &str, to: &str, timestamp: f64, body: Body) -> Self {
        Self {
            id: Some(id),
            from: from.to_owned(),
            to: Some(to.to_owned()),
            timestamp: Some(timestamp),
            content: body.text(),
            body,
            extra: Map::new(),
        }
    }

    /// Sets the text.
    #[must_use]
    pub fn with_content(mut self, content: impl Into<String>) -> Self {
        self.content = content.into();
        self
    }
}

impl Body {
    /// Returns the type as it is written.
    pub fn kind(&self) -> &str {
        match self {
            Self::Unknown { kind } => kind,
            known => known.into(),
        }
    }

    /// Returns what `content` repeats.
    fn text(&self) -> String {
        match self {
            Self::ShutdownRequest { reason, .. } | Self::ShutdownResponse { reason, .. } => {
                reason.clone()
            }
            Self::PlanApprovalRequest { plan, .. } => plan.clone(),
            Self::PlanApprovalResponse { feedback, .. } => feedback.clone(),
            Self::PermissionRequest { tool, input, .. } => permission_text(tool, input),
            Self::IdleNotification { summary, .. } => summary.clone(),
            Self::TeammateTerminated { name, .. } => format!("{name} has ended"),
            Self::TaskAssignment { subject, .. } => subject.clone(),
            Self::Returned { text, .. } => text.clone(),
            Self::Message
            | Self::Broadcast
            | Self::PlanRequest { .. }
            | Self::ReviewRequest { .. }
            | Self::Unknown { .. } => String::new(),
        }
    }
}

/// Returns the first line of a text, at most [`MAX_SUMMARY`] characters.
pub fn summary_of(text: &str) -> String {
    text.lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("")
        .trim()
        .chars()
        .take(MAX_SUMMARY)
        .collect()
}

#[cfg(test)]
mod tests;
