//! What a worker that cannot begin or go on tells the daemon last: why. A log that cannot be
//! written, or a daemon that waits for it to be ready, leaves no other way.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use teamd_shared::control::{FromWorker, Greeting, PROTOCOL, Peer, WireError, send_now};
use tokio::sync::watch;

use super::connection::Announcement;

/// How long an incarnation that ends waits for its last words to be sent.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);

/// The way that is open for last words: it follows the connection.
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
    /// Takes in that the worker has greeted.
    pub(crate) fn greeted(&mut self) {
        if let Self::Born { has_greeted, .. } = self {
            *has_greeted = true;
        }
    }

    /// Says why the worker ends. A daemon that does not take it is no reason to stay.
    pub(crate) async fn say(self, why: String) {
        match self {
            Self::Born {
                connection,
                has_greeted: false,
            } => say_unable(connection, why),
            Self::Born { connection, .. } => {
                or_debug(send_now(&connection, &FromWorker::Unable { why }));
            }
            Self::Linked(said) => {
                said.send_modify(|said| said.end(Some(FromWorker::Unable { why })));
                drop(tokio::time::timeout(LAST_WORDS, said.closed()).await);
            }
        }
    }
}

/// Says, as the first frame of a connection, that this worker cannot begin.
pub(crate) fn say_unable(connection: impl AsFd, why: String) {
    or_debug(send_now(
        connection,
        &Greeting {
            protocol: PROTOCOL,
            peer: Peer::Unable { why },
        },
    ));
}

fn or_debug(said: Result<(), WireError>) {
    if let Err(error) = said {
        tracing::debug!("the daemon is not told why: {error}");
    }
}
