//! The steps that a batch gives out. They say all that the event loop must know.

use std::collections::BTreeSet;

use teamd_shared::control::ToWorker;
use teamd_shared::environment::Environment;
use teamd_shared::journal::Line;
use teamd_shared::member::Member;
use teamd_shared::name::Name;

use super::Reply;
use crate::daemon::core::event::{Client, Incarnation};

/// What is to be done next, before anything else is.
#[derive(Debug)]
pub(crate) enum Step {
    /// Append these lines with one write and one sync, and report it ([`super::Batcher::appended`],
    /// [`super::Batcher::not_written`]).
    Append(Vec<Line>),
    /// Do what follows from the lines that are not done yet; `again`: it may have been done before.
    Complete {
        /// Whether to look first what is there already.
        again: bool,
    },
    /// Sync all that follows from the lines, the notices too, and report how far that came ([`super::Batcher::settled`]).
    Settle,
    /// Start a process for an incarnation, and report it ([`super::Batcher::started`]).
    Start(Box<NewWorker>),
    /// Send SIGTERM, if that incarnation still runs.
    Terminate(Incarnation),
    /// Send SIGKILL.
    Kill(Incarnation),
    /// Say something to a worker, if it is connected.
    Say(Incarnation, ToWorker),
    /// Take over into the roster how these members stand now.
    Show(BTreeSet<Name>),
    /// Write the roster, if there is anything new, and report it ([`super::Batcher::shown`]).
    WriteRoster,
    /// Answer a command.
    Reply(Client, Reply),
}

/// An incarnation for which a process is to be started.
#[derive(Debug)]
pub(crate) struct NewWorker {
    /// Which one.
    pub(crate) incarnation: Incarnation,
    /// As the journal holds it.
    pub(crate) member: Member,
    /// The environment of the command that asked for it.
    pub(crate) environment: Environment,
}

/// Why the daemon ends.
#[derive(Debug)]
pub(crate) enum End {
    /// It was told to, and no worker is left.
    Stopped,
    /// It becomes another program.
    HandedOver,
    /// It cannot go on: why.
    Failed(String),
}

/// One half of a worker's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Introduction {
    /// The journal holds the incarnation and its process.
    Journaled,
    /// The worker has greeted.
    Greeted,
}
