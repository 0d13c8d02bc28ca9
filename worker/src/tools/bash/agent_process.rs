//! An agent that runs for many turns: its process in the sandbox, and the tasks that write to it
//! and read what it says.
//!
//! The driver answers what the agent asks at once, also between turns. All else waits until the
//! mind takes it: so an agent that floods is slowed down, and holds nothing up.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use super::agent_gate::{self, GateHandle};
use super::shim_handle::ShimHandle;
use super::way::Way;
use super::{GRACE_OF_AGENT, how_it_exited, last_words, pair};
use crate::model::{AgentDriver, Heard, Known, Line, Meter};
use crate::shim::{AgentStdio, Job};
use teamd_shared::member::{Gate, Permissions};

/// How long a line of an agent may be, in bytes.
const MAX_LINE: usize = 32 << 20;

/// How much an agent may have said that the mind has not taken.
const UNHEARD: usize = 256;

/// What is wanted of an agent that is to be started.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) driver: Box<dyn AgentDriver>,
    pub(crate) session: Uuid,
    /// What it was told, unless the session does not hold it.
    pub(crate) lines: Vec<Line>,
    /// Whether it is to begin a new session, and what there is of the old one is put aside.
    pub(crate) afresh: bool,
}

/// What the mind says to an agent.
#[derive(Debug)]
pub(crate) enum Said {
    Message(Uuid, String, Permissions),
    Outcome(String, String, bool),
    Permit(String, Option<String>),
    Interrupt,
}

/// The process of an agent. If it is dropped, the agent and all that it started are ended; its gate
/// tells when they are.
#[derive(Debug)]
pub(crate) struct AgentProcess {
    /// The messages that its session holds already.
    pub(crate) known: Known,
    /// Whether its session is a new one.
    pub(crate) is_new: bool,
    /// The gate that it began with, if that does not change while it runs.
    pub(crate) fixed: Option<Gate>,
    /// What counts its model calls, and says which limit one was refused for.
    pub(crate) meter: Meter,
    heard: mpsc::Receiver<Heard>,
    says: mpsc::UnboundedSender<Said>,
    ended: Option<oneshot::Receiver<String>>,
    /// How it has ended, if that is known.
    how: Option<String>,
    /// When its output was found to be closed.
    closed_at: Option<Instant>,
    _tasks: JoinSet<()>,
}

/// The worker's ends of what an agent reads and writes, and the output that its shim is started
/// with.
struct Channel {
    reads: UnixStream,
    writes: UnixStream,
    errors: UnixStream,
    output: OwnedFd,
}

impl Channel {
    fn make() -> io::Result<Self> {
        let (writes, input) = pair()?;
        let (errors, its_errors) = pair()?;
        let (reads, output) = pair()?;
        AgentStdio {
            input,
            errors: its_errors,
        }
        .send(&reads)?;
        Ok(Self {
            reads,
            writes,
            errors,
            output,
        })
    }
}

impl AgentProcess {
    /// Starts it. `begin`: what it reads first.
    ///
    /// # Errors
    /// The system's error.
    pub(in crate::tools) fn start(
        job: &Job,
        liveness_lock: &File,
        (driver, begin, known): (Box<dyn AgentDriver>, String, Option<Known>),
        (gate, way): (Gate, Way),
    ) -> io::Result<(Self, GateHandle)> {
        let Channel {
            reads,
            writes,
            errors,
            output,
        } = Channel::make()?;
        let mut shim = ShimHandle::start(job, liveness_lock, output)?;
        let last_words = tokio::spawn(last_words(errors));
        let is_live = job
            .order
            .agent
            .as_ref()
            .is_some_and(|agent| agent.live_gate.is_some());
        let (handle, side) = agent_gate::pair(gate, is_live);
        shim.follow_gate(side);
        let meter = way.meter();
        let mut tasks = way.serve(handle.follow());
        let (hears, heard) = mpsc::channel(UNHEARD);
        let (says, said) = mpsc::unbounded_channel();
        let (ends, ended) = oneshot::channel::<String>();
        let mut ends = ends;
        tokio::spawn(async move {
            let report = tokio::select! {
                report = shim.ended() => report,
                () = ends.closed() => {
                    shim.end();
                    shim.ended().await
                }
            };
            let how = if shim.is_ended_by_gate() {
                Some("was ended: its gate was closed while it could write".to_owned())
            } else {
                report.error.clone()
            };
            let how = how
                .or_else(|| how_it_exited(&report))
                .unwrap_or_else(|| "has ended".to_owned());
            // Nothing holds its error output any more.
            let said = tokio::time::timeout(GRACE_OF_AGENT, last_words).await;
            let said = said.ok().and_then(Result::ok).unwrap_or_default();
            // Without a receiver it is not wanted.
            drop(ends.send(format!("{how}{said}")));
        });
        tasks.spawn(talk((driver, begin), (reads, writes), said, hears));
        let fixed = (!is_live).then_some(gate);
        let is_new = known.is_none();
        let known = known.unwrap_or_default();
        Ok((
            Self {
                known,
                is_new,
                fixed,
                meter,
                heard,
                says,
                ended: Some(ended),
                how: None,
                closed_at: None,
                _tasks: tasks,
            },
            handle,
        ))
    }

