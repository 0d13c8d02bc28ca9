//! `bash`: commands in the foreground, whose output is the result, and in the background, whose
//! output is a log file.
//!
//! Each command runs under a shim ([`crate::shim`]), and what it started is gone when it is over.

mod agent_gate;
mod agent_process;
mod background;
mod live_log;
mod log;
mod piped;
mod shim_handle;
mod source;
mod way;

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use teamd_shared::member::{Bounds, Gate};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::input;
use super::output::Output;
use super::terminal::Terminal;
use super::{Outcome, ToolboxConfig};
use crate::bounds;
use crate::sandbox::Policy;
use crate::shim::{ExitCause, Job, Order, Report};
pub(crate) use agent_gate::GateHandle;
pub(crate) use agent_process::{AgentProcess, Launch};
#[cfg(test)]
pub(crate) use agent_process::{Said, simulated::SimulatedAgent};
pub(super) use background::Background;
pub(crate) use live_log::LiveLog;
use piped::Piped;
pub(super) use shim_handle::sweep_orphans;
use source::Source;
pub(super) use source::pair;
pub(super) use way::Way;

/// Seconds that a command may take unless its call says otherwise.
const DEFAULT_TIMEOUT: f64 = 120.0;

/// The longest time that a call may ask for, in seconds.
const MAX_TIMEOUT: f64 = 3600.0;

/// The longest command that the kernel takes as one argument, in bytes (`MAX_ARG_STRLEN`, less the
/// final NUL).
const MAX_COMMAND: usize = (128 << 10) - 1;

/// How much of the error output of an agent is told, in bytes.
const ERRORS: usize = 2000;

/// What is told of an agent that a closed gate has ended.
const GATE_CLOSED: &str = "ended: its gate was closed while it could write";

/// How a good end is told.
pub(crate) const GOOD_END: &str = "exit code 0";

/// How long the end of an agent is waited for that has closed its output.
const GRACE_OF_AGENT: Duration = Duration::from_secs(2);

/// How much is read at once, in bytes: as much as a pipe holds.
const PIECE: usize = 64 << 10;

/// Runs a command with `bash -c` in the workspace, and returns what it prints (stdout and stderr
/// together) and its exit code. It has no terminal and no input: nothing that asks questions works.
/// All that it leaves running ends with the call, unless `run_in_background` is set: then the call
/// returns at once, the command goes on, and its output goes to a log file that is named in the
/// result. Of long output only beginning and end are kept. The file system outside the workspace
/// cannot be written; while the gate is closed nothing can, and there is no network.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bash {
    /// The command.
    #[serde(deserialize_with = "input::without_nul")]
    pub(crate) command: String,
    /// Seconds until it is ended: 120 by default, at most 3600.
    #[serde(default, deserialize_with = "timeout")]
    pub(crate) timeout: Option<f64>,
    /// True: return at once, and let the command go on.
    #[serde(default)]
    pub(crate) run_in_background: bool,
}

fn timeout<'de, D: Deserializer<'de>>(input: D) -> Result<Option<f64>, D::Error> {
    input::checked(
        input,
        |seconds| *seconds > 0.0 && *seconds <= MAX_TIMEOUT,
        format_args!("above 0 and at most {MAX_TIMEOUT} seconds"),
    )
    .map(Some)
}

impl Bash {
    /// Makes the job of a shim. Without a policy the command may do all that the user may.
    ///
    /// # Errors
    /// A text for the model.
    pub(super) fn job(
        &self,
        config: &ToolboxConfig,
        policy: Option<Policy>,
        way: Option<&mut Way>,
    ) -> Result<Job, String> {
        let Self {
            command,
            timeout,
            run_in_background,
        } = self;
        if command.len() > MAX_COMMAND {
            return Err(format!(
                "the command has {} bytes, the limit is {MAX_COMMAND}: write it to a file, and run that",
                command.len()
            ));
        }
        let timeout = timeout
            .or((!run_in_background).then_some(DEFAULT_TIMEOUT))
            .map(Duration::from_secs_f64);
        let listen = way.as_ref().and_then(|way| way.listen());
        let order = Order {
            timeout,
            bounds: config.bounds,
            policy,
            agent: None,
            listen,
        };
        let mut environment = Cow::Borrowed(&config.environment);
        let variables = way.iter().flat_map(|way| way.variables());
        for (name, value) in variables {
            environment.to_mut().set(name, &value);
        }
        // The shim would say it later, and less well.
        let job = config
            .workspace
            .metadata()
            .and_then(|_| Job::new(order, &environment, &config.workspace, command.as_ref()));
        let mut job = job.map_err(|error| cannot_start(config, &error))?;
        job.handed_on.extend(way.and_then(Way::hand_on));
        Ok(job)
    }
}

