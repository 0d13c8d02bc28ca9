//! An agent that runs for many turns: its input is written, and its output is read.
//!
//! The driver replies at once where the protocol requires it, also between turns. All other output
//! waits for the mind. So an agent that floods is slowed down and blocks nothing.

use teamd_worker_model::{AgentDriver, AgentEnds, AgentInput, AgentProcess, Known, Meter};
use teamd_worker_sandbox::run::{AgentStart, GateHandle, StartedAgent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// How long a line of an agent may be, in bytes.
const MAX_LINE: usize = 32 << 20;

/// How much is read at once, in bytes.
const PIECE: usize = 64 << 10;

/// The beginning of the exchange with an agent.
pub(super) struct AgentExchange {
    pub(super) driver: Box<dyn AgentDriver>,
    /// What it reads first.
    pub(super) begin: String,
    /// What its session holds, unless that is a new one.
    pub(super) known: Option<Known>,
    /// What counts its model calls.
    pub(super) meter: Meter,
}

impl AgentExchange {
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

/// The ends of its pipes.
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
    let AgentEnds { mut input, output } = ends;
    let mut buffer = Vec::with_capacity(PIECE);
    loop {
        if writes.write_all(line.as_bytes()).await.is_err() {
            // Its earlier output is read all the same.
            input.close();
        }
        line = String::new();
        tokio::select! {
            next = input.recv(), if !input.is_closed() => {
                if let Some(next) = next {
                    line = lines_of(&mut *driver, next);
                }
            }
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
                    let (answer, parsed) = driver.parse_line(&text);
                    line.push_str(&answer);
                    for next in parsed {
                        if output.send(next).await.is_err() {
                            return;
                        }
                    }
                }
                if buffer.len() > MAX_LINE {
                    tracing::error!("the agent outputs a line of more than {} MiB", MAX_LINE >> 20);
                    return;
                }
            }
        }
    }
}

/// Returns the lines of an input.
fn lines_of(driver: &mut dyn AgentDriver, input: AgentInput) -> String {
    match input {
        AgentInput::Message {
            id,
            text,
            permissions,
        } => driver.send_message(id, &text, permissions),
        AgentInput::Outcome {
            call,
            content,
            is_error,
        } => driver.send_outcome(&call, &content, is_error),
        AgentInput::Permission { question, refusal } => {
            driver.permit(&question, refusal.as_deref())
        }
        AgentInput::Interrupt => driver.interrupt(),
    }
}
