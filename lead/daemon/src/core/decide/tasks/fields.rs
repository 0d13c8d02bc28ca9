//! What is to be done: tasks are added, edited and tried again.

use std::collections::BTreeSet;

use teamd_shared::control::{ImportedTask, Refusal, RefusalCode};
use teamd_shared::fingerprint::Baseline;
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::job::JobReport;
use teamd_shared::journal::{Record, TaskRecord};
use teamd_shared::member::ApproveBy;
use teamd_shared::message::USER;
use teamd_shared::order::TEAM_TOML;
use teamd_shared::task::{MAX_OPEN, Task, TaskEvent, TaskFields, TaskId};
use teamd_shared::visible::is_hidden;

use super::{no_task, not_for_teammates};
use crate::core::caller::Actor;
use crate::core::decide::{Decision, DecisionView, conflict};

/// How many tasks of a cycle are named.
const NAMED: usize = 10;

/// The longest name of a source, in bytes.
const MAX_SOURCE: usize = 300;

impl DecisionView<'_> {
    /// Adds tasks. A kill may have cut off the last lines of an earlier attempt under the same id,
    /// and other commands may have made tasks since.
    pub(super) fn add(
        &self,
        by: &Actor,
        (command, fields, within): (&RequestId, &[&TaskFields], bool),
        ids: &mut dyn Ids,
    ) -> Result<(Decision, Vec<TaskId>), Refusal> {
        let earlier = self.team.made_by(command).into_iter();
        let numbers: Vec<TaskId> = earlier
            .chain(self.team.last_task + 1..)
            .take(fields.len())
            .collect();
        let new = numbers
            .iter()
            .filter(|id| **id > self.team.last_task)
            .count();
        self.allow_open(by, new)?;
        let mut decision = Decision::default();
        for (&id, fields) in numbers.iter().zip(fields) {
            if by.is_teammate()
                && let Some(field) = fields.reserved()
            {
                return Err(not_for_teammates(&format!(
                    "`{field}` is for a person or the lead to set"
                )));
            }
            let mut task = fields
                .create(id, by.as_str(), self.now.wall)
                .map_err(|why| usage("add", why))?;
            task.protected = self.protected(by);
            if within {
                task.blocked_by = task
                    .blocked_by
                    .iter()
                    .map(|place| {
                        numbers
                            .get((*place as usize).wrapping_sub(1))
                            .copied()
                            .unwrap_or(0)
                    })
                    .collect();
            }
            self.waits_for_known(&task)?;
            task.order = self.follows_from(by, &task);
            if id > self.team.last_task {
                let record = self.recorded(TaskEvent::Created, (task, by.as_str()), ids);
                decision = decision.task(TaskRecord {
                    command_id: Some(command.clone()),
                    ..record
                });
            }
        }
        Ok((decision, numbers))
    }

    /// Adds tasks of what strangers have written elsewhere, each source once.
    pub(super) fn import(
        &self,
        by: &Actor,
        (command, tasks): (&RequestId, &[ImportedTask]),
        ids: &mut dyn Ids,
    ) -> Result<(Decision, Vec<TaskId>), Refusal> {
        let earlier = self.team.made_by(command);
        let mut sources = BTreeSet::new();
        for ImportedTask { source, .. } in tasks {
            is_a_source(source)?;
            if !sources.insert(source) {
                return Err(usage("import", format!("{source} is there twice")));
            }
            let made = self.team.imported_before(source);
            if let Some(made) = made.filter(|made| !earlier.contains(&made.task)) {
                return Err(conflict(made.message, made.hint));
            }
        }
        let fields: Vec<&TaskFields> = tasks.iter().map(|task| &task.fields).collect();
        let (mut decision, made) = self.add(by, (command, &fields, false), ids)?;
        // An earlier attempt has made the first ones.
        let new = tasks.len() - decision.records.len();
        for (record, task) in decision.records.iter_mut().zip(&tasks[new..]) {
            if let Record::Task(record) = record {
                record.task.source = Some(task.source.clone());
            }
        }
        Ok((decision, made))
    }

    /// Refuses a member so many further tasks: what makes more than a team can do is no plan.
    fn allow_open(&self, by: &Actor, new: usize) -> Result<(), Refusal> {
        let Actor::Member(name) = by else {
            return Ok(());
        };
        let open = self
            .team
            .tasks
            .values()
            .filter(|task| task.created_by == name.as_str() && !task.status.is_finished())
            .count();
        if open + new <= MAX_OPEN {
            return Ok(());
        }
        let message =
            format!("{name} has made {open} tasks that are open, and {MAX_OPEN} are the limit");
        Err(conflict(
            message,
            "wait until some are completed, or put several into one task",
        ))
    }

    /// Edits a task, or has it tried once more, with what is said of it now: no teammate can take
    /// it as it was in between.
    pub(super) fn rewrite(
        &self,
        by: &Actor,
        (id, event): (TaskId, TaskEvent),
        fields: &TaskFields,
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        let stepped = self.stepped(self.known_task(id)?, event)?;
        let command = if event == TaskEvent::Retried {
            "retry"
        } else {
            "edit"
        };
        let mut task = fields
            .change(&stepped, by.as_str())
            .map_err(|why| usage(command, why))?;
        if *by != Actor::Person && loosens(&stepped, &task) {
            return Err(conflict(
                format!("a person chose the check, the review or the plan of task {id}"),
                format!("a person changes it with `teamctl task {command} {id}`"),
            ));
        }
        task.protected = self.protected(by);
        self.waits_for_known(&task)?;
        if let Some(cycle) = self.team.cycle(id, &task.blocked_by) {
            let mut way: Vec<String> = cycle.iter().map(TaskId::to_string).collect();
            if way.len() > NAMED {
                way.splice(NAMED / 2..way.len() - NAMED / 2, ["…".to_owned()]);
            }
            let message = format!(
                "task {id} would wait for itself: {}",
                way.join(" waits for ")
            );
            return Err(conflict(message, "leave one of these out of `--after`"));
        }
        Ok(Decision::default().task(self.recorded(event, (task, by.as_str()), ids)))
    }

    /// Refuses to wait for tasks that are not known, and are not made just now, before this one.
    fn waits_for_known(&self, task: &Task) -> Result<(), Refusal> {
        for &before in &task.blocked_by {
            let is_made_before = before > self.team.last_task && before < task.id;
            if !is_made_before && self.team.task_status(before).is_none() {
                return Err(no_task(&format!("there is no task {before} to wait for")));
            }
        }
        Ok(())
    }

    /// Returns what the protected files must still be when the work is done. A teammate may have
    /// changed them already, so what it wants goes by what they were for a person or the lead.
    fn protected(&self, by: &Actor) -> Option<Baseline> {
        match self.prepared {
            _ if by.is_teammate() => self.team.protected.clone(),
            Some(JobReport::Protected(baseline)) => Some(baseline.clone()),
            _ => None,
        }
    }
}

