//! The slow tick. It makes up for lost events, so that one costs latency and never a message, and
//! puts the daemon's own files back in their places. Nothing is decided here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use teamd_shared::team_dir::TeamDir;
use teamd_shared::watch::{Changes, Watch};

use super::EventLoop;
use super::sources::Sources;
use crate::core::dispatcher::DaemonEnd;
use crate::core::event::Event;
use teamd_client::error::CommandError;
use teamd_client::registered;

/// The shortest time between two notices to the lead about restored modes. The log has each one.
const MODES_REPORTED_EVERY: Duration = Duration::from_secs(60);

impl EventLoop {
    /// Does what is due on the slow tick.
    pub(super) fn tick(&mut self, sources: &mut Sources) -> Vec<Event> {
        let restored = self.look_after_files(sources);
        if self.dispatcher.end().is_some() {
            return Vec::new();
        }
        self.resources.supervisor.reap_others();
        sources.rearm();
        let mut events = self.inboxes_changed(&Changes::Anything);
        events.extend(restored);
        events
    }

    /// Restores the journal, the roster and the socket where they are not at their paths, or do not
    /// have their modes.
    pub(super) fn look_after_files(&mut self, sources: &mut Sources) -> Vec<Event> {
        // Everything is examined, whatever has changed.
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
        let dir = &self.resources.dir;
        let team = &self.dispatcher.team;
        match self.resources.journal.look_after(dir, team, wall) {
            Ok(None) => None,
            Ok(Some(what)) => {
                tracing::warn!("{what}");
                Some(Event::Restored { what })
            }
            Err(error) => {
                tracing::error!("journal.jsonl is not where it belongs (tried again): {error}");
                None
            }
        }
    }

    /// Puts the roster back where another process has deleted or replaced it.
    fn restore_roster(&mut self) {
        let wall = self.now().wall;
        match self.resources.roster.look_after(&self.resources.dir, wall) {
            Ok(None) => {}
            Ok(Some(what)) => {
                tracing::warn!("{what}");
                self.write_roster();
            }
            Err(error) => {
                tracing::error!("config.json is not what was written (tried again): {error}")
            }
        }
    }

    /// Puts modes back. Commands can change them only where they have no mounts of their own. The
    /// lead gets a notice of it.
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
        let last = self.modes_reported;
        if last.is_some_and(|last| last.elapsed() < MODES_REPORTED_EVERY) {
            return None;
        }
        self.modes_reported = Some(Instant::now());
        Some(Event::Restored { what })
    }
}

/// Puts modes back, and says which. The team directory can lie in the state directory, whose mode
/// comes first.
fn modes_of(dir: &TeamDir) -> Result<Vec<String>, CommandError> {
    registered::register()?.state().restore_mode()?;
    Ok(dir.restore_modes()?)
}

/// Tells whether the directory was deleted. No command can connect there then, and the workers
/// leave too.
pub(crate) fn is_deleted(dir: &TeamDir) -> bool {
    rustix::fs::fstat(dir).is_ok_and(|stat| stat.st_nlink == 0)
}
