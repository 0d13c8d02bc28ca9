//! The mail that members of the simulated team have not read when they end.

use std::collections::BTreeMap;

use teamd_shared::id::Ids;
use teamd_shared::inbox::UnreadMail;
use teamd_shared::journal::{MemberEvent, MemberRecord};
use teamd_shared::message::{LEAD, USER};
use teamd_shared::name::Name;

use super::world::World;
use crate::core::incarnation::Incarnation;

/// What is unread.
#[derive(Default)]
pub(super) struct UnreadOf {
    /// What no incarnation has read, and what has not come back.
    left: BTreeMap<Name, Vec<UnreadMail>>,
    /// What the daemon sees at the end of each incarnation, whichever daemon looks.
    seen: BTreeMap<Incarnation, Vec<UnreadMail>>,
}

impl UnreadOf {
    /// Returns what was seen at the end of an incarnation; none if no daemon has looked.
    pub(super) fn seen(&self, incarnation: &Incarnation) -> Option<Vec<UnreadMail>> {
        self.seen.get(incarnation).cloned()
    }

    /// Takes in a line: with the end for good all that was seen has come back or never will, and
    /// what a crash has left waits for the next incarnation.
    pub(super) fn line(&mut self, record: &MemberRecord) {
        if record.event != MemberEvent::Exited {
            return;
        }
        let name = record.member.name.clone();
        let number = record
            .ended_incarnation
            .unwrap_or(record.member.incarnation);
        let ended = Incarnation {
            name: name.clone(),
            number,
        };
        let Some(seen) = self.seen.remove(&ended) else {
            return;
        };
        if record.ended_incarnation.is_some() {
            self.left.insert(name, seen);
        } else {
            self.left.remove(&name);
        }
    }
}

impl World {
    /// Returns what a daemon sees that looks at the inbox of an incarnation that has ended.
    pub(super) fn unread_at_end(&mut self, incarnation: &Incarnation) -> Vec<UnreadMail> {
        if let Some(seen) = self.disk.unread.seen(incarnation) {
            return seen;
        }
        let name = &incarnation.name;
        let members = self.promises.fold.members.keys();
        let mut senders: Vec<String> = members
            .filter(|other| *other != name)
            .map(Name::to_string)
            .collect();
        senders.extend([USER.to_owned(), LEAD.to_owned()]);
        let mut mail = self.disk.unread.left.get(name).cloned().unwrap_or_default();
        for _ in 0..self.rng.below(3) {
            if let Some(from) = self.rng.pick(&senders) {
                let id = self.ids.message();
                mail.push(UnreadMail {
                    id,
                    from,
                    text: format!("mail {id}"),
                });
            }
        }
        self.disk
            .unread
            .seen
            .insert(incarnation.clone(), mail.clone());
        mail
    }
}
