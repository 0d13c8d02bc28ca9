//! Integration: work that is checked and approved is merged one after the other, and never what was not checked as it is then.

use teamd_shared::control::{Done, Refusal};
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::journal::TaskRecord;
use teamd_shared::message::{TEAMD, USER};
use teamd_shared::name::Name;
use teamd_shared::task::{Stage, Submission, Task, TaskEvent, TaskFields, TaskId, TaskStatus};

use crate::daemon::core::decide::{Decision, View, conflict};
use crate::daemon::core::event::{Action, ReplyTo};

impl View<'_> {
    /// Goes on with work that is checked and approved: in place it is completed, and else it is integrated in its turn.
    pub(super) fn accepted(&self, task: &Task, ids: &mut dyn Ids) -> Decision {
        if task.submission.as_ref().is_none_or(|it| it.commit.is_none()) {
            return self.system(task, TaskEvent::Completed, None, ids);
        }
        let is_free = !self.team.tasks.values().any(is_integrating);
        let (stage, event) = match is_free {
            true => (Stage::Integrating, TaskEvent::Integrating),
            false => (Stage::Queued, TaskEvent::Queued),
        };
        let decision = self.system(&at(task, stage), event, None, ids);
        if is_free { decision.act(Action::Integrate(task.id)) } else { decision }
    }

    /// Begins with the next one that waits, unless one is being integrated.
    pub(in crate::daemon::core::decide) fn integrate_next(&self) -> Decision {
        let tasks = || self.team.tasks.values();
        let waits = |task: &&Task| stage(task) == Some(&Stage::Queued);
        let next = tasks().filter(waits).min_by(|one, other| one.updated_at.total_cmp(&other.updated_at));
        let Some(next) = next.filter(|_| !tasks().any(is_integrating)) else { return Decision::default() };
        let next = at(next, Stage::Integrating);
        match next.after(TaskEvent::Integrating, self.now.wall) {
            Some(next) => {
                let id = next.id;
                let record = TaskRecord::of(TaskEvent::Integrating, next, TEAMD);
                Decision::default().task(record).act(Action::Integrate(id))
            }
            None => Decision::default(),
        }
    }

    /// Takes in whether the integration branch contains what was merged. If it has moved since that was checked, it is merged
    /// and checked again: that is the same attempt.
    pub(in crate::daemon::core::decide) fn integrated(
        &self,
        of: (TaskId, u32),
        ended: &Result<bool, String>,
        ids: &mut dyn Ids,
    ) -> Decision {
        let Some((task, submission)) = self.submitted_task(of).filter(|(task, _)| is_integrating(task))
        else {
            return Decision::default();
        };
        let next = Decision::default().act(Action::IntegrateNext).act(Action::Offer);
        match ended {
            Ok(true) => {
                let mut task = task.clone();
                let merged = submission.merged.as_ref().map(|it| it.commit.clone());
                task.result.iter_mut().for_each(|result| result.merged.clone_from(&merged));
                self.system(&task, TaskEvent::Completed, None, ids).and(next)
            }
            Ok(false) => {
                let again = self.system(&at(task, Stage::Checking), TaskEvent::Queued, None, ids);
                again.act(Action::Check(task.id)).and(next)
            }
            Err(why) => self.not_checked(of, why, ids),
        }
    }

    /// Sends work back that does not fit what was integrated meanwhile.
    pub(super) fn conflicting(&self, task: &Task, files: &[String], ids: &mut dyn Ids) -> Decision {
        let text = format!(
            "{} conflicts with what is integrated, in {}. Merge that into your work, and submit again: `git fetch origin && git merge origin/integration`",
            task.title(),
            files.join(", ")
        );
        let returned = Task { returns: task.returns + 1, reminders: 0, ..task.clone() };
        self.system(&returned, TaskEvent::Returned, Some(text), ids)
    }

    /// Makes a task of the user's branch, which is submitted as it is. If it conflicts, a teammate can claim it.
    pub(in crate::daemon::core::decide) fn synced(
        &self,
        client: ReplyTo,
        (command, branch, commit): (&RequestId, &str, Option<&str>),
    ) -> Result<Decision, Refusal> {
        let reply = |tasks| Decision::default().act(Action::Reply(client, Ok(Done::Tasks(tasks))));
        let Some(commit) = commit else { return Ok(reply(Vec::new())) };
        let same = |task: &&Task| {
            task.status == TaskStatus::InReview
                && task.submission.as_ref().is_some_and(|it| it.commit.as_deref() == Some(commit))
        };
        if let Some(task) = self.team.tasks.values().find(same) {
            return Ok(reply(vec![task.clone()]));
        }
        if let Some(id) = self.team.made_by(command).first() {
            return Ok(reply(self.team.tasks.get(id).cloned().into_iter().collect()));
        }
        let subject = format!("Integrate {branch} at {}", commit.get(..12).unwrap_or(commit));
        let description = format!(
            "The branch {branch} of the user is at {commit}. Merge it: `git fetch origin && git merge {commit}`, resolve the conflicts, and commit."
        );
        let fields =
            TaskFields { subject: Some(subject), description: Some(description), ..TaskFields::default() };
        let made = fields.create(self.team.last_task + 1, USER, self.now.wall);
        let made = made.map_err(|why| conflict(why, "give the branch a shorter name"))?;
        let created = TaskRecord {
            command_id: Some(command.clone()),
            ..TaskRecord::of(TaskEvent::Created, made.clone(), USER)
        };
        let Some(mut task) = made.after(TaskEvent::Synced, self.now.wall) else {
            return Ok(reply(Vec::new()));
        };
        task.submission = Some(Submission {
            number: 1,
            by: Name::lead(),
            summary: String::new(),
            checks: self.team.work.check().into_iter().collect(),
            commit: Some(commit.to_owned()),
            merged: None,
            approved: true,
            stage: Stage::Checking,
        });
        let (id, told) = (task.id, vec![task.clone()]);
        let record = TaskRecord::of(TaskEvent::Synced, task, USER);
        Ok(Decision::default().task(created).task(record).act(Action::Check(id)).and(reply(told)))
    }
}

/// Tells whether the integration branch moves to the work on a task just now.
pub(super) fn is_integrating(task: &Task) -> bool {
    stage(task) == Some(&Stage::Integrating)
}

fn stage(task: &Task) -> Option<&Stage> {
    let in_review = task.submission.as_ref().filter(|_| task.status == TaskStatus::InReview);
    in_review.map(|submission| &submission.stage)
}

fn at(task: &Task, stage: Stage) -> Task {
    let submission = task.submission.clone().map(|it| Submission { stage, ..it });
    Task { submission, ..task.clone() }
}
