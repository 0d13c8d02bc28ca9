//! A stream from a host to home: what `ssh home LINE` would be.

use std::future::pending;
use std::io;
use std::os::fd::AsFd;

use async_nats::StatusCode;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::carry::{Heard, Said, Stream, WAITING};
use crate::end::NatsError;
use crate::piece::Piece;
use crate::server::{ServerConnection, ServerOptions, connect};

/// Carries standard input and output to what home has for this line, until home ends the stream.
///
/// # Errors
/// Why it broke, or what home says.
pub(crate) async fn dial(
    options: &ServerOptions,
    link: &str,
    line: String,
) -> Result<(), NatsError> {
    let no_pipe = |error: io::Error| {
        NatsError::needs_person(format!("standard input and output must be pipes: {error}"))
    };
    let input = io::stdin().as_fd().try_clone_to_owned();
    let input = input.and_then(pipe::Receiver::from_owned_fd);
    let input = input.map_err(no_pipe)?;
    let output = io::stdout().as_fd().try_clone_to_owned();
    let output = output.and_then(pipe::Sender::from_owned_fd);
    let output = output.map_err(no_pipe)?;
    let ServerConnection { client, mut ended } = connect(options).await?;
    let id = Uuid::new_v4().simple();
    let hears = format!("{link}.down.{id}");
    let mut subscriber = client
        .subscribe(hears.clone())
        .await
        .map_err(|error| NatsError::passing(error.to_string()))?;
    let (messages, waiting) = mpsc::channel(WAITING);
    let listens = async {
        while let Some(message) = futures_util::StreamExt::next(&mut subscriber).await {
            if message.status == Some(StatusCode::NO_RESPONDERS) {
                return NatsError::passing("home does not listen");
            }
            if messages.send(message.payload).await.is_err() {
                break;
            }
        }
        NatsError::passing("the connection to the server broke")
    };
    let carries = async {
        let mut said = Said::new(client.clone(), format!("{link}.up.{id}").into());
        let mut heard = Heard::new(waiting);
        said.ask(hears.clone().into(), &Piece::Open(line)).await?;
        match heard.hear().await? {
            Piece::Opened => {}
            Piece::Failed(why) => return Err(NatsError::passing(why)),
            _ => return Err(NatsError::passing("home says something else first")),
        }
        let stream = Stream::new(said, heard, input, output);
        stream.carry(pending()).await?.map_err(NatsError::passing)
    };
    let broke = async {
        let why = ended.recv().await;
        why.unwrap_or_else(|| NatsError::passing("the connection to the server ended"))
    };
    tokio::select! {
        carried = carries => carried,
        why = listens => Err(why),
        why = broke => Err(why),
    }
}
