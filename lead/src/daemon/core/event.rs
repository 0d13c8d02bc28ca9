//! What has happened, and what shall be done because of it.

use std::time::Duration;

use teamd_shared::control::{Command, Done, Refusal, SpawnOrder, ToWorker, WorkerState};
use teamd_shared::environment::Environment;
use teamd_shared::id::RequestId;
use teamd_shared::journal::RejectedLine;
use teamd_shared::member::{Cgroup, Emptied};
use teamd_shared::message::Message;
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::process::Identity;

/// The time of an event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Now {
    /// Seconds since 1970: for people, and for nothing else.
    pub(crate) wall: f64,
    /// Since the daemon began: deadlines rest on it.
    pub(crate) monotonic: Duration,
}

/// Which request of which connection: where the reply goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client {
    pub(crate) connection: u64,
    pub(crate) tag: u32,
    /// Whether it is the lead agent that asks, over its worker's own connection, and not a person.
    pub(crate) agent: bool,
}

/// Which life of which member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Incarnation {
    pub(crate) name: Name,
    pub(crate) incarnation: u32,
}

/// What the event loop looks up before it decides a spawn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SpawnFacts {
    /// Why no life can begin now, if something holds the life lock.
    pub(crate) held: Option<String>,
    /// The workspace where none was asked for.
    pub(crate) default_workspace: String,
    /// Where the inbox of the lead ends, if it is the lead agent that begins.
    pub(crate) lead_inbox: Option<Position>,
}

/// How the process of a life ended, as far as it could be seen, and what it left unread.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) inbox: Position,
    pub(crate) unread: u64,
    /// Whether its transcript says that SIGTERM ended it.
    pub(crate) by_signal: bool,
    /// How it was established that nothing of it is left.
    pub(crate) emptied: Option<Emptied>,
    /// Why no incarnation can begin where it has worked, if that was looked at.
    pub(crate) unworkable: Option<String>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// A command that concerns the journal.
    Command(Client, Command),
    /// A spawn under this id, with what must be known to decide it.
    Spawn(Client, RequestId, Box<SpawnOrder>, SpawnFacts),
    /// A worker, checked, is on a connection.
    Connected { life: Incarnation, environment: Option<Environment>, state: WorkerState },
    /// A worker says where it stands.
    Said { life: Incarnation, state: WorkerState },
    /// A worker's connection names a line of the lead's inbox; it was read, or could not be.
    Submitted { life: Incarnation, request_id: RequestId, line: Result<Box<Message>, String> },
    /// A worker leaves because of SIGTERM.
    Leaving { life: Incarnation },
    /// A worker's connection is closed.
    Disconnected { life: Incarnation },
    /// A process was started for a life, in a cgroup of its own where there are some, or could not be.
    Started { life: Incarnation, process: Result<Identity, String>, cgroup: Option<Cgroup> },
    /// At the start of the daemon a life's process was found alive.
    Found { life: Incarnation },
    /// The process of a life, and all that it started, is gone.
    Ended { life: Incarnation, ended: Ended },
    /// The lead's inbox was read up to this position; these lines were no messages.
    LeadRead { position: Position, rejected: Vec<RejectedLine> },
    /// Modes of the team directory were put back.
    ModesRestored { restored: Vec<String> },
    /// A worker answers what it was asked, or says that it can be asked.
    Pong { life: Incarnation, number: u64 },
    /// A worker that should answer has not done so for as long as it may.
    Silent { life: Incarnation },
    /// No reply for a second watchdog period.
    Hung { life: Incarnation },
    /// A deadline has come.
    Deadline,
    /// SIGTERM or Ctrl-C.
    Terminate,
}

impl Event {
    /// Makes the event of a life without a process.
    pub(crate) fn not_started(life: Incarnation, why: &str) -> Self {
        Self::Started { life, process: Err(why.to_owned()), cgroup: None }
    }

    /// Returns the life that it is about; none if it is about none, or about what has not begun.
    pub(crate) fn life(&self) -> Option<&Incarnation> {
        match self {
            Self::Connected { life, .. }
            | Self::Said { life, .. }
            | Self::Submitted { life, .. }
            | Self::Leaving { life }
            | Self::Disconnected { life }
            | Self::Started { life, .. }
            | Self::Found { life }
            | Self::Ended { life, .. }
            | Self::Pong { life, .. }
            | Self::Silent { life }
            | Self::Hung { life } => Some(life),
            Self::Command(..)
            | Self::Spawn(..)
            | Self::LeadRead { .. }
            | Self::ModesRestored { .. }
            | Self::Deadline
            | Self::Terminate => None,
        }
    }
}

/// What a command waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Until {
    /// The worker of this incarnation has said that it is ready.
    Ready(u32),
    /// The incarnation that this shutdown asks has ended, or rejected it.
    Ended(RequestId),
    /// The worker of this incarnation has applied the directive of this `seq`: nothing that began before runs any more.
    GateClosed { incarnation: u32, seq: u64 },
    /// This plan is not pending any more.
    Judged(RequestId),
}

/// What shall be done, after the journal has the decision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Start a process for the life that the journal holds now.
    Start(Incarnation),
    /// Let a started worker begin.
    Welcome(Incarnation),
    /// Say something to a worker, if it is connected.
    Say(Incarnation, ToWorker),
    /// Send SIGTERM (and SIGCONT: a stopped process would keep it waiting), if the life is still that one.
    Terminate(Incarnation),
    /// Send SIGKILL.
    Kill(Incarnation),
    /// Answer a command.
    Reply(Client, Result<Done, Refusal>),
    /// Answer a command when something has happened.
    Wait(Client, Name, Until),
    /// Answer when the attempt to stop has ended.
    WaitForStop(Client),
}
