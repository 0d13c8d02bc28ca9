//! Commands in the background. The output of each is a log file in the temporary directory of the
//! incarnation, and kept in the team directory when the command has ended.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::OFlags;
use teamd_shared::team_dir::{DirError, TeamPath};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::RunnerConfig;
use super::foreground::log_notes;
use super::log::GrowingLog;
use super::piped::Piped;
use crate::Policy;
use crate::shim::ShimJob;

/// The commands in the background, each watched by a task. If this is dropped, they are ended.
#[derive(Debug, Default)]
pub(super) struct Background {
    tasks: JoinSet<()>,
    /// Dropped to end the commands.
    running: watch::Sender<()>,
    /// The number of the last command.
    last: u32,
}

impl Background {
    /// Starts a command, with what serves its gateway; returns a text for the model: its number
    /// and where its output goes.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn start(
        &mut self,
        config: &RunnerConfig,
        job: &ShimJob,
        temp: &Path,
        gateway: JoinSet<()>,
    ) -> io::Result<String> {
        let (id, mut kept) = self.new_log(config).map_err(io::Error::other)?;
        let file = format!("background-{id}.log");
        let mut log = GrowingLog::make(&temp.join(&file), &mut kept)
            .map_err(|error| io::Error::other(format!("cannot make its log {file}: {error}")))?;
        let mut running = Piped::start(job, &config.liveness_lock)?;
        let mut goes_on = self.running.subscribe();
        self.tasks.spawn(async move {
            let ended = tokio::select! {
                report = running.report(|piece| log.push(piece)) => Some(report),
                _ = goes_on.changed() => None,
            };
            let report = match ended {
                Some(report) => report,
                None => {
                    running.end();
                    running.report(|piece| log.push(piece)).await
                }
            };
            drop(gateway);
            log_notes(&report);
            tracing::debug!("a command in the background ended: {report:?}");
            log.push(format!("\n{}\n", report.as_log_line()).as_bytes());
            if let Err(error) = log.keep(&mut kept) {
                tracing::error!(
                    "cannot keep the output of the command {id} in the background: {error}"
                );
            }
        });
        // As the next command sees it.
        let shown = job
            .order
            .policy
            .as_ref()
            .map_or(temp, Policy::temp_inside)
            .join(&file);
        Ok(format!(
            "started in the background as {id}; its output goes to {} (look at it with `tail`). It ends at the latest \
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

    /// Ends all commands and what they started; returns when that is gone. May be dropped and
    /// called again.
    pub(super) async fn end(&mut self) {
        self.running = watch::Sender::default();
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!("cannot tell how a command in the background ended: {error}");
            }
        }
    }

    /// Tells whether a command runs.
    pub(super) fn is_running(&mut self) -> bool {
        while self.tasks.try_join_next().is_some() {}
        !self.tasks.is_empty()
    }
}
