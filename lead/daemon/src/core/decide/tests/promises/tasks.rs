//! Tasks: each is held by one running teammate at a time, none is lost, and none is completed
//! unless the check of that submission has passed and the review that it asks for was approved.

use std::collections::{BTreeMap, BTreeSet};

use teamd_shared::id::RequestId;
use teamd_shared::journal::{Line, Record, TaskRecord, Team};
use teamd_shared::member::Gate;
use teamd_shared::message::{LEAD, TEAMD, USER};
use teamd_shared::name::Name;
use teamd_shared::order::{OfOrder, TEAM_TOML};
use teamd_shared::request::Status;
use teamd_shared::task::{Submission, Task, TaskEvent, TaskId, TaskStatus, Verified};

use super::{Checked, check};

/// A task, and which submission of it.
type Of = (TaskId, u32);

/// What was seen of tasks.
#[derive(Default)]
pub(in super::super) struct Tasks {
    /// As they stand, those too that a snapshot has left out.
    tasks: BTreeMap<TaskId, Task>,
    /// The checks that have passed, and those that have failed.
    passed: BTreeSet<Of>,
    failed: BTreeSet<Of>,
    /// The submissions that were judged.
    judged: BTreeSet<Of>,
    /// What orders have made, by the time that was due.
    of_orders: BTreeSet<(Name, u64)>,
    /// How many tasks have failed, and how many an order has made because of that.
    triggers: usize,
    triggered: usize,
    /// How many tasks each command has made.
    made: BTreeMap<RequestId, usize>,
    /// How many it was to make.
    to_make: BTreeMap<RequestId, usize>,
}

impl Tasks {
    /// Returns all tasks that there ever were.
    pub(in super::super) fn all(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values()
    }

    /// Takes in how a check has ended.
    pub(in super::super) fn check_ended(&mut self, of: Of, passed: bool) {
        if passed {
            self.passed.insert(of)
        } else {
            self.failed.insert(of)
        };
    }

    /// Takes in that a command is to make so many tasks. Ids collide: one of another command is not
    /// told apart.
    pub(in super::super) fn is_to_make(&mut self, id: &RequestId, tasks: usize) {
        let most = self.to_make.entry(id.clone()).or_default();
        *most = tasks.max(*most);
    }

    /// Takes in a line. The fold has it already.
    pub(super) fn line(&mut self, line: &Line, fold: &Team) -> Checked {
        match &line.record {
            Record::Task(record) if record.derived_from.is_none() => self.changed(record, fold)?,
            Record::Member(record) => {
                for id in &record.released {
                    let owner = self.tasks.get(id).and_then(|task| task.owner.as_ref());
                    check(owner == Some(&record.member.name), || {
                        format!(
                            "{} ends, and releases task {id} of {owner:?}",
                            record.member.name
                        )
                    })?;
                }
            }
            _ => {}
        }
        self.tasks
            .extend(fold.tasks.iter().map(|(id, task)| (*id, task.clone())));
        let mut owners: BTreeSet<&Name> = BTreeSet::new();
        for (id, task) in &self.tasks {
            let told = fold.task_status(*id);
            check(told == Some(task.status), || {
                format!("task {id} is {:?}, and taken for {told:?}", task.status)
            })?;
            let held = matches!(task.status, TaskStatus::InProgress | TaskStatus::InReview);
            check(held || task.owner.is_none(), || {
                format!("task {id} is {:?} and resources", task.status)
            })?;
            check(
                task.owner.is_some() || task.status != TaskStatus::InProgress,
                || format!("task {id} is in progress without an owner"),
            )?;
            let Some(owner) = &task.owner else { continue };
            check(owners.insert(owner), || {
                format!("{owner} holds task {id} and another one")
            })?;
            let runs = fold
                .members
                .get(owner)
                .is_some_and(|state| !state.record.phase.is_ended());
            check(runs, || {
                format!("task {id} is held by {owner}, which has ended")
            })?;
        }
        Ok(())
    }

