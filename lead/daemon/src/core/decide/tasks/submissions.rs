//! Submitted work: its check, its review, and what follows from those.

use teamd_shared::check::CheckReport;
use teamd_shared::control::{Refusal, RefusalCode};
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::job::JobReport;
use teamd_shared::journal::{Notice, RequestEvent};
use teamd_shared::member::ApproveBy;
use teamd_shared::name::Name;
use teamd_shared::request::{Payload, Request, Review, Status};
use teamd_shared::task::{
    Check, CheckResult, Stage, Submission, Task, TaskEvent, TaskId, TaskResult, TaskStatus,
    Verified,
};

use super::claims::is_theirs;
use super::does_not_fit;
use crate::core::caller::Actor;
use crate::core::decide::jobs::unexpected_report;
use crate::core::decide::{Decision, DecisionView};
use crate::core::event::Action;

/// The longest summary of work, in bytes: the message that asks for a review contains it.
const MAX_SUMMARY: usize = 50_000;

impl DecisionView<'_> {
    pub(super) fn submit(
        &self,
        by: &Actor,
        id: TaskId,
        summary: &str,
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        let (task, owner) = self.submittable(by, id, summary)?;
        let mut next = self.stepped(task, TaskEvent::Submitted)?;
        let number = task.submission.as_ref().map_or(0, |before| before.number) + 1;
        let checks = if task.no_check {
            Vec::new()
        } else {
            self.team
                .work
                .check()
                .into_iter()
                .chain(task.check.clone())
                .collect()
        };
        let commit = match (self.prepared, self.checkout_of(owner)) {
            (_, None) => None,
            (Some(JobReport::Kept { commit, .. }), Some(_)) => Some(commit.clone()),
            (_, Some(_)) => return Err(unexpected_report()),
        };
        let summary = summary.trim().to_owned();
        next.submission = Some(Submission {
            number,
            by: owner.clone(),
            summary,
            checks,
            commit,
            merged: None,
            approved: false,
            starved: false,
            stage: Stage::Checking,
        });
        let follows = self.next_step(&next, ids);
        let record = self.recorded(TaskEvent::Submitted, (next, by.as_str()), ids);
        Ok(Decision::default().task(record).and(follows))
    }

    /// Returns whose work on which task is submitted, if that may be.
    pub(super) fn submittable(
        &self,
        by: &Actor,
        id: TaskId,
        summary: &str,
    ) -> Result<(&Task, &Name), Refusal> {
        let task = self.known_task(id)?;
        is_theirs(by, task)?;
        self.stepped(task, TaskEvent::Submitted)?;
        let owner = task
            .owner
            .as_ref()
            .ok_or_else(|| does_not_fit(task, TaskEvent::Submitted))?;
        if summary.len() > MAX_SUMMARY {
            let message = format!(
                "the summary has {} bytes, the limit is {MAX_SUMMARY}",
                summary.len()
            );
            return Err(Refusal::new(RefusalCode::Usage, message).hint("shorten it"));
        }
        Ok((task, owner))
    }

    /// Decides what a submitted task needs next. A daemon that begins decides this again, whatever
    /// the one before has done.
    pub(super) fn next_step(&self, task: &Task, ids: &mut dyn Ids) -> Decision {
        let Some(submission) = &task.submission else {
            return Decision::default();
        };
        match &submission.stage {
            Stage::Checking
                if submission.commit.is_none()
                    && submission.checks.is_empty()
                    && self.team.work.protect.is_empty() =>
            {
                self.passed(task, result_of(submission), ids)
            }
            Stage::Checking => Decision::default().act(Action::Check(task.id)),
            Stage::Reviewing { request_id } => match self.team.requests.get(request_id) {
                Some(review) => self.reviewed(task, review, ids),
                None => self.ask_for_review(task, request_id, ids),
            },
            Stage::Queued => self.integrate_next(),
            Stage::Integrating => self.integrate(task),
        }
    }

    /// Continues with a task in review: after a start of the daemon, or when a check could not run.
    pub(in crate::core::decide) fn review(&self, id: TaskId, ids: &mut dyn Ids) -> Decision {
        match self
            .team
            .tasks
            .get(&id)
            .filter(|task| task.status == TaskStatus::InReview)
        {
            Some(task) => self.next_step(task, ids),
            None => Decision::default(),
        }
    }

    /// Returns a task whose present submission has this number.
    pub(super) fn submitted_task(&self, id: TaskId, number: u32) -> Option<(&Task, &Submission)> {
        let task = self
            .team
            .tasks
            .get(&id)
            .filter(|task| task.status == TaskStatus::InReview)?;
        Some((
            task,
            task.submission
                .as_ref()
                .filter(|submission| submission.number == number)?,
        ))
    }

    /// Decides what follows from a check. The check of an earlier submission has no effect.
    pub(in crate::core::decide) fn checked(
        &self,
        task: TaskId,
        number: u32,
        ended: &CheckReport,
        ids: &mut dyn Ids,
    ) -> Decision {
        let Some((task, submission)) = self.submitted_task(task, number) else {
            return Decision::default();
        };
        if !ended.conflicts.is_empty() {
            return self
                .conflicting(task, &ended.conflicts, ids)
                .act(Action::Offer);
        }
        let result = TaskResult {
            touched_protected: ended.touched_protected.clone(),
            ..result_of(submission)
        };
        let merged = Submission {
            merged: ended.merged.clone(),
            ..submission.clone()
        };
        let task = &Task {
            submission: Some(merged),
            ..task.clone()
        };
        let Some(check) = submission
            .checks
            .get(ended.command)
            .or(submission.checks.last())
        else {
            return self.passed(task, result, ids).act(Action::Offer);
        };
        let passed = ended.exit == Some(0);
        let verified = if !passed {
            Verified::No
        } else if ended.merged.is_some() {
            Verified::Checked
        } else {
            Verified::InPlace
        };
        let result = TaskResult {
            check: Some(CheckResult {
                check: check.clone(),
                exit: ended.exit,
                seconds: ended.seconds,
                log: format!("log/task-{}.log", task.id),
                host: ended.host.clone(),
            }),
            verified,
            ..result
        };
        if passed {
            return self.passed(task, result, ids).act(Action::Offer);
        }
        if ended.starved && !submission.starved {
            return self.starved(task, ids);
        }
        let attempts = task.attempts + 1;
        let text = failed_check(task, (check, attempts), ended);
        let event = if attempts < task.max_attempts {
            TaskEvent::Returned
        } else {
            TaskEvent::Failed
        };
        let changed = Task {
            attempts,
            reminders: 0,
            stalled: None,
            result: Some(result),
            ..task.clone()
        };
        self.system(&changed, event, Some(text), ids)
            .act(Action::Offer)
    }

    /// Notifies the lead once that a check could not run. That is no attempt: it is tried again.
    pub(in crate::core::decide) fn not_checked(
        &self,
        task: TaskId,
        number: u32,
        why: &str,
        ids: &mut dyn Ids,
    ) -> Decision {
        let Some((task, _)) = self.submitted_task(task, number) else {
            return Decision::default();
        };
        let again = Decision::default().act(Action::CheckAgain(task.id));
        if task.stalled.as_deref() == Some(why) {
            return again;
        }
        let stalled = Task {
            stalled: Some(why.to_owned()),
            ..task.clone()
        };
        self.system(&stalled, TaskEvent::Stalled, Some(why.to_owned()), ids)
            .and(again)
    }

    /// Repeats a check that failed while the kernel killed for memory: another program may have
    /// used the memory.
    fn starved(&self, task: &Task, ids: &mut dyn Ids) -> Decision {
        let why = "it failed while the kernel killed a process for memory; it is run once more, and that one counts";
        let mut stalled = Task {
            stalled: Some(why.to_owned()),
            ..task.clone()
        };
        if let Some(submission) = &mut stalled.submission {
            submission.starved = true;
        }
        let decision = self.system(&stalled, TaskEvent::Stalled, Some(why.to_owned()), ids);
        decision.act(Action::CheckAgain(task.id))
    }

    /// Decides what follows when a task has passed its check. It is reviewed if the task or a
    /// protected file demands that.
    fn passed(&self, task: &Task, result: TaskResult, ids: &mut dyn Ids) -> Decision {
        let reviewer = self.team.work.reviewer(task, &result);
        let mut task = Task {
            result: Some(result),
            stalled: None,
            ..task.clone()
        };
        if let Some(submission) = &mut task.submission {
            // Another merge is checked as any other one: not alone, and once more where it starves.
            submission.starved = false;
        }
        let is_approved = task.submission.as_ref().is_some_and(|it| it.approved);
        let Some(_) = reviewer else {
            return self.accepted(&task, ids);
        };
        let Some(submission) = &mut task.submission else {
            return self.accepted(&task, ids);
        };
        if is_approved {
            return self.accepted(&task, ids);
        }
        let mut request_id = ids.request();
        while self.team.requests.contains_key(&request_id) {
            request_id = ids.request();
        }
        submission.stage = Stage::Reviewing {
            request_id: request_id.clone(),
        };
        let review = self.ask_for_review(&task, &request_id, ids);
        self.system(&task, TaskEvent::Checked, None, ids)
            .and(review)
    }

    fn ask_for_review(&self, task: &Task, request_id: &RequestId, ids: &mut dyn Ids) -> Decision {
        let Some(submission) = &task.submission else {
            return Decision::default();
        };
        let Some(result) = &task.result else {
            return Decision::default();
        };
        let author = self.team.members.get(&submission.by);
        let message_id = ids.message();
        let payload = Payload::Review(Review {
            task: task.id,
            submission: submission.number,
            subject: task.subject.clone(),
            summary: submission.summary.clone(),
            by: self
                .team
                .work
                .reviewer(task, result)
                .unwrap_or(ApproveBy::Person),
            touched_protected: result.touched_protected.clone(),
        });
        let author = (
            &submission.by,
            author.map_or(0, |author| author.record.incarnation),
        );
        let request = self.pending(request_id.clone(), author, payload, message_id);
        let tell = vec![Notice {
            to: Name::lead(),
            id: message_id,
        }];
        Decision::default().request(RequestEvent::Asked, request, tell)
    }

    /// Decides what follows for a task from the answer to its review. An answer about another
    /// submission has no effect.
    pub(in crate::core::decide) fn answered_review(
        &self,
        review: &Request,
        ids: &mut dyn Ids,
    ) -> Decision {
        match self
            .team
            .tasks
            .values()
            .find(|task| task.review_id() == Some(&review.request_id))
        {
            Some(task) => self.reviewed(task, review, ids).act(Action::Offer),
            None => Decision::default(),
        }
    }

    fn reviewed(&self, task: &Task, review: &Request, ids: &mut dyn Ids) -> Decision {
        match review.status {
            Status::Approved => {
                let mut task = task.clone();
                if let Some(submission) = &mut task.submission {
                    submission.approved = true;
                }
                self.accepted(&task, ids)
            }
            Status::Rejected => {
                let feedback = review
                    .reason
                    .as_deref()
                    .filter(|text| !text.trim().is_empty());
                let why = format!(
                    "is not approved: {}",
                    feedback.unwrap_or("no reason was given; ask the lead")
                );
                let text = format!("{} {why}", task.title());
                let returns = task.returns + 1;
                let returned = Task {
                    returns,
                    reminders: 0,
                    returned: Some(why),
                    ..task.clone()
                };
                self.system(&returned, TaskEvent::Returned, Some(text), ids)
            }
            // One that has expired was withdrawn together with its submission.
            Status::Pending | Status::Expired => Decision::default(),
        }
    }
}

/// Returns the result of work that was not examined yet.
fn result_of(submission: &Submission) -> TaskResult {
    TaskResult {
        submission: submission.number,
        summary: submission.summary.clone(),
        check: None,
        verified: Verified::No,
        touched_protected: None,
        commit: submission.commit.clone(),
        merged: None,
    }
}

fn failed_check(task: &Task, (check, attempts): (&Check, u32), ended: &CheckReport) -> String {
    let how = match ended.exit {
        Some(code) => format!("exited with {code}"),
        None => ended.how.clone(),
    };
    let id = task.id;
    let most = task.max_attempts;
    format!(
        "the check of task {id} failed (attempt {attempts} of {most}): `{}` {how}\n{}",
        check.command,
        ended.output.trim_end()
    )
}
