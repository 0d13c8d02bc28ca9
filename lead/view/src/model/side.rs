//! What takes a look at one member, and only a row that is on the screen needs: its unread messages,
//! the tokens of the last minutes, and what it serves.

use std::collections::BTreeMap;

use teamd_client::read::roster;
use teamd_client::read::tail::Tail;
use teamd_shared::config::RosterMember;
use teamd_shared::json;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::watch::Changes;

use super::files::has;
use super::ledger::{ConversationLedger, SpentUsage};
use super::served::ServedPorts;

/// The parts of the last minutes for which tokens are counted.
pub(crate) const SLOTS: usize = 16;
/// The length of one, in seconds.
const SLOT: f64 = 30.0;
/// How many of the last entries are looked at.
const ENTRIES: usize = 60;

/// What is known of one member.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Side {
    /// None where the inbox cannot be read.
    pub unread: Option<u64>,
    /// What its model used.
    pub spent: Vec<SpentUsage>,
    /// The ports that it is known to serve on a localhost of its own.
    pub serves: Vec<u16>,
}

/// What is known of the members that were looked at.
pub(crate) struct Sides<'d> {
    known: BTreeMap<Name, Side>,
    pub(crate) served: ServedPorts<'d>,
}

impl Side {
    /// Returns the tokens of the last minutes, oldest first.
    pub(crate) fn spent(&self, now: f64) -> [u64; SLOTS] {
        let mut slots = [0; SLOTS];
        for spent in &self.spent {
            let slot = slots
                .iter_mut()
                .rev()
                .zip(1..)
                .find(|(_, number)| now - spent.at < f64::from(*number) * SLOT);
            if let Some((slot, _)) = slot {
                *slot += spent.usage.billed();
            }
        }
        slots
    }
}

impl<'d> Sides<'d> {
    pub(super) fn new(dir: &'d TeamDir) -> Self {
        Self {
            known: BTreeMap::new(),
            served: ServedPorts::new(dir),
        }
    }

    /// Returns what is known of a member; it is looked at if it has changed.
    pub(crate) fn of(&mut self, dir: &TeamDir, member: &RosterMember) -> Side {
        let known = self.known.entry(member.name.clone());
        let side = known.or_insert_with(|| look(dir, member));
        Side {
            serves: self.served.of(member),
            ..side.clone()
        }
    }

    /// Forgets what may not hold any more.
    pub(super) fn forget(&mut self, inboxes: &Changes, transcripts: &Changes) {
        self.known.retain(|name, _| {
            !has(inboxes, &TeamPath::inbox(name)) && !has(transcripts, &TeamPath::transcript(name))
        });
    }
}

fn look(dir: &TeamDir, member: &RosterMember) -> Side {
    let mut tail = Tail::new(dir, TeamPath::transcript(&member.name));
    let begun = tail.begin(Some(ENTRIES), |line| !line.trim_ascii().is_empty());
    // What cannot be read is not shown; the unread messages then say so.
    let lines = begun.and_then(|_| tail.read()).unwrap_or_default();
    let entries = lines.iter().filter_map(|line| json::read(line).ok());
    let mut ledger = ConversationLedger::default();
    for entry in entries {
        ledger.entry(&member.name, &entry);
    }
    Side {
        spent: ledger.spent,
        unread: roster::unread(dir, member).ok(),
        serves: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_counted_by_the_time_that_has_passed() {
        let spent = vec![
            (0.0, 1),
            (700.0, 5),
            (971.0, 10),
            (999.0, 20),
            (1000.0, 1),
            (1200.0, 7),
        ];
        let spent = spent.into_iter().map(|(at, output_tokens)| {
            let usage = teamd_shared::transcript::Usage {
                output_tokens,
                ..Default::default()
            };
            SpentUsage {
                at,
                usage,
                model: None,
                turns: 1,
            }
        });
        let slots = Side {
            spent: spent.collect(),
            ..Side::default()
        }
        .spent(1000.0);
        assert_eq!(
            (
                slots[SLOTS - 1],
                slots[SLOTS - 11],
                slots.iter().sum::<u64>()
            ),
            (38, 5, 43)
        );
    }
}
