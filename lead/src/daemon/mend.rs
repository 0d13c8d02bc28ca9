//! The dispatcher when its files fail it: a journal that cannot be written, and what somebody deleted or replaced, which is
//! put back. Nothing is decided here.

use teamd_shared::fs::AppendError;

use super::dispatcher::Dispatcher;

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

    /// Puts journal and roster back where somebody deleted or replaced them.
    pub(super) fn look_after_own_files(&mut self) {
        let now = self.now();
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
    }
}
