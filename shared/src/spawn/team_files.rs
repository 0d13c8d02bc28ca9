//! What a lead reads from the files of the team before it spawns. The errors are texts for a model.

use crate::config::{ConfigError, Roster};
use crate::journal::Team;
use crate::journal::reader::{Since, load};
use crate::team_dir::TeamDir;

/// Returns the roster as it was read.
///
/// # Errors
/// If it could not be read, or is not there.
pub fn roster(read: Result<Option<Roster>, ConfigError>) -> Result<Roster, String> {
    let roster = read.map_err(|error| format!("cannot read the roster: {error}"))?;
    roster.ok_or_else(|| "cannot read the roster: there is none".to_owned())
}

/// Folds the journal from its last snapshot on.
///
/// # Errors
/// If it cannot be read.
pub fn state(dir: &TeamDir) -> Result<Team, String> {
    load(dir, Since::Snapshot, |_, _| {})
        .map_err(|error| format!("cannot read the journal: {error}"))
}
