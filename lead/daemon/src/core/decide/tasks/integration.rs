//! Integration: work that is checked and approved is merged one after the other, and never what was
//! not checked as it is then.

use teamd_shared::control::{Command, Done, IntegrationOrder, Refusal, RefusalCode};
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::job::{GitStep, JobReport};
use teamd_shared::journal::TaskRecord;
use teamd_shared::merged::Landed;
use teamd_shared::message::{TEAMD, USER};
use teamd_shared::name::Name;
use teamd_shared::task::{
    Stage, Submission, Task, TaskEvent, TaskFields, TaskId, TaskStatus, UserBranch,
};

use crate::core::caller::{Actor, ReplyTo};
use crate::core::decide::jobs::{begin_job, unexpected_report};
use crate::core::decide::{Decision, DecisionView, conflict};
use crate::core::event::Action;
use crate::core::job::Then;

impl DecisionView<'_> {
    /// Continues with work that is checked and approved: in place it is completed, and otherwise it
    /// is integrated in its turn.
    pub(super) fn accepted(&self, task: &Task, ids: &mut dyn Ids) -> Decision {
        if task
            .submission
            .as_ref()
            .is_none_or(|it| it.commit.is_none())
        {
            return self.system(task, TaskEvent::Completed, None, ids);
        }
        if self.is_checked_at_home_next(task) {
            let again = self.system(&at(task, Stage::Checking), TaskEvent::Queued, None, ids);
            return again.act(Action::Check(task.id));
        }
        let is_free = !self.team.tasks.values().any(is_integrating);
        let (stage, event) = if is_free {
            (Stage::Integrating, TaskEvent::Integrating)
        } else {
            (Stage::Queued, TaskEvent::Queued)
        };
        let decision = self.system(&at(task, stage), event, None, ids);
        if is_free {
            decision.and(self.integrate(task))
        } else {
            decision
        }
    }

    /// Has the integration branch moved to the merged work of a task.
    pub(super) fn integrate(&self, task: &Task) -> Decision {
        let Some(submission) = &task.submission else {
            return Decision::default();
        };
        let Some(merged) = &submission.merged else {
            return Decision::default();
        };
        let step = GitStep::Integrate {
            task: task.id,
            merged: merged.clone(),
            cache: self.team.work.cache.clone(),
        };
        let number = submission.number;
        self.in_repository(
            step,
            Then::Integrate {
                task: task.id,
                number,
            },
        )
    }

    /// Decides what a person wants of the integration branch.
    pub(in crate::core::decide) fn integration(
        &self,
        client: ReplyTo,
        order: &IntegrationOrder,
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        match (order, self.prepared) {
            (_, None) => self.work_on_integration(client, order),
            (
                IntegrationOrder::Sync { id, .. },
                Some(JobReport::Synced {
                    branch,
                    commit,
                    shown,
                }),
            ) => self.synced(client, (id, (branch, shown), commit.as_deref()), ids),
            (IntegrationOrder::Land { .. }, Some(JobReport::Landed(landed))) => {
                Ok(self.landed(client, landed, ids))
            }
            (
                IntegrationOrder::DiffOf(_) | IntegrationOrder::DiffOfTask(_),
                Some(JobReport::Text(text)),
            ) => {
                let text = Done::Text(text.clone());
                Ok(Decision::default().act(Action::Reply(client, Ok(text))))
            }
            (_, Some(_)) => Err(unexpected_report()),
        }
    }

    fn work_on_integration(
        &self,
        client: ReplyTo,
        order: &IntegrationOrder,
    ) -> Result<Decision, Refusal> {
        let command = Command::Integration(order.clone());
        let then = self.then(client, &Actor::Person, command);
        match order {
            IntegrationOrder::Sync { into, .. } => {
                let into = into.clone();
                Ok(self.in_repository(GitStep::Sync { into }, then))
            }
            IntegrationOrder::Land {
                into,
                environment,
                visible,
            } => Ok(self.land(into.clone(), environment.clone(), visible, then)),
            IntegrationOrder::DiffOfTask(id) => {
                let submission = self
                    .team
                    .tasks
                    .get(id)
                    .and_then(|it| it.submission.as_ref());
                let commit = submission.and_then(|it| it.commit.clone());
                if commit.is_none() {
                    let message = format!("task {id} has no commit");
                    return Err(Refusal::new(RefusalCode::NotFound, message)
                        .hint("a teammate with a checkout submits commits; `teamctl diff NAME` shows what it has so far"));
                }
                let root = String::new();
                Ok(self.in_repository(GitStep::Diff { commit, root }, then))
            }
            IntegrationOrder::DiffOf(name) => {
                let Some(checkout) = self.checkout_of(name) else {
                    let message = format!("{name} has no checkout");
                    return Err(Refusal::new(RefusalCode::NotFound, message)
                        .hint("`teamctl spawn NAME --checkout` gives a teammate one"));
                };
                let root = checkout.root.clone();
                let step = GitStep::Diff { commit: None, root };
                Ok(begin_job(self.git(name, None, step), then))
            }
        }
    }

    /// Begins with the next one that waits, unless one is being integrated.
    pub(in crate::core::decide) fn integrate_next(&self) -> Decision {
        let tasks = self.team.tasks.values();
        let next = tasks
            .clone()
            .filter(|task| stage(task) == Some(&Stage::Queued))
            .min_by(|one, other| one.updated_at.total_cmp(&other.updated_at));
        let mut tasks = tasks;
        if tasks.any(is_integrating) {
            return Decision::default();
        }
        let Some(next) = next else {
            return Decision::default();
        };
        let next = at(next, Stage::Integrating);
        match next.after(TaskEvent::Integrating, self.now.wall) {
            Some(next) => {
                let integrate = self.integrate(&next);
                let record = TaskRecord::of(TaskEvent::Integrating, next, TEAMD);
                Decision::default().task(record).and(integrate)
            }
            None => Decision::default(),
        }
    }

    /// Decides what follows when the integration branch contains what was merged, or does not. If
    /// it has moved since that was checked, it is merged and checked again: that is the same
    /// attempt.
    pub(in crate::core::decide) fn integrated(
        &self,
        task: TaskId,
        number: u32,
        is_integrated: bool,
        ids: &mut dyn Ids,
    ) -> Decision {
        let Some((task, submission)) = self
            .submitted_task(task, number)
            .filter(|(task, _)| is_integrating(task))
        else {
            return Decision::default();
        };
        let next = Decision::default()
            .act(Action::IntegrateNext)
            .act(Action::Offer);
        if !is_integrated {
            let again = self.system(&at(task, Stage::Checking), TaskEvent::Queued, None, ids);
            return again.act(Action::Check(task.id)).and(next);
        }
        let mut task = task.clone();
        let merged = submission.merged.as_ref().map(|it| it.commit.clone());
        if let Some(result) = &mut task.result {
            result.merged.clone_from(&merged);
        }
        let others = task
            .branch
            .as_ref()
            .map(|branch| self.superseded(&branch.name, task.id, ids));
        let completed = self.system(&task, TaskEvent::Completed, None, ids);
        completed.and(others.unwrap_or_default()).and(next)
    }

    /// Returns work that conflicts with what was integrated since.
    pub(super) fn conflicting(&self, task: &Task, files: &[String], ids: &mut dyn Ids) -> Decision {
        let why = format!("conflicts with what is integrated, in {}", files.join(", "));
        let text = format!(
            "{} {why}. Merge that into your work, and submit again: `git fetch origin && git merge origin/integration`",
            task.title()
        );
        let returns = task.returns + 1;
        let returned = Task {
            returns,
            reminders: 0,
            returned: Some(why),
            ..task.clone()
        };
        self.system(&returned, TaskEvent::Returned, Some(text), ids)
    }

    /// Submits the user's branch as it is. One task does that as long as it is open; if it
    /// conflicts, a teammate can claim it.
    fn synced(
        &self,
        client: ReplyTo,
        (command, (branch, shown), commit): (&RequestId, (&str, &str), Option<&str>),
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        // What is integrated needs no task any more: numbers begin with 1.
        let Some(commit) = commit else {
            return Ok(self
                .superseded(branch, 0, ids)
                .and(with_tasks(client, Vec::new())));
        };
        if let Some(task) = self.under_way(branch, commit) {
            return Ok(with_tasks(client, vec![task.clone()]));
        }
        if let Some(id) = self.team.made_by(command).first() {
            return Ok(with_tasks(
                client,
                self.team.tasks.get(id).cloned().into_iter().collect(),
            ));
        }
        let fields = fields_of(branch, commit);
        let before = self.tried_before(branch, commit);
        let made = match &before {
            Some(task) => fields.change(task, USER),
            None => fields.create(self.team.last_task + 1, USER, self.now.wall),
        };
        let made = made.map_err(|why| conflict(why, "give the branch a shorter name"))?;
        let created = TaskRecord {
            command_id: Some(command.clone()),
            ..TaskRecord::of(TaskEvent::Created, made.clone(), USER)
        };
        let begun = match &before {
            Some(task) if task.status == TaskStatus::Failed => {
                let record = made.after(TaskEvent::Retried, self.now.wall);
                record.map(|task| TaskRecord::of(TaskEvent::Retried, task, USER))
            }
            Some(_) => None,
            None => Some(created),
        };
        let begin = begun.as_ref().map_or(&made, |record| &record.task);
        let Some(mut task) = begin.after(TaskEvent::Synced, self.now.wall) else {
            return Ok(with_tasks(client, Vec::new()));
        };
        task.branch = Some(UserBranch {
            name: branch.to_owned(),
            commit: commit.to_owned(),
            shown: Some(shown.to_owned()),
        });
        task.submission = Some(Submission {
            number: task.submission.as_ref().map_or(0, |before| before.number) + 1,
            by: Name::lead(),
            summary: String::new(),
            checks: self.team.work.check().into_iter().collect(),
            commit: Some(commit.to_owned()),
            merged: None,
            approved: true,
            starved: false,
            stage: Stage::Checking,
        });
        let id = task.id;
        let made = vec![task.clone()];
        let record = TaskRecord::of(TaskEvent::Synced, task, USER);
        let decision = begun.into_iter().fold(Decision::default(), Decision::task);
        Ok(decision
            .task(record)
            .act(Action::Check(id))
            .and(with_tasks(client, made)))
    }

    /// Returns the task that integrates this commit of a branch just now, or that a teammate works
    /// on for it.
    fn under_way(&self, branch: &str, commit: &str) -> Option<&Task> {
        self.team.tasks.values().find(|task| {
            let is_of_it = task
                .branch
                .as_ref()
                .is_some_and(|of| of.name == branch && of.commit == commit);
            let is_submitted = task
                .submission
                .as_ref()
                .is_some_and(|it| it.commit.as_deref() == Some(commit));
            match task.status {
                TaskStatus::InReview => is_of_it || is_submitted,
                TaskStatus::InProgress => is_of_it,
                _ => false,
            }
        })
    }

    /// Returns the task that could not integrate a branch: it is used again.
    fn tried_before(&self, branch: &str, commit: &str) -> Option<&Task> {
        self.team.tasks.values().rev().find(|task| {
            let of = task.branch.as_ref().filter(|of| of.name == branch);
            of.is_some_and(|of| match task.status {
                TaskStatus::Pending => true,
                TaskStatus::Failed => of.commit == commit,
                _ => false,
            })
        })
    }

    /// Records the commit of a branch of the user after work was to land on it.
    fn landed(&self, client: ReplyTo, landed: &Landed, ids: &mut dyn Ids) -> Decision {
        let reply =
            Decision::default().act(Action::Reply(client, Ok(Done::Landed(landed.clone()))));
        if landed.has_landed() {
            self.superseded(&landed.branch, 0, ids).and(reply)
        } else {
            reply
        }
    }

    /// Cancels the tasks that were made for a branch of the user which is integrated, but for one.
    fn superseded(&self, branch: &str, but: TaskId, ids: &mut dyn Ids) -> Decision {
        let mut decision = Decision::default();
        for task in self.team.tasks.values().filter(|task| {
            let is_of_it = task.branch.as_ref().is_some_and(|of| of.name == branch);
            is_of_it && task.id != but && !task.status.is_finished() && !is_integrating(task)
        }) {
            let cancelled = self.withdraw((task.id, TaskEvent::Cancelled), &Actor::Person, ids);
            decision = decision.and(cancelled.unwrap_or_default());
        }
        decision
    }
}

