//! The tool `bash`: commands in the foreground, whose output is the result, and in the background, whose output
//! is a log file in the temporary directory of the life, and kept in the team directory when they have ended.
//!
//! Each command runs under a keeper ([`crate::shim`]), and what it started is gone when it is over. Nothing here
//! decides whether a command may run: that is the gate's business.

mod log;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use teamd_shared::member::Bounds;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Outcome;
use super::call::DEFAULT_TIMEOUT;
use super::kept::{Ended, Job, Kept, Order, Surroundings};
use super::output::Output;
use crate::bounds;
use crate::sandbox::Policy;
use crate::shim::{ExitCause, Report};
use log::Log;

/// The longest command that the kernel takes as one argument, in bytes (`MAX_ARG_STRLEN`, less the final NUL).
const MAX_COMMAND: usize = (128 << 10) - 1;

/// How long a keeper may take to end a command before it is killed, and the worker does it in its place.
const PATIENCE: Duration = Duration::from_secs(5);

/// How much is read at once, in bytes: as much as a pipe holds.
const PIECE: usize = 64 << 10;

/// How much is read at most when the command is over, in bytes: more than the largest pipe holds for a user.
const MAX_REST: usize = 2 << 20;

/// A command in the foreground.
#[derive(Debug)]
pub(super) struct Foreground {
    kept: Kept,
    pipe: pipe::Receiver,
    /// Whether the pipe may hold more.
    open: bool,
    piece: Vec<u8>,
    output: Output,
    timeout: Duration,
    bounds: Bounds,
    /// When the keeper must have ended the command: it can be stopped or hindered, and the worker cannot.
    patience: Instant,
    /// Whether the keeper was asked to end the command, and must be killed next.
    asked: bool,
    /// Why the command was cancelled, if it was.
    cancelled: Option<String>,
}

