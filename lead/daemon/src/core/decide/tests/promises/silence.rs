//! Which workers are ended as hung: none that has answered, and none that the lead was not told of
//! before.

use teamd_shared::journal::{MemberEvent, MemberRecord};
use teamd_shared::member::Ending;
use teamd_shared::name::Name;

use super::{Checked, Facts, Promises, check};
use crate::core::incarnation::Incarnation;

impl Promises {
    pub(super) fn silence(&mut self, record: &MemberRecord, facts: &Facts) -> Checked {
        let incarnation = Incarnation::of(&record.member);
        let by_a_clock = record.event == MemberEvent::Silent
            || record.member.ending == Some(Ending::Hung) && record.event == MemberEvent::Ending;
        check(!by_a_clock || !facts.host.is_unreachable, || {
            format!(
                "{} counts as silent, and its host cannot be reached",
                incarnation.name
            )
        })?;
        match record.event {
            MemberEvent::Silent => {
                check(
                    record.tell.iter().any(|tell| tell.to == Name::lead()),
                    || {
                        format!(
                            "{} does not answer, and the lead is not told",
                            incarnation.name
                        )
                    },
                )?;
                check(
                    self.silent.insert(incarnation.clone()) || self.answered_since(&incarnation),
                    || {
                        format!(
                            "the lead is told twice that {} does not answer",
                            incarnation.name
                        )
                    },
                )
            }
            MemberEvent::Answering | MemberEvent::Adopted => {
                self.silent.remove(&incarnation);
                Ok(())
            }
            _ if record.member.ending == Some(Ending::Hung) => {
                check(self.silent.contains(&incarnation), || {
                    format!(
                        "{} is ended as hung, and the lead was not told, or it has answered since",
                        incarnation.name
                    )
                })?;
                let before = self
                    .fold
                    .members
                    .get(&incarnation.name)
                    .map(|state| &state.record);
                check(before.is_some_and(|before| before.ending.is_none()), || {
                    format!(
                        "{} is ended as hung, and signals end it already",
                        incarnation.name
                    )
                })?;
                check(self.fold.release(&incarnation.name).is_none(), || {
                    format!("{} is ended as hung, and was released", incarnation.name)
                })
            }
            _ => Ok(()),
        }
    }

    fn answered_since(&self, incarnation: &Incarnation) -> bool {
        self.fold
            .members
            .get(&incarnation.name)
            .is_some_and(|state| state.record.silent_since.is_none())
    }

    /// Takes in that the daemon reads an answer: from then on the worker does not count as silent.
    pub(in super::super) fn ponged(&mut self, incarnation: &Incarnation, number: u64) {
        if number > 0 {
            self.silent.remove(incarnation);
        }
    }
}
