//! What the event loop takes in, of a home or of a host daemon: what connections, links and jobs on
//! hosts report to it.
//!
//! **Who writes**: the tasks beside the event loop, each by a sender of [`Inputs`]. **Who reads**: the
//! event loop alone, in the order in which the inputs came. **When the daemon dies**, what it has not
//! taken in is lost, and so are the connections that reported it.

use std::sync::Arc;

use teamd_shared::control::{
    ByteStream, ConnectedLead, DialledHome, FromWorker, Reply, TaggedCommand, ToWorker, WorkerState,
};
use teamd_shared::environment::Environment;
use teamd_shared::host::{HostVitals, LinkState};
use teamd_shared::job::{GitOrder, JobReport};
use teamd_shared::link::{FromHost, ToHost};
use teamd_shared::name::Name;
use teamd_shared::process::Identity;
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc, oneshot};
use uuid::Uuid;

use super::outbound::Outbound;
use crate::core::incarnation::Incarnation;

/// How many inputs may wait for the event loop: who reports then waits, and memory does not grow.
pub(crate) const ROOM: usize = 1024;

/// Where connections, links and jobs report to.
pub(crate) type Inputs = mpsc::Sender<Input>;

/// What the event loop takes in.
#[derive(Debug)]
pub(crate) enum Input {
    /// A command is connected.
    ClientConnected {
        connection: u64,
        client: Box<ConnectedClient>,
    },
    /// It wants something.
    ClientAsks {
        connection: u64,
        request: TaggedCommand,
    },
    /// A worker has greeted on the connection that it inherited.
    WorkerGreeted { incarnation: Incarnation },
    /// A process is connected through the socket, and says that it is a worker; the event loop
    /// checks it.
    WorkerConnected(Box<ConnectedWorker>),
    /// A worker says something.
    WorkerSays {
        connection: u64,
        incarnation: Incarnation,
        frame: FromWorker,
    },
    /// A connection is closed.
    Gone { connection: u64 },
    /// A link is connected to a host daemon.
    LinkConnected {
        connection: u64,
        /// Takes frames of the link, each the text of one line.
        outbound: Outbound<String>,
        /// How the link has dialled home, if it has.
        dials: Option<DialledHome>,
    },
    /// Home says something on it: the text of one frame.
    LinkSays { connection: u64, line: String },
    /// The link to a host reports something.
    Link {
        host: Name,
        /// The number of the connection with that host.
        connection: u64,
        news: LinkNews,
    },
    /// A job on a host wants a step to be done.
    JobStep(Box<JobStep>),
    /// It has done its last one.
    HostedJobEnded {
        job: u64,
        ended: Result<JobReport, String>,
    },
    /// What this machine has to give, as a host daemon has it measured.
    Measured(Box<HostVitals>),
    /// A host has dialled home.
    Dialled(Box<DialledIn>),
    /// A file does not cross that a host daemon was asked for.
    NoFile { name: Uuid, why: String },
}

/// A connection that a host has made.
#[derive(Debug)]
pub(crate) struct DialledIn {
    pub(crate) host: Name,
    /// Which key has let it in.
    pub(crate) key: String,
    /// The file that is to be carried, in the place of the link.
    pub(crate) file: Option<Uuid>,
    pub(crate) stream: ByteStream,
}

/// A command, or a lead that is connected by MCP.
#[derive(Debug)]
pub(crate) struct ConnectedClient {
    pub(crate) replies: Outbound<Reply>,
    /// The process at the other end, as the kernel says.
    pub(crate) process: Identity,
    /// The lead that it is.
    pub(crate) lead: Option<ConnectedLead>,
}

/// A worker on a connection through the socket, or a process that says it is one.
#[derive(Debug)]
pub(crate) struct ConnectedWorker {
    pub(crate) connection: u64,
    pub(crate) incarnation: Incarnation,
    pub(crate) environment: Option<Environment>,
    pub(crate) state: WorkerState,
    /// The process at the other end, as the kernel says.
    pub(crate) process: Identity,
    pub(crate) outbound: Outbound<ToWorker>,
}

/// What a link reports.
#[derive(Debug)]
pub(crate) enum LinkNews {
    /// The host has said who it is.
    Up {
        /// The version of the program there.
        version: String,
        /// Why commands cannot be confined there as promised, if they cannot.
        weakness: Option<String>,
        /// Where frames to it go.
        frames: mpsc::Sender<ToHost>,
        /// Ends the connection.
        cut: Arc<Notify>,
    },
    /// It says something. The permit holds the room that the frame takes, until it is handled.
    Says(Box<FromHost>, OwnedSemaphorePermit),
    /// What was said to it is on its way: there is room for more.
    HasRoom,
    /// The connection has ended, or could not be made.
    Down {
        /// How it is now.
        state: LinkState,
        /// The version of the program there, if the host has said who it is.
        version: Option<String>,
    },
}

/// What a job on a host asks the event loop for.
#[derive(Debug)]
pub(crate) struct JobStep {
    /// The job.
    pub(crate) job: u64,
    /// Where it is done: on this host, or at home.
    pub(crate) host: Option<Name>,
    pub(crate) order: GitOrder,
    pub(crate) reply: oneshot::Sender<Result<JobReport, String>>,
}
