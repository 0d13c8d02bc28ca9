//! `bash`: commands in the foreground, whose output is the result, and in the background, whose output is a log file.
//!
//! Each command runs under a shim ([`crate::shim`]), and what it started is gone when it is over.

mod background;
mod log;
mod shim_handle;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use teamd_shared::member::Bounds;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep_until};

use super::input::{self, Input};
use super::output::Output;
use super::{Action, LocalAction, Outcome};
use crate::bounds;
use crate::sandbox::Policy;
use crate::shim::{ExitCause, Report};
pub(super) use background::Background;
use shim_handle::{Ended, ShimHandle};
pub(super) use shim_handle::{Surroundings, sweep_orphans};

/// Seconds that a command may take unless its call says otherwise.
const DEFAULT_TIMEOUT: f64 = 120.0;

/// The longest time that a call may ask for, in seconds.
const MAX_TIMEOUT: f64 = 3600.0;

/// The longest command that the kernel takes as one argument, in bytes (`MAX_ARG_STRLEN`, less the final NUL).
const MAX_COMMAND: usize = (128 << 10) - 1;

/// How long a shim may take to end a command before it is killed, and the worker does it in its place.
const GRACE: Duration = Duration::from_secs(5);

/// How much is read at once, in bytes: as much as a pipe holds.
const PIECE: usize = 64 << 10;

/// How much is read at most when the command is over, in bytes: more than the largest pipe holds for a user.
const MAX_REST: usize = 2 << 20;

/// Runs a command with `bash -c` in the workspace, and returns what it prints (stdout and stderr together) and its
/// exit code. It has no terminal and no input: nothing that asks questions works. All that it leaves running ends
/// with the call, unless `run_in_background` is set: then the call returns at once, the command goes on, and its
/// output goes to a log file that is named in the result. Of long output only beginning and end are kept. The file
/// system outside the workspace cannot be written; while the gate is closed nothing can, and there is no network.
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

impl Input for Bash {
    const NAME: &'static str = "bash";
    const SUBJECT: &'static str = "command";

    fn action(self) -> Action {
        Action::Local(LocalAction::Bash(self))
    }
}

fn timeout<'de, D: Deserializer<'de>>(input: D) -> Result<Option<f64>, D::Error> {
    let fits = |seconds: &f64| *seconds > 0.0 && *seconds <= MAX_TIMEOUT;
    input::checked(input, fits, format_args!("above 0 and at most {MAX_TIMEOUT} seconds")).map(Some)
}

/// A command as its call has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandCall<'a> {
    pub(super) command: &'a str,
    /// Seconds.
    pub(super) timeout: Option<f64>,
    /// What it may do; none: all that the user may.
    pub(super) policy: Option<&'a Policy>,
}

/// A command in the foreground.
#[derive(Debug)]
pub(super) struct Foreground {
    shim: ShimHandle,
    pipe: pipe::Receiver,
    /// Whether the pipe may hold more.
    open: bool,
    piece: Vec<u8>,
    output: Output,
    timeout: Duration,
    bounds: Bounds,
    /// When the shim must have ended the command: it can be stopped or hindered, and the worker cannot.
    deadline: Instant,
    /// Whether the shim was asked to end the command, and must be killed next.
    asked: bool,
    /// Why the command was cancelled, if it was.
    cancelled: Option<String>,
}

impl Foreground {
    /// Starts a command.
    pub(super) fn start(surroundings: &Surroundings, job: CommandCall<'_>) -> Result<Self, String> {
        check_length(job.command)?;
        let seconds = job.timeout.unwrap_or(DEFAULT_TIMEOUT);
        let (job, timeout) =
            (CommandCall { timeout: Some(seconds), ..job }, Duration::from_secs_f64(seconds));
        let start = || {
            let (reader, writer) = io::pipe()?;
            let pipe = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
            Ok((ShimHandle::start(surroundings, job, writer.into(), false)?, pipe))
        };
        let (shim, pipe) = start().map_err(|error| cannot_start(surroundings, &error))?;
        Ok(Self {
            shim,
            pipe,
            open: true,
            piece: vec![0; PIECE],
            output: Output::default(),
            timeout,
            bounds: surroundings.bounds,
            deadline: Instant::now() + timeout + GRACE,
            asked: false,
            cancelled: None,
        })
    }

