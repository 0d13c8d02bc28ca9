//! Submitted work: its check, and what follows from that.

use teamd_shared::check::CheckReport;
use teamd_shared::control::Refusal;
use teamd_shared::id::Ids;
use teamd_shared::job::GitReport;
use teamd_shared::task::{
    Check, CheckResult, Submission, Task, TaskEvent, TaskId, TaskResult, TaskStatus, Verified,
};

use super::claims::is_theirs;
use super::does_not_fit;
use crate::daemon::core::decide::{Decision, View, conflict};
use crate::daemon::core::event::{Action, Actor};

impl View<'_> {
    pub(super) fn submit(
        &self,
        by: &Actor,
        id: TaskId,
        summary: &str,
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        let task = self.known_task(id)?;
        is_theirs(by, task)?;
        let mut next = self.stepped(task, TaskEvent::Submitted)?;
        let owner = task.owner.clone().ok_or_else(|| does_not_fit(task, TaskEvent::Submitted))?;
        let number = task.submission.as_ref().map_or(0, |before| before.number) + 1;
        let checks = match task.no_check {
            true => Vec::new(),
            false => self.team.work.check().into_iter().chain(task.check.clone()).collect(),
        };
        let commit = match (self.prepared, self.known(&owner).ok().and_then(|it| it.terms.checkout.as_ref()))
        {
            (Some(GitReport::Kept { commit, .. }), _) => Some(commit.clone()),
            (_, None) => None,
            (_, Some(_)) => {
                return Err(conflict("the checkout of its owner was not looked at", "submit it again"));
            }
        };
        let summary = summary.trim().to_owned();
        next.submission = Some(Submission { number, by: owner, summary, checks, commit });
        let follows = self.next_step(&next, ids);
        let record = self.recorded(TaskEvent::Submitted, (next, by.as_str()), ids);
        Ok(Decision::default().task(record).and(follows))
    }

    /// Tells what a submitted task needs next: its check, or nothing more.
    fn next_step(&self, task: &Task, ids: &mut dyn Ids) -> Decision {
        let Some(submission) = &task.submission else { return Decision::default() };
        if !submission.checks.is_empty() {
            return Decision::default().act(Action::Check(task.id));
        }
        let result = TaskResult {
            submission: submission.number,
            summary: submission.summary.clone(),
            check: None,
            verified: Verified::No,
            touched_protected: false,
        };
        self.passed(task, result, ids)
    }

    /// Goes on with a task in review: after a start of the daemon, or when a check could not run.
    pub(in crate::daemon::core::decide) fn review(&self, id: TaskId, ids: &mut dyn Ids) -> Decision {
        match self.team.tasks.get(&id).filter(|task| task.status == TaskStatus::InReview) {
            Some(task) => self.next_step(task, ids),
            None => Decision::default(),
        }
    }

    /// Returns a task whose present submission has this number.
    fn submitted_task(&self, (id, number): (TaskId, u32)) -> Option<(&Task, &Submission)> {
        let task = self.team.tasks.get(&id).filter(|task| task.status == TaskStatus::InReview)?;
        Some((task, task.submission.as_ref().filter(|it| it.number == number)?))
    }

    /// Takes in how a check has ended. One that is not of the present submission says nothing.
    pub(in crate::daemon::core::decide) fn checked(
        &self,
        of: (TaskId, u32),
        ended: &CheckReport,
        ids: &mut dyn Ids,
    ) -> Decision {
        let Some((task, submission)) = self.submitted_task(of) else { return Decision::default() };
        let Some(check) = submission.checks.get(ended.command).or(submission.checks.last()) else {
            return Decision::default();
        };
        let passed = ended.exit == Some(0);
        let result = TaskResult {
            submission: submission.number,
            summary: submission.summary.clone(),
            check: Some(CheckResult {
                check: check.clone(),
                exit: ended.exit,
                seconds: ended.seconds,
                log: format!("log/task-{}.log", task.id),
            }),
            verified: if passed { Verified::InPlace } else { Verified::No },
            touched_protected: ended.touched_protected,
        };
        if passed {
            return self.passed(task, result, ids).act(Action::Offer);
        }
        let attempts = task.attempts + 1;
        let text = failed_check(task, (check, attempts), ended);
        let event = if attempts < task.max_attempts { TaskEvent::Returned } else { TaskEvent::Failed };
        let changed = Task { attempts, reminders: 0, result: Some(result), ..task.clone() };
        self.system(&changed, event, Some(text), ids).act(Action::Offer)
    }

    /// Tells the lead once that a check could not run. That is no attempt: it is tried again.
    pub(in crate::daemon::core::decide) fn not_checked(
        &self,
        of: (TaskId, u32),
        why: &str,
        ids: &mut dyn Ids,
    ) -> Decision {
        let Some((task, _)) = self.submitted_task(of) else { return Decision::default() };
        let again = Decision::default().act(Action::CheckAgain(task.id));
        if task.stalled.as_deref() == Some(why) {
            return again;
        }
        let stalled = Task { stalled: Some(why.to_owned()), ..task.clone() };
        self.system(&stalled, TaskEvent::Checked, Some(why.to_owned()), ids).and(again)
    }

    fn passed(&self, task: &Task, result: TaskResult, ids: &mut dyn Ids) -> Decision {
        self.system(&Task { result: Some(result), ..task.clone() }, TaskEvent::Completed, None, ids)
    }
}

fn failed_check(task: &Task, (check, attempts): (&Check, u32), ended: &CheckReport) -> String {
    let how = match ended.exit {
        Some(code) => format!("exited with {code}"),
        None => ended.how.clone(),
    };
    let (id, most) = (task.id, task.max_attempts);
    format!(
        "the check of task {id} failed (attempt {attempts} of {most}): `{}` {how}\n{}",
        check.command,
        ended.output.trim_end()
    )
}
