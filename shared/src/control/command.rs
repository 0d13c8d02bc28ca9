//! The commands of people and of the lead agent to the daemon, and its answers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::since_boot;
use crate::environment::Environment;
use crate::host::{AwaitedHost, Host, HostStatus, LogPiece};
use crate::id::RequestId;
use crate::id::TaskId;
use crate::member::{Exit, Gate, MemberStatus, Permissions, TermsPatch};
use crate::merged::Landed;
use crate::name::Name;
use crate::process::Identity;
use crate::task::{Task, TaskFields};

use super::mcp::MemberServers;

/// A command, with a number that its reply carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaggedCommand {
    /// Chosen by the client.
    pub tag: u32,
    /// What it wants.
    pub command: Command,
}

/// The answer to the request with this tag.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// As in the request.
    pub tag: u32,
    /// What was done, or why not.
    pub result: Result<Done, Refusal>,
}

/// What a command wants. Names and ids are checked by the daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Answer. Changes nothing.
    Ping,
    /// Start an incarnation. Answered with [`Done::Ready`] when its worker is ready.
    Spawn {
        /// Chosen by the client. A client that repeats the command under the same id joins it.
        id: RequestId,
        /// What to start.
        order: Box<SpawnOrder>,
    },
    /// Ask a teammate to shut down. Answered with [`Done::Ended`] or [`Done::Rejected`], or with
    /// [`Done::Withdrawn`] while its checkout is made.
    Shutdown(ShutdownOrder),
    /// Answer a plan, a review or a permission question.
    Answer {
        /// The whole id.
        request_id: RequestId,
        /// Yes or no.
        approve: bool,
        /// What to change, or what to watch for.
        feedback: String,
        /// How permission questions are answered from then on.
        permissions: Option<Permissions>,
    },
    /// Close the gate and ask for a plan. Answered with [`Done::Recorded`], or with
    /// [`Done::Waits`] while the host of the member cannot be reached.
    RequestPlan {
        /// Chosen by the client. A client that repeats the command under the same id joins it.
        id: RequestId,
        /// The member.
        name: Name,
        /// What the plan must cover.
        content: String,
        /// Whether it is answered only when nothing that began before is still running.
        wait: bool,
    },
    /// End the turn of a teammate.
    Interrupt {
        /// The member.
        name: Name,
        /// When that was asked for ([`crate::clock::since_boot`]).
        asked_at: Duration,
    },
    /// Move the files of a member that has ended into the archive.
    Forget {
        /// The member.
        name: Name,
        /// Whether its checkout is removed even if there is work in it that exists nowhere else.
        discard: bool,
    },
    /// End the daemon. Answered with [`Done::Stop`] when all teammates are gone, or one has refused
    /// to leave.
    Stop {
        /// Whether a rejection is overruled.
        force: bool,
    },
    /// Answered with [`Done::Judged`] when this plan is no longer pending.
    AwaitVerdict {
        /// The plan.
        request_id: RequestId,
    },
    /// Answered with [`Done::Quiet`] when nothing changes any more by itself: everything is done,
    /// or what is left is stuck.
    AwaitQuiet {
        /// The first id that a task for the goal can have, if the lead agent was given a goal.
        goal: Option<TaskId>,
    },
    /// Do something with tasks. Answered with [`Done::Tasks`]: as they are after it; new ones with
    /// [`Done::Made`].
    Task(TaskOrder),
    /// Do something with the integration branch.
    Integration(IntegrationOrder),
    /// Hand over to another program, which becomes the daemon in the place of this one; no worker
    /// is stopped. Answered with [`Done::HandingOver`] when that happens.
    HandOver(Box<Successor>),
    /// Name the leads that are connected by MCP. Answered with [`Done::Leads`].
    Leads,
    /// Record how far the lead that runs this command has got its inbox. Answered with
    /// [`Done::LeadRead`].
    LeadRead {
        /// The place behind the last message that it has got, in bytes.
        place: u64,
    },
    /// Wait for the end of the lead that runs this command, or for another command that waits for
    /// it. Answered with a refusal.
    AwaitEvents,
    /// Show the codes of the pending requests that a person answers. Answered with
    /// [`Done::Codes`].
    ShowCodes,
    /// Give the code of a request, before the answer on the same connection. Answered with
    /// [`Done::CodeTaken`].
    GiveCode(RequestCode),
    /// Report what becomes of the MCP servers of the teammates. Answered with
    /// [`Done::McpServers`].
    McpServers,
    /// Propose what the team is to remember, for the member that asks. Answered with
    /// [`Done::Asked`]; a proposal of the same text is joined.
    Remember {
        /// Chosen by the client.
        id: RequestId,
        /// What.
        text: String,
    },
    /// Forget what a person had accepted. Answered with [`Done::Answered`].
    ForgetMemory {
        /// The whole id.
        request_id: RequestId,
    },
    /// Approve a plan, if its text is the one that was read. Answered as [`Command::Answer`].
    ApprovePlan(PlanApproval),
    /// Put the conversation of a built-in agent into a summary. Answered with [`Done::Recorded`] when
    /// that is in the transcript.
    Compact {
        /// Chosen by the client. A client that repeats the command under the same id joins it.
        id: RequestId,
        /// The member.
        name: Name,
    },
    /// Add a host, or change where one is. Answered with [`Done::Hosts`]: all of them.
    AddHost(#[serde(with = "crate::json::as_text")] Host),
    /// Remove a host that has no members. Answered with [`Done::Hosts`]: those that are left.
    RemoveHost {
        /// The host.
        name: Name,
    },
    /// Record that a member is lost with its host, which cannot be reached. Answered with
    /// [`Done::Recorded`].
    Lose {
        /// The member.
        name: Name,
    },
    /// Name the hosts, their links, and what they have to give. Answered with [`Done::Hosts`].
    Hosts,
    /// Wait until a line of home's inbox of a member is on the machine where the member lives.
    /// Answered with [`Done::Delivered`], at once if that machine cannot be reached.
    AwaitDelivery {
        /// The member.
        name: Name,
        /// Where the line begins, in bytes.
        offset: u64,
    },
    /// Have a host obey this home from now on, whichever it has obeyed. Answered as
    /// [`Command::AddHost`].
    TakeHost {
        /// The host.
        name: Name,
    },
    /// Read a piece of the log of a member on a host. Answered with [`Done::HostLog`].
    HostLog {
        /// The member.
        name: Name,
        /// Where the piece begins, in bytes; none: near the end.
        from: Option<u64>,
    },
}

