//! What a receiver did not read before its end comes back to its sender, once.

use teamd_shared::journal::MemberRecord;
use teamd_shared::member::Phase;
use teamd_shared::message::{LEAD, USER};
use teamd_shared::name::Name;

use super::{Checked, Facts, Promises, check};

impl Promises {
    /// Checks an end: each unread message of the person, of the lead and of a teammate that works
    /// on comes back with the end for good, and nothing else does.
    pub(super) fn unread_mail_comes_back(
        &mut self,
        record: &MemberRecord,
        facts: &Facts,
    ) -> Checked {
        let gone = &record.member.name;
        if record.ended_incarnation.is_some() || *gone == Name::lead() {
            return check(record.returned.is_empty(), || {
                format!("mail to {gone} comes back, which still reads it")
            });
        }
        let mail = facts.mail.as_deref().unwrap_or_default();
        for unread in mail {
            let comes_back = record.returned.iter().any(|it| it.message_id == unread.id);
            check(comes_back || !self.can_read(&unread.from, gone), || {
                format!("{gone} had not read {}, which is kept", unread.id)
            })?;
        }
        for back in &record.returned {
            let is_unread = mail.iter().any(|it| it.id == back.message_id);
            check(is_unread, || {
                format!("{} comes back, and was not unread", back.message_id)
            })?;
            check(self.returned.insert(back.message_id), || {
                format!("{} comes back twice", back.message_id)
            })?;
            let owner = if back.from == USER { LEAD } else { &back.from };
            let told = record
                .tell
                .iter()
                .filter(|tell| tell.id == back.id && tell.to.as_str() == owner)
                .count();
            check(told == 1, || {
                format!("{} gets {told} notices of what comes back", back.from)
            })?;
        }
        Ok(())
    }

    /// Tells whether a sender is sure to read what comes back.
    fn can_read(&self, sender: &str, gone: &Name) -> bool {
        if [USER, LEAD].contains(&sender) {
            return true;
        }
        let member = self
            .fold
            .members
            .iter()
            .find(|(name, _)| name.as_str() == sender && *name != gone);
        member.is_some_and(|(name, state)| {
            state.record.phase == Phase::Running
                && state.record.ending.is_none()
                && self.fold.release(name).is_none()
        })
    }
}
