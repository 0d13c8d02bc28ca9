//! What follows from the journal in the files, as one queue for each member, in the order of the
//! lines. Pure.
//!
//! Commands and workers wait for some effects. The notices of an end to the other teammates can
//! wait themselves: one end among a thousand is a thousand lines. They are written for a few
//! members at a time, between other events.
//!
//! The journal holds every effect. What is missing when the daemon dies is done at its next start,
//! under the same ids.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use teamd_shared::inbox::RejectedLine;
use teamd_shared::journal::{Line, MemberEvent, Record, Team};
use teamd_shared::message::{Message, USER};
use teamd_shared::name::Name;

use super::notices::message;

/// What is to be done in the files of a member.
#[derive(Debug, Clone)]
pub(crate) enum Effect {
    /// Append a message to its inbox. All receivers share it: the name of the receiver is filled in
    /// at the append.
    Tell(Arc<Message>),
    /// Write down a line of its inbox that is no message.
    Quarantine { bad: Arc<RejectedLine>, at: f64 },
    /// Move its files into the archive.
    Archive,
}

/// An effect that is not done yet.
#[derive(Debug, Clone)]
pub(crate) struct PendingEffect {
    /// The line of the journal that it follows from.
    pub(crate) seq: u64,
    pub(crate) effect: Effect,
    /// Whether it may have been done already.
    pub(crate) again: bool,
}

/// The effects that are not done yet.
#[derive(Debug, Default)]
pub(crate) struct EffectQueues {
    /// The last line whose effects are in the queues.
    queued_up_to: u64,
    waiting: BTreeMap<Name, Vec<PendingEffect>>,
    /// The queues whose first effect could not be done. They wait until all of them are tried
    /// again.
    failed: BTreeMap<Name, Vec<PendingEffect>>,
    /// The members with an effect that a command or a worker waits for.
    urgent: BTreeSet<Name>,
    /// The member that had its turn last: the others come first.
    last: Option<Name>,
    /// How many effects of each line are not done.
    open: BTreeMap<u64, usize>,
}

impl EffectQueues {
    /// Queues the effects of all new lines. `again`: they may have been done already, and what
    /// failed is to be tried again.
    pub(crate) fn take_in(&mut self, team: &Team, again: bool) {
        if again {
            for (name, mut effects) in std::mem::take(&mut self.failed) {
                for effect in effects.iter_mut() {
                    effect.again = true;
                }
                self.waiting.insert(name, effects);
            }
        }
        let new = team
            .undone
            .partition_point(|line| line.seq <= self.queued_up_to);
        for line in team.undone.range(new..) {
            self.take_in_line(line, again);
        }
        self.queued_up_to = team.seq;
    }

    /// Queues the effects of a line.
    pub(crate) fn take_in_line(&mut self, line: &Line, again: bool) {
        let is_end = matches!(&line.record, Record::Member(it) if it.event == MemberEvent::Exited);
        let mut add = |name: &Name, effect: Effect, is_urgent: bool| {
            let failed = self.failed.get_mut(name);
            let queue = failed.unwrap_or_else(|| self.waiting.entry(name.clone()).or_default());
            queue.push(PendingEffect {
                seq: line.seq,
                effect,
                again,
            });
            *self.open.entry(line.seq).or_default() += 1;
            if is_urgent {
                self.urgent.insert(name.clone());
            }
        };
        match &line.record {
            Record::Team(record) => {
                for bad in &record.rejected {
                    let effect = Effect::Quarantine {
                        bad: Arc::new(bad.clone()),
                        at: line.at,
                    };
                    add(&Name::lead(), effect, true);
                }
            }
            Record::Member(record) if record.event == MemberEvent::Forgotten => {
                add(&record.member.name, Effect::Archive, true);
            }
            Record::Member(_) | Record::Request(_) | Record::Task(_) | Record::Snapshot(_) => {}
        }
        let mut shared: Option<Arc<Message>> = None;
        for notice in line.record.tell() {
            let same = shared
                .take()
                .filter(|message| message.id == Some(notice.id));
            let Some(message) = same.or_else(|| message(line, notice).map(Arc::new)) else {
                continue;
            };
            add(
                &notice.to,
                Effect::Tell(Arc::clone(&message)),
                !is_end || notice.to == Name::lead(),
            );
            shared = Some(message);
        }
    }

    /// Takes out the queue of a member that a command or a worker waits for.
    pub(crate) fn next_urgent(&mut self) -> Option<(Name, Vec<PendingEffect>)> {
        let waiting = &mut self.waiting;
        std::iter::from_fn(|| self.urgent.pop_first()).find_map(|name| waiting.remove_entry(&name))
    }

