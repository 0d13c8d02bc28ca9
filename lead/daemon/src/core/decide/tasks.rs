//! Tasks: who may do what with them, and who gets a notice. [`TaskEvent::leads_to`] says which
//! status an event leads to.

mod claims;
mod fields;
mod integration;
mod offers;
mod submissions;

use teamd_shared::control::{Command, Done, Refusal, RefusalCode, TaskOrder};
use teamd_shared::id::Ids;
use teamd_shared::job::GitStep;
use teamd_shared::journal::{Notice, Record, TaskRecord};
use teamd_shared::message::TEAMD;
use teamd_shared::name::Name;
use teamd_shared::task::{
    MAX_RETURNS, MOST_LISTED, Task, TaskEvent, TaskFields, TaskId, TaskStatus,
};

use super::jobs::sets_work;
use super::{Decision, DecisionView, conflict};
use crate::core::caller::{Actor, ReplyTo};
use crate::core::event::Action;

impl DecisionView<'_> {
    pub(super) fn task(
        &self,
        client: ReplyTo,
        by: &Actor,
        order: &TaskOrder,
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        let is_leads = matches!(
            order,
            TaskOrder::Assign(..)
                | TaskOrder::Cancel(_)
                | TaskOrder::Edit(..)
                | TaskOrder::Retry(..)
        );
        if is_leads && by.is_teammate() {
            return Err(not_for_teammates("that is for a person or the lead to do"));
        }
        if matches!(order, TaskOrder::Import { .. }) && *by != Actor::Person {
            return Err(not_for_agents());
        }
        if self.prepared.is_none()
            && let Some(job) = self.prepare(client, by, order)?
        {
            return Ok(job);
        }
        let (decision, done) = match order {
            TaskOrder::List(id) => (Decision::default(), Some(Done::Tasks(self.listed(*id)?))),
            TaskOrder::Add { id, tasks, within } => {
                let fields: Vec<&TaskFields> = tasks.iter().collect();
                let (decision, made) = self.add(by, (id, &fields, *within), ids)?;
                (decision, Some(Done::Made(made)))
            }
            TaskOrder::Import { id, tasks } => {
                let (decision, made) = self.import(by, (id, tasks), ids)?;
                (decision, Some(Done::Made(made)))
            }
            TaskOrder::Claim(id) => (self.claim(by, *id, ids)?, None),
            TaskOrder::Submit(id, summary) => (self.submit(by, *id, summary, ids)?, None),
            TaskOrder::Release(id) => (self.release(by, *id, ids)?, None),
            TaskOrder::Assign(id, to) => (self.assign(by, *id, to, ids)?, None),
            TaskOrder::Cancel(id) => (self.withdraw((*id, TaskEvent::Cancelled), by, ids)?, None),
            TaskOrder::Edit(id, fields) => (
                self.rewrite(by, (*id, TaskEvent::Edited), fields, ids)?,
                None,
            ),
            TaskOrder::Retry(id, fields) => (
                self.rewrite(by, (*id, TaskEvent::Retried), fields, ids)?,
                None,
            ),
        };
        let changed = decision.records.iter().filter_map(|record| match record {
            Record::Task(record) => Some(record.task.clone()),
            _ => None,
        });
        let done = done.unwrap_or_else(|| Done::Tasks(changed.collect()));
        let offer = (!decision.records.is_empty()).then_some(Action::Offer);
        let mut decision = self.fits(decision)?.act(Action::Reply(client, Ok(done)));
        decision.actions.extend(offer);
        Ok(decision)
    }

    /// Begins the job that an order needs first. A claim of a teammate with a checkout needs the
    /// branch of its task, and a submission from there needs a commit. An order that says what is
    /// to be done needs a look at the protected files. None if the order needs nothing.
    fn prepare(
        &self,
        client: ReplyTo,
        by: &Actor,
        order: &TaskOrder,
    ) -> Result<Option<Decision>, Refusal> {
        match order {
            TaskOrder::Claim(id) => {
                let (member, task) = self.claimable(by, *id)?;
                if member.terms.checkout.is_none() {
                    return Ok(None);
                }
                if let Some(task) = self.runtime.jobs.branch(&member.name) {
                    let name = &member.name;
                    return Err(conflict(
                        format!("the branch of task {task} is being begun in {name}'s checkout"),
                        "try again in a moment",
                    ));
                }
                let claim = TaskOrder::Claim(Some(task.id));
                let then = self.then(client, by, Command::Task(claim));
                Ok(Some(self.begin_branch(member, task.id, then)))
            }
            TaskOrder::Submit(id, summary) => {
                let (_, owner) = self.submittable(by, *id, summary)?;
                let Some(checkout) = self.checkout_of(owner) else {
                    return Ok(None);
                };
                let step = GitStep::Keep {
                    root: checkout.root.clone(),
                    task: Some(*id),
                    submit: true,
                };
                let then = self.then(client, by, Command::Task(order.clone()));
                Ok(Some(self.in_checkout(owner, step, then)))
            }
            _ => {
                let command = Command::Task(order.clone());
                if self.team.work.protect.is_empty() || !sets_work(by, &command) {
                    return Ok(None);
                }
                let then = self.then(client, by, command);
                Ok(Some(self.look_at_protected(then)))
            }
        }
    }

    fn listed(&self, id: Option<TaskId>) -> Result<Vec<Task>, Refusal> {
        match id {
            Some(id) => Ok(vec![self.known_task(id)?.clone()]),
            None => {
                let open = self
                    .team
                    .tasks
                    .values()
                    .filter(|task| !task.status.is_finished());
                // A list does not show the long texts, which may be longer together than a frame.
                Ok(open
                    .take(MOST_LISTED)
                    .map(|task| Task {
                        description: String::new(),
                        check: None,
                        submission: None,
                        result: None,
                        ..task.clone()
                    })
                    .collect())
            }
        }
    }

    /// Returns a task that the daemon has in memory. It drops tasks that were completed long ago,
    /// and nothing can happen to those.
    fn known_task(&self, id: TaskId) -> Result<&Task, Refusal> {
        self.team
            .tasks
            .get(&id)
            .ok_or_else(|| match self.team.task_status(id) {
                Some(status) => conflict(
                    format!("task {id} is {}", status.as_str()),
                    format!("`teamctl task show {id}` shows its result"),
                ),
                None => no_task(&format!("there is no task {id}")),
            })
    }

    /// Returns a task after an event, or why the two do not fit.
    fn stepped(&self, task: &Task, event: TaskEvent) -> Result<Task, Refusal> {
        task.after(event, self.now.wall)
            .ok_or_else(|| does_not_fit(task, event))
    }

    /// Records what the daemon itself decides about a task.
    fn system(
        &self,
        task: &Task,
        event: TaskEvent,
        content: Option<String>,
        ids: &mut dyn Ids,
    ) -> Decision {
        let Some(next) = task.after(event, self.now.wall) else {
            return Decision::default();
        };
        let record = self.recorded(event, (next, TEAMD), ids);
        Decision::default().task(TaskRecord { content, ..record })
    }

    /// Returns the record of a task after an event, with its notices: to its owner, unless the
    /// owner caused the event; to the lead about what the daemon decides; and to the teammate that
    /// the task is for, unless the daemon gives work to that.
    pub(in crate::core::decide) fn recorded(
        &self,
        event: TaskEvent,
        (task, by): (Task, &str),
        ids: &mut dyn Ids,
    ) -> TaskRecord {
        use TaskEvent as E;
        let before = self.team.tasks.get(&task.id);
        let owner = match event {
            E::Claimed => task.owner.as_ref(),
            E::Completed | E::Checked | E::Stalled | E::Submitted | E::Queued | E::Integrating => {
                None
            }
            _ => before.and_then(|before| before.owner.as_ref()),
        };
        let lead = by == TEAMD
            && match event {
                E::Completed | E::Failed | E::Released | E::Stalled => true,
                E::Returned => {
                    let more = before.is_some_and(|before| before.returns < task.returns);
                    more && task.returns.is_multiple_of(MAX_RETURNS)
                }
                _ => false,
            };
        let named = self.team.members.iter().find(|(name, state)| {
            task.reserved_for.as_deref() == Some(name.as_str())
                && !state.record.phase.is_ended()
                && !state.record.terms.auto
        });
        let named = if matches!(event, E::Created | E::Assigned) {
            named.map(|(name, _)| name.clone())
        } else {
            None
        };
        let owner = owner
            .filter(|owner| owner.as_str() != by && named.as_ref() != Some(owner))
            .cloned();
        let receivers = owner.into_iter().chain(lead.then(Name::lead)).chain(named);
        let tell = receivers
            .map(|to| Notice {
                to,
                id: ids.message(),
            })
            .collect();
        TaskRecord {
            tell,
            ..TaskRecord::of(event, task, by)
        }
    }
}

