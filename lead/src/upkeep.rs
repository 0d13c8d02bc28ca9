//! What `teamctl doctor --fix` asks of the daemon's own code while no daemon runs. `ctl` knows this shape, and the daemon's
//! side fills it in: neither uses the other.

use std::sync::Arc;

use teamd_shared::team_dir::TeamDir;

use crate::error::CommandError;

/// A team directory in which no daemon runs, and none can start as long as this exists: it holds the daemon's lock.
pub(crate) trait AtRest {
    /// Sets a torn last line of the journal aside, and cuts it off. Says what was done.
    ///
    /// # Errors
    /// As a start of the daemon: a journal that is not understood is left as it is.
    fn cut_journal(&self) -> Result<String, CommandError>;

    /// Writes the roster from the journal, and keeps the old one aside. Says what was done.
    ///
    /// # Errors
    /// As [`AtRest::cut_journal`]; and if a newer program wrote the roster, which is then left as it is.
    fn rebuild_roster(&self) -> Result<String, CommandError>;
}

/// Takes the daemon's lock, if no daemon runs.
pub(crate) type TakeLock = fn(&Arc<TeamDir>) -> Result<Option<Box<dyn AtRest>>, CommandError>;
