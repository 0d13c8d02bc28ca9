//! The keys that are of use now, in the last row.

use ratatui::text::Line;
use teamd_client::print::render::{BOLD, DIM};
use teamd_client::print::style::paint;
use teamd_client::print::table::width;

use super::text::row;

/// A key, and what it does.
pub(crate) type Hint = (&'static str, &'static str);

/// What the key does that lists all keys.
pub(crate) const HELP_HINT: &str = "help";

/// Lists keys in one row of so many columns. What has no room there, the help has.
pub(crate) fn keys_row(mut hints: Vec<Hint>, columns: usize) -> Line<'static> {
    while hints.iter().map(needed).sum::<usize>() > columns + 1
        && let Some(at) = hints.iter().rposition(|(_, what)| *what != HELP_HINT)
    {
        hints.remove(at);
    }
    let shown = hints
        .into_iter()
        .map(|(key, what)| format!(" {} {} ", paint(BOLD, key), paint(DIM, what)));
    row(&shown.collect::<String>())
}

/// Returns how many columns a key and what it does take.
fn needed((key, what): &Hint) -> usize {
    width(key) + width(what) + 3
}
