//! What has happened, and what is to be done because of it.

use std::time::Duration;

use teamd_shared::control::{Command, Done, Refusal, SpawnOrder, ToWorker, WorkerState};
use teamd_shared::environment::Environment;
use teamd_shared::host::Host;
use teamd_shared::id::RequestId;
use teamd_shared::inbox::UnreadMail;
use teamd_shared::job::{JobOrder, JobReport};
use teamd_shared::journal::RejectedLine;
use teamd_shared::member::{Cgroup, Emptied, Terms};
use teamd_shared::message::Message;
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::process::Identity;
use teamd_shared::task::TaskId;
use teamd_shared::usage::{OtherModels, Usage};

use super::caller::{Actor, ReplyTo};
use super::host_link::HostLink;
use super::incarnation::Incarnation;
use super::job::{Job, SpawnFacts};

/// The time of an event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Now {
    /// Seconds since 1970: for people, and for nothing else.
    pub(crate) wall: f64,
    /// Since the daemon began: deadlines rest on it.
    pub(crate) monotonic: Duration,
    /// Since the machine was started: commands say when they were given by it.
    pub(crate) since_boot: Duration,
}

/// How the process of an incarnation ended, if that could be seen, and what it left unread.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) inbox: Position,
    pub(crate) unread: u64,
    /// The first of the unread messages that can come back to their senders; none if the inbox was
    /// not looked at, since no process could be started.
    pub(crate) mail: Option<Vec<UnreadMail>>,
    /// How many more of them there are.
    pub(crate) more_mail: u64,
    /// How it was established that nothing of it is left.
    pub(crate) emptied: Option<Emptied>,
    /// Why no incarnation can begin where it has worked, if that was examined.
    pub(crate) unworkable: Option<String>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// A command, and who gives it.
    Command(ReplyTo, Actor, Command),
    /// A spawn under this id, with what was looked up for it.
    Spawn(ReplyTo, RequestId, Box<SpawnOrder>, SpawnFacts),
    /// A started worker has greeted on the connection that it inherited, which it does under its
    /// liveness lock.
    Greeted { incarnation: Incarnation },
    /// A worker has connected again, and its identity was checked.
    Connected {
        incarnation: Incarnation,
        environment: Option<Environment>,
        state: WorkerState,
    },
    /// A worker reports its state.
    Said {
        incarnation: Incarnation,
        state: WorkerState,
    },
    /// A worker reports what other models have used than the recorded one, and all that its
    /// conversation has cost by then.
    OtherModels {
        incarnation: Incarnation,
        models: OtherModels,
        all: Usage,
    },
    /// A worker reports what came of a summary of its conversation.
    Compacted {
        incarnation: Incarnation,
        id: RequestId,
        outcome: Result<(), String>,
    },
    /// A worker submits a line of the lead's inbox: what was read there, or why it could not be.
    Submitted {
        incarnation: Incarnation,
        request_id: RequestId,
        line: Result<Box<Message>, String>,
    },
    /// A worker leaves because of SIGTERM: it has said so, or its transcript does.
    Leaving { incarnation: Incarnation },
    /// A worker cannot begin or continue, and reports why. Its end follows.
    Unable {
        incarnation: Incarnation,
        why: String,
    },
    /// A worker's connection is closed.
    Disconnected { incarnation: Incarnation },
    /// A process was started for an incarnation, in its cgroup if there is one; or it could not be.
    Started {
        incarnation: Incarnation,
        process: Result<Identity, String>,
        cgroup: Option<Cgroup>,
    },
    /// The starting daemon found the process of an incarnation alive.
    Found { incarnation: Incarnation },
    /// A host reports, on a new link, that the process of an incarnation runs there.
    Reached {
        incarnation: Incarnation,
        process: Identity,
    },
    /// The link to a host is up, or is not.
    Link { host: Name, link: HostLink },
    /// The process of an incarnation, and all that it started, is gone.
    Ended {
        incarnation: Incarnation,
        ended: Ended,
    },
    /// The lead's inbox was read up to this position; these lines were no messages.
    LeadRead {
        position: Position,
        rejected: Vec<RejectedLine>,
    },
    /// Modes of the team directory, or the journal, were put back: what to tell.
    Restored { what: String },
    /// Wrong codes were given for a request, as often as that is allowed: what to show.
    WrongCodes { content: String },
    /// A worker answers a question of the watchdog, or says that it can be asked (0).
    Pong {
        incarnation: Incarnation,
        number: u64,
    },
    /// A worker has waited for its commands in the background as long as it may.
    Remind { incarnation: Incarnation },
    /// A worker that should answer has not done so for the watchdog period, or longer.
    Silent { incarnation: Incarnation },
    /// A job has ended: its report, or why there is none.
    JobEnded {
        job: u64,
        ended: Result<JobReport, String>,
    },
    /// The next of the checked work may be integrated.
    Integrate,
    /// A task in review may need its check.
    Review { task: TaskId },
    /// Work may be there for idle members.
    Offer,
    /// An order may be due.
    Orders,
    /// A person had it ended by force, which could not be journaled: it was killed.
    Forced { incarnation: Incarnation },
    /// A deadline has come.
    Deadline,
    /// SIGTERM or Ctrl-C.
    Terminate,
}

