//! The connection to a server of the cluster. It is made once: when it breaks, all streams on it end,
//! and the caller of this program runs it again.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use async_nats::{
    Client, ClientError, ConnectError, ConnectErrorKind, ConnectOptions, Event, ServerError,
};
use teamd_shared::host::NatsLink;
use tokio::sync::mpsc;

use crate::carry::{MAX_STREAMS, WAITING};
use crate::end::NatsError;
use crate::packet::MAX_MESSAGE;

/// How long the server may take to answer.
const CONNECTS: Duration = Duration::from_secs(10);
/// How often the server is asked whether it lives. Two questions without an answer end a connection.
const PING: Duration = Duration::from_secs(10);
/// How many messages of a subscription may wait: those of all streams that a host may have.
const MOST_WAITING: usize = MAX_STREAMS * WAITING;
/// How long a file of credentials may be, in bytes.
const MAX_CREDENTIALS: u64 = 64 << 10;

/// A connection.
#[derive(Debug)]
pub(crate) struct ServerConnection {
    pub(crate) client: Client,
    /// Says once why it is of no use any more.
    pub(crate) ended: mpsc::Receiver<NatsError>,
}

/// Connects, and logs in.
///
/// # Errors
/// Why no stream can be carried.
pub(crate) async fn connect(link: &NatsLink) -> Result<ServerConnection, NatsError> {
    let (ends, ended) = mpsc::channel(1);
    let mut connecting = log_in(ConnectOptions::new(), &link.credentials)?
        .name("teamd-nats")
        .require_tls(true)
        .connection_timeout(CONNECTS)
        .ping_interval(PING)
        .ignore_discovered_servers()
        .max_reconnects(1)
        .subscription_capacity(MOST_WAITING)
        .event_callback(move |event| {
            if let Some(why) = end_of(event) {
                // The first reason is the one that counts.
                ends.try_send(why).ok();
            }
            std::future::ready(())
        });
    if let Some(ca) = &link.ca {
        connecting = connecting.add_root_certificates(ca.clone());
    }
    let client = connecting
        .connect(&link.server)
        .await
        .map_err(|error| refusal(&link.server, &error))?;
    let server = client.server_info();
    if !server.auth_required {
        return Err(NatsError::needs_person(format!(
            "{} lets in all who ask: it must require a login",
            link.server
        )));
    }
    if server.max_payload < MAX_MESSAGE {
        return Err(NatsError::needs_person(format!(
            "{} takes messages of {} bytes, and {MAX_MESSAGE} are needed: raise its `max_payload`",
            link.server, server.max_payload
        )));
    }
    Ok(ServerConnection { client, ended })
}

/// Reads what logs in: the two kinds of files that `nsc` and `nk` write.
fn log_in(options: ConnectOptions, file: &Path) -> Result<ConnectOptions, NatsError> {
    let shown = file.display();
    let cannot = |error: std::io::Error| {
        NatsError::needs_person(format!("cannot read the credentials {shown}: {error}"))
    };
    let opened = File::open(file).map_err(cannot)?;
    let mode = opened.metadata().map_err(cannot)?.mode();
    // The files of a mounted secret are of a group, too.
    if mode & 0o007 != 0 {
        return Err(NatsError::needs_person(format!(
            "others can read the credentials {shown}: `chmod 600` mends it"
        )));
    }
    let mut text = String::new();
    opened
        .take(MAX_CREDENTIALS)
        .read_to_string(&mut text)
        .map_err(cannot)?;
    if text.contains("BEGIN NATS USER JWT") {
        return options.credentials(&text).map_err(cannot);
    }
    let seed = text.trim();
    if !seed.starts_with("SU") {
        return Err(NatsError::needs_person(format!(
            "{shown} is no file of credentials: neither .creds nor the seed of a user's nkey"
        )));
    }
    Ok(options.nkey(seed.to_owned()))
}

/// Says why there is no connection.
fn refusal(server: &str, error: &ConnectError) -> NatsError {
    let why = std::error::Error::source(error).map_or_else(
        || error.to_string(),
        |source| format!("{}: {source}", error.kind()),
    );
    let text = format!("cannot connect to {server}: {why}");
    let source = std::error::Error::source(error);
    let source = source.and_then(|source| source.downcast_ref::<std::io::Error>());
    // So rustls says that a certificate is not the one that is trusted.
    if source.is_some_and(|source| source.kind() == std::io::ErrorKind::InvalidData) {
        return NatsError::needs_person(text);
    }
    match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            NatsError::needs_person(format!("{server} does not take the credentials: {why}"))
        }
        ConnectErrorKind::ServerParse | ConnectErrorKind::Tls => NatsError::needs_person(text),
        ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::Io
        | ConnectErrorKind::MaxReconnects => NatsError::passing(text),
    }
}

/// Tells whether an error of the server lasts until a person changes what this user may do. The words
/// are those of `server/errors.go`; another error is one of this connection, such as a stale one.
fn is_refusal(error: &str) -> bool {
    let error = error.to_ascii_lowercase();
    let words = [
        "permission",
        "authorization",
        "authentication",
        "revoked",
        "expired",
        "payload",
    ];
    words.iter().any(|word| error.contains(word))
}

/// Returns why a connection is of no use any more, if this event says so.
fn end_of(event: Event) -> Option<NatsError> {
    match event {
        Event::Disconnected | Event::Closed | Event::ClientError(ClientError::MaxReconnects) => {
            Some(NatsError::passing("the connection to the server broke"))
        }
        Event::LameDuckMode => Some(NatsError::passing("the server is going down")),
        Event::SlowConsumer(_) => {
            Some(NatsError::passing("this machine takes messages too slowly"))
        }
        Event::ServerError(ServerError::AuthorizationViolation) => Some(NatsError::needs_person(
            "the server does not take the credentials any more",
        )),
        Event::ServerError(ServerError::Other(why)) => {
            let text = format!("the server says: {why}");
            Some(if is_refusal(&why) {
                NatsError::needs_person(text)
            } else {
                NatsError::passing(text)
            })
        }
        Event::ServerError(ServerError::SlowConsumer(_)) => Some(NatsError::passing(
            "the server says that this machine takes messages too slowly",
        )),
        Event::ClientError(error) => Some(NatsError::passing(error.to_string())),
        Event::Connected | Event::Draining => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_connection_is_none_of_a_person() {
        assert!(is_refusal("Permissions Violation for Publish to \"a.b\""));
        assert!(is_refusal("User Authentication Expired"));
        assert!(!is_refusal("Stale Connection"));
        assert!(!is_refusal("Maximum Connections Exceeded"));
    }
}