    /// Waits for the end of the command. May be dropped and called again, until it has returned.
    pub(super) async fn finish(&mut self) -> Outcome {
        let ended = loop {
            tokio::select! {
                read = self.pipe.read(&mut self.piece), if self.open => match read {
                    Ok(0) | Err(_) => self.open = false,
                    Ok(read) => {
                        self.output.push(&self.piece[..read]);
                        // A flood would use up the budget of this task, and starve what is served beside it (the
                        // daemon, signals).
                        tokio::task::yield_now().await;
                    }
                },
                ended = self.shim.ended() => break ended,
                () = sleep_until(self.deadline) => self.escalate(),
            }
        };
        self.read_the_rest();
        self.outcome(ended)
    }

    /// Ends the command and all that it started; returns when that is gone.
    pub(super) async fn cancel(mut self, why: &str) -> Outcome {
        self.cancelled = Some(why.to_owned());
        self.escalate();
        self.finish().await
    }

    fn escalate(&mut self) {
        if self.asked {
            self.shim.kill();
        } else {
            self.shim.end();
        }
        self.asked = true;
        self.deadline = Instant::now() + GRACE;
    }

    /// Reads what is still in the pipe. All writers are gone, so it ends; but a pipe that was handed to a process elsewhere
    /// must not be waited for.
    fn read_the_rest(&mut self) {
        let mut rest = MAX_REST;
        while self.open && rest > 0 {
            // Not through the runtime: what it knows of the pipe can be older than the end of the shim.
            match rustix::io::read(self.pipe.as_fd(), &mut self.piece[..]) {
                Ok(0) => self.open = false,
                Ok(read) => {
                    self.output.push(&self.piece[..read]);
                    rest = rest.saturating_sub(read);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn outcome(&mut self, ended: Ended) -> Outcome {
        let notes = log_notes(&ended);
        let mut outcome = self.outcome_by_itself(ended);
        notes.iter().for_each(|note| outcome.content.push_str(&format!("\n[{note}]")));
        outcome
    }

    fn outcome_by_itself(&mut self, ended: Ended) -> Outcome {
        let text = std::mem::take(&mut self.output).into_text();
        let end = match (ended, self.cancelled.take()) {
            (Ended::Reported(Report { error: Some(error), .. }), _) => Some(error),
            (Ended::Reported(report @ Report { cause: ExitCause::Exited, .. }), _) => {
                self.how_it_exited(&report, &text)
            }
            (Ended::Reported(Report { cause: ExitCause::TooMany, .. }), None) => Some(self.too_many()),
            (Ended::Reported(Report { cause: ExitCause::TimedOut, .. }), None) => Some(self.timed_out()),
            (_, None) if self.asked => Some(self.timed_out()),
            (Ended::ShimLost, None) => Some("the shim of this command was killed".to_owned()),
            (Ended::Reported(_), None) => Some("the shim of this command was told to end it".to_owned()),
            (_, Some(why)) => Some(why),
        };
        let text = text.trim_end_matches('\n');
        match end {
            None if text.trim().is_empty() => Outcome::ok("(no output)"),
            None => Outcome::ok(text),
            Some(end) if text.is_empty() => Outcome::error(format!("[{end}]")),
            Some(end) => Outcome::error(format!("{text}\n[{end}]")),
        }
    }

    /// Returns what is to be said of an end by itself, unless it was a good one.
    fn how_it_exited(&self, report: &Report, output: &str) -> Option<String> {
        let how = how_it_exited(report)?;
        let reached = bounds::reached(&self.bounds, (report.code, report.signal), output);
        Some(reached.map_or(how.clone(), |limit| format!("{how}; {limit}")))
    }

    fn too_many(&self) -> String {
        let most = self.bounds.max_procs.unwrap_or_default();
        format!(
            "it had more than {most} processes at once, which is its limit; everything it had started was ended"
        )
    }

    fn timed_out(&self) -> String {
        format!("timed out after {} s; everything it had started was ended", self.timeout.as_secs_f64())
    }
}

/// Logs the notes of a shim, and returns them.
fn log_notes(ended: &Ended) -> Vec<String> {
    let Ended::Reported(Report { notes, .. }) = ended else { return Vec::new() };
    notes.iter().for_each(|note| tracing::warn!("after a command: {note}"));
    notes.clone()
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

fn check_length(command: &str) -> Result<(), String> {
    let length = command.len();
    if length <= MAX_COMMAND {
        return Ok(());
    }
    Err(format!(
        "the command has {length} bytes, the limit is {MAX_COMMAND}: write it to a file, and run that"
    ))
}

fn cannot_start(surroundings: &Surroundings, error: &io::Error) -> String {
    format!("cannot start a command in {}: {error}", surroundings.workspace.display())
}

#[cfg(test)]
mod tests;
