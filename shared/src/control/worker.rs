//! The messages between a worker and the daemon.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::id::RequestId;
use crate::id::TaskId;
use crate::member::{Doing, Gate, Permissions, Terms, Waiting};
use crate::message::IdleReason;
use crate::position::Position;
use crate::usage::{OtherModels, Usage};

use super::command::{PlanVerdict, Reply, TaggedCommand};
use super::mcp::McpServerReport;

/// What a worker reports of itself, at every change and on every connection.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WorkerState {
    /// The `seq` of the highest directive that it has applied.
    pub applied_seq: u64,
    /// What it does.
    pub doing: Doing,
    /// In a few words.
    pub activity: String,
    /// How its last piece of work ended, while it is idle.
    pub idle_reason: Option<IdleReason>,
    /// The pause in its model call, if there is one that is worth reporting.
    pub waiting: Option<Waiting>,
    /// The plan or permission whose verdict it waits for: any other that is pending expires.
    pub awaits: Option<RequestId>,
    /// How many messages have said that the gate was closed, if its last directive may be older
    /// than one of them; otherwise 0. The daemon answers with a directive.
    pub doubts: u64,
    /// Whether the daemon must wake it when its inbox grows.
    pub needs_waking: bool,
    /// How far it has consumed its inbox, in bytes.
    pub read: u64,
    /// What its conversation has cost so far.
    pub usage: Usage,
}

/// What a worker sends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromWorker {
    /// Its state now.
    State(WorkerState),
    /// It has appended an answer, a plan or a permission question to the lead's inbox: exactly this
    /// line counts.
    Submitted {
        /// The request.
        request_id: RequestId,
        /// Where the line begins.
        offset: u64,
        /// Its length in bytes, newline included.
        len: u64,
    },
    /// SIGTERM came; it leaves.
    Leaving,
    /// A command of the lead agent, as a person gives with `teamctl`. It is refused from any other
    /// worker.
    Asks(TaggedCommand),
    /// The dispatcher of the worker is running. Also sent at the beginning of each connection, with
    /// number 0: the daemon may ask.
    Pong {
        /// That of the [`ToWorker::Ping`].
        number: u64,
    },
    /// It cannot continue, and its process ends. The last frame of its connection.
    Unable {
        /// Why. Fits behind "error: ".
        why: String,
    },
    /// What becomes of its MCP servers, at every change and on every connection. A frame of its own:
    /// a field of [`WorkerState`] would make the greeting of an older worker unreadable.
    McpServers(Vec<McpServerReport>),
    /// Whether commands of it run in the background: said when the first begins, and when the last
    /// has ended. A frame of its own, too.
    RunsCommands(bool),
    /// What models other than the recorded one have used, with all that its conversation has cost by
    /// then: said before the state of that cost. A frame of its own, too.
    OtherModels(OtherModels, Usage),
    /// What came of a [`ToWorker::Compact`].
    Compacted {
        /// As it was asked.
        id: RequestId,
        /// Nothing, or why nothing was put into a summary. Fits behind "error: ".
        outcome: Result<(), String>,
    },
}

/// What the daemon sends to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToWorker {
    /// It is in the journal, and may begin.
    Welcome(Box<Welcome>),
    /// The present state.
    Directive(Directive),
    /// The submitted plan or question is in the journal, and this is the present status of its
    /// request. For an answer to a shutdown, the directive reports what is recorded.
    Recorded {
        /// The request.
        request_id: RequestId,
        /// Its status.
        status: crate::request::Status,
    },
    /// The submitted line changed nothing.
    Refused {
        /// The request.
        request_id: RequestId,
        /// Why.
        why: String,
        /// Whether the id belongs to another request: then the asker makes another id.
        taken: bool,
    },
    /// The inbox has grown.
    Wake,
    /// End the turn.
    Interrupt {
        /// When that was asked for ([`crate::clock::since_boot`]): work that began later is not
        /// affected.
        asked_at: Duration,
    },
    /// It is not the recorded incarnation, and must leave.
    Stranger {
        /// Why.
        why: String,
    },
    /// The answer to a command of the lead agent.
    Reply(Reply),
    /// Answer, by [`FromWorker::Pong`]. Sent only to a worker that has announced that it can
    /// answer.
    Ping {
        /// Chosen by the daemon, from 1.
        number: u64,
    },
    /// Put the conversation into a summary, before the model is asked again. Answered by
    /// [`FromWorker::Compacted`].
    Compact {
        /// Chosen by the client.
        id: RequestId,
    },
}

/// What an incarnation begins with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// Its terms.
    pub terms: Terms,
    /// The incarnation in which the conversation began; for a fresh one that is the worker's own.
    pub conversation: u32,
    /// Where the inbox stood when the conversation began.
    pub begins_at: Position,
    /// What the conversation begins with.
    pub prompt: Option<String>,
    /// Whether the worker may take an inotify instance of its own; else the daemon wakes it.
    pub watch: bool,
    /// Environment, umask and keys.
    pub environment: Environment,
    /// Where commands of the team may or once could write: a link there can be a tool's.
    pub territory: Vec<String>,
    /// The present state.
    pub directive: Directive,
    /// What the team remembers, for a conversation that begins; none: nothing is remembered here.
    pub memory: Option<String>,
}

/// The present state of one member. The one with the higher `seq` wins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Directive {
    /// The line of the journal that it is based on.
    pub seq: u64,
    /// Whether the member may change anything.
    pub gate: Gate,
    /// The task for which its work is checked where it works, if that is why the gate is closed.
    pub checking: Option<TaskId>,
    /// The shutdown request of this incarnation that is pending.
    pub shutdown: Option<PendingShutdown>,
    /// Whether the shutdown of this incarnation is approved and journaled: the worker may leave.
    pub release: bool,
    /// The plan of this conversation that is pending.
    pub plan: Option<RequestId>,
    /// The verdict on the plan or permission that the worker waits for, else the last one on a plan
    /// of this conversation.
    pub verdict: Option<PlanVerdict>,
    /// How permission questions are answered.
    pub permissions: Permissions,
    /// The [`WorkerState::doubts`] that the daemon knew of: everything that the daemon had said
    /// about the gate by then is included here, so any other message about it was forged.
    pub settles: u64,
}

/// A pending shutdown request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingShutdown {
    /// The request.
    pub request_id: RequestId,
    /// Why.
    pub reason: String,
    /// Seconds that the model has to decide.
    pub decide_within: f64,
}
