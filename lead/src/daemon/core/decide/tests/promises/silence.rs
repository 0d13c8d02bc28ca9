//! Who is ended as one that hangs: nobody who answered, and nobody of whom the lead was not told before.

use teamd_shared::journal::{MemberEvent, MemberRecord};
use teamd_shared::member::{Ending, Member};
use teamd_shared::name::Name;

use super::{Kept, Promises, check};
use crate::daemon::core::event::Incarnation;

fn life_of(member: &Member) -> Incarnation {
    Incarnation { name: member.name.clone(), incarnation: member.incarnation }
}

impl Promises {
    pub(super) fn silence(&mut self, record: &MemberRecord) -> Kept {
        let life = life_of(&record.member);
        match record.event {
            MemberEvent::Silent => {
                check(record.tell.iter().any(|tell| tell.to == Name::lead()), || {
                    format!("{} does not answer, and the lead is not told", life.name)
                })?;
                check(self.silent.insert(life.clone()) || self.answered_since(&life), || {
                    format!("the lead is told twice that {} does not answer", life.name)
                })
            }
            MemberEvent::Answering | MemberEvent::Adopted => {
                self.silent.remove(&life);
                Ok(())
            }
            _ if record.member.ending == Some(Ending::Hung) => {
                check(self.silent.contains(&life), || {
                    format!(
                        "{} is ended as one that hangs, and the lead was not told, or it has answered since",
                        life.name
                    )
                })?;
                let before = self.fold.members.get(&life.name).map(|state| &state.record);
                check(before.is_some_and(|before| before.ending.is_none()), || {
                    format!("{} is ended as one that hangs, and signals end it already", life.name)
                })?;
                check(self.fold.release(&life.name).is_none(), || {
                    format!("{} is ended as one that hangs, and was let go", life.name)
                })
            }
            _ => Ok(()),
        }
    }

    fn answered_since(&self, life: &Incarnation) -> bool {
        self.fold.members.get(&life.name).is_some_and(|state| state.record.silent_since.is_none())
    }

    /// The daemon reads an answer: from then on the worker does not count as silent.
    pub(in super::super) fn ponged(&mut self, life: &Incarnation, number: u64) {
        if number > 0 {
            self.silent.remove(life);
        }
    }
}
