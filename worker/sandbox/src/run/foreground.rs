//! A command in the foreground: its output becomes the result.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use teamd_shared::machine::memory::MemoryKill;
use teamd_shared::member::Bounds;
use teamd_worker_core::tools::Outcome;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::GOOD_END;
use super::agent_gate::AgentGate;
use super::killer::{self, Killer};
use super::live_log::LiveLog;
use super::output::KeptOutput;
use super::piped::Piped;
use super::source::OutputSource;
use super::terminal::Terminal;
use crate::bounds;
use crate::cgroup::OwnCgroup;
use crate::shim::{ExitCause, Report, ShimJob};

/// How much of the error output of an agent is quoted, in bytes.
const ERRORS: usize = 2000;

/// What is reported of an agent that a closed gate has ended.
const GATE_CLOSED: &str = "ended: its gate was closed while it could write";

/// How long the end of an agent is waited for that has closed its output.
pub(super) const GRACE_OF_AGENT: Duration = Duration::from_secs(2);

/// Who reads what a command prints.
#[derive(Debug)]
pub enum OutputReader {
    /// A program: as it is.
    Program,
    /// A model, and people meanwhile in the log, if there is one.
    Model(Option<LiveLog>),
}

/// How a command has ended.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code; none if something else ended it.
    pub exit: Option<i32>,
    /// What it has printed.
    pub output: String,
    /// What is to be said of a bad end. Fits behind the command.
    pub failure: Option<String>,
    /// Whether the kernel has killed something of it for memory.
    pub killed_for_memory: Option<MemoryKill>,
    /// Whether it could not be started or watched: that says nothing of it.
    pub is_fault: bool,
}

/// A bad end of a command.
#[derive(Debug)]
struct Failure {
    /// What is to be said of it. Fits behind the command.
    how: String,
    /// Whether the kernel has killed something of the command for memory.
    killed_for_memory: Option<MemoryKill>,
}

/// A command in the foreground.
#[derive(Debug)]
pub struct Foreground {
    pub(super) command: Piped,
    output: KeptOutput,
    /// Shows the output as a terminal does, for a model; none where a program reads it.
    terminal: Option<Terminal>,
    timeout: Duration,
    bounds: Bounds,
    /// Why the command was cancelled, if it was.
    cancelled: Option<String>,
    /// What precedes the output.
    pub(super) note: String,
    /// What an agent writes to its error output.
    pub(super) errors: Option<File>,
    /// Where the output can be read while it comes.
    pub(super) log: Option<LiveLog>,
    /// What serves its gateway and keeps its jobserver: it ends with this.
    pub(super) serving: JoinSet<()>,
    /// What tells whether the kernel kills it for memory.
    killer: Option<Killer>,
}

