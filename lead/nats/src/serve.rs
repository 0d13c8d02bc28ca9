//! The streams of one host, at home: a command is run for each, as `sshd` runs the only command of a
//! key. The command says what it serves; this process only looks after the streams.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::Stdio;

use async_nats::Client;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use uuid::Uuid;

use crate::carry::{Incoming, Outgoing, Stream, StreamEnd, WAITING};
use crate::end::NatsError;
use crate::piece::{MAX_TEXT, Piece};
use crate::server::{ServerConnection, ServerOptions, connect};

/// How many streams a host may have: its link, and the files that cross now.
pub(crate) const MAX_STREAMS: usize = 32;
/// What is said on standard output as soon as streams are taken.
pub(crate) const LISTENS: &str = "listening";
/// The variable in which a command finds what the host asks for, as `sshd` names it (`sshd(8)`).
const ASKED: &str = "SSH_ORIGINAL_COMMAND";

/// Takes streams until standard input ends, or the connection to the server.
///
/// # Errors
/// Why the connection ended, or could not be made.
pub(crate) async fn serve(
    options: &ServerOptions,
    link: &str,
    command: &[OsString],
) -> Result<(), NatsError> {
    let input = io::stdin().as_fd().try_clone_to_owned();
    let mut input = input
        .and_then(pipe::Receiver::from_owned_fd)
        .map_err(|error| {
            NatsError::needs_person(format!("standard input must be a pipe: {error}"))
        })?;
    let ServerConnection { client, mut ended } = connect(options).await?;
    let passing = |error: &dyn std::error::Error| NatsError::passing(error.to_string());
    let mut asked = client
        .subscribe(format!("{link}.up.>"))
        .await
        .map_err(|error| passing(&error))?;
    client.flush().await.map_err(|error| passing(&error))?;
    // The caller may have ended by now: that is seen below.
    writeln!(io::stdout(), "{LISTENS}").ok();
    let mut streams = Streams {
        client: client.clone(),
        link,
        command,
        token: Uuid::new_v4().simple().to_string(),
        known: HashMap::new(),
    };
    let (ends, mut ended_streams) = mpsc::channel(MAX_STREAMS);
    let mut block = [0; 64];
    loop {
        tokio::select! {
            message = asked.next() => {
                let Some(message) = message else {
                    return Err(NatsError::passing("the connection to the server broke"));
                };
                streams.take(&message.subject, message.payload, &ends).await?;
            }
            Some(id) = ended_streams.recv() => drop(streams.known.remove(&id)),
            why = ended.recv() => {
                return Err(why.unwrap_or_else(|| {
                    NatsError::passing("the connection to the server ended")
                }));
            }
            read = input.read(&mut block) => {
                if read.unwrap_or(0) == 0 {
                    return Ok(());
                }
            }
        }
    }
}

/// The streams of a host.
struct Streams<'a> {
    client: Client,
    link: &'a str,
    command: &'a [OsString],
    /// What the messages of a stream are for that this process has begun: another one can listen, too.
    token: String,
    /// Where the messages of each stream go, by its id; none once it had too many of them.
    known: HashMap<String, Option<mpsc::Sender<Bytes>>>,
}

