//! An agent that runs for many turns: what its mind says is written to it, and what it says is read.
//!
//! The driver answers what the agent asks at once, also between turns. All else waits until the
//! mind takes it: so an agent that floods is slowed down, and holds nothing up.

use teamd_worker_model::{AgentDriver, AgentEnds, AgentProcess, Known, Meter, Said};
use teamd_worker_sandbox::run::{AgentStart, GateHandle, StartedAgent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// How long a line of an agent may be, in bytes.
const MAX_LINE: usize = 32 << 20;

/// How much is read at once, in bytes.
const PIECE: usize = 64 << 10;

/// How an agent is spoken to.
pub(super) struct Conversation {
    pub(super) driver: Box<dyn AgentDriver>,
    /// What it reads first.
    pub(super) begin: String,
    /// What its session holds, unless that is a new one.
    pub(super) known: Option<Known>,
    /// What counts its model calls.
    pub(super) meter: Meter,
}

impl Conversation {
    /// Starts the agent.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn start(
        self,
        agent: AgentStart<'_>,
    ) -> std::io::Result<(AgentProcess, GateHandle)> {
        let fixed = agent.fixed_gate();
        let StartedAgent {
            reads,
            writes,
            ended,
            gate,
            gateway: mut tasks,
        } = agent.for_many_turns()?;
        let (process, ends) = AgentProcess::new(self.known, fixed, self.meter, ended);
        let streams = Streams { reads, writes };
        tasks.spawn(talk(self.driver, self.begin, streams, ends));
        Ok((process.with_tasks(tasks), gate))
    }
}

/// Where the agent is read and written.
struct Streams {
    reads: UnixStream,
    writes: UnixStream,
}

/// Writes and reads until either side has ended.
async fn talk(
    mut driver: Box<dyn AgentDriver>,
    mut line: String,
    streams: Streams,
    ends: AgentEnds,
) {
    let Streams {
        mut reads,
        mut writes,
    } = streams;
    let AgentEnds { mut said, hears } = ends;
    let mut buffer = Vec::with_capacity(PIECE);
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