/// The approval of a plan by its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanApproval {
    /// The whole id.
    pub request_id: RequestId,
    /// The SHA-256 of the text ([`crate::request::Request::plan_sha256`]).
    pub plan_sha256: String,
    /// What to watch for.
    pub feedback: String,
    /// How permission questions are answered from then on.
    pub permissions: Option<Permissions>,
}

/// What a person wants of the integration branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum IntegrationOrder {
    /// Show what a teammate has changed in its checkout. Answered with [`Done::Text`].
    DiffOf(Name),
    /// Show what was submitted for a task. Answered with [`Done::Text`].
    DiffOfTask(TaskId),
    /// Integrate the user's branch. Answered with [`Done::Tasks`]: the task that does it, or none
    /// if nothing is to be done.
    Sync {
        /// Chosen by the client. A client that repeats the command under the same id joins it.
        id: RequestId,
        /// The branch; none: the one that is checked out.
        into: Option<String>,
    },
    /// Fast-forward the user's branch. Answered with [`Done::Landed`].
    Land {
        /// The branch; none: the one that is checked out.
        into: Option<String>,
        /// The environment of the command: filters of the user run with it, as they would by hand.
        environment: Option<Environment>,
        /// The parts of the home that filters of the user see in addition to what tools need.
        visible: Vec<String>,
    },
}

/// The program that becomes the daemon in the place of the one that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Successor {
    /// The process that runs the program already: its own file, and the worker's, are taken from it
    /// and never looked up by a path.
    pub process: Identity,
    /// The number under which that process has the worker's program open.
    pub worker: i32,
    /// Where the program was found, absolute: for messages, and for `ps`.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The variables `TEAM_…` of its environment; the others stay as they are.
    pub variables: Vec<(String, String)>,
}

/// How to start an incarnation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpawnOrder {
    /// The member.
    pub name: Name,
    /// Whether it continues its last conversation, under the recorded terms; otherwise it begins
    /// with the default terms.
    pub resume: bool,
    /// Its terms, as far as they are named. Paths are real paths.
    pub terms: TermsPatch,
    /// The environment and umask of the command.
    pub environment: Environment,
    /// When it was first given ([`crate::clock::since_boot`]), however often it is repeated.
    pub asked_at: Duration,
}

