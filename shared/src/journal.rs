//! The lines of `journal.jsonl`: every decision of the daemon, and the fold that is its state,
//! pure.
//!
//! **Who writes**: the daemon alone, one append and one sync for a batch of decisions, before any
//! of them takes effect. **Who reads**: the daemon at its start, and every other program that may
//! read the file. **When the daemon dies** between two lines, each line in the file is a complete
//! decision with all its consequences; between the journal and an effect, the next start finds in
//! `done` what is not complete and does it again under the same ids.
//!
//! What a decision entails for another record (a plan that expires with its author, a gate that an
//! approval opens) is already true with the line of the decision. A separate line with `because`
//! follows for readers that select by record. It changes nothing, and is written at the next start
//! if a kill prevented it.

mod fold;
mod memory;
mod orders;
pub mod reader;
mod snapshot;
mod tasks;
mod tells;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use self::reader::JournalError;
use crate::host::Hosts;
use crate::id::RequestId;
use crate::id::TaskId;
pub use crate::inbox::RejectedLine;
use crate::json;
use crate::member::Member;
use crate::name::Name;
use crate::order::Order;
use crate::position::Position;
use crate::process::Identity;
use crate::request::Request;
use crate::task::{Task, TaskEvent};
use crate::team_dir::TeamDir;
use crate::work::Work;

pub use fold::{FoldError, MemberState, Team};
pub use memory::{MAX_MEMORY, quote};
pub use snapshot::SNAPSHOT_LINES;

/// The version of the journal that is written, in its first line.
pub const VERSION: u32 = 1;

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// 1, 2, 3 …
    pub seq: u64,
    /// Seconds since 1970.
    pub at: f64,
    /// The version of the file, in its first line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The highest `seq` whose effects are complete.
    pub done: u64,
    /// How far the daemon has read `inbox/lead.jsonl`, where that changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lead: Option<Position>,
    /// What was decided.
    #[serde(flatten)]
    pub record: Record,
}

json::record!(Line);

/// Reads the whole lines of a journal, each with its number; a torn last line does not count yet.
/// Blank ones are left out.
///
/// # Errors
/// [`JournalError`] with the number of a line that cannot be read, and why.
pub fn read_lines(journal: &[u8]) -> impl Iterator<Item = Result<(usize, Line), JournalError>> {
    let whole = journal.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
    let numbered = journal[..whole]
        .split(|&byte| byte == b'\n')
        .zip(1..)
        .filter(|(line, _)| !line.is_empty());
    numbered.map(|(text, number)| match json::read(text) {
        Ok(line) => Ok((number, line)),
        Err(error) => Err(JournalError::of_line(number, text, &error)),
    })
}

/// A decision, with the record after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// About the team as a whole.
    Team(Box<TeamRecord>),
    /// About a member.
    Member(Box<MemberRecord>),
    /// About a request.
    Request(Box<RequestRecord>),
    /// About a task.
    Task(Box<TaskRecord>),
    /// The whole state: it decides nothing.
    Snapshot(Box<Team>),
}

/// A decision about the team.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TeamRecord {
    /// What happened.
    pub event: TeamEvent,
    /// The name of the team.
    pub team_name: String,
    /// The daemon, while one runs.
    pub daemon: Option<Daemon>,
    /// The lines of the lead's inbox that are no messages, in a line with the event `read`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<RejectedLine>,
    /// How work is checked from now on, in a line with the event `started`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<Box<Work>>,
    /// The orders that are in force from now on, in a line with the event `started`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orders: Option<Vec<Order>>,
    /// The hosts of the team from now on, in a line with the event `hosts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Hosts>,
    /// The notice to the lead, where an event says more than its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The inbox lines that follow from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "tells")]
    #[schemars(with = "Vec<tells::NoticeGroup>")]
    pub tell: Vec<Notice>,
}

/// What happens to a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TeamEvent {
    /// A daemon runs.
    Started,
    /// It is about to end: no teammate is spawned or restarted.
    Stopping,
    /// A teammate refused to leave: the daemon stays.
    Staying,
    /// It ended.
    Stopped,
    /// The daemon consumed lines of the lead's inbox that change nothing (quarantined ones).
    Read,
    /// The daemon has put back the journal, or modes of the team directory, that another process
    /// had changed.
    Restored,
    /// The daemon sends a member a notice that changes nothing.
    Noted,
    /// A person has added a host, or removed one.
    Hosts,
}

/// A daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Daemon {
    /// Its process.
    #[serde(flatten)]
    pub process: Identity,
    /// Seconds since 1970.
    pub started_at: f64,
    /// The team directory that it serves, as [`TeamDir::id`] names it: the processes that are
    /// recorded in a copy of that directory do not belong to the copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

