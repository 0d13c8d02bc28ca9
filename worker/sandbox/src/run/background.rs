//! Commands in the background. The output of each is a log file in the temporary directory of the
//! incarnation, and kept in the team directory when the command has ended.
//!
//! The log in the team directory also says which commands a killed worker has left without an end:
//! until a command has ended, and the model is told so, the log holds a note in place of an output.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Instant;

use rustix::fs::OFlags;
use teamd_shared::background;
use teamd_shared::team_dir::{DirError, TeamPath};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use super::RunnerConfig;
use super::foreground::log_notes;
use super::log::GrowingLog;
use super::piped::Piped;
use crate::Policy;
use crate::shim::ShimJob;

/// How much of a command is shown, in characters.
const SHOWN: usize = 80;

/// What the log of a command says whose worker was killed.
const LOST: &str = "[ended with its worker, which was killed: the output is lost]\n";

/// The commands in the background, each watched by a task. If this is dropped, they are ended.
#[derive(Debug, Default)]
pub(super) struct Background {
    tasks: JoinSet<Option<EndedCommand>>,
    /// Those that have ended by themselves, in order.
    ended: VecDeque<EndedCommand>,
    /// Dropped to end the commands.
    running: watch::Sender<()>,
    /// The number of the last command.
    last: u32,
}

/// A command that has ended by itself, or with a worker that was killed. Until it is
/// [kept](EndedCommand::keep), the log in the team directory says that it runs: first the model is
/// told, so that a kill in between costs nothing.
#[derive(Debug)]
pub struct EndedCommand {
    /// Its number, which no other command of the teammate has.
    pub number: u32,
    /// The incarnation that has started it; none: an earlier version did not note it.
    pub incarnation: Option<u32>,
    /// What the model is to know.
    pub told: String,
    /// The output; none if it is lost.
    log: Option<GrowingLog>,
    kept: File,
}

impl EndedCommand {
    /// Puts the output where it outlives the incarnation. A failure is logged: it costs the log, and
    /// not the work.
    pub fn keep(mut self) {
        let kept = match self.log.take() {
            Some(log) => log.keep(&mut self.kept),
            None => self
                .kept
                .set_len(0)
                .and_then(|()| self.kept.write_all(LOST.as_bytes())),
        };
        if let Err(error) = kept {
            let number = self.number;
            tracing::error!("cannot keep the output of the background command {number}: {error}");
        }
    }
}

