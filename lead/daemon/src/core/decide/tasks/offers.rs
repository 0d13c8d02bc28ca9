//! Work for idle members. The daemon offers it to those that take tasks by themselves, and reminds
//! owners.

use std::collections::BTreeSet;

use teamd_shared::id::Ids;
use teamd_shared::journal::{Notice, Record, TaskRecord, TeamEvent, TeamRecord};
use teamd_shared::member::Member;
use teamd_shared::message::TEAMD;
use teamd_shared::name::Name;
use teamd_shared::task::{MAX_IDLE_RELEASES, MAX_REMINDERS, Task, TaskEvent, TaskId, TaskStatus};

use crate::core::caller::Actor;
use crate::core::decide::{Decision, DecisionView};
use crate::core::event::Action;
use crate::core::incarnation::Incarnation;
use crate::core::job::Then;
use crate::core::quiet::{MOST_REFUSALS, TaskStanding, standing};

impl DecisionView<'_> {
    /// Begins to offer work to idle members, if there is any or will be when this decision is
    /// applied.
    pub(in crate::core::decide) fn offer_later(&self) -> Decision {
        if self.team.has_open_tasks() {
            Decision::default().act(Action::Offer)
        } else {
            Decision::default()
        }
    }

    /// Gives work to the idle members that take tasks by themselves.
    pub(in crate::core::decide) fn offer(&self, ids: &mut dyn Ids) -> Decision {
        let mut decision = Decision::default();
        let branches = self.runtime.jobs.branches();
        let mut taken: BTreeSet<TaskId> = branches.map(|(_, task)| task).collect();
        for member in self
            .alive()
            .filter(|member| member.terms.auto && self.takes_work(member))
        {
            let Some(task) = self.team.next_for(member, &taken) else {
                continue;
            };
            let Some(next) = task.after(TaskEvent::Claimed, self.now.wall) else {
                continue;
            };
            taken.insert(task.id);
            if member.terms.checkout.is_some() {
                let then = Then::Offer {
                    incarnation: Incarnation::of(member),
                    task: task.id,
                };
                decision = decision.and(self.begin_branch(member, task.id, then));
                continue;
            }
            let next = next.held_by(&member.name);
            decision = decision.task(self.recorded(TaskEvent::Claimed, (next, TEAMD), ids));
        }
        decision
    }

    /// Gives an idle teammate the task whose branch was begun in its checkout. Earlier work on the
    /// task is kept under these names.
    pub(in crate::core::decide) fn offered(
        &self,
        name: &Name,
        task: TaskId,
        kept: &[String],
        ids: &mut dyn Ids,
    ) -> Decision {
        let Ok((member, task)) = self.claimable(&Actor::Member(name.clone()), Some(task)) else {
            return Decision::default();
        };
        if standing(self.team, self.runtime, member) != TaskStanding::Offered(task.id) {
            return Decision::default();
        }
        let Some(next) = task.after(TaskEvent::Claimed, self.now.wall) else {
            return Decision::default();
        };
        let next = Task {
            kept: kept.to_vec(),
            ..next.held_by(name)
        };
        Decision::default().task(self.recorded(TaskEvent::Claimed, (next, TEAMD), ids))
    }

    /// Notifies an idle teammate why no branch can be begun in its checkout. It is offered a task
    /// when it has worked again. The third time in a row the lead gets the notice instead, and the
    /// teammate is offered nothing until a person or the lead changes a task.
    pub(in crate::core::decide) fn not_offered(
        &self,
        incarnation: &Incarnation,
        task: TaskId,
        why: &str,
        ids: &mut dyn Ids,
    ) -> Decision {
        let name = &incarnation.name;
        // This one counts once it is journaled.
        let refusals_before = self
            .runtime
            .of(incarnation)
            .map_or(0, |worker| worker.refusals.in_a_row);
        let whom = if refusals_before + 1 < MOST_REFUSALS {
            name.clone()
        } else {
            Name::lead()
        };
        let why = format!("{name} cannot be given a task: {why}");
        self.held_up(task, &why).and(self.notify(whom, why, ids))
    }

    /// Records why a task cannot be given to a teammate, for people to see. No member gets a
    /// notice.
    fn held_up(&self, task: TaskId, why: &str) -> Decision {
        let task = self
            .team
            .tasks
            .get(&task)
            .filter(|task| task.stalled.as_deref() != Some(why));
        let next = task.and_then(|task| {
            let stalled = Task {
                stalled: Some(why.to_owned()),
                ..task.clone()
            };
            stalled.after(TaskEvent::Stalled, self.now.wall)
        });
        next.map_or_else(Decision::default, |next| {
            Decision::default().task(TaskRecord::of(TaskEvent::Stalled, next, TEAMD))
        })
    }

    /// Sends a member a notice that belongs to no task.
    pub(in crate::core::decide) fn notify(
        &self,
        whom: Name,
        text: String,
        ids: &mut dyn Ids,
    ) -> Decision {
        let content = Some(text);
        let tell = vec![Notice {
            to: whom,
            id: ids.message(),
        }];
        let record = TeamRecord {
            content,
            tell,
            ..self.team_record(TeamEvent::Noted)
        };
        Decision::default().record(Record::Team(Box::new(record)))
    }

    /// Notifies the lead about tasks that wait for a person or the lead, because the owner that
    /// still holds them has died.
    pub(in crate::core::decide) fn let_lie_too_often(
        &self,
        tasks: &[TaskId],
        ids: &mut dyn Ids,
    ) -> Decision {
        let held = tasks
            .iter()
            .filter_map(|id| self.team.tasks.get(id))
            .filter(|task| task.status == TaskStatus::InProgress);
        let lost = held
            .map(|task| task.clone().let_lie())
            .filter(|task| task.idle_releases >= MAX_IDLE_RELEASES);
        lost.fold(Decision::default(), |decision, task| {
            let text = format!(
                "{} has lost its owner{}",
                task.title(),
                waits_for_person(&task)
            );
            decision.and(self.notify(Name::lead(), text, ids))
        })
    }

    fn takes_work(&self, member: &Member) -> bool {
        standing(self.team, self.runtime, member) == TaskStanding::Free
    }

    /// Reminds a member that has become idle of the task that it holds, unless commands of it run in
    /// the background. The third time the task is
    /// released, which counts as no failed check.
    pub(in crate::core::decide) fn remind(
        &self,
        incarnation: &Incarnation,
        ids: &mut dyn Ids,
    ) -> Decision {
        let became_idle = self.runtime.of(incarnation).is_some_and(|worker| {
            let waits = worker
                .commands_until
                .is_some_and(|until| self.now.monotonic < until);
            worker.became_idle && !waits
        });
        let member = self.present(incarnation).filter(|member| {
            let standing = standing(self.team, self.runtime, member);
            became_idle && matches!(standing, TaskStanding::Holds(_) | TaskStanding::Failed(_))
        });
        let held = member.and_then(|member| self.team.held_by(&member.name));
        let Some(task) = held.filter(|task| task.status == TaskStatus::InProgress) else {
            return Decision::default();
        };
        let reminders = task.reminders + 1;
        if reminders <= MAX_REMINDERS {
            return self.system(
                &Task {
                    reminders,
                    ..task.clone()
                },
                TaskEvent::Reminded,
                None,
                ids,
            );
        }
        let lost = task.clone().let_lie();
        let mut text = format!(
            "{} went idle three times without submitting",
            incarnation.name
        );
        if lost.idle_releases >= MAX_IDLE_RELEASES {
            text.push_str(&waits_for_person(&lost));
        }
        self.system(&lost, TaskEvent::Released, Some(text), ids)
            .act(Action::Offer)
    }
}

/// Returns the end of a text about a task that is no longer given to a teammate by itself.
fn waits_for_person(task: &Task) -> String {
    let id = task.id;
    format!(
        ". That was the third time in a row: it waits until `teamctl task assign {id} NAME` or `task edit {id}`"
    )
}