impl Event {
    /// Makes the event of an incarnation for which no process could be started.
    pub(crate) fn not_started(incarnation: Incarnation, why: &str) -> Self {
        Self::Started {
            incarnation,
            process: Err(why.to_owned()),
            cgroup: None,
        }
    }

    /// Returns the command that the event is: it must be answered.
    pub(crate) fn client(&self) -> Option<ReplyTo> {
        if let EventSubject::Command(client) = self.about() {
            Some(client)
        } else {
            None
        }
    }

    /// Returns the incarnation that the event is about, if it is about one that exists.
    pub(crate) fn incarnation(&self) -> Option<&Incarnation> {
        if let EventSubject::Incarnation(incarnation) = self.about() {
            Some(incarnation)
        } else {
            None
        }
    }

    fn about(&self) -> EventSubject<'_> {
        match self {
            Self::Command(client, ..) | Self::Spawn(client, ..) => EventSubject::Command(*client),
            Self::Greeted { incarnation }
            | Self::Connected { incarnation, .. }
            | Self::Said { incarnation, .. }
            | Self::OtherModels { incarnation, .. }
            | Self::Compacted { incarnation, .. }
            | Self::Submitted { incarnation, .. }
            | Self::Leaving { incarnation }
            | Self::Unable { incarnation, .. }
            | Self::Disconnected { incarnation }
            | Self::Started { incarnation, .. }
            | Self::Found { incarnation }
            | Self::Reached { incarnation, .. }
            | Self::Ended { incarnation, .. }
            | Self::Pong { incarnation, .. }
            | Self::Silent { incarnation }
            | Self::Remind { incarnation }
            | Self::Forced { incarnation } => EventSubject::Incarnation(incarnation),
            Self::Link { .. }
            | Self::LeadRead { .. }
            | Self::Restored { .. }
            | Self::WrongCodes { .. }
            | Self::JobEnded { .. }
            | Self::Integrate
            | Self::Review { .. }
            | Self::Offer
            | Self::Orders
            | Self::Deadline
            | Self::Terminate => EventSubject::Team,
        }
    }
}

/// What an event is about.
enum EventSubject<'a> {
    Command(ReplyTo),
    Incarnation(&'a Incarnation),
    Team,
}

/// What a command waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Until {
    /// The worker of this incarnation has said that it is ready.
    Ready(u32),
    /// The incarnation that this shutdown asks has ended, or rejected it.
    Ended(RequestId),
    /// The worker of this incarnation has applied the directive of this `seq`: nothing that began
    /// before runs any more.
    GateClosed { incarnation: u32, seq: u64 },
    /// This plan is not pending any more.
    Judged(RequestId),
    /// Nothing is left of the jobs that prepared a start which was called off.
    CalledOff,
    /// The worker of this incarnation has said what came of this summary of its conversation.
    Compacted(u32, RequestId),
}

/// What a start has of the spawn order, beside what is recorded.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ordered {
    pub(crate) environment: Environment,
    /// What the order itself names to be written beside the workspace.
    pub(crate) writable: Vec<String>,
}

/// What is to be done, after the journal has the decision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Start a process for the incarnation that the journal holds now, with what its spawn order
    /// says; none: with the environment of the incarnation before, which it follows by the policy.
    Start(Incarnation, Option<Ordered>),
    /// Let a started worker begin.
    Welcome(Incarnation),
    /// Send a worker a frame, if it is connected.
    Say(Incarnation, ToWorker),
    /// Send SIGTERM, and SIGCONT for a stopped process.
    Terminate(Incarnation),
    /// Send SIGKILL.
    Kill(Incarnation),
    /// Keep a link to a host, and dial it now.
    Dial(Host),
    /// Answer a command, with all hosts, when it is known what became of the link to one.
    WaitForLink(ReplyTo, Name),
    /// End the link to a host that was removed.
    HangUp(Name),
    /// Look up what a spawn rests on ([`Event::Spawn`]), by the terms of the incarnation.
    Look(ReplyTo, RequestId, Box<SpawnOrder>, Box<Terms>),
    /// Begin a job, unless the same one is under way.
    Begin(Box<Job>),
    /// Run it, under this number ([`Event::JobEnded`]).
    Run(u64, JobOrder),
    /// End it: it is not wanted any more.
    EndJob(u64),
    /// Call the spawns of a member off that are being prepared, or were asked for before.
    CallOff(Name),
    /// Check a task in review, as soon as its author cannot change anything any more.
    Check(TaskId),
    /// The same after a pause: it could not be run.
    CheckAgain(TaskId),
    /// End the check of a task, if it runs.
    EndCheck(TaskId),
    /// Integrate the next of the checked work.
    IntegrateNext,
    /// Look for work for idle members.
    Offer,
    /// Keep what a teammate has committed for a task that it no longer holds; none: for the one
    /// whose branch is checked out.
    Keep(Name, Option<TaskId>),
    /// Answer a command.
    Reply(ReplyTo, Result<Done, Refusal>),
    /// Answer a command when something has happened.
    Wait(ReplyTo, Name, Until),
    /// Answer when the attempt to stop has ended.
    WaitForStop(ReplyTo),
    /// Answer when nothing happens any more by itself; with a goal, of which the tasks from this
    /// one on are made.
    WaitForQuiet(ReplyTo, Option<TaskId>),
    /// Answer those that wait for the stop: a teammate has rejected it.
    RejectStop,
    /// Tell a host, on the next connection, that it obeys this home from now on.
    TakeOver(Name),
}
