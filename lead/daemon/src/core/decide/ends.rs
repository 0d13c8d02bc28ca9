//! What follows when an incarnation has ended: its status, what expires, whether it is started
//! again. One line.

use std::collections::BTreeSet;

use teamd_shared::amount::count;
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::inbox::UnreadMail;
use teamd_shared::journal::{MemberEvent, MemberRecord, Notice, Record, ReturnedMail};
use teamd_shared::member::{End, Ending, Exit, Gate, Member, Phase, Restart, RestartLimit};
use teamd_shared::message::{LEAD, USER, returned_id};
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Status, Trigger};
use teamd_shared::task::TaskId;

use super::{Decision, DecisionView};
use crate::core::event::{Action, Ended};
use crate::core::incarnation::Incarnation;

/// What becomes of an incarnation that crashed.
enum CrashOutcome {
    Restart,
    End { note: Option<String> },
}

impl DecisionView<'_> {
    pub(super) fn ended(
        &self,
        incarnation: &Incarnation,
        ended: &Ended,
        ids: &mut dyn Ids,
    ) -> Decision {
        let Some(member) = self.present(incarnation) else {
            return Decision::default();
        };
        let end = self.end_of(member);
        let next = match end {
            End::Shutdown | End::Killed | End::Lost => CrashOutcome::End { note: None },
            End::Crashed if member.phase == Phase::Spawning => {
                let note = "it was never run: the daemon ended before it had begun";
                CrashOutcome::End {
                    note: Some(note.to_owned()),
                }
            }
            End::Crashed => self.after_crash(member, ended),
        };
        let unable = self
            .runtime
            .of(incarnation)
            .and_then(|worker| worker.unable.clone());
        let unable = if matches!(end, End::Crashed) {
            unable
        } else {
            None
        };
        let member = Member {
            ending_note: member.ending_note.clone().or(unable),
            ..member.clone()
        };
        self.exited(&member, ended, (end, next), ids)
    }

    /// Decides when no process could be started for an incarnation. One that follows a crash is
    /// tried again as if it had crashed itself: no command waits for it.
    pub(super) fn never_ran(
        &self,
        incarnation: &Incarnation,
        ended: &Ended,
        why: &str,
        ids: &mut dyn Ids,
    ) -> Decision {
        let Some(member) = self.present(incarnation) else {
            return Decision::default();
        };
        let why = CrashOutcome::End {
            note: Some(format!("it was never run: {why}")),
        };
        let member = Member {
            ending_note: note(member.ending_note.clone(), why),
            ..member.clone()
        };
        let end = self.end_of(&member);
        let next = match end {
            End::Crashed if member.restarted > 0 => self.after_crash(&member, ended),
            _ => CrashOutcome::End { note: None },
        };
        self.exited(&member, ended, (end, next), ids)
    }

    /// Records that an incarnation is lost with its host: how it ended, and whether it has, is not
    /// known.
    pub(super) fn lost(&self, member: &Member, ids: &mut dyn Ids) -> Decision {
        let ended = Ended {
            inbox: self.unread.end,
            unread: self.unread.count,
            mail: Some(self.unread.mail.clone()),
            more_mail: self.unread.more,
            ..Ended::default()
        };
        let next = CrashOutcome::End { note: None };
        self.exited(member, &ended, (End::Lost, next), ids)
    }

    /// Returns how an incarnation ended, from the journal alone.
    fn end_of(&self, member: &Member) -> End {
        match member {
            // Its end was not wanted: it broke down.
            _ if member.ending == Some(Ending::Hung) => End::Crashed,
            _ if member.ending.is_some() => End::Killed,
            _ if self.team.release(&member.name).is_some() => End::Shutdown,
            _ => End::Crashed,
        }
    }

    fn after_crash(&self, member: &Member, ended: &Ended) -> CrashOutcome {
        let incarnation = Incarnation::of(member);
        let environment = self
            .runtime
            .of(&incarnation)
            .and_then(|worker| worker.environment.as_ref());
        let RestartLimit { max, period } = self.rules.restart;
        let recent = self.recent_restarts(member).len();
        let note = match member.terms.restart {
            _ if self.team.stopping => "not started again: the daemon is stopping".to_owned(),
            _ if self.team.pending(&member.name, Kind::Shutdown).is_some() => {
                "not started again: its shutdown was asked for".to_owned()
            }
            Restart::Never => return CrashOutcome::End { note: None },
            Restart::OnFailure if environment.is_none() => {
                let name = &member.name;
                let next = if *name == Name::lead() {
                    "`teamctl chat`".to_owned()
                } else {
                    format!("`teamctl spawn {name} --resume`")
                };
                format!(
                    "not started again, since its environment was lost with the daemon that had it: {next} continues"
                )
            }
            Restart::OnFailure if recent >= usize::try_from(max).unwrap_or(usize::MAX) => {
                format!(
                    "not started again: it was {} in {} s",
                    count(recent, "time"),
                    period.as_secs_f64()
                )
            }
            Restart::OnFailure => match &ended.unworkable {
                Some(why) => format!("not started again: {why}"),
                None => return CrashOutcome::Restart,
            },
        };
        CrashOutcome::End { note: Some(note) }
    }

    fn exited(
        &self,
        member: &Member,
        ended: &Ended,
        (end, next): (End, CrashOutcome),
        ids: &mut dyn Ids,
    ) -> Decision {
        let restart = matches!(next, CrashOutcome::Restart);
        // The next incarnation reads by itself what a crash has left.
        let final_mail = ended.mail.as_ref().filter(|_| !restart);
        let returned =
            final_mail.map_or_else(Vec::new, |mail| self.returned_by(&member.name, mail));
        let returned_before = member.exit.as_ref().and_then(|exit| exit.returned_up_to);
        let exit = Exit {
            code: ended.code,
            signal: ended.signal,
            at: self.now.wall,
            request_id: self
                .team
                .release(&member.name)
                .map(|request| request.request_id.clone()),
            unread: ended.unread,
            inbox: ended.inbox,
            returned: returned.len() as u64,
            returned_up_to: final_mail.map(|_| ended.inbox).or(returned_before),
            usage: self.runtime.usage(member),
            other_usage: self.runtime.other_models(member).usage,
            note: note(member.ending_note.clone(), next),
            ending: member.ending,
            // An incarnation that never ran leaves nothing.
            emptied: if member.process.is_some() {
                ended.emptied
            } else {
                None
            },
        };
        let event = if restart {
            Trigger::IncarnationEnded
        } else {
            Trigger::ConversationEnded
        };
        let expired = self.expired_by(&member.name, event);
        let record = MemberRecord {
            ended_incarnation: restart.then_some(member.incarnation),
            agent: self
                .team
                .shutdown_of(&member.name)
                .is_some_and(|request| request.agent),
            expired,
            released: if restart {
                Vec::new()
            } else {
                self.released_by(&member.name)
            },
            tell: self
                .notices_of_end(&member.name, ids)
                .into_iter()
                .chain(returned.iter().filter_map(notice_of_returned))
                .collect(),
            not_returned: if restart || member.name == Name::lead() {
                0
            } else {
                ended.more_mail
            },
            returned,
            ..MemberRecord::of(
                MemberEvent::Exited,
                self.after_exit(member, exit, end, restart),
            )
        };
        let incarnation = Incarnation {
            name: member.name.clone(),
            number: record.member.incarnation,
        };
        let let_lie: &[TaskId] = if record.member.phase == Phase::Crashed {
            &record.released
        } else {
            &[]
        };
        let notices = self.let_lie_too_often(let_lie, ids);
        let decision = Decision::default().record(Record::Member(Box::new(record)));
        if restart {
            decision.act(Action::Start(incarnation, None))
        } else {
            decision.and(notices).and(self.offer_later())
        }
    }

    fn after_exit(&self, member: &Member, exit: Exit, end: End, restart: bool) -> Member {
        let ended = Member {
            process: None,
            cgroup: None,
            ending: None,
            ending_note: None,
            silent_since: None,
            exit: Some(exit),
            ..self.updated(member)
        };
        if restart {
            let mut restarts = self.recent_restarts(member);
            restarts.push(self.now.wall);
            return Member {
                phase: Phase::Spawning,
                incarnation: member.incarnation + 1,
                spawned_at: self.now.wall,
                restarts,
                restarted: member.restarted.saturating_add(1),
                ..ended
            };
        }
        Member {
            phase: end.into(),
            gate: if member.terms.plan {
                Gate::Closed
            } else {
                member.gate
            },
            ..ended
        }
    }

    /// Returns the restarts that count. For the restarts of an earlier daemon only the time of day
    /// is known.
    fn recent_restarts(&self, member: &Member) -> Vec<f64> {
        let period = self.rules.restart.period;
        member
            .restarts
            .iter()
            .copied()
            .filter(|at| match self.runtime.restarted_at(&member.name, *at) {
                Some(at) => self.now.monotonic.saturating_sub(at) < period,
                None => (self.now.wall - at).abs() < period.as_secs_f64(),
            })
            .collect()
    }

    fn expired_by(&self, name: &Name, event: Trigger) -> Vec<RequestId> {
        self.team
            .pending_of(name)
            .filter(|request| {
                request
                    .after(event, self.now.wall, "")
                    .is_ok_and(|after| after.status == Status::Expired)
            })
            .map(|request| request.request_id.clone())
            .collect()
    }

    /// Returns the mail that comes back to its senders because its receiver is gone for good: that of
    /// people and of the lead, and that of teammates that can still read it. The inbox of the lead
    /// is read by people, whatever becomes of the lead agent.
    pub(super) fn returned_by(&self, gone: &Name, mail: &[UnreadMail]) -> Vec<ReturnedMail> {
        if *gone == Name::lead() {
            return Vec::new();
        }
        let senders: BTreeSet<&str> = self
            .alive()
            .filter(|member| member.name != *gone && member.ending.is_none())
            .filter(|member| self.team.release(&member.name).is_none())
            .map(|member| member.name.as_str())
            .chain([USER, LEAD])
            .collect();
        mail.iter()
            .filter(|mail| senders.contains(mail.from.as_str()))
            .map(|mail| ReturnedMail {
                id: returned_id(mail.id, gone),
                message_id: mail.id,
                from: mail.from.clone(),
                text: mail.text.clone(),
            })
            .collect()
    }

    /// Returns the notices of an end: to the lead, and to every running member that is not about to
    /// leave.
    fn notices_of_end(&self, gone: &Name, ids: &mut dyn Ids) -> Vec<Notice> {
        let members = self
            .alive()
            .filter(|member| {
                member.name != *gone
                    && member.phase == Phase::Running
                    && member.ending.is_none()
                    && self.team.pending(&member.name, Kind::Shutdown).is_none()
                    && self.team.release(&member.name).is_none()
            })
            .map(|member| member.name.clone());
        // The lead gets one notice, whether a lead agent runs or not.
        let members = members.filter(|name| *name != Name::lead());
        // All notices share one id, so that the journal has it once.
        let id = ids.message();
        std::iter::once(Name::lead())
            .chain(members)
            .map(|to| Notice { to, id })
            .collect()
    }
}

/// Returns the notice by which a message comes back. Mail of the person comes to the inbox of the
/// lead.
pub(super) fn notice_of_returned(mail: &ReturnedMail) -> Option<Notice> {
    let owner = if mail.from == USER { LEAD } else { &mail.from };
    let to = Name::of_inbox(owner).ok()?;
    Some(Notice { to, id: mail.id })
}

/// Joins why it was ended and why it is not started again.
fn note(ended: Option<String>, next: CrashOutcome) -> Option<String> {
    match (ended, next) {
        (Some(ended), CrashOutcome::End { note: Some(note) }) => Some(format!("{ended}; {note}")),
        (None, CrashOutcome::End { note }) => note,
        (ended, _) => ended,
    }
}