/// Says what is to be done with a branch that cannot be integrated as it is.
fn fields_of(branch: &str, commit: &str) -> TaskFields {
    let subject = format!(
        "Integrate {branch} at {}",
        commit.get(..12).unwrap_or(commit)
    );
    let description = format!(
        "The branch {branch} of the user is at {commit}. Merge it: `git fetch origin && git merge {commit}`, resolve the conflicts, and commit."
    );
    TaskFields {
        subject: Some(subject),
        description: Some(description),
        ..TaskFields::default()
    }
}

/// Tells whether the integration branch moves to the work on a task just now.
pub(super) fn is_integrating(task: &Task) -> bool {
    stage(task) == Some(&Stage::Integrating)
}

fn stage(task: &Task) -> Option<&Stage> {
    let in_review = if task.status == TaskStatus::InReview {
        task.submission.as_ref()
    } else {
        None
    };
    in_review.map(|submission| &submission.stage)
}

fn at(task: &Task, stage: Stage) -> Task {
    let submission = task.submission.clone().map(|it| Submission { stage, ..it });
    Task {
        submission,
        ..task.clone()
    }
}

/// Answers a command with these tasks.
fn with_tasks(client: ReplyTo, tasks: Vec<Task>) -> Decision {
    Decision::default().act(Action::Reply(client, Ok(Done::Tasks(tasks))))
}
