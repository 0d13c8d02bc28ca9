//! The control socket: the messages in each direction, and the frames that carry them.
//!
//! A frame is a length (4 bytes, big endian) and as many bytes of bincode. Both are limited to
//! [`MAX_FRAME`]: a hostile length costs nothing. The first frame of a connection is a
//! [`Greeting`]; after it a client sends [`TaggedCommand`]s and gets one [`Reply`] for each, when
//! it is done; a client that loses the daemon repeats the command to the next one. A worker sends
//! [`FromWorker`] and gets [`ToWorker`].
//!
//! bincode and interprocess are used in this module alone. bincode cannot carry internally tagged,
//! untagged or flattened types, so the records of the files have types of their own.

mod command;
mod greeting;
mod mcp;
mod wire;
mod worker;

pub use command::{
    Command, ConnectedLead, Done, ImportedTask, IntegrationOrder, Obstacle, PlanApproval,
    PlanVerdict, Refusal, RefusalCode, Reply, RequestCode, ShutdownOrder, SpawnOrder, StopOutcome,
    Successor, TaggedCommand, TaskOrder,
};
pub use greeting::{DialledHome, Greeting, Peer};
pub use mcp::{McpServerReport, McpServerState, MemberServers};
pub use wire::{
    ByteStream, Connection, Credentials, Incoming, Listener, Outgoing, WireError, connect,
    connect_bytes, pair, send_now,
};
pub use worker::{Directive, FromWorker, PendingShutdown, ToWorker, Welcome, WorkerState};

/// The largest frame, in bytes (4 MiB): an environment (2 MiB at most, `execve(2)`) and a prompt (1
/// MiB) fit.
pub const MAX_FRAME: usize = 4 << 20;

/// The version of the protocol on the socket. The daemon refuses another one, with a hint.
pub const PROTOCOL: u16 = 1;
