//! A stream from a host to home: what `ssh home LINE` would be.

use std::future::pending;
use std::io;
use std::os::fd::AsFd;

use async_nats::StatusCode;
use futures_util::StreamExt;
use teamd_shared::host::NatsLink;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::carry::{NatsStream, PacketReceiver, PacketSender, WAITING};
use crate::end::NatsError;
use crate::packet::Packet;
use crate::server::{ServerConnection, connect};

/// Carries standard input and output to what home has for this line, until home ends the stream.
///
/// # Errors
/// Why it broke, or what home says.
pub(crate) async fn dial(link: &NatsLink, line: String) -> Result<(), NatsError> {
    let no_pipe = |error: io::Error| {
        NatsError::needs_person(format!("standard input and output must be pipes: {error}"))
    };
    let input = io::stdin().as_fd().try_clone_to_owned();
    let input = input.and_then(pipe::Receiver::from_owned_fd);
    let input = input.map_err(no_pipe)?;
    let output = io::stdout().as_fd().try_clone_to_owned();
    let output = output.and_then(pipe::Sender::from_owned_fd);
    let output = output.map_err(no_pipe)?;
    let ServerConnection { client, mut ended } = connect(link).await?;
    let subject = &link.subject;
    let id = Uuid::new_v4().simple();
    let mut subscriber = client
        .subscribe(format!("{subject}.down.{id}.*"))
        .await
        .map_err(|error| NatsError::passing(error.to_string()))?;
    let (messages, waiting) = mpsc::channel(WAITING);
    let receives = async {
        let mut home = None;
        while let Some(message) = subscriber.next().await {
            if message.status == Some(StatusCode::NO_RESPONDERS) {
                return NatsError::passing("home does not listen");
            }
            // A copy of home may answer, too: the first one counts.
            let is_of_home =
                *home.get_or_insert_with(|| message.subject.clone()) == message.subject;
            if is_of_home && messages.send(message.payload).await.is_err() {
                break;
            }
        }
        NatsError::passing("the connection to the server broke")
    };
    let carries = async {
        let up = format!("{subject}.up.{id}");
        let reply = format!("{subject}.down.{id}.none");
        let mut sender = PacketSender::new(client.clone(), up.clone().into(), reply.into());
        let mut receiver = PacketReceiver::new(waiting);
        sender.send(&Packet::Open(line)).await?;
        match receiver.receive().await? {
            Packet::Opened(token) => sender.redirect(format!("{up}.{token}").into()),
            Packet::Failed(why) => return Err(NatsError::passing(why)),
            _ => return Err(NatsError::passing("home answers with something else")),
        }
        let stream = NatsStream::new(sender, receiver, input, output);
        stream.carry(pending()).await?.map_err(NatsError::passing)
    };
    let broke = async {
        let why = ended.recv().await;
        why.unwrap_or_else(|| NatsError::passing("the connection to the server ended"))
    };
    tokio::select! {
        carried = carries => carried,
        why = receives => Err(why),
        why = broke => Err(why),
    }
}
