//! Commands in the background. The output of each is a log file in the temporary directory of the incarnation, and kept in
//! the team directory when the command has ended.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::OFlags;
use teamd_shared::team_dir::{DirError, TeamPath};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::shim_handle::ShimHandle;
use super::{log, log_notes};
use crate::sandbox::Policy;
use crate::shim::Job;
use crate::tools::ToolboxConfig;

/// The commands in the background, each watched by a task. If this is dropped, they are ended.
#[derive(Debug, Default)]
pub(in crate::tools) struct Background {
    tasks: JoinSet<()>,
    /// Dropped to end the commands.
    running: watch::Sender<()>,
    /// The number of the last command.
    last: u32,
}

impl Background {
    /// Starts a command, with what serves its gateway; returns what the model is told: its number and where its output goes.
    ///
    /// # Errors
    /// The system's error.
    pub(in crate::tools) fn start(
        &mut self,
        config: &ToolboxConfig,
        job: &Job,
        temp: &Path,
        gateway: JoinSet<()>,
    ) -> io::Result<String> {
        let (id, mut kept) = self.new_log(config).map_err(io::Error::other)?;
        let file = format!("background-{id}.log");
        let mut log = log::make(&temp.join(&file), &mut kept)
            .map_err(|error| io::Error::other(format!("cannot make its log {file}: {error}")))?;
        let mut shim = ShimHandle::start(job, &config.liveness_lock, log.try_clone()?.into())?;
        let mut running = self.running.subscribe();
        self.tasks.spawn(async move {
            let report = tokio::select! {
                report = shim.ended() => report,
                _ = running.changed() => {
                    shim.end();
                    shim.ended().await
                }
            };
            drop(gateway);
            log_notes(&report);
            tracing::debug!("a command in the background ended: {report:?}");
            // A full disk costs the last line, and not what was written before.
            if let Err(error) = writeln!(log, "\n{}", report.as_log_line()) {
                tracing::warn!("cannot write how the command {id} in the background ended: {error}");
            }
            if let Err(error) = log::keep(&log, &mut kept) {
                tracing::error!("cannot keep the output of the command {id} in the background: {error}");
            }
        });
        // As the next command sees it.
        let shown = job.order.policy.as_ref().map_or(temp, Policy::temp_inside).join(&file);
        Ok(format!(
            "started in the background as {id}; its output goes to {} (look at it with `tail`). It ends at the latest \
             with this worker, or when the gate closes.",
            shown.display()
        ))
    }

    /// Makes the file in which the next output is kept. While it is there, no later incarnation takes the same number.
    fn new_log(&mut self, config: &ToolboxConfig) -> Result<(u32, File), DirError> {
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

    /// Ends all commands and what they started; returns when that is gone. May be dropped and called again.
    pub(in crate::tools) async fn end(&mut self) {
        self.running = watch::Sender::default();
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!("cannot tell how a command in the background ended: {error}");
            }
        }
    }

    /// Tells whether a command runs.
    pub(in crate::tools) fn is_running(&mut self) -> bool {
        while self.tasks.try_join_next().is_some() {}
        !self.tasks.is_empty()
    }
}
