//! The dispatcher when its files fail it: a journal that cannot be written, and what somebody deleted or replaced, which is
//! put back. Nothing is decided here.

use std::time::{Duration, Instant};

use teamd_shared::fs::AppendError;

use super::core::event::Event;
use super::dispatcher::Dispatcher;
use crate::error::CommandError;
use crate::registered;

/// How often at most the lead is told of modes that were put back; each time stands in the log.
const MODES_TOLD_EVERY: Duration = Duration::from_secs(60);

impl Dispatcher {
    /// Finds out what the journal says after an append that failed: nothing of it, or nobody knows.
    pub(super) fn not_written(&mut self, error: &AppendError) {
        tracing::error!("cannot write the journal: {error}");
        let journal = match error {
            AppendError::Broken(error) => Err(format!("the disk cannot be trusted any more: {error}")),
            AppendError::Write(_) => self.journal.fold().map_err(|error| error.to_string()),
        };
        self.batcher.not_written(&error.to_string(), journal, self.now());
    }

    /// The team directory can lie in the state directory, whose mode comes first.
    fn restore_modes(&self) -> Result<Vec<String>, CommandError> {
        registered::register()?.state().restore_mode()?;
        Ok(self.dir.restore_modes()?)
    }

    /// Puts journal and roster back where another process has deleted or replaced them. Where commands have no mounts of
    /// their own, the modes too: then they can change them, and the lead is told.
    pub(super) fn look_after_own_files(&mut self) -> Option<Event> {
        let now = self.now();
        let restored = match self.supervisor.has_mounts() {
            true => Vec::new(),
            false => self.restore_modes().unwrap_or_else(|error| {
                tracing::error!("cannot put modes of the team directory back (tried again): {error}");
                Vec::new()
            }),
        };
        match self.journal.look_after(&self.dir, now.wall) {
            Ok(told) => told.into_iter().for_each(|told| tracing::warn!("{told}")),
            Err(error) => tracing::error!("journal.jsonl is not where it belongs (tried again): {error}"),
        }
        match self.roster.look_after(&self.dir, now) {
            Ok(None) => {}
            Ok(Some(told)) => {
                tracing::warn!("{told}");
                self.write_roster();
            }
            Err(error) => tracing::error!("config.json is not what was written (tried again): {error}"),
        }
        if restored.is_empty() {
            return None;
        }
        tracing::warn!("modes in the team directory were put back: {}", restored.join(", "));
        // A command that changes them again and again fills neither the journal nor an inbox.
        let is_news = self.modes_told.is_none_or(|told| told.elapsed() >= MODES_TOLD_EVERY);
        is_news.then(|| {
            self.modes_told = Some(Instant::now());
            Event::ModesRestored { restored }
        })
    }
}