impl Daemon {
    /// Tells whether it is known to serve this directory, and not the original of a copy.
    pub fn is_of(&self, dir: &TeamDir) -> bool {
        self.serves(dir) == Some(true)
    }

    /// Tells whether it serves another directory, of which this one is a copy.
    pub fn is_of_another(&self, dir: &TeamDir) -> bool {
        self.serves(dir) == Some(false)
    }

    fn serves(&self, dir: &TeamDir) -> Option<bool> {
        Some(*self.directory.as_ref()? == dir.id().ok()?)
    }
}

/// A decision about a member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemberRecord {
    /// What happened.
    pub event: MemberEvent,
    /// The member after it.
    #[serde(flatten)]
    pub member: Member,
    /// What the conversation begins with, in the line that begins it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// What the plan must cover, in a line that asks for one; the next message of a conversation
    /// that continues, in a line that spawns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The id of the command that caused it, in a line that spawns or asks for a plan: the command
    /// joins it when it is repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_id: Option<RequestId>,
    /// Whether the lead agent had asked the incarnation that ended to leave.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub agent: bool,
    /// The incarnation that ended, in a line whose record is the next one already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_incarnation: Option<u32>,
    /// The requests that expire with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expired: Vec<RequestId>,
    /// The tasks that no longer have an owner, because it ended for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub released: Vec<TaskId>,
    /// The mail that it had not read and that comes back to its senders, because it ended for good
    /// or was forgotten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub returned: Vec<ReturnedMail>,
    /// How many more messages could have come back.
    #[serde(default, skip_serializing_if = "crate::json::is_zero")]
    pub not_returned: u64,
    /// The inbox lines that follow from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "tells")]
    #[schemars(with = "Vec<tells::NoticeGroup>")]
    pub tell: Vec<Notice>,
    /// The line that made this true already.
    #[serde(rename = "because", skip_serializing_if = "Option::is_none")]
    pub derived_from: Option<u64>,
}

/// A message that comes back to its sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReturnedMail {
    /// The id of the line that says so: the notice with this id.
    pub id: Uuid,
    /// The message.
    pub message_id: Uuid,
    /// Who sent it.
    pub from: String,
    /// Its first characters.
    pub text: String,
}

/// What happens to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemberEvent {
    /// An incarnation is decided.
    Spawning,
    /// Its process exists.
    Spawned,
    /// A daemon took over its live process.
    Adopted,
    /// It is going to be ended by signals.
    Ending,
    /// Its process, and all that it started, is gone. The record may be the next incarnation
    /// already.
    Exited,
    /// It may change things.
    GateOpened,
    /// It may not.
    GateClosed,
    /// Its files are in the archive, and it is no longer on the roster.
    Forgotten,
    /// It does not answer the daemon, and the lead is notified.
    Silent,
    /// It answers again.
    Answering,
}

/// A decision about a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestRecord {
    /// What happened.
    pub event: RequestEvent,
    /// The request after it.
    #[serde(flatten)]
    pub request: Request,
    /// The other requests that expire with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expired: Vec<RequestId>,
    /// The inbox lines that follow from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "tells")]
    #[schemars(with = "Vec<tells::NoticeGroup>")]
    pub tell: Vec<Notice>,
    /// The line that made this true already.
    #[serde(rename = "because", skip_serializing_if = "Option::is_none")]
    pub derived_from: Option<u64>,
}

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequestEvent {
    /// It is pending.
    Asked,
    /// It was asked for again, with (earlier) force; its status is as before.
    Joined,
    /// Answered with yes.
    Approved,
    /// Answered with no.
    Rejected,
    /// It will not be answered.
    Expired,
}

/// A decision about a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRecord {
    /// What happened.
    pub event: TaskEvent,
    /// The task after it.
    #[serde(flatten)]
    pub task: Task,
    /// Who asked for it: `user`, the name of a member, or `teamd`.
    pub by: String,
    /// The notice to its owner, where an event says more than its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The id of the command that made it: the command joins it when it is repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_id: Option<RequestId>,
    /// The requests that expire with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expired: Vec<RequestId>,
    /// The inbox lines that follow from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "tells")]
    #[schemars(with = "Vec<tells::NoticeGroup>")]
    pub tell: Vec<Notice>,
    /// The line that made this true already.
    #[serde(rename = "because", skip_serializing_if = "Option::is_none")]
    pub derived_from: Option<u64>,
}

/// An inbox line that follows from a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Notice {
    /// Whose inbox.
    pub to: Name,
    /// The id of the line: the same when it is written again, and in every inbox that gets it.
    pub id: Uuid,
}
