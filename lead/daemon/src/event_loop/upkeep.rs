//! The slow tick, and what it looks after: a lost event costs latency, never a message, and the
//! daemon's own files stand in their places. Nothing is decided here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use teamd_shared::team_dir::TeamDir;
use teamd_shared::watch::{Changes, Watch};

use super::{EventLoop, Sources};
use crate::core::dispatcher::DaemonEnd;
use crate::core::event::Event;
use teamd_client::error::CommandError;
use teamd_client::registered;

/// How often at most the lead is told of modes that were put back; each time stands in the log.
const MODES_TOLD_EVERY: Duration = Duration::from_secs(60);

impl EventLoop {
    /// Does what is due on the slow tick.
    pub(super) fn tick(&mut self, sources: &mut Sources) -> Vec<Event> {
        let restored = self.look_after_files(sources);
        if self.dispatcher.end().is_some() {
            return Vec::new();
        }
        self.resources.supervisor.reap_others();
        for watch in [&mut sources.inboxes, &mut sources.names]
            .into_iter()
            .flatten()
        {
            if let Err(error) = watch.rearm_if_needed() {
                tracing::warn!("cannot watch the files: {error}");
            }
        }
        let mut events = self.inboxes_changed(&Changes::Anything);
        events.extend(restored);
        events
    }

    /// Looks whether the journal, the roster and the socket stand at their paths with their modes,
    /// and restores them.
    pub(super) fn look_after_files(&mut self, sources: &mut Sources) -> Vec<Event> {
        // Whatever it was, everything is looked at.
        drop(sources.names.as_ref().map(Watch::take));
        let dir = Arc::clone(&self.resources.dir);
        if is_deleted(&dir) {
            self.dispatcher.end_with(DaemonEnd::Failed(
                "the team directory was deleted".to_owned(),
            ));
            return Vec::new();
        }
        let restored = self
            .restore_modes()
            .into_iter()
            .chain(self.restore_journal())
            .collect();
        self.restore_roster();
        sources.socket.look_after(&dir, &self.resources.inputs);
        restored
    }

    /// Puts the journal back where another process has deleted, replaced or cut it.
    fn restore_journal(&mut self) -> Option<Event> {
        let wall = self.now().wall;
        let told =
            self.resources
                .journal
                .look_after(&self.resources.dir, &self.dispatcher.team, wall);
        let told = told.unwrap_or_else(|error| {
            tracing::error!("journal.jsonl is not where it belongs (tried again): {error}");
            None
        })?;
        tracing::warn!("{told}");
        Some(Event::Restored { what: told })
    }

    /// Puts the roster back where another process has deleted or replaced it.
    fn restore_roster(&mut self) {
        let wall = self.now().wall;
        match self.resources.roster.look_after(&self.resources.dir, wall) {
            Ok(None) => {}
            Ok(Some(told)) => {
                tracing::warn!("{told}");
                self.write_roster();
            }
            Err(error) => {
                tracing::error!("config.json is not what was written (tried again): {error}")
            }
        }
    }

    /// Puts modes back. Only where commands have no mounts of their own can they change them: then
    /// the lead is told.
    fn restore_modes(&mut self) -> Option<Event> {
        if self.resources.supervisor.has_mounts() {
            return None;
        }
        let restored = modes_of(&self.resources.dir).unwrap_or_else(|error| {
            tracing::error!("cannot put modes of the team directory back (tried again): {error}");
            Vec::new()
        });
        if restored.is_empty() {
            return None;
        }
        let what = format!(
            "modes in the team directory were put back: {}",
            restored.join(", ")
        );
        tracing::warn!("{what}");
        // A command that changes them again and again fills neither the journal nor an inbox.
        let told = &mut self.modes_told;
        if told.is_some_and(|told| told.elapsed() < MODES_TOLD_EVERY) {
            return None;
        }
        *told = Some(Instant::now());
        Some(Event::Restored { what })
    }
}

/// Puts modes back, and says which. The team directory can lie in the state directory, whose mode
/// comes first.
fn modes_of(dir: &TeamDir) -> Result<Vec<String>, CommandError> {
    registered::register()?.state().restore_mode()?;
    Ok(dir.restore_modes()?)
}

/// Tells whether the directory has no name any more: then no command can connect there, and the
/// workers leave too.
fn is_deleted(dir: &TeamDir) -> bool {
    rustix::fs::fstat(dir).is_ok_and(|it| it.st_nlink == 0)
}