    /// Takes out the queue of the member whose turn it is.
    pub(crate) fn next(&mut self) -> Option<(Name, Vec<PendingEffect>)> {
        let after = self.last.take().and_then(|last| {
            let mut rest = self
                .waiting
                .range((Bound::Excluded(last), Bound::Unbounded));
            rest.next().map(|(name, _)| name.clone())
        });
        let name =
            after.or_else(|| self.waiting.first_key_value().map(|(name, _)| name.clone()))?;
        self.last = Some(name.clone());
        self.waiting.remove_entry(&name)
    }

    /// Takes note that effects are done.
    pub(crate) fn done(&mut self, effects: &[PendingEffect]) {
        for effect in effects {
            if let Some(open) = self.open.get_mut(&effect.seq) {
                *open -= 1;
                if *open == 0 {
                    self.open.remove(&effect.seq);
                }
            }
        }
    }

    /// Puts back what could not be done for a member.
    pub(crate) fn failed(&mut self, name: Name, effects: Vec<PendingEffect>) {
        self.failed.insert(name, effects);
    }

    /// Tells whether there is an effect that can be done now.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the last line of the journal up to which all effects are done.
    pub(crate) fn up_to(&self) -> u64 {
        self.open
            .first_key_value()
            .map_or(self.queued_up_to, |(first, _)| first - 1)
    }
}

/// Returns a message as it is in the inbox of one of its receivers. The inbox of the lead is also
/// that of the person: what is for the person stays so.
pub(crate) fn addressed(message: &Message, to: &Name) -> Message {
    let is_for_user = *to == Name::lead() && message.to.as_deref() == Some(USER);
    let to = if is_for_user { USER } else { to.as_str() };
    Message {
        to: Some(to.to_owned()),
        ..message.clone()
    }
}

#[cfg(test)]
mod tests {
    use teamd_shared::journal::{Notice, TeamEvent, TeamRecord};
    use uuid::Uuid;

    use super::*;

    /// A line that all these members get a notice of, when it is their turn.
    fn line(seq: u64, names: &[Name]) -> Line {
        let tell = names
            .iter()
            .map(|to| Notice {
                to: to.clone(),
                id: Uuid::from_u128(seq.into()),
            })
            .collect();
        let record = TeamRecord {
            tell,
            ..TeamRecord::of(TeamEvent::Read, "t".to_owned(), None)
        };
        Line {
            seq,
            at: 1.0,
            version: None,
            done: 0,
            lead: None,
            record: Record::Team(Box::new(record)),
        }
    }

    #[test]
    fn each_member_has_its_turn_and_a_line_is_complete_when_all_are_told() {
        let names: Vec<Name> = (0..6)
            .map(|number| Name::new(&format!("w{number}")).unwrap())
            .collect();
        let mut queues = EffectQueues::default();
        let turn = |queues: &mut EffectQueues| {
            let (name, effects) = queues.next().unwrap();
            queues.done(&effects);
            (
                name,
                effects.iter().map(|effect| effect.seq).collect::<Vec<_>>(),
            )
        };
        queues.take_in_line(&line(1, &names), false);
        for name in &names[..4] {
            assert_eq!(turn(&mut queues), (name.clone(), vec![1]));
        }
        queues.take_in_line(&line(2, &names), false);
        // Those have their turn first that have waited longest, and get all at once.
        for name in &names[4..] {
            assert_eq!(turn(&mut queues), (name.clone(), vec![1, 2]));
        }
        assert_eq!(queues.up_to(), 1, "the first line is told to all");
        for name in &names[..4] {
            assert_eq!(turn(&mut queues), (name.clone(), vec![2]));
        }
        assert!(queues.next().is_none() && !queues.is_waiting());
    }

    #[test]
    fn what_failed_waits_with_all_that_comes_after_it_until_it_is_tried_again() {
        let alice = Name::new("alice").unwrap();
        let bob = Name::new("bob").unwrap();
        let mut queues = EffectQueues::default();
        queues.take_in_line(&line(1, &[alice.clone(), bob.clone()]), false);
        let (first, effects) = queues.next_urgent().unwrap();
        assert_eq!(first, alice);
        queues.failed(first, effects);
        queues.take_in_line(&line(2, std::slice::from_ref(&alice)), false);
        assert_eq!(queues.next_urgent().unwrap().0, bob);
        assert!(queues.next_urgent().is_none() && queues.next().is_none());
        queues.take_in(&Team::default(), true);
        let (first, effects) = queues.next().unwrap();
        assert_eq!((first, effects.len()), (alice, 2));
        assert!(effects.iter().all(|effect| effect.again));
    }
}
