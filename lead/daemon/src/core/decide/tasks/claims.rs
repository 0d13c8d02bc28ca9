//! Who holds a task: it is claimed, released, assigned and withdrawn.

use std::collections::BTreeSet;

use teamd_shared::control::Refusal;
use teamd_shared::id::Ids;
use teamd_shared::job::JobReport;
use teamd_shared::member::Member;
use teamd_shared::name::Name;
use teamd_shared::task::{Task, TaskEvent, TaskId, TaskStatus};

use super::integration::is_integrating;
use crate::core::caller::Actor;
use crate::core::decide::jobs::unexpected_report;
use crate::core::decide::{Decision, DecisionView, conflict};
use crate::core::event::Action;

impl DecisionView<'_> {
    pub(super) fn claim(
        &self,
        by: &Actor,
        id: Option<TaskId>,
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        let (member, task) = self.claimable(by, id)?;
        let name = &member.name;
        let kept = match (self.prepared, &member.terms.checkout) {
            (_, None) => Vec::new(),
            (Some(JobReport::Branched(kept)), Some(_)) => kept.clone(),
            (_, Some(_)) => return Err(unexpected_report()),
        };
        let next = Task {
            kept,
            ..self.stepped(task, TaskEvent::Claimed)?.held_by(name)
        };
        Ok(Decision::default().task(self.recorded(TaskEvent::Claimed, (next, name.as_str()), ids)))
    }

    /// Returns who claims which task, if that may be.
    pub(super) fn claimable(
        &self,
        by: &Actor,
        id: Option<TaskId>,
    ) -> Result<(&Member, &Task), Refusal> {
        let Actor::Member(name) = by else {
            return Err(works_on_no_task("a person"));
        };
        if !by.is_teammate() {
            return Err(works_on_no_task("the lead agent"));
        }
        let member = self.running(name)?;
        if let Some(host) = &member.terms.host
            && !member.can_take_tasks()
        {
            return Err(conflict(
                format!("{name} has no checkout on {host}, and tasks are checked at home"),
                "write to the lead what you can do",
            ));
        }
        if let Some(held) = self.team.held_by(name) {
            let message = format!("{name} holds {} already", held.title());
            return Err(conflict(message, "submit or release it first"));
        }
        let task = match id {
            Some(id) => self.known_task(id)?,
            None => self
                .team
                .next_for(member, &BTreeSet::new())
                .ok_or_else(|| {
                    conflict(
                        "no task can be claimed now",
                        "`teamctl task list` shows what the others wait for",
                    )
                })?,
        };
        if task.status == TaskStatus::Pending {
            self.may_claim(task, member)?;
        }
        self.stepped(task, TaskEvent::Claimed)?;
        Ok((member, task))
    }

    fn may_claim(&self, task: &Task, member: &Member) -> Result<(), Refusal> {
        if task.waits_for_person() {
            let why = format!(
                "{} was given back {} times in a row",
                task.title(),
                task.idle_releases
            );
            return Err(conflict(
                why,
                "it waits for a person or the lead; claim another one",
            ));
        }
        if !task.is_for(member) {
            let whom = task.reserved_for.as_deref().unwrap_or_default();
            return Err(conflict(
                format!("{} is for {whom}", task.title()),
                "claim another one",
            ));
        }
        let blockers: Vec<String> = self
            .team
            .blockers(task)
            .iter()
            .map(|(id, status)| format!("{id} ({})", status.as_str().replace('_', " ")))
            .collect();
        if blockers.is_empty() {
            Ok(())
        } else {
            let message = format!("{} is blocked by {}", task.title(), blockers.join(", "));
            Err(conflict(message, "claim another one"))
        }
    }

    pub(super) fn release(
        &self,
        by: &Actor,
        id: TaskId,
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        is_theirs(by, self.known_task(id)?)?;
        self.withdraw((id, TaskEvent::Released), by, ids)
    }

    pub(super) fn assign(
        &self,
        by: &Actor,
        id: TaskId,
        to: &Name,
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        let task = self.known_task(id)?;
        let member = self.known(to)?;
        if member.name == Name::lead() {
            return Err(works_on_no_task("the lead agent"));
        }
        let next = Task {
            reserved_for: Some(to.to_string()),
            ..self.stepped(task, TaskEvent::Assigned)?
        };
        Ok(Decision::default().task(self.recorded(TaskEvent::Assigned, (next, by.as_str()), ids)))
    }

    /// Releases or cancels a task. The check of submitted work ends, and its review expires.
    pub(super) fn withdraw(
        &self,
        (id, event): (TaskId, TaskEvent),
        by: &Actor,
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        let task = self.known_task(id)?;
        if is_integrating(task) {
            let hint = format!("`teamctl task show {id}` shows how that ends");
            return Err(conflict(
                format!("{} is being integrated", task.title()),
                hint,
            ));
        }
        let mut record = self.recorded(event, (self.stepped(task, event)?, by.as_str()), ids);
        record.expired.extend(task.review_id().cloned());
        let decision = Decision::default().task(record);
        Ok(if task.status == TaskStatus::InReview {
            decision.act(Action::EndCheck(id))
        } else {
            decision
        })
    }

    /// Returns the tasks that lose their owner when it ends for good.
    pub(in crate::core::decide) fn released_by(&self, name: &Name) -> Vec<TaskId> {
        self.team
            .held_by(name)
            .map(|task| task.id)
            .into_iter()
            .collect()
    }
}

/// Refuses a teammate that is not the owner.
pub(super) fn is_theirs(by: &Actor, task: &Task) -> Result<(), Refusal> {
    match by {
        Actor::Member(name) if by.is_teammate() && task.owner.as_ref() != Some(name) => {
            let owner = task
                .owner
                .as_ref()
                .map_or("claimed by no teammate".to_owned(), |owner| {
                    format!("{owner}'s")
                });
            Err(conflict(
                format!("{} is {owner}", task.title()),
                "claim a task before you work on it",
            ))
        }
        _ => Ok(()),
    }
}

fn works_on_no_task(who: &str) -> Refusal {
    conflict(
        format!("{who} cannot hold tasks"),
        "`teamctl task assign ID NAME` gives it to a teammate",
    )
}
