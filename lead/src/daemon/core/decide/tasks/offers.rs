//! Work for idle members: it is offered to those that take it by themselves, and owners are reminded.

use std::collections::BTreeSet;

use teamd_shared::id::Ids;
use teamd_shared::member::{Doing, Member};
use teamd_shared::message::{IdleReason, TEAMD};
use teamd_shared::request::Kind;
use teamd_shared::task::{MAX_REMINDERS, Task, TaskEvent, TaskStatus};

use crate::daemon::core::decide::{Decision, View};
use crate::daemon::core::event::{Action, Incarnation};

impl View<'_> {
    /// Has idle members looked at, if there is work for any of them, or will be when this decision is applied.
    pub(in crate::daemon::core::decide) fn offer_later(&self) -> Decision {
        match self.team.has_open_tasks() {
            true => Decision::default().act(Action::Offer),
            false => Decision::default(),
        }
    }

    /// Gives work to the members that are idle and take it by themselves.
    pub(in crate::daemon::core::decide) fn offer(&self, ids: &mut dyn Ids) -> Decision {
        let mut decision = Decision::default();
        let mut taken = BTreeSet::new();
        for member in self.alive().filter(|member| member.terms.auto && self.takes_work(member)) {
            let Some(task) = self.team.next_for(member, &taken) else { continue };
            let Some(next) = task.after(TaskEvent::Claimed, self.now.wall) else { continue };
            taken.insert(task.id);
            let next = next.held_by(&member.name);
            decision = decision.task(self.recorded(TaskEvent::Claimed, (next, TEAMD), ids));
        }
        decision
    }

    fn takes_work(&self, member: &Member) -> bool {
        let idle = self.live.of(&Incarnation::of(member)).filter(|alive| {
            alive.connected && alive.ready && !alive.has_unread && alive.said.doing == Doing::Idle
        });
        let able =
            idle.is_some_and(|alive| matches!(alive.said.idle_reason, None | Some(IdleReason::Available)));
        able && !self.team.stopping
            && member.ending.is_none()
            && self.team.pending_of(&member.name).next().is_none()
            && self.team.release(&member.name).is_none()
            && self.team.held_by(&member.name).is_none()
    }

    /// Reminds a member that has become idle of the task that it holds; the third time the task is released, and that counts
    /// as a failed attempt.
    pub(in crate::daemon::core::decide) fn remind(
        &self,
        incarnation: &Incarnation,
        ids: &mut dyn Ids,
    ) -> Decision {
        let became_idle =
            self.live.of(incarnation).is_some_and(|alive| alive.became_idle && !alive.has_unread);
        let waits = self.team.pending(&incarnation.name, Kind::PlanApproval).is_some();
        let held = self.team.held_by(&incarnation.name).filter(|task| task.status == TaskStatus::InProgress);
        let Some(task) = held.filter(|_| became_idle && !waits) else { return Decision::default() };
        let reminders = task.reminders + 1;
        if reminders <= MAX_REMINDERS {
            return self.system(&Task { reminders, ..task.clone() }, TaskEvent::Reminded, None, ids);
        }
        let attempts = task.attempts + 1;
        let event = if attempts < task.max_attempts { TaskEvent::Released } else { TaskEvent::Failed };
        let text = "it became idle three times, and did not submit".to_owned();
        self.system(&Task { attempts, reminders: 0, ..task.clone() }, event, Some(text), ids)
            .act(Action::Offer)
    }
}
