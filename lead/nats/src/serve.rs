//! The streams of one host, at home: a command is run for each, as `sshd` runs the only command of a
//! key. The command says what it serves; this process only looks after the streams.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::time::{Duration, Instant};

use async_nats::{Client, Message, StatusCode};
use bytes::Bytes;
use futures_util::StreamExt;
use teamd_shared::host::NatsLink;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use uuid::Uuid;

use crate::carry::{MAX_STREAMS, NatsStream, PacketReceiver, PacketSender, StreamEnd, WAITING};
use crate::end::NatsError;
use crate::packet::{MAX_TEXT, Packet};
use crate::server::{ServerConnection, connect};

/// How many streams a host may open within how long.
const OPENS: (usize, Duration) = (64, Duration::from_secs(10));
/// How long the id of a stream is: that of a UUID without its hyphens.
const ID: usize = 32;
/// What is said on standard output as soon as streams are taken.
pub(crate) const LISTENS: &str = "listening";
/// The variable in which a command finds what the host asks for, as `sshd` names it (`sshd(8)`).
const ASKED: &str = "SSH_ORIGINAL_COMMAND";

/// Takes streams until standard input ends, or the connection to the server.
///
/// # Errors
/// Why the connection ended, or could not be made.
pub(crate) async fn serve(link: &NatsLink, command: &[OsString]) -> Result<(), NatsError> {
    let input = io::stdin().as_fd().try_clone_to_owned();
    let mut input = input
        .and_then(pipe::Receiver::from_owned_fd)
        .map_err(|error| {
            NatsError::needs_person(format!("standard input must be a pipe: {error}"))
        })?;
    let ServerConnection { client, mut ended } = connect(link).await?;
    let link = link.subject.as_str();
    let passing = |error: &dyn std::error::Error| NatsError::passing(error.to_string());
    // Of the streams of another program that listens nothing is received here: where that has ended,
    // the server tells the host.
    let token = Uuid::new_v4().simple().to_string();
    let mut opens = client
        .subscribe(format!("{link}.up.*"))
        .await
        .map_err(|error| passing(&error))?;
    let mut packets = client
        .subscribe(format!("{link}.up.*.{token}"))
        .await
        .map_err(|error| passing(&error))?;
    client.flush().await.map_err(|error| passing(&error))?;
    // The caller may have ended by now: that is seen below.
    writeln!(io::stdout(), "{LISTENS}").ok();
    let mut streams = Streams {
        client: client.clone(),
        link,
        command,
        token,
        known: HashMap::new(),
        opened: VecDeque::new(),
    };
    let (ends, mut ended_streams) = mpsc::channel(MAX_STREAMS);
    let mut block = [0; 64];
    loop {
        tokio::select! {
            message = opens.next() => {
                let message = message.ok_or_else(broke)?;
                streams.open(&message, &ends).await?;
            }
            message = packets.next() => {
                let message = message.ok_or_else(broke)?;
                streams.pass(message).await?;
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

fn broke() -> NatsError {
    NatsError::passing("the connection to the server broke")
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
    /// When the last streams were opened.
    opened: VecDeque<Instant>,
}

impl Streams<'_> {
    /// Passes a message to its stream.
    async fn pass(&mut self, message: Message) -> Result<(), NatsError> {
        let Some(id) = self.id_of(&message.subject) else {
            return Ok(());
        };
        let Some(stream) = self.known.get_mut(id) else {
            return self.refuse(id, &message.payload).await;
        };
        // The program of the host is gone, so the server reports.
        let is_over = message.status == Some(StatusCode::NO_RESPONDERS);
        let is_full = |to: &mpsc::Sender<Bytes>| {
            let passed = to.try_send(message.payload);
            matches!(passed, Err(TrySendError::Full(_)))
        };
        if is_over || stream.as_ref().is_some_and(is_full) {
            // That is the end of what it receives.
            *stream = None;
        }
        Ok(())
    }

    /// Returns the id of the stream with this subject; none if it is of no stream.
    fn id_of<'s>(&self, subject: &'s str) -> Option<&'s str> {
        let tokens = subject.strip_prefix(self.link)?.strip_prefix(".up.")?;
        let id = tokens.split('.').next()?;
        let is_id = id.len() == ID && id.chars().all(|it| it.is_ascii_hexdigit());
        is_id.then_some(id)
    }

    /// Tells the host that there is no such stream. What ends one there is not answered.
    async fn refuse(&self, id: &str, message: &Bytes) -> Result<(), NatsError> {
        if let Some((_, Packet::Data(_) | Packet::Beat)) = Packet::decode(message) {
            let why = "home has no such stream".to_owned();
            return self.sender_of(id).send(&Packet::Failed(why)).await;
        }
        Ok(())
    }

    /// Begins a stream.
    async fn open(
        &mut self,
        message: &Message,
        ends: &mpsc::Sender<String>,
    ) -> Result<(), NatsError> {
        let Some(id) = self.id_of(&message.subject) else {
            return Ok(());
        };
        let Some((0, Packet::Open(asked))) = Packet::decode(&message.payload) else {
            return Ok(());
        };
        if self.known.contains_key(id) {
            return Ok(());
        }
        let mut sender = self.sender_of(id);
        if self.known.len() >= MAX_STREAMS || !self.may_open() {
            let why = "this host has too many streams".to_owned();
            return sender.send(&Packet::Failed(why)).await;
        }
        let id = id.to_owned();
        let (messages, waiting) = mpsc::channel(WAITING);
        let receiver = PacketReceiver::behind_the_first(waiting);
        let command = run(self.command, &asked);
        self.known.insert(id.clone(), Some(messages));
        let opened = Packet::Opened(self.token.clone());
        let ends = ends.clone();
        tokio::spawn(async move {
            serve_one((sender, receiver), &opened, command).await;
            // The process may be ending.
            ends.send(id).await.ok();
        });
        Ok(())
    }

    /// Counts a stream, if there were not too many just now: each costs a process.
    fn may_open(&mut self) -> bool {
        let now = Instant::now();
        while self.opened.front().is_some_and(|at| now - *at > OPENS.1) {
            self.opened.pop_front();
        }
        let may_open = self.opened.len() < OPENS.0;
        if may_open {
            self.opened.push_back(now);
        }
        may_open
    }

    fn sender_of(&self, id: &str) -> PacketSender {
        let (link, token) = (self.link, &self.token);
        let to = format!("{link}.down.{id}.{token}");
        let reply = format!("{link}.up.{id}.{token}");
        PacketSender::new(self.client.clone(), to.into(), reply.into())
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
    (mut sender, receiver): (PacketSender, PacketReceiver),
    opened: &Packet,
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
            sender.send(&Packet::Failed(why)).await.ok();
            return;
        }
    };
    if sender.send(opened).await.is_err() {
        return;
    }
    let stream = NatsStream::new(sender, receiver, stdout, stdin);
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