pub(super) fn cannot_start(config: &ToolboxConfig, error: &io::Error) -> String {
    format!(
        "cannot start a command in {}: {error}",
        config.workspace.display()
    )
}

/// Who reads what a command prints.
#[derive(Debug)]
pub(crate) enum Reader {
    /// A program: as it is.
    Program,
    /// A model, and people meanwhile in the log, if there is one.
    Model(Option<LiveLog>),
}

/// How a command has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Its exit code; none if something else ended it.
    pub(crate) exit: Option<i32>,
    /// What it has printed.
    pub(crate) output: String,
    /// What is to be said of a bad end. Fits behind the command.
    pub(crate) failure: Option<String>,
    /// Whether it could not be started or watched: that says nothing of it.
    pub(crate) is_fault: bool,
}

/// A command in the foreground.
#[derive(Debug)]
pub(crate) struct Foreground {
    command: Piped,
    output: Output,
    /// Shows the output as a terminal does, for a model; none where a program reads it.
    terminal: Option<Terminal>,
    timeout: Duration,
    bounds: Bounds,
    /// Why the command was cancelled, if it was.
    cancelled: Option<String>,
    /// What stands before the output.
    pub(super) note: String,
    /// What an agent writes to its error output.
    errors: Option<File>,
    /// Where the output can be read while it comes.
    log: Option<LiveLog>,
    /// What serves its gateway: it ends with this.
    pub(super) gateway: JoinSet<()>,
}