fn does_not_fit(task: &Task, event: TaskEvent) -> Refusal {
    let id = task.id;
    let owner = task
        .owner
        .as_ref()
        .map(|owner| format!(" by {owner}"))
        .unwrap_or_default();
    let hint = match (task.status, event) {
        (TaskStatus::InReview, _) => {
            let number = task
                .submission
                .as_ref()
                .map_or(0, |submission| submission.number);
            format!("attempt {number} is in review; `teamctl task release {id}` withdraws it")
        }
        (TaskStatus::Failed | TaskStatus::Cancelled, _) => {
            format!("`teamctl task retry {id}` opens it again")
        }
        (TaskStatus::Pending, TaskEvent::Submitted) => "claim it first".to_owned(),
        (TaskStatus::InProgress, TaskEvent::Claimed) => {
            format!("`teamctl task release {id}` takes it away from its owner")
        }
        _ => format!("`teamctl task show {id}` says more"),
    };
    conflict(
        format!(
            "{} is {}{owner}",
            task.title(),
            task.status.as_str().replace('_', " ")
        ),
        hint,
    )
}

fn no_task(message: &str) -> Refusal {
    Refusal::new(RefusalCode::NotFound, message).hint("`teamctl task list` lists them")
}

fn not_for_agents() -> Refusal {
    Refusal::new(
        RefusalCode::Rejected,
        "a person imports tasks: strangers have written them",
    )
    .hint("a person runs `teamctl task import`; `task_create` makes a task in your own words")
}

fn not_for_teammates(message: &str) -> Refusal {
    Refusal::new(RefusalCode::Rejected, message)
        .hint("tell the lead what you need, with send_message")
}