impl SpawnOrder {
    /// Makes the order of a fresh incarnation by the default terms, as it is given now.
    pub fn new(name: Name, environment: Environment) -> Self {
        Self {
            name,
            resume: false,
            terms: TermsPatch::default(),
            environment,
            asked_at: since_boot(),
        }
    }
}

/// How to ask a teammate to leave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShutdownOrder {
    /// Chosen by the client: the id of the request, unless one is pending already, which the order
    /// then joins. A client that repeats the order under the same id joins it too.
    pub request_id: RequestId,
    /// The member.
    pub name: Name,
    /// Why.
    pub reason: String,
    /// Seconds that its model has to decide.
    pub decide_within: f64,
    /// Seconds after which signals end it; none: never.
    pub force_after: Option<f64>,
    /// Whether it is answered only when the teammate has ended or rejected; else with
    /// [`Done::Asked`] once it is recorded.
    pub wait: bool,
}

/// What is to be done with tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TaskOrder {
    /// List those that are not finished, or only this one.
    List(Option<TaskId>),
    /// Make tasks.
    Add {
        /// Chosen by the client. A client that repeats the command under the same id joins it.
        id: RequestId,
        /// What is to be done, at least one.
        tasks: Vec<TaskFields>,
        /// Whether `blocked_by` counts within these tasks, from 1.
        within: bool,
    },
    /// Claim one for the teammate that asks; none: the next one.
    Claim(Option<TaskId>),
    /// Submit the work. The checks decide whether it is done.
    Submit(TaskId, String),
    /// Give it back.
    Release(TaskId),
    /// Reserve it for a teammate.
    Assign(TaskId, Name),
    /// Cancel it.
    Cancel(TaskId),
    /// Change its fields.
    Edit(TaskId, Box<TaskFields>),
    /// Try it once more, after it has failed or was cancelled, with these changes.
    Retry(TaskId, Box<TaskFields>),
    /// Make tasks of what strangers have written elsewhere. Only a person may; a source that a task
    /// was made of before is refused.
    Import {
        /// Chosen by the client. A client that repeats the command under the same id joins it.
        id: RequestId,
        /// The tasks, at least one.
        tasks: Vec<ImportedTask>,
    },
}

/// A task that is made of a text from elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedTask {
    /// Where the text is from, such as `gh:owner/repo#12`.
    pub source: String,
    /// What is to be done.
    pub fields: TaskFields,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Done {
    /// The daemon is there.
    Pong {
        /// Its process id.
        pid: u32,
        /// The name of the team.
        team_name: String,
        /// The version of the program.
        version: String,
        /// Whether it is about to end.
        stopping: bool,
        /// What it cannot do, and everything else waits for, such as writing the journal.
        trouble: Option<String>,
    },
    /// The worker is ready.
    Ready {
        /// Its process id.
        pid: u32,
        /// Its incarnation.
        incarnation: u32,
        /// Its status.
        status: MemberStatus,
        /// Messages to the previous incarnation that it will not read.
        skipped: u64,
        /// Notes about its checkout.
        notes: Vec<String>,
    },
    /// A shutdown is recorded.
    Asked {
        /// The request: the one that was pending before, if there was one.
        request_id: RequestId,
    },
    /// The incarnation that was asked to shut down has ended.
    Ended {
        /// The request.
        request_id: RequestId,
        /// `shutdown`, `killed` or `crashed`.
        status: MemberStatus,
        /// How it ended in detail, unless later incarnations have ended since.
        #[serde(with = "crate::json::as_text")]
        exit: Option<Box<Exit>>,
    },
    /// The teammate that was asked to shut down was still being prepared: no process of the
    /// preparation is left, and it is not started. The part of its checkout that was made stays for
    /// the next spawn.
    Withdrawn,
    /// The teammate rejected the shutdown.
    Rejected {
        /// The request.
        request_id: RequestId,
        /// Its reason.
        reason: String,
    },
    /// The decision is in the journal.
    Recorded {
        /// The incarnation that it concerns.
        incarnation: u32,
    },
    /// The answer is recorded, by this command or by an earlier one with the same answer.
    Answered {
        /// Whether an earlier command gave it.
        repeated: bool,
    },
    /// The files were moved.
    Forgotten {
        /// Their names in the archive.
        files: Vec<String>,
    },
    /// How the attempt to stop ended.
    Stop(StopOutcome),
    /// The tasks as they are now.
    Tasks(#[serde(with = "crate::json::as_text")] Vec<Task>),
    /// The new tasks. Their records could be too large for a frame.
    Made(Vec<TaskId>),
    /// What was asked for, as text.
    Text(String),
    /// Where a branch of the user is.
    Landed(Landed),
    /// The awaited plan has this status.
    Judged(PlanVerdict),
    /// Nothing changes any more by itself. These make no progress.
    Quiet(Vec<Obstacle>),
    /// The daemon becomes the other program now, and answers nothing more.
    HandingOver,
    /// These leads are connected by MCP.
    Leads(Vec<ConnectedLead>),
    /// It is recorded.
    LeadRead {
        /// Whether that was not known.
        is_news: bool,
    },
    /// The codes of the pending requests; none: answers need no code.
    Codes(Option<Vec<RequestCode>>),
    /// The code is right, or none is needed.
    CodeTaken,
    /// What the connected workers report of their MCP servers.
    McpServers(Vec<MemberServers>),
    /// The hosts of the team now.
    Hosts(#[serde(with = "crate::json::as_text")] Vec<HostStatus>),
    /// The line is where its receiver lives; or it waits for that host.
    Delivered(Option<AwaitedHost>),
    /// The decision is in the journal, and the worker gets it when its host is reached.
    Waits {
        /// The incarnation that it concerns.
        incarnation: u32,
        /// Its host.
        host: AwaitedHost,
        /// The gate of the worker: closed if it is known to be.
        gate: Gate,
    },
    /// The piece of a log.
    HostLog(LogPiece),
}

/// The code of a request. Never printed by `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCode {
    /// The request.
    pub request_id: RequestId,
    /// Four digits.
    pub code: String,
}

impl std::fmt::Debug for RequestCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RequestCode({})", self.request_id)
    }
}