impl Foreground {
    /// Starts a command.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn start(job: &Job, liveness_lock: &File) -> io::Result<Self> {
        Ok(Self::of(Piped::start(job, liveness_lock)?, job))
    }

    fn of(command: Piped, job: &Job) -> Self {
        Self {
            command,
            output: Output::default(),
            terminal: Some(Terminal::default()),
            timeout: job.order.timeout.unwrap_or_default(),
            bounds: job.order.bounds,
            cancelled: None,
            note: String::new(),
            errors: None,
            log: None,
            gateway: JoinSet::new(),
        }
    }

    /// Starts an agent; returns the handle of its gate, too. It may write there from the beginning
    /// if that is `open`. `output`: the pair of sockets that it writes to.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn start_agent(
        job: &Job,
        liveness_lock: &File,
        (gate, errors): (Gate, File),
        way: Way,
        (output, writes): (UnixStream, OwnedFd),
    ) -> io::Result<(Self, GateHandle)> {
        let command = Piped::start_with(job, liveness_lock, Source::Socket(output), writes)?;
        let mut started = Self::of(command, job);
        let is_live = job
            .order
            .agent
            .as_ref()
            .is_some_and(|agent| agent.live_gate.is_some());
        let (handle, side) = agent_gate::pair(gate, is_live);
        started.command.shim.follow_gate(side);
        started.errors = Some(errors);
        started.gateway = way.serve(handle.follow());
        Ok((started, handle))
    }

    /// Waits for the end of the command. May be dropped and called again, until it has returned.
    pub(super) async fn finish(&mut self) -> Outcome {
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
    pub(super) async fn run_to_end(mut self, reader: Reader) -> Ran {
        match reader {
            Reader::Program => self.terminal = None,
            Reader::Model(log) => self.log = log,
        }
        let report = self.report().await;
        let output = self.take_output();
        let failure = self.failure(&report, &output);
        if let Some(log) = self.log.take() {
            log.end(failure.as_deref().unwrap_or(GOOD_END));
        }
        let is_fault = report.cause == ExitCause::Failed;
        Ran {
            exit: if report.cause == ExitCause::Exited {
                report.code
            } else {
                None
            },
            output,
            failure,
            is_fault,
        }
    }

    /// Ends the command and all that it started; returns when that is gone.
    pub(super) async fn cancel(mut self, why: &str) -> Outcome {
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
            failure.push_str(&end_of(&errors));
        }
        let mut content = match &failure {
            None if text.trim().is_empty() => "(no output)".to_owned(),
            _ => text.to_owned(),
        };
        for note in failure.iter().chain(&report.notes) {
            let line = if content.is_empty() { "" } else { "\n" };
            content.push_str(&format!("{line}[{note}]"));
        }
        content.insert_str(0, &self.note);
        log_notes(report);
        Outcome {
            content,
            is_error: failure.is_some(),
        }
    }

    /// Returns how the command ended, unless that was a good end by itself.
    fn failure(&self, report: &Report, output: &str) -> Option<String> {
        let timed_out = || {
            format!(
                "timed out after {} s; everything it had started was ended",
                self.timeout.as_secs_f64()
            )
        };
        match (report.cause, &report.error, &self.cancelled) {
            (_, Some(error), _) => Some(error.clone()),
            (ExitCause::Exited, ..) => {
                let how = how_it_exited(report)?;
                let reached = bounds::reached(&self.bounds, (report.code, report.signal), output);
                Some(reached.map_or(how.clone(), |limit| format!("{how}; {limit}")))
            }
            (_, _, Some(why)) => Some(why.clone()),
            (ExitCause::GateClosed, ..) => Some(GATE_CLOSED.to_owned()),
            _ if self.command.shim.is_ended_by_gate() => Some(GATE_CLOSED.to_owned()),
            (ExitCause::TooMany, ..) => Some(format!(
                "it had more than {} processes at once, which is its limit; everything it had started was ended",
                self.bounds.max_procs.unwrap_or_default()
            )),
            (ExitCause::TimedOut, ..) => Some(timed_out()),
            _ if self.command.shim.is_asked() => Some(timed_out()),
            (ExitCause::ShimLost, ..) => Some("the shim of this command was killed".to_owned()),
            (ExitCause::Lifeline | ExitCause::Signalled | ExitCause::Failed, ..) => {
                Some("the shim of this command was told to end it".to_owned())
            }
        }
    }
}

/// Returns what an agent has said last of why it fails, to be put behind that it has failed.
fn end_of(errors: &File) -> String {
    let length = errors.metadata().map_or(0, |metadata| metadata.len());
    let mut last = vec![0; ERRORS.min(usize::try_from(length).unwrap_or(ERRORS))];
    let from = length - last.len() as u64;
    match errors.read_exact_at(&mut last, from) {
        Ok(()) => told_end(&last),
        Err(error) => format!("; its error output cannot be read: {error}"),
    }
}

/// Tells the end of an error output.
fn told_end(last: &[u8]) -> String {
    let mut terminal = Terminal::default();
    let shown = [terminal.push(last), terminal.finish()].concat();
    let said = String::from_utf8_lossy(&shown);
    let said = said.trim();
    if said.is_empty() {
        String::new()
    } else {
        format!("; its error output ends: {said}")
    }
}

/// Reads the error output of an agent to its end; returns what is to be told of it.
async fn last_words(mut errors: UnixStream) -> String {
    let mut last = Vec::new();
    let mut piece = vec![0; ERRORS];
    while let Ok(read @ 1..) = errors.read(&mut piece).await {
        last.extend_from_slice(&piece[..read]);
        last.drain(..last.len().saturating_sub(ERRORS));
    }
    told_end(&last)
}

fn log_notes(report: &Report) {
    for note in &report.notes {
        tracing::warn!("after a command: {note}");
    }
}

/// Returns what is to be said of an end by itself, unless it was a good one.
fn how_it_exited(report: &Report) -> Option<String> {
    match (report.code, report.signal) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("exit code {code}")),
        (None, Some(signal)) => Some(format!("ended by signal {signal}")),
        (None, None) => Some("ended, and how is not known".to_owned()),
    }
}

#[cfg(test)]
mod tests;
