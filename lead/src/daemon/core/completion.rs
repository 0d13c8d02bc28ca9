//! Which lines of the journal have all their effects, as far as this run of the daemon knows. Pure.

use std::collections::BTreeSet;

use teamd_shared::journal::{Line, Team};
use teamd_shared::name::Name;

/// What was tried, and what of it is not there yet. What cannot be done is tried again only with everything else that has
/// failed: one inbox that cannot be written must not make each decision look at all that came after it.
#[derive(Debug, Default)]
pub(crate) struct Completion {
    /// The last line whose effects were tried.
    tried: u64,
    /// The lines up to there of which an effect is missing.
    incomplete: BTreeSet<u64>,
    /// The inboxes that could not be written: their next notices wait with what failed.
    pub(crate) stuck: BTreeSet<Name>,
}

impl Completion {
    /// Returns the lines whose effects are due, oldest first: those that were not tried, and `again` what failed. Returns with
    /// each whether its effects may be there already.
    pub(crate) fn due<'t>(&mut self, team: &'t Team, again: bool) -> Vec<(&'t Line, bool)> {
        let undone = &team.undone;
        let mut due = Vec::new();
        if again {
            self.stuck.clear();
            let failed = self.incomplete.iter().filter_map(|seq| {
                undone.binary_search_by_key(seq, |line| line.seq).ok().map(|at| (&undone[at], true))
            });
            due.extend(failed);
        }
        let new = undone.partition_point(|line| line.seq <= self.tried);
        due.extend(undone.range(new..).map(|line| (line, again)));
        due
    }

    /// Tells whether this run of the daemon has not tried a line yet.
    pub(crate) fn is_new(&self, line: &Line) -> bool {
        line.seq > self.tried
    }

    /// Takes note that a line was tried, and whether all its effects are there.
    pub(crate) fn tried(&mut self, line: &Line, all: bool) {
        self.tried = self.tried.max(line.seq);
        if all {
            self.incomplete.remove(&line.seq);
        } else {
            self.incomplete.insert(line.seq);
        }
    }

    /// Returns the last line up to which all effects are there.
    pub(crate) fn up_to(&self, team: &Team) -> u64 {
        let untried = team.undone.back().is_some_and(|last| last.seq > self.tried);
        let there = if untried { self.tried } else { team.seq };
        self.incomplete.first().map_or(there, |first| first - 1)
    }
}