impl Background {
    /// Starts a command, with what serves it; returns a text for the model: its number
    /// and where its output goes.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn start(
        &mut self,
        config: &RunnerConfig,
        job: &ShimJob,
        temp: &Path,
        serving: JoinSet<()>,
    ) -> io::Result<String> {
        let (number, mut kept) = self.new_log(config).map_err(io::Error::other)?;
        let file = format!("background-{number}.log");
        let mut log = GrowingLog::make(&temp.join(&file), config.incarnation, &mut kept)
            .map_err(|error| io::Error::other(format!("cannot make its log {file}: {error}")))?;
        let started = Piped::start(job, &config.liveness_lock);
        let mut running = started.inspect_err(|_| {
            // Nothing runs, so nothing may say that it does.
            if let Err(error) = kept.set_len(0) {
                tracing::error!("the log of the background command {number} is wrong: {error}");
            }
        })?;
        let mut goes_on = self.running.subscribe();
        // As the next command sees it.
        let shown = job
            .order
            .policy
            .as_ref()
            .map_or(temp, Policy::temp_inside)
            .join(&file);
        let place = shown.display().to_string();
        let command = job.command.to_string_lossy().into_owned();
        let began = Instant::now();
        let incarnation = Some(config.incarnation);
        self.tasks.spawn(async move {
            let ended = tokio::select! {
                report = running.report(|piece| log.push(piece)) => Some(report),
                _ = goes_on.changed() => None,
            };
            let ended_by_itself = ended.is_some();
            let report = match ended {
                Some(report) => report,
                None => {
                    running.end();
                    running.report(|piece| log.push(piece)).await
                }
            };
            drop(serving);
            log_notes(&report);
            tracing::debug!("a command in the background ended: {report:?}");
            let how = report.as_log_line();
            let last_lines = log.last_lines();
            log.push(format!("\n{how}\n").as_bytes());
            let how = how.trim_matches(['[', ']']);
            let seconds = began.elapsed().as_secs_f64();
            let command = first_line(&command);
            let ended = EndedCommand {
                number,
                incarnation,
                told: format!(
                    "Your background command {number} (`{command}`) is over: {how}, after {seconds:.1} s. \
                     Its output is in {place}{last_lines}"
                ),
                log: Some(log),
                kept,
            };
            if ended_by_itself {
                return Some(ended);
            }
            ended.keep();
            None
        });
        Ok(format!(
            "started in the background as {number}; its output goes to {} (look at it with `tail`). It ends at the latest \
             with this worker, or when the gate closes.",
            shown.display()
        ))
    }

    /// Makes the file in which the next output is kept. While it is there, no later incarnation
    /// takes the same number.
    fn new_log(&mut self, config: &RunnerConfig) -> Result<(u32, File), DirError> {
        loop {
            self.last += 1;
            let at = TeamPath::background_log(&config.name, &self.last.to_string());
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
            match config.team_dir.open_file(&at, flags) {
                Err(error) if error.io_kind() == Some(io::ErrorKind::AlreadyExists) => {}
                made => return made.map(|file| (self.last, file)),
            }
        }
    }

    /// Returns those of which the log says that they run, before any was started: they have ended
    /// with a worker that was killed.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn lost(config: &RunnerConfig) -> Result<Vec<EndedCommand>, DirError> {
        let mut lost = Vec::new();
        for number in background::numbers(&config.team_dir, &config.name)? {
            let at = TeamPath::background_log(&config.name, &number.to_string());
            let mut kept = config.team_dir.open_file(&at, OFlags::RDWR)?;
            let mut text = Vec::new();
            (&mut kept)
                .take(background::MAX_NOTE)
                .read_to_end(&mut text)
                .map_err(config.team_dir.cannot("read", &at))?;
            let note = str::from_utf8(&text).ok().and_then(background::read);
            let Some(note) = note else { continue };
            lost.push(EndedCommand {
                number,
                incarnation: note.incarnation,
                told: format!(
                    "Your background command {number} ended when the worker was killed; its output is lost. \
                     Start it again if you need it."
                ),
                log: None,
                kept,
            });
        }
        Ok(lost)
    }

    /// Ends all commands and what they started; returns when that is gone. May be dropped and
    /// called again.
    pub(super) async fn end(&mut self) {
        self.running = watch::Sender::default();
        while let Some(ended) = self.tasks.join_next().await {
            self.ended.extend(command_of(ended));
        }
    }

    /// Returns the next command that has ended by itself; waits for it, for ever if none runs. May
    /// be dropped and called again.
    pub(super) async fn next_ended(&mut self) -> EndedCommand {
        loop {
            if let Some(ended) = self.ended.pop_front() {
                return ended;
            }
            match self.tasks.join_next().await {
                Some(ended) => self.ended.extend(command_of(ended)),
                None => std::future::pending().await,
            }
        }
    }

    /// Takes those that have ended by themselves, and were not returned so far.
    pub(super) fn take_ended(&mut self) -> Vec<EndedCommand> {
        self.ended.drain(..).collect()
    }

    /// Tells whether a command runs.
    pub(super) fn is_running(&mut self) -> bool {
        while let Some(ended) = self.tasks.try_join_next() {
            self.ended.extend(command_of(ended));
        }
        !self.tasks.is_empty()
    }
}

fn command_of(ended: Result<Option<EndedCommand>, JoinError>) -> Option<EndedCommand> {
    ended.unwrap_or_else(|error| {
        tracing::error!("cannot tell how a command in the background ended: {error}");
        None
    })
}

/// Returns the first line of a command, cut.
fn first_line(command: &str) -> String {
    let line = command.trim().lines().next().unwrap_or_default();
    let mut shown: String = line.chars().take(SHOWN).collect();
    if shown.len() < command.trim().len() {
        shown.push('…');
    }
    shown
}
