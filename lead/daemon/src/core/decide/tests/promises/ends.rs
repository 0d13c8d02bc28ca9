//! How incarnations end, and which members are started again.

use teamd_shared::journal::MemberRecord;
use teamd_shared::member::{Ending, Phase, Restart};
use teamd_shared::request::{Kind, Status};

use super::super::sim::RULES;
use super::{Checked, Facts, Promises, check};
use crate::core::incarnation::Incarnation;

impl Promises {
    pub(super) fn exited(&mut self, record: &MemberRecord, facts: &Facts) -> Checked {
        let name = &record.member.name;
        let state = self
            .fold
            .members
            .get(name)
            .ok_or_else(|| format!("{name} ends, and was never there"))?;
        let before = &state.record;
        let incarnation = Incarnation::of(before);
        check(!before.phase.is_ended(), || format!("{name} ends twice"))?;
        if record.member.phase == Phase::Lost {
            check(!facts.host.can_be_reached, || {
                format!("{name} is lost, and its host can be reached")
            })?;
            return self.end_is_told(record);
        }
        check(!facts.host.runs_there, || {
            format!("{name} is recorded as ended, and its host has recorded no end")
        })?;
        let approved = self
            .fold
            .shutdown_of(name)
            .filter(|request| request.status == Status::Approved);
        let ended = if record.ended_incarnation.is_some() {
            Phase::Crashed
        } else {
            record.member.phase
        };
        let by_journal = match (before.ending.is_some(), approved.is_some()) {
            (true, _) if before.ending == Some(Ending::Hung) => Phase::Crashed,
            (true, _) => Phase::Killed,
            (false, true) => Phase::Shutdown,
            (false, false) => Phase::Crashed,
        };
        check(ended == by_journal, || {
            format!("{name} ended as {ended:?}: by the journal it is {by_journal:?}")
        })?;
        check(!facts.farewell || ended != Phase::Crashed, || {
            format!("{name} said farewell, and counts as crashed")
        })?;
        let agreed = self.left.contains(&incarnation);
        check(!agreed || ended != Phase::Crashed, || {
            format!("{name} left as agreed, and counts as crashed")
        })?;
        let exit = record
            .member
            .exit
            .as_ref()
            .ok_or_else(|| format!("{name} has ended without an exit"))?;
        check(
            exit.request_id.as_ref() == approved.map(|request| &request.request_id),
            || {
                format!(
                    "the exit of {name} names {:?}, which it did not agree to",
                    exit.request_id
                )
            },
        )?;
        check(exit.emptied.is_some() || before.process.is_none(), || {
            format!(
                "{name} has ended, and its exit does not say how it is known that nothing is left"
            )
        })?;
        check(exit.ending == before.ending, || {
            format!(
                "{name} was ended by {:?}, and its exit says {:?}",
                before.ending, exit.ending
            )
        })?;
        self.end_is_told(record)?;
        self.unread_mail_comes_back(record, facts)?;
        if record.ended_incarnation.is_some() {
            self.restarted(record, facts)
        } else {
            Ok(())
        }
    }

    fn restarted(&mut self, record: &MemberRecord, facts: &Facts) -> Checked {
        let name = &record.member.name;
        let Some(before) = self.fold.members.get(name).map(|state| &state.record) else {
            return Ok(());
        };
        check(before.terms.restart == Restart::OnFailure, || {
            format!("{name} is restarted against its policy")
        })?;
        let tried_again = before.phase == Phase::Spawning && before.restarted > 0;
        check(before.phase == Phase::Running || tried_again, || {
            format!("{name} is restarted, and never ran")
        })?;
        check(!self.fold.stopping, || {
            format!("{name} is restarted while the team is stopping")
        })?;
        check(self.fold.pending(name, Kind::Shutdown).is_none(), || {
            format!("{name} is restarted, and its shutdown was asked for")
        })?;
        check(record.member.incarnation == before.incarnation + 1, || {
            format!("{name} skips an incarnation")
        })?;
        check(record.member.conversation == before.conversation, || {
            format!("{name} forgets its conversation")
        })?;
        check(facts.environment.is_some(), || {
            format!("{name} is restarted without an environment")
        })?;
        let restarts = self.restarts.entry(name.clone()).or_default();
        restarts.push(facts.monotonic);
        let recent = restarts
            .iter()
            .filter(|&&at| facts.monotonic - at < RULES.restart.period)
            .count();
        let most = RULES.restart.max as usize;
        check(recent <= most, || {
            format!("{name} was restarted {recent} times in a minute")
        })?;
        check(record.member.restarts.len() <= most, || {
            format!("{name} remembers too many restarts")
        })
    }

    /// Checks that a signal is journaled before it is sent.
    pub(in super::super) fn signalled(&self, incarnation: &Incarnation) -> Checked {
        let member = self
            .fold
            .members
            .get(&incarnation.name)
            .map(|state| &state.record);
        let journaled =
            member.is_some_and(|it| it.incarnation == incarnation.number && it.ending.is_some());
        let is_forced = self.forced.contains(incarnation);
        check(journaled || is_forced, || {
            format!("{} is signalled, and no line says so", incarnation.name)
        })
    }
}