impl Foreground {
    /// Starts a command.
    pub(super) fn start(surroundings: &Surroundings, job: Job<'_>) -> Result<Self, String> {
        let Job { command, timeout, policy } = job;
        check_length(command)?;
        let timeout = Duration::from_secs_f64(timeout.unwrap_or(DEFAULT_TIMEOUT));
        let start = || {
            let (reader, writer) = io::pipe()?;
            let pipe = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
            let order = Order { command, policy, timeout: Some(timeout), output: writer.into(), log: false };
            Ok((Kept::start(surroundings, order)?, pipe))
        };
        let (kept, pipe) = start().map_err(|error| cannot_start(surroundings, &error))?;
        Ok(Self {
            kept,
            pipe,
            open: true,
            piece: vec![0; PIECE],
            output: Output::default(),
            timeout,
            bounds: surroundings.bounds,
            patience: Instant::now() + timeout + PATIENCE,
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
                        // A flood would use up what one look of the runtime may do, and whoever is served beside it
                        // (the daemon, signals) had nothing left.
                        tokio::task::yield_now().await;
                    }
                },
                ended = self.kept.ended() => break ended,
                () = sleep_until(self.patience) => self.lose_patience(),
            }
        };
        self.read_the_rest();
        self.outcome(ended)
    }

    /// Ends the command and all that it started; returns when that is gone.
    pub(super) async fn cancel(mut self, why: &str) -> Outcome {
        self.cancelled = Some(why.to_owned());
        self.lose_patience();
        self.finish().await
    }

    fn lose_patience(&mut self) {
        if self.asked {
            self.kept.kill();
        } else {
            self.kept.end();
        }
        self.asked = true;
        self.patience = Instant::now() + PATIENCE;
    }

    /// Reads what is still in the pipe. All writers are gone, so it ends; but one that was handed to a process
    /// elsewhere must not be waited for, nor listened to for ever.
    fn read_the_rest(&mut self) {
        let mut rest = MAX_REST;
        while self.open && rest > 0 {
            // Not through the runtime: what it knows of the pipe can be older than the end of the keeper.
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
        let notes = tell_notes(&ended);
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
            (Ended::KeeperLost, None) => Some("the keeper of this command was killed".to_owned()),
            (Ended::Reported(_), None) => Some("the keeper of this command was told to end it".to_owned()),
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

/// Writes what the user is to be told into the log, and returns it.
fn tell_notes(ended: &Ended) -> Vec<String> {
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
        (None, None) => Some("ended, nobody saw how".to_owned()),
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

/// The commands in the background.
#[derive(Debug)]
pub(super) struct Background {
    team_dir: Arc<TeamDir>,
    name: Name,
    commands: Vec<BackgroundCommand>,
    /// The number that is tried for the next log.
    next: u32,
}

/// A command in the background, watched by a task of its own. If it is dropped, the command is ended.
#[derive(Debug)]
struct BackgroundCommand {
    end: Option<oneshot::Sender<()>>,
    watched: JoinHandle<()>,
}

impl Background {
    /// Makes the list, empty.
    pub(super) fn new(team_dir: Arc<TeamDir>, name: Name) -> Self {
        Self { team_dir, name, commands: Vec::new(), next: 1 }
    }

    /// Starts a command; the outcome tells its number and where its output goes.
    pub(super) fn start(
        &mut self,
        surroundings: &Surroundings,
        temp: &Path,
        job: Job<'_>,
    ) -> Result<Outcome, String> {
        let Job { command, timeout, policy } = job;
        check_length(command)?;
        let (id, kept_log) = self.new_log().map_err(|error| error.to_string())?;
        let file = format!("background-{id}.log");
        let cannot = |error: io::Error| {
            format!("cannot make the log {file} of a command in {}: {error}", temp.display())
        };
        let log = Log::make(&temp.join(&file), kept_log).map_err(cannot)?;
        let output = log.output.try_clone().map_err(cannot)?.into();
        let timeout = timeout.map(Duration::from_secs_f64);
        let order = Order { command, policy, timeout, output, log: true };
        let kept = Kept::start(surroundings, order).map_err(|error| cannot_start(surroundings, &error))?;
        let (end, ended) = oneshot::channel();
        let watched = tokio::spawn(async move {
            watch(kept, ended).await;
            if let Err(error) = log.keep() {
                tracing::error!("cannot keep the output of the command {id} in the background: {error}");
            }
        });
        self.commands.retain(|command| !command.watched.is_finished());
        self.commands.push(BackgroundCommand { end: Some(end), watched });
        // As the next command sees it.
        let shown = policy.map_or(temp, Policy::temp_inside).join(&file);
        Ok(Outcome::ok(format!(
            "started in the background as {id}; its output goes to {} (look at it with `tail`). It ends at the latest \
             with this worker, or when the gate closes.",
            shown.display()
        )))
    }

    /// Says in the logs of commands that run no more, since an earlier life was killed, that nothing follows. To be called while
    /// nothing runs.
    pub(super) fn close_logs(&self) {
        for id in 1_u32.. {
            let at = TeamPath::background_log(&self.name, &id.to_string());
            let file = match self.team_dir.open_file(&at, OFlags::RDWR | OFlags::APPEND) {
                Ok(file) => file,
                Err(error) if error.is_not_found() => return,
                Err(error) => {
                    tracing::warn!("what became of a command in the background cannot be said: {error}");
                    // Something else stands at this one place; or the system refuses, as it would at the next one.
                    if error.io_kind().is_none() {
                        continue;
                    }
                    return;
                }
            };
            if let Err(error) = log::close(file) {
                tracing::warn!("what became of a command cannot be said in {at}: {error}");
            }
        }
    }

    /// Makes the file in which the next output is kept: by it, no later life takes the same number.
    fn new_log(&mut self) -> Result<(u32, File), DirError> {
        loop {
            let id = self.next;
            let at = TeamPath::background_log(&self.name, &id.to_string());
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
            self.next += 1;
            match self.team_dir.open_file(&at, flags) {
                Ok(file) => return Ok((id, file)),
                Err(error) if error.io_kind() == Some(io::ErrorKind::AlreadyExists) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends all commands and what they started; returns when that is gone. May be dropped and called again.
    pub(super) async fn end(&mut self) {
        for command in &mut self.commands {
            drop(command.end.take());
        }
        while let Some(command) = self.commands.last_mut() {
            if let Err(error) = (&mut command.watched).await {
                tracing::error!("cannot tell how a command in the background ended: {error}");
            }
            self.commands.pop();
        }
    }

    /// Tells whether a command runs.
    pub(super) fn is_running(&self) -> bool {
        self.commands.iter().any(|command| !command.watched.is_finished())
    }
}

/// Waits for the end of a command, and ends it when it is told to, or when nobody could tell it any more.
async fn watch(mut kept: Kept, told: oneshot::Receiver<()>) {
    let ended = tokio::select! {
        ended = kept.ended() => ended,
        _ = told => {
            kept.end();
            if let Ok(ended) = timeout_at(Instant::now() + PATIENCE, kept.ended()).await {
                ended
            } else {
                tracing::warn!("a keeper did not end its command in {} s", PATIENCE.as_secs());
                kept.kill();
                kept.ended().await
            }
        }
    };
    tell_notes(&ended);
    tracing::debug!("a command in the background ended: {ended:?}");
}

#[cfg(test)]
mod tests;
