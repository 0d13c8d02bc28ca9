//! `memory.md`: the projection of what the team remembers. The only place that writes it
//! ([`teamd_shared::journal::MAX_MEMORY`] says who reads it).

use std::time::Instant;

use teamd_shared::fs::replace;
use teamd_shared::journal::Team;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use crate::core::dispatcher::RETRY;

/// What the file shows.
#[derive(Debug, Default)]
pub(crate) struct MemoryFile {
    /// The line of the journal that it shows; none: this daemon has not looked yet.
    shown: Option<u64>,
    /// Until when it waits, since it could not be written.
    not_before: Option<Instant>,
}

impl MemoryFile {
    /// Writes the file, if what is remembered has changed.
    pub(crate) fn show(&mut self, dir: &TeamDir, team: &Team) {
        if self.shown == Some(team.memory_changed) {
            return;
        }
        if self.not_before.is_some_and(|at| at > Instant::now()) {
            return;
        }
        match write(dir, &team.memory_text()) {
            Ok(()) => {
                self.shown = Some(team.memory_changed);
                self.not_before = None;
            }
            Err(why) => {
                tracing::error!("cannot write memory.md (tried again): {why}");
                self.not_before = Some(Instant::now() + RETRY);
            }
        }
    }
}

/// Writes the text, unless it is there already. Where nothing was ever remembered there is no file.
fn write(dir: &TeamDir, text: &str) -> Result<(), String> {
    let at = TeamPath::memory();
    let there = match dir.read(&at) {
        Err(error) if error.is_not_found() => None,
        Err(_) => Some(Vec::new()),
        Ok(there) => Some(there),
    };
    if there.unwrap_or_default() == text.as_bytes() {
        return Ok(());
    }
    replace(dir, &at, text.as_bytes()).map_err(|error| error.to_string())
}
