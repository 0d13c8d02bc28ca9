//! The first frame of every connection: who connects.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::environment::Environment;
use crate::host::NatsLink;
use crate::name::Name;
use crate::process::Identity;

use super::worker::WorkerState;

/// The first frame of every connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Greeting {
    /// [`super::PROTOCOL`] of the peer.
    pub protocol: u16,
    /// Who it is.
    pub peer: Peer,
}

/// Who connects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Peer {
    /// A command.
    Client,
    /// A worker, which the daemon checks against the journal by its process.
    Worker {
        /// The member.
        name: Name,
        /// Its incarnation.
        incarnation: u32,
        /// The environment that it was given: after a restart of the daemon only the worker has it.
        environment: Option<Environment>,
        /// Its status.
        state: Box<WorkerState>,
    },
    /// A worker that cannot begin, on the connection that it was born with. Its process ends.
    Unable {
        /// Why. Fits behind "error: ".
        why: String,
    },
    /// A lead that is connected by MCP.
    Lead {
        /// The process that runs its server. The daemon checks that it does.
        run_by: Identity,
    },
    /// The end of a link, at the socket of a host daemon. What follows are frames of the link
    /// ([`crate::link`]), each the text of one line.
    Link {
        /// How the other end has dialled home, if it was this side that dialled.
        dials: Option<DialledHome>,
    },
    /// A host that dials home, at the socket of home's daemon. What follows are bytes without frames:
    /// home's begin with [`crate::link::MAGIC`] and a [`crate::link::HomeOffer`], each in a line.
    Dialled {
        /// What home calls the host.
        host: Name,
        /// The [`crate::host::HostWay::invitation`] that has let it in.
        key: String,
        /// The file that is carried, in the place of the link.
        file: Option<Uuid>,
    },
}

/// How a host dials home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DialledHome {
    /// Over `ssh`.
    Ssh {
        /// Where `ssh` finds home, as `[USER@]HOST`.
        place: String,
        /// The file of the key that lets the host in; none: as `ssh` is configured.
        key: Option<PathBuf>,
    },
    /// Over a NATS cluster.
    Nats(NatsLink),
}

impl fmt::Display for DialledHome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ssh { place, .. } => formatter.write_str(place),
            Self::Nats(link) => formatter.write_str(&link.server),
        }
    }
}
