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

use crate::carry::{Heard, Said, Stream, StreamEnd, WAITING};
use crate::end::NatsError;
use crate::piece::{MAX_TEXT, Piece};
use crate::server::{ServerConnection, ServerOptions, connect};

/// How many streams a host may have: its link, and the files that cross now.
const MAX_STREAMS: usize = 32;
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
        .subscribe(format!("{link}.up.*"))
        .await
        .map_err(|error| passing(&error))?;
    client.flush().await.map_err(|error| passing(&error))?;
    // The caller may have ended by now: that is seen below.
    writeln!(io::stdout(), "{LISTENS}").ok();
    let mut streams = Streams {
        client: client.clone(),
        link,
        command,
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
    /// What is heard, by the ids of the streams.
    known: HashMap<String, mpsc::Sender<Bytes>>,
}

impl Streams<'_> {
    /// Takes a message of a stream, or begins the stream.
    async fn take(
        &mut self,
        subject: &str,
        message: Bytes,
        ends: &mpsc::Sender<String>,
    ) -> Result<(), NatsError> {
        let Some(id) = subject.rsplit('.').next().map(str::to_owned) else {
            return Ok(());
        };
        if let Some(stream) = self.known.get(&id) {
            if let Err(TrySendError::Full(_)) = stream.try_send(message) {
                // Its end is noticed as that of what it hears.
                self.known.remove(&id);
            }
            return Ok(());
        }
        let mut said = Said::new(
            self.client.clone(),
            format!("{}.down.{id}", self.link).into(),
        );
        let asked = match Piece::decode(&message) {
            Some((0, Piece::Open(asked))) => asked,
            // What is said of a stream that has ended here is no news there.
            Some((_, Piece::Done | Piece::Failed(_) | Piece::Eof | Piece::Taken(_))) | None => {
                return Ok(());
            }
            Some(_) => {
                let why = "home has no such stream".to_owned();
                return said.say(&Piece::Failed(why)).await;
            }
        };
        if self.known.len() >= MAX_STREAMS {
            let why = format!("this host has {MAX_STREAMS} streams already");
            return said.say(&Piece::Failed(why)).await;
        }
        let (messages, waiting) = mpsc::channel(WAITING);
        let mut heard = Heard::new(waiting);
        // The first message was counted by it, as each one is.
        messages.try_send(message).ok();
        heard.hear().await?;
        let command = run(self.command, &asked);
        self.known.insert(id.clone(), messages);
        let ends = ends.clone();
        tokio::spawn(async move {
            serve_one(said, heard, command).await;
            // The process may be ending.
            ends.send(id).await.ok();
        });
        Ok(())
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
async fn serve_one(mut said: Said, heard: Heard, command: io::Result<Child>) {
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
            said.say(&Piece::Failed(why)).await.ok();
            return;
        }
    };
    let carried = async {
        said.say(&Piece::Opened).await?;
        let stream = Stream::new(said, heard, stdout, stdin);
        stream.carry(end_of(&mut child, stderr)).await
    };
    let text = match carried.await {
        Ok(Ok(())) => return,
        Ok(Err(why)) => why,
        Err(error) => error.to_string(),
    };
    note(&text);
}

/// Tells the log of the caller, where it keeps what is said here.
fn note(text: &str) {
    writeln!(io::stderr(), "a stream ended: {text}").ok();
}

/// Waits for the end of a command. The last line that it says is why it failed.
async fn end_of(child: &mut Child, stderr: ChildStderr) -> StreamEnd {
    let mut said = Vec::new();
    let mut limited = stderr.take(MAX_TEXT as u64);
    limited.read_to_end(&mut said).await.ok();
    let status = child.wait().await.map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&said).into_owned();
    let error = text.lines().rfind(|line| line.starts_with("error: "));
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    let why = error.or(last).unwrap_or("the command at home failed");
    let why = why.strip_prefix("error: ").unwrap_or(why);
    Err(why.trim().to_owned())
}