/// Refuses what names no source in a few visible characters.
fn is_a_source(source: &str) -> Result<(), Refusal> {
    if source.is_empty() || source.len() > MAX_SOURCE || source.chars().any(is_hidden) {
        let message = format!("a source is up to {MAX_SOURCE} visible characters");
        return Err(usage("import", message));
    }
    Ok(())
}

/// Tells whether a task loses what a person chose for it: its check, a person's review, or the plan
/// of one that was imported.
fn loosens(before: &Task, after: &Task) -> bool {
    let is_persons = |by: &str| by == USER || by == TEAM_TOML;
    let chosen = before
        .check
        .as_ref()
        .filter(|check| is_persons(&check.set_by));
    let loses_check = chosen.is_some() && after.check.as_ref() != chosen;
    let loses_any_check = after.no_check && !before.no_check;
    let of_person = Some(ApproveBy::Person);
    let loses_review = before.review == of_person && after.review != of_person;
    // Strangers have written what it is to do.
    let loses_plan = before.source.is_some() && before.plan && !after.plan;
    loses_check || loses_any_check || loses_review || loses_plan
}

fn usage(command: &str, message: String) -> Refusal {
    let hint = format!("`teamctl task {command} --help` shows what can be said");
    Refusal::new(RefusalCode::Usage, message).hint(hint)
}
