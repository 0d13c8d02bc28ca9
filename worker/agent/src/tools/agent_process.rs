//! An agent that runs for many turns: its input is written, and its output is read.
//!
//! The driver replies at once where the protocol requires it, also between turns. All other output
//! waits for the mind. So an agent that floods is slowed down and blocks nothing.

use std::io;

use bytes::BytesMut;
use teamd_worker_core::secret::Secret;
use teamd_worker_model::{
    AgentDriver, AgentEnds, AgentInput, AgentOutput, AgentProcess, Known, Meter, TeamCall,
};
use teamd_worker_sandbox::run::{AgentStart, GateHandle, StartedAgent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio_util::codec::{AnyDelimiterCodec, AnyDelimiterCodecError, Decoder};

use super::session_record::SessionRecord;

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
    /// The calls of team tools that come over HTTP, if they do.
    pub(super) team_calls: Option<mpsc::UnboundedReceiver<TeamCall>>,
    /// Whether the agent has asked for their list, if it has to.
    pub(super) is_listed: Option<watch::Receiver<bool>>,
    /// Where is recorded what the agent does not show of its session.
    pub(super) record: Option<SessionRecord>,
}

impl AgentExchange {
    /// Starts the agent.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn start(self, agent: AgentStart<'_>) -> io::Result<(AgentProcess, GateHandle)> {
        let fixed = agent.fixed_gate();
        let token = agent.token.clone();
        let StartedAgent {
            reads,
            writes,
            ended,
            gate,
            serving: mut tasks,
        } = agent.for_many_turns()?;
        let (process, ends) = AgentProcess::new(self.known, fixed, self.meter, ended);
        let talk = Talk {
            driver: self.driver,
            team_calls: self.team_calls,
            record: self.record,
            token,
            reads,
            lines: AnyDelimiterCodec::new_with_max_length(b"\n".to_vec(), Vec::new(), MAX_LINE),
            writes,
        };
        tasks.spawn(talk.run(self.begin, ends));
        let process = process.with_list(self.is_listed).with_tasks(tasks);
        Ok((process, gate))
    }
}

/// The exchange with an agent.
struct Talk {
    driver: Box<dyn AgentDriver>,
    team_calls: Option<mpsc::UnboundedReceiver<TeamCall>>,
    record: Option<SessionRecord>,
    /// The token that was handed to the agent, if one was.
    token: Option<Secret>,
    reads: UnixStream,
    /// Cuts what was read into lines.
    lines: AnyDelimiterCodec,
    writes: UnixStream,
}

impl Talk {
    /// Writes and reads until either side has ended.
    async fn run(mut self, mut line: String, ends: AgentEnds) {
        let AgentEnds { mut input, output } = ends;
        let mut buffer = BytesMut::with_capacity(PIECE);
        loop {
            if let Err(error) = self.keep_record() {
                tracing::error!("the record of the session cannot be written: {error}");
                return;
            }
            if self.writes.write_all(line.as_bytes()).await.is_err() {
                // Its earlier output is read all the same.
                input.close();
            }
            line = String::new();
            let parsed = tokio::select! {
                next = input.recv(), if !input.is_closed() => {
                    if let Some(next) = next {
                        line = lines_of(&mut *self.driver, next);
                    }
                    self.driver.take_output()
                }
                call = next_call(&mut self.team_calls) => self.driver.call_team(call),
                read = self.reads.read_buf(&mut buffer) => {
                    if read.unwrap_or(0) == 0 {
                        return;
                    }
                    match self.parse(&mut buffer, &mut line) {
                        Ok(parsed) => parsed,
                        Err(error) => {
                            tracing::error!(
                                "the agent's output cannot be read: {error} ({} MiB for a line)",
                                MAX_LINE >> 20
                            );
                            return;
                        }
                    }
                }
            };
            for next in parsed {
                if output.send(next).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Takes the whole lines out of what was read. Returns what they mean; their answers are added
    /// to `line`.
    ///
    /// # Errors
    /// A line is longer than [`MAX_LINE`].
    fn parse(
        &mut self,
        buffer: &mut BytesMut,
        line: &mut String,
    ) -> Result<Vec<AgentOutput>, AnyDelimiterCodecError> {
        let mut output = Vec::new();
        while let Some(text) = self.lines.decode(buffer)? {
            let mut text = String::from_utf8_lossy(&text);
            if let Some(token) = &self.token {
                text = token.hide(text);
            }
            if text.trim().is_empty() {
                continue;
            }
            let (answer, parsed) = self.driver.parse_line(&text);
            line.push_str(&answer);
            output.extend(parsed);
        }
        Ok(output)
    }

    /// Writes what must last before the next lines are written.
    fn keep_record(&mut self) -> io::Result<()> {
        let lines = self.driver.take_record();
        match &mut self.record {
            Some(record) if !lines.is_empty() => record.add(&lines),
            _ => Ok(()),
        }
    }
}

/// Waits for the next call of a team tool that comes over HTTP.
async fn next_call(calls: &mut Option<mpsc::UnboundedReceiver<TeamCall>>) -> TeamCall {
    let next = match calls {
        Some(calls) => calls.recv().await,
        None => None,
    };
    match next {
        Some(call) => call,
        None => std::future::pending().await,
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
        AgentInput::Outcome { call, outcome } => driver.send_outcome(&call, outcome),
        AgentInput::Permission { question, refusal } => {
            driver.permit(&question, refusal.as_deref())
        }
        AgentInput::Interrupt => driver.interrupt(),
    }
}