impl Foreground {
    /// Starts a command.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn start(job: &ShimJob, liveness_lock: &File) -> io::Result<Self> {
        Ok(Self::of(Piped::start(job, liveness_lock)?, job))
    }

    fn of(command: Piped, job: &ShimJob) -> Self {
        Self {
            command,
            output: KeptOutput::default(),
            terminal: Some(Terminal::default()),
            timeout: job.order.timeout.unwrap_or_default(),
            bounds: job.order.bounds,
            cancelled: None,
            note: String::new(),
            errors: None,
            log: None,
            serving: JoinSet::new(),
            killer: None,
        }
    }

    /// Has its end say whether the kernel has killed it for memory; `cgroup`: that in which it runs.
    /// This comes when its shim has been started: no command waits for it.
    pub(super) fn watch_memory(&mut self, cgroup: Option<&OwnCgroup>) {
        self.killer = Some(Killer::watch(cgroup.map(OwnCgroup::folder)));
    }

    /// Starts an agent that writes to `writes`, which is read at `output`.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn start_agent(
        job: &ShimJob,
        liveness_lock: &File,
        output: UnixStream,
        writes: OwnedFd,
    ) -> io::Result<Self> {
        let command = Piped::start_with(job, liveness_lock, OutputSource::Socket(output), writes)?;
        Ok(Self::of(command, job))
    }

    /// Follows what is wanted of the gate of the agent.
    pub(super) fn follow_gate(&mut self, gate: AgentGate) {
        self.command.shim.follow_gate(gate);
    }

    /// Waits for the end of the command. May be dropped and called again, until it has returned.
    pub async fn finish(&mut self) -> Outcome {
        let report = self.report().await;
        self.outcome(&report)
    }

    async fn report(&mut self) -> Report {
        let Self {
            command,
            log,
            terminal,
            output,
            ..
        } = self;
        command
            .report(|piece| {
                for log in log.iter_mut() {
                    log.push(piece);
                }
                match terminal {
                    Some(terminal) => output.push(&terminal.push(piece)),
                    None => output.push(piece),
                }
            })
            .await
    }

    /// Takes out what is kept of the output.
    fn take_output(&mut self) -> String {
        let rest = self
            .terminal
            .take()
            .map(Terminal::finish)
            .unwrap_or_default();
        self.output.push(&rest);
        std::mem::take(&mut self.output).into_text()
    }

    /// Waits for the end of the command, for this reader.
    pub(super) async fn run_to_end(mut self, reader: OutputReader) -> Ran {
        match reader {
            OutputReader::Program => self.terminal = None,
            OutputReader::Model(log) => self.log = log,
        }
        let report = self.report().await;
        let output = self.take_output();
        let failure = self.failure(&report, &output);
        if let Some(log) = self.log.take() {
            log.end(failure.as_ref().map_or(GOOD_END, |it| &it.how));
        }
        let is_fault = report.cause == ExitCause::Failed;
        Ran {
            exit: if report.cause == ExitCause::Exited {
                report.code
            } else {
                None
            },
            output,
            killed_for_memory: failure.as_ref().and_then(|it| it.killed_for_memory),
            failure: failure.map(|it| it.how),
            is_fault,
        }
    }

    /// Ends the command and all that it started; returns when that is gone.
    pub async fn cancel(mut self, why: &str) -> Outcome {
        self.cancelled = Some(why.to_owned());
        self.command.end();
        self.finish().await
    }

    fn outcome(&mut self, report: &Report) -> Outcome {
        let text = self.take_output();
        let text = text.trim_end_matches('\n');
        let mut failure = self.failure(report, text);
        if let Some(failure) = &mut failure
            && let Some(errors) = self.errors.take()
        {
            failure.how.push_str(&end_of(&errors));
        }
        if let Some(log) = self.log.take() {
            log.end(failure.as_ref().map_or(GOOD_END, |it| &it.how));
        }
        let mut content = match &failure {
            None if text.trim().is_empty() => "(no output)".to_owned(),
            _ => text.to_owned(),
        };
        for note in failure.iter().map(|it| &it.how).chain(&report.notes) {
            let line = if content.is_empty() { "" } else { "\n" };
            content.push_str(&format!("{line}[{note}]"));
        }
        content.insert_str(0, &self.note);
        log_notes(report);
        Outcome {
            content,
            is_error: failure.is_some(),
            images: Vec::new(),
            killed_for_memory: failure.and_then(|it| it.killed_for_memory),
        }
    }

    fn timed_out(&self) -> String {
        format!(
            "timed out after {} s; everything it had started was ended",
            self.timeout.as_secs_f64()
        )
    }

    /// Returns how the command ended, unless that was a good end by itself.
    fn failure(&self, report: &Report, output: &str) -> Option<Failure> {
        if report.error.is_none() && report.cause == ExitCause::Exited {
            return self.exit_failure(report, output);
        }
        Some(Failure {
            how: self.how_it_was_ended(report),
            killed_for_memory: None,
        })
    }

    /// Returns how the command ended that has exited, unless that was a good end.
    fn exit_failure(&self, report: &Report, output: &str) -> Option<Failure> {
        let how = how_it_exited(report)?;
        let end = (report.code, report.signal);
        let killed = self.killer.as_ref().and_then(|it| it.killed(end, output));
        let told = killed.map(|kill| killer::told(kill).to_owned());
        let reached = bounds::reached(&self.bounds, end, output);
        let parts = [Some(how), told, reached];
        Some(Failure {
            how: parts.into_iter().flatten().collect::<Vec<_>>().join("; "),
            killed_for_memory: killed,
        })
    }

    /// Returns what ended the command, if it was not itself.
    fn how_it_was_ended(&self, report: &Report) -> String {
        match (report.cause, &report.error, &self.cancelled) {
            (_, Some(error), _) => error.clone(),
            (_, _, Some(why)) => why.clone(),
            (ExitCause::GateClosed, ..) => GATE_CLOSED.to_owned(),
            _ if self.command.shim.is_ended_by_gate() => GATE_CLOSED.to_owned(),
            (ExitCause::TooMany, ..) => format!(
                "it had more than {} processes at once, which is its limit; everything it had started was ended",
                self.bounds.max_procs.unwrap_or_default()
            ),
            (ExitCause::TimedOut, ..) => self.timed_out(),
            _ if self.command.shim.is_asked() => self.timed_out(),
            (ExitCause::ShimLost, ..) => "the shim of this command was killed".to_owned(),
            (
                ExitCause::Exited | ExitCause::Lifeline | ExitCause::Signalled | ExitCause::Failed,
                ..,
            ) => "the shim of this command was told to end it".to_owned(),
        }
    }
}

/// Returns what an agent has written last of why it fails, to be put behind that it has failed.
fn end_of(errors: &File) -> String {
    let length = errors.metadata().map_or(0, |metadata| metadata.len());
    let mut last = vec![0; ERRORS.min(usize::try_from(length).unwrap_or(ERRORS))];
    let from = length - last.len() as u64;
    match errors.read_exact_at(&mut last, from) {
        Ok(()) => quoted_end(&last),
        Err(error) => format!("; its error output cannot be read: {error}"),
    }
}

/// Quotes the end of an error output; empty if there is none.
fn quoted_end(last: &[u8]) -> String {
    let mut terminal = Terminal::default();
    let shown = [terminal.push(last), terminal.finish()].concat();
    let text = String::from_utf8_lossy(&shown);
    let text = text.trim();
    if text.is_empty() {
        String::new()
    } else {
        format!("; its error output ends: {text}")
    }
}

/// Reads the error output of an agent to its end; returns how it ends, quoted.
pub(super) async fn last_words(mut errors: UnixStream) -> String {
    let mut last = Vec::new();
    let mut piece = vec![0; ERRORS];
    while let Ok(read @ 1..) = errors.read(&mut piece).await {
        last.extend_from_slice(&piece[..read]);
        last.drain(..last.len().saturating_sub(ERRORS));
    }
    quoted_end(&last)
}

pub(super) fn log_notes(report: &Report) {
    for note in &report.notes {
        tracing::warn!("after a command: {note}");
    }
}

/// Returns how a command ended by itself, unless that was a good end.
pub(super) fn how_it_exited(report: &Report) -> Option<String> {
    match (report.code, report.signal) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("exit code {code}")),
        (None, Some(signal)) => Some(format!("ended by signal {signal}")),
        (None, None) => Some("ended, and how is not known".to_owned()),
    }
}
