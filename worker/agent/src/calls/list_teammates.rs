//! `list_teammates`: the team as the files show it.

use teamd_shared::config::Roster;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::tools::team_text;

use crate::team;

/// Lists the teammates with what each does, and the pending requests.
pub(super) fn list(dir: &TeamDir) -> Result<String, String> {
    Ok(team_text(
        &team::roster(Roster::load(dir))?,
        &team::state(dir)?,
    ))
}