impl Streams<'_> {
    /// Takes a message of a stream, or begins the stream.
    async fn take(
        &mut self,
        subject: &str,
        message: Bytes,
        ends: &mpsc::Sender<String>,
    ) -> Result<(), NatsError> {
        let prefix = format!("{}.up.", self.link);
        let tokens = subject.strip_prefix(&prefix).unwrap_or_default();
        match tokens.split_once('.') {
            None => self.open(tokens.to_owned(), message, ends).await,
            Some((id, token)) if token == self.token => self.pass(id, message).await,
            Some(_) => Ok(()),
        }
    }

    /// Passes a message to its stream.
    async fn pass(&mut self, id: &str, message: Bytes) -> Result<(), NatsError> {
        let Some(stream) = self.known.get_mut(id) else {
            return self.refuse(id, &message).await;
        };
        let is_full = |to: &mpsc::Sender<Bytes>| {
            let passed = to.try_send(message);
            matches!(passed, Err(TrySendError::Full(_)))
        };
        if stream.as_ref().is_some_and(is_full) {
            // That is the end of what it receives.
            *stream = None;
        }
        Ok(())
    }

    /// Tells the host that there is no such stream. What ends one there is not answered.
    async fn refuse(&self, id: &str, message: &Bytes) -> Result<(), NatsError> {
        if let Some((_, Piece::Data(_) | Piece::Beat)) = Piece::decode(message) {
            let why = "home has no such stream".to_owned();
            return self.outgoing(id).send(&Piece::Failed(why)).await;
        }
        Ok(())
    }

    /// Begins a stream.
    async fn open(
        &mut self,
        id: String,
        message: Bytes,
        ends: &mpsc::Sender<String>,
    ) -> Result<(), NatsError> {
        let Some((0, Piece::Open(asked))) = Piece::decode(&message) else {
            return Ok(());
        };
        let mut outgoing = self.outgoing(&id);
        if self.known.len() >= MAX_STREAMS {
            let why = format!("this host has {MAX_STREAMS} streams already");
            return outgoing.send(&Piece::Failed(why)).await;
        }
        if self.known.contains_key(&id) {
            return Ok(());
        }
        let (messages, waiting) = mpsc::channel(WAITING);
        let incoming = Incoming::behind_the_first(waiting);
        let command = run(self.command, &asked);
        self.known.insert(id.clone(), Some(messages));
        let opened = Piece::Opened(self.token.clone());
        let ends = ends.clone();
        tokio::spawn(async move {
            serve_one((outgoing, incoming), &opened, command).await;
            // The process may be ending.
            ends.send(id).await.ok();
        });
        Ok(())
    }

    fn outgoing(&self, id: &str) -> Outgoing {
        let to = format!("{}.down.{id}.{}", self.link, self.token);
        Outgoing::new(self.client.clone(), to.into())
    }
}

fn run(command: &[OsString], asked: &str) -> io::Result<Child> {
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| io::Error::other("no command is named"))?;
    Command::new(program)
        .args(arguments)
        .env(ASKED, asked)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

/// Carries one stream to its end.
async fn serve_one(
    (mut outgoing, incoming): (Outgoing, Incoming),
    opened: &Piece,
    command: io::Result<Child>,
) {
    let begun = command.and_then(|mut child| {
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(io::Error::other("it has no pipes"));
        };
        Ok((child, stdin, stdout, stderr))
    });
    let (mut child, stdin, stdout, stderr) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            let why = format!("home cannot run its command: {error}");
            // If that cannot be sent, the connection to the server has ended.
            outgoing.send(&Piece::Failed(why)).await.ok();
            return;
        }
    };
    if outgoing.send(opened).await.is_err() {
        return;
    }
    let stream = Stream::new(outgoing, incoming, stdout, stdin);
    // How it has ended was sent to the host; the command is ended, too.
    stream.carry(end_of(&mut child, stderr)).await.ok();
}

/// Waits for the end of a command. The last line that it writes is why it failed.
async fn end_of(child: &mut Child, mut stderr: ChildStderr) -> StreamEnd {
    let mut written = Vec::new();
    let mut block = [0; MAX_TEXT];
    while let Ok(read @ 1..) = stderr.read(&mut block).await {
        written.extend_from_slice(&block[..read]);
        let surplus = written.len().saturating_sub(MAX_TEXT);
        written.drain(..surplus);
    }
    let status = child.wait().await.map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&written).into_owned();
    let error = text.lines().rfind(|line| line.starts_with("error: "));
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    let why = error.or(last).unwrap_or("the command at home failed");
    let why = why.strip_prefix("error: ").unwrap_or(why);
    Err(why.trim().to_owned())
}