    /// Waits for what the agent says next. Dropping the future loses nothing.
    ///
    /// # Errors
    /// How it has ended.
    pub(crate) async fn heard(&mut self) -> Result<Heard, String> {
        if let Some(heard) = self.heard.recv().await {
            return Ok(heard);
        }
        let closed_at = *self.closed_at.get_or_insert_with(Instant::now);
        let patience = tokio::time::timeout_at(closed_at + GRACE_OF_AGENT, self.gone()).await;
        let closed = || "says nothing any more: it has closed its output".to_owned();
        Err(patience.map_or_else(|_| closed(), |()| self.how.clone().unwrap_or_else(closed)))
    }

    /// Waits for the end of its process. Dropping the future loses nothing.
    async fn gone(&mut self) {
        if let Some(ended) = &mut self.ended {
            self.how = Some(ended.await.unwrap_or_else(|_| "has ended".to_owned()));
            self.ended = None;
        }
    }

    /// Tells the agent a message.
    pub(crate) fn say(&self, id: Uuid, text: &str, permissions: Permissions) {
        self.send(Said::Message(id, text.to_owned(), permissions));
    }

    /// Tells the agent the outcome of a call of a handed tool.
    pub(crate) fn answer(&self, call: &str, content: &str, is_error: bool) {
        self.send(Said::Outcome(call.to_owned(), content.to_owned(), is_error));
    }

    /// Answers a question: that it may, or why not.
    pub(crate) fn permit(&self, question: &str, refusal: Option<&str>) {
        self.send(Said::Permit(
            question.to_owned(),
            refusal.map(str::to_owned),
        ));
    }

    /// Ends its turn.
    pub(crate) fn interrupt(&self) {
        self.send(Said::Interrupt);
    }

    fn send(&self, said: Said) {
        if self.says.send(said).is_err() {
            tracing::debug!("the agent has ended, and hears nothing");
        }
    }
}

/// Writes and reads until either side has ended.
async fn talk(
    (mut driver, mut line): (Box<dyn AgentDriver>, String),
    (mut reads, mut writes): (UnixStream, UnixStream),
    mut said: mpsc::UnboundedReceiver<Said>,
    hears: mpsc::Sender<Heard>,
) {
    let mut buffer = Vec::with_capacity(super::PIECE);
    loop {
        if writes.write_all(line.as_bytes()).await.is_err() {
            // What it has said before is heard all the same.
            said.close();
        }
        line = String::new();
        tokio::select! {
            next = said.recv(), if !said.is_closed() => match next {
                Some(Said::Message(id, text, permissions)) => line = driver.say(id, &text, permissions),
                Some(Said::Outcome(call, content, is_error)) => line = driver.answer(&call, &content, is_error),
                Some(Said::Permit(question, refusal)) => line = driver.permit(&question, refusal.as_deref()),
                Some(Said::Interrupt) => line = driver.interrupt(),
                None => {}
            },
            read = reads.read_buf(&mut buffer) => {
                if read.unwrap_or(0) == 0 {
                    return;
                }
                while let Some(end) = buffer.iter().position(|&byte| byte == b'\n') {
                    let text = String::from_utf8_lossy(&buffer[..end]).into_owned();
                    buffer.drain(..=end);
                    if text.trim().is_empty() {
                        continue;
                    }
                    let (answer, heard) = driver.hear(&text);
                    line.push_str(&answer);
                    for heard in heard {
                        if hears.send(heard).await.is_err() {
                            return;
                        }
                    }
                }
                if buffer.len() > MAX_LINE {
                    tracing::error!("the agent says a line of more than {} MiB", MAX_LINE >> 20);
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod simulated;