/// A lead that is connected by MCP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectedLead {
    /// The process that runs its server.
    pub process: Identity,
    /// The name of its program, as the kernel has it.
    pub program: String,
    /// Its terminal, if it has one.
    pub terminal: Option<String>,
    /// The place behind the last message that it has got, in bytes; none: it has not said.
    pub read: Option<u64>,
}

impl ConnectedLead {
    /// Describes it: program, pid and terminal.
    pub fn shown(&self) -> String {
        let pid = self.process.pid;
        let program: String = self.program.escape_default().collect();
        match &self.terminal {
            Some(terminal) => format!("{program} (pid {pid}, {terminal})"),
            None => format!("{program} (pid {pid})"),
        }
    }
}

/// Why a task, or the goal itself, makes no progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obstacle {
    /// The task; null for the goal.
    pub task: Option<TaskId>,
    /// The reason, for people.
    pub why: String,
    /// The requests that wait for an answer.
    pub requests: Vec<RequestId>,
}

/// A verdict on a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanVerdict {
    /// The request.
    pub request_id: RequestId,
    /// `approved`, `rejected` or `expired`.
    pub status: crate::request::Status,
    /// What to change, or what to watch for.
    pub feedback: String,
}

/// How an attempt to stop ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum StopOutcome {
    /// All are gone; the daemon ends now.
    Stopped,
    /// These teammates refused to leave, each with its reason: the daemon stays.
    Rejected(Vec<(Name, String)>),
}

/// Why nothing was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The kind: it becomes the exit code.
    pub code: RefusalCode,
    /// What failed. Fits behind "error: ".
    pub message: String,
    /// What to do next. Fits behind "hint: ".
    pub hint: Option<String>,
}

/// The kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalCode {
    /// The daemon could not do it.
    Failed,
    /// The command makes no sense.
    Usage,
    /// The teammate refused.
    Rejected,
    /// No such teammate or request.
    NotFound,
    /// Already answered, name taken, not running.
    Conflict,
    /// The id belongs to another request: the client chooses another one.
    Taken,
    /// The incarnation ended before its worker was ready.
    NotReady,
}

impl From<Refusal> for String {
    fn from(refusal: Refusal) -> Self {
        refusal
            .hint
            .map(|hint| format!("{} ({hint})", refusal.message))
            .unwrap_or(refusal.message)
    }
}

impl Refusal {
    /// Makes a refusal.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
        }
    }

    /// Adds what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
