//! The last frame of a worker that cannot begin or continue: the reason. There is no other way if
//! the log cannot be written, or if the daemon waits for the worker to be ready.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use teamd_shared::control::{FromWorker, Greeting, PROTOCOL, Peer, WireError, send_now};
use tokio::sync::watch;

use crate::announcement::Announcement;

/// How long an incarnation waits at its end until its last words are sent.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);

/// The present way to send last words; it follows the connection.
#[derive(Debug)]
pub(crate) enum LastWords {
    /// The worker has the connection that it was born with.
    Born {
        /// Another descriptor of it.
        connection: OwnedFd,
        /// Whether it has greeted.
        has_greeted: bool,
    },
    /// A task of its own has the connection, and every later one.
    Linked(watch::Sender<Announcement>),
}

impl LastWords {
    /// Applies that the worker has greeted.
    pub(crate) fn greeted(&mut self) {
        if let Self::Born { has_greeted, .. } = self {
            *has_greeted = true;
        }
    }

    /// Sends why the worker ends. A daemon that does not read must not keep the worker.
    pub(crate) async fn send(self, why: String) {
        match self {
            Self::Born {
                connection,
                has_greeted: false,
            } => send_unable(connection, why),
            Self::Born { connection, .. } => {
                or_debug(send_now(&connection, &FromWorker::Unable { why }));
            }
            Self::Linked(announcement) => {
                announcement.send_modify(|last| last.end(Some(FromWorker::Unable { why })));
                drop(tokio::time::timeout(LAST_WORDS, announcement.closed()).await);
            }
        }
    }
}

/// Sends, as the first frame of a connection, that this worker cannot begin.
pub(crate) fn send_unable(connection: impl AsFd, why: String) {
    or_debug(send_now(
        connection,
        &Greeting {
            protocol: PROTOCOL,
            peer: Peer::Unable { why },
        },
    ));
}

fn or_debug(sent: Result<(), WireError>) {
    if let Err(error) = sent {
        tracing::debug!("the daemon does not get the reason: {error}");
    }
}