    fn changed(&mut self, record: &TaskRecord, fold: &Team) -> Checked {
        let id = record.task.id;
        let task = &record.task;
        let Some(before) = self.tasks.get(&id).cloned() else {
            return self.created(record);
        };
        let leads_to = record.event.leads_to(before.status);
        let fits = leads_to == Some(task.status)
            || (record.event == TaskEvent::Returned && task.status == TaskStatus::Pending);
        check(fits, || {
            format!(
                "{:?} leads task {id} from {:?}",
                record.event, before.status
            )
        })?;
        let sets = (&before.check, before.no_check, before.max_attempts)
            != (&task.check, task.no_check, task.max_attempts);
        check(!sets || [USER, LEAD].contains(&record.by.as_str()), || {
            format!("{} says how task {id} is checked", record.by)
        })?;
        let review = before.review_id().and_then(|id| fold.requests.get(id));
        let is_approved = review.is_some_and(|review| review.status == Status::Approved);
        let counts = |task: &Task| task.submission.as_ref().is_some_and(|it| it.approved);
        let by_nobody = counts(task) && !counts(&before) && !is_approved;
        // What a person submits is approved by that.
        check(!by_nobody || task.branch.is_some(), || {
            format!("task {id} counts as approved, and is not")
        })?;
        if record.event == TaskEvent::Failed && before.order.is_none() {
            self.triggers += 1;
        }
        match record.event {
            TaskEvent::Created => Err(format!("task {id} is made twice")),
            TaskEvent::Claimed => self.claimed(record, &before, fold),
            TaskEvent::Submitted => {
                let number = |task: &Task| task.submission.as_ref().map_or(0, |it| it.number);
                check(number(task) == number(&before) + 1, || {
                    format!("a submission of task {id} is skipped")
                })
            }
            TaskEvent::Completed => {
                let submission = self.judges(record, &before)?;
                let result = task
                    .result
                    .as_ref()
                    .ok_or_else(|| format!("task {id} has no result"))?;
                let passed = self.passed.contains(&(id, submission.number));
                let right = match result.verified {
                    Verified::No => result.check.is_none() && submission.checks.is_empty(),
                    _ => passed,
                };
                check(right && result.submission == submission.number, || {
                    format!("task {id} is completed by {result:?}, and passed: {passed}")
                })?;
                let approved = is_approved || submission.approved;
                check(approved || before.review.is_none(), || {
                    format!("task {id} is completed unreviewed")
                })
            }
            TaskEvent::Returned if before.review_id().is_some() => {
                self.judges(record, &before)?;
                let status = review.map(|review| review.status);
                check(
                    status == Some(Status::Rejected) && task.attempts == before.attempts,
                    || format!("task {id} is returned, and its review is {status:?}"),
                )
            }
            TaskEvent::Returned => self.attempt_failed(record, &before),
            TaskEvent::Failed if before.status == TaskStatus::InReview => {
                self.attempt_failed(record, &before)
            }
            TaskEvent::Retried => Ok(()),
            event => check(task.attempts == before.attempts, || {
                format!("{event:?} of task {id} counts as a failed check")
            }),
        }
    }

    fn created(&mut self, record: &TaskRecord) -> Checked {
        let id = record.task.id;
        let task = &record.task;
        let next = self.tasks.last_key_value().map_or(1, |(last, _)| last + 1);
        check(record.event == TaskEvent::Created && id == next, || {
            format!(
                "task {id} begins with {:?}, and {next} is the next",
                record.event
            )
        })?;
        if let Some(of) = task.order.as_ref().filter(|of| !of.follows) {
            return self.ordered(record, of);
        }
        let is_chosen = task.check.is_some() || task.no_check || task.reserved_for.is_some();
        check(
            !is_chosen || [USER, LEAD].contains(&record.by.as_str()),
            || format!("{} chooses how task {id} is checked", record.by),
        )?;
        let command = record
            .command_id
            .clone()
            .ok_or_else(|| format!("no command made task {id}"))?;
        let made = self.made.entry(command.clone()).or_default();
        *made += 1;
        let most = self.to_make.get(&command).copied().unwrap_or_default();
        check(*made <= most, || {
            format!("the command {command} made {made} tasks instead of {most}")
        })
    }

    /// Takes in a task of an order: what was due is made once, and only what triggers it.
    fn ordered(&mut self, record: &TaskRecord, of: &OfOrder) -> Checked {
        let id = record.task.id;
        let is_own = record.by == TEAMD && record.task.created_by == TEAM_TOML;
        check(is_own && record.command_id.is_none(), || {
            format!("task {id} of an order is made by {}", record.by)
        })?;
        match of.name.as_str() {
            "mend" => {
                self.triggered += 1;
                check(self.triggered <= self.triggers, || {
                    format!("task {id} is made because of nothing")
                })
            }
            "raise" => Ok(()),
            _ => {
                let once = self.of_orders.insert((of.name.clone(), of.due.to_bits()));
                check(once, || {
                    format!("task {id} is what {} made before", of.name)
                })
            }
        }
    }

    fn claimed(&self, record: &TaskRecord, before: &Task, fold: &Team) -> Checked {
        let id = record.task.id;
        let task = &record.task;
        let owner = task
            .owner
            .as_ref()
            .ok_or_else(|| format!("task {id} is claimed by no member"))?;
        let member = fold.members.get(owner).map(|state| &state.record);
        let member = member.ok_or_else(|| format!("{owner} claims task {id}, and is no member"))?;
        let own = record.by == owner.as_str() || (record.by == TEAMD && member.terms.auto);
        let may = own && before.is_for(member) && !before.waits_for_person();
        check(may, || format!("{owner} may not claim task {id}"))?;
        check(!task.plan || member.gate == Gate::Closed, || {
            format!("{owner} claims task {id}, and its gate stays open")
        })?;
        check(
            task.blocked_by.iter().all(|other| {
                self.tasks
                    .get(other)
                    .is_some_and(|it| it.status == TaskStatus::Completed)
            }),
            || format!("task {id} is claimed before what it waits for"),
        )
    }

    fn attempt_failed(&mut self, record: &TaskRecord, before: &Task) -> Checked {
        let id = record.task.id;
        let number = self.judges(record, before)?.number;
        let failed = self.failed.contains(&(id, number));
        check(
            failed && record.task.attempts == before.attempts + 1,
            || {
                format!(
                    "attempt {} of task {id} counts, and its check failed: {failed}",
                    record.task.attempts
                )
            },
        )
    }

    /// Takes in that a submission is judged, which it is once.
    fn judges(&mut self, record: &TaskRecord, before: &Task) -> Result<Submission, String> {
        let id = record.task.id;
        let submission = before
            .submission
            .clone()
            .ok_or_else(|| format!("task {id} was not submitted"))?;
        let once = self.judged.insert((id, submission.number));
        check(once, || {
            format!(
                "submission {} of task {id} is judged twice",
                submission.number
            )
        })?;
        Ok(submission)
    }
}
