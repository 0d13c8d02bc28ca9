//! The roster of a host, for its workers: home says the lines that have changed, and the file is
//! written whole, so not at each change.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use teamd_shared::config::roster_text;
use teamd_shared::fs::replace;
use teamd_shared::link::{RosterChange, RosterLine};
use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};

use crate::io::roster_file::rest_after;

/// How much longer than at home nothing is written after the roster was, and how long at the least:
/// here it is read by workers alone, and many hosts can be on one disk.
const RESTS: u32 = 4;
const LEAST_REST: Duration = Duration::from_millis(50);

/// The roster, as home has said it on this link.
#[derive(Debug, Default)]
pub(super) struct HostRoster {
    /// What stands before the members.
    head: String,
    /// The lines of the members.
    lines: BTreeMap<Name, String>,
    /// Whether it has changed since it was written.
    is_new: bool,
    /// Whether it has a member that was not in it when it was written.
    has_newcomer: bool,
    /// Until when it is not written again: the file is written whole.
    rests: Option<Instant>,
}

impl HostRoster {
    /// Takes over what has changed.
    pub(super) fn apply(&mut self, change: RosterChange) {
        if change.begins {
            self.lines.clear();
        }
        for RosterLine { name, text } in change.members {
            self.has_newcomer |= self.lines.insert(name, text).is_none();
        }
        self.head = change.head;
        self.is_new |= !change.more;
    }

    /// Returns when it is to be written; none if it is as it was.
    pub(super) fn due(&self) -> Option<Instant> {
        self.is_new.then(|| self.rests.unwrap_or_else(Instant::now))
    }

    /// Tells whether a member has come that the file does not have.
    pub(super) fn has_newcomer(&self) -> bool {
        self.is_new && self.has_newcomer
    }

    /// Writes it with the lines of these members.
    pub(super) fn write(
        &mut self,
        dir: &TeamDir,
        members: &BTreeSet<&Name>,
    ) -> Result<(), DirError> {
        self.lines.retain(|name, _| members.contains(name));
        self.is_new = false;
        self.has_newcomer = false;
        let text = roster_text(&self.head, self.lines.values().map(String::as_str));
        let rest = RESTS * rest_after(text.len());
        self.rests = Some(Instant::now() + rest.max(LEAST_REST));
        replace(dir, &TeamPath::config(), text.as_bytes())
    }
}
