//! The table of tasks, pure: the status of a task after an event, and its record then.
//!
//! ```text
//!            claim                submit               check passed
//! pending ──────────▶ in_progress ──────▶ in_review ───────────────▶ completed
//!    ▲      release        ▲                 │  check failed, review rejected
//!    ├─────────────────────┤                 ├────────▶ in_progress, or failed at the limit
//!    │       retry         └─────────────────┘
//!    └────────────────── failed, cancelled
//! ```
//!
//! The daemon alone decides: a teammate claims and submits, and the check of a person or of the
//! lead decides whether the work is done.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fingerprint::Baseline;
use crate::id::RequestId;
use crate::json;
use crate::member::{ApproveBy, Member};
use crate::merged::Merged;
use crate::name::Name;
use crate::order::OfOrder;

mod fields;

pub use crate::id::TaskId;
pub use fields::TaskFields;

/// How many checks of a task may fail by default.
pub const MAX_ATTEMPTS: u32 = 3;

/// How often the owner of a task is reminded that it is idle and has not submitted. Then the task
/// is released.
pub const MAX_REMINDERS: u32 = 2;

/// How often in a row a task may be given back by owners that went idle or died. Then it waits for
/// a person or the lead.
pub const MAX_IDLE_RELEASES: u32 = 3;

/// How often the work on a task is sent back before the lead is notified, and again after each
/// further such number.
pub const MAX_RETURNS: u32 = 10;

/// How many tasks that a member has made may be open: pending, in progress or in review.
pub const MAX_OPEN: usize = 200;

/// How many tasks a teammate is shown in a list.
pub const MOST_LISTED: usize = 100;

/// The status of a task.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum TaskStatus {
    /// It waits for a teammate.
    Pending,
    /// A teammate has claimed it.
    InProgress,
    /// It is submitted; its [`Stage`] says what it waits for.
    InReview,
    /// Its check has passed, or it has none.
    Completed,
    /// Its checks failed too often.
    Failed,
    /// It is no longer wanted.
    Cancelled,
}

impl TaskStatus {
    /// Returns the status as it is written.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Tells whether nothing is left to be done.
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// What happens to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskEvent {
    /// It is made.
    Created,
    /// A teammate owns it.
    Claimed,
    /// Its owner says that it is done.
    Submitted,
    /// Its owner gives it back, is gone, or has let it lie.
    Released,
    /// A person or the lead gives it to a teammate.
    Assigned,
    /// It is no longer wanted.
    Cancelled,
    /// What is to be done, or how it is checked, has changed.
    Edited,
    /// It is to be tried once more.
    Retried,
    /// Its owner, which is idle, was reminded of it.
    Reminded,
    /// Its check could not run, and is tried again; or it could not be given to a teammate.
    Stalled,
    /// Its check has passed, and a review is asked for.
    Checked,
    /// The user's branch is to be integrated.
    Synced,
    /// It waits for its turn to be integrated.
    Queued,
    /// It is being integrated: the branch moves, or has moved.
    Integrating,
    /// Its check has passed, and it is approved where that was asked for.
    Completed,
    /// Its check has failed, or it was not approved: the owner continues.
    Returned,
    /// Its check has failed too often.
    Failed,
}

impl TaskEvent {
    /// Returns the status of a task after this event: every cell of (event × status). None: the two
    /// do not fit.
    pub const fn leads_to(self, status: TaskStatus) -> Option<TaskStatus> {
        use TaskStatus::{Cancelled, Completed, Failed, InProgress, InReview, Pending};
        match (self, status) {
            (Self::Claimed, Pending) | (Self::Reminded | Self::Edited, InProgress) => {
                Some(InProgress)
            }
            (Self::Submitted, InProgress)
            | (Self::Synced, Pending)
            | (Self::Stalled | Self::Checked | Self::Queued | Self::Integrating, InReview) => {
                Some(InReview)
            }
            (Self::Released, InProgress | InReview)
            | (Self::Assigned, Pending | InProgress)
            | (Self::Created | Self::Edited | Self::Stalled, Pending)
            | (Self::Retried, Failed | Cancelled) => Some(Pending),
            (Self::Cancelled, Pending | InProgress | InReview) | (Self::Edited, Cancelled) => {
                Some(Cancelled)
            }
            (Self::Completed, InReview) => Some(Completed),
            (Self::Returned, InReview) => Some(InProgress),
            (Self::Failed, InReview | InProgress) | (Self::Edited, Failed) => Some(Failed),
            _ => None,
        }
    }
}

/// A command that decides whether work is done: it exits with 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// The command, for `bash -c`.
    pub command: String,
    /// Who chose it: `user`, `lead` or `team.toml`.
    pub set_by: String,
}

/// What the owner of a task has submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Submission {
    /// 1, 2, 3 … for the task.
    pub number: u32,
    /// The teammate that did the work.
    pub by: Name,
    /// Its own summary of the work.
    pub summary: String,
    /// The commands that run, in this order, until one fails.
    pub checks: Vec<Check>,
    /// The commit that was submitted, of a teammate with a checkout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// What was checked: the commit, merged with the integration branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged: Option<Merged>,
    /// Whether its check has failed because the kernel killed a process for lack of memory, and has
    /// not passed since. The first time that does not count as an attempt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub starved: bool,
    /// Whether it is approved; a new merge does not change that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approved: bool,
    /// What it waits for.
    #[serde(flatten)]
    pub stage: Stage,
}

/// A branch of the user, as it was when it was to be integrated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserBranch {
    /// Its name.
    pub name: String,
    /// Its commit.
    pub commit: String,
    /// The name under which the user sees the integrated work: `team/integration`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
}

/// What submitted work waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum Stage {
    /// Its check.
    Checking,
    /// The answer to this request.
    Reviewing {
        /// The review.
        request_id: RequestId,
    },
    /// Its turn to be integrated.
    Queued,
    /// The integration branch, which is moved to the merge.
    Integrating,
}

/// How a task was completed, or what failed last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskResult {
    /// Of which submission.
    pub submission: u32,
    /// What the teammate said about its work.
    pub summary: String,
    /// The last command that ran.
    pub check: Option<CheckResult>,
    /// How far the result is known to be right.
    pub verified: Verified,
    /// Which protected file was changed since a person or the lead last set the work, or why that
    /// is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub touched_protected: Option<String>,
    /// The commit that was submitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The commit of the integration branch that brought it in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged: Option<String>,
}

/// How a check ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckResult {
    /// The command.
    #[serde(flatten)]
    pub check: Check,
    /// Its exit code; none if a signal or the time limit ended it.
    pub exit: Option<i32>,
    /// How long all commands took.
    pub seconds: f64,
    /// Its output, below the team directory.
    pub log: String,
    /// The host on which it ran; left out for home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Name>,
}

/// How far a result is known to be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Verified {
    /// The check passed on the merged result, where no other process writes.
    #[serde(rename = "checked")]
    Checked,
    /// The check passed in the workspace, where others can write meanwhile.
    #[serde(rename = "in place")]
    InPlace,
    /// Nothing was checked, or the check failed.
    #[serde(rename = "no")]
    No,
}

impl TaskResult {
    /// Returns how far the work is known to be right, for people.
    pub fn verified(&self) -> &'static str {
        match (self.verified, self.touched_protected.is_some()) {
            (Verified::Checked, false) => "checked",
            (Verified::Checked, true) => "checked, touched protected",
            (Verified::InPlace, false) => "in place",
            (Verified::InPlace, true) => "in place, touched protected",
            (Verified::No, _) => "no",
        }
    }
}

/// A task as it is recorded in the journal and in `tasks/ID.json`.
///
/// **Who writes** `tasks/ID.json`: the daemon alone, by rename, after the journal has the line.
/// **Who reads**: the commands, people and their programs. **When the daemon dies** before the file
/// is written, the next one writes it at its start; the journal is the truth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    /// Its number.
    pub id: TaskId,
    /// What is to be done, in one line.
    pub subject: String,
    /// What is to be done, in full (Markdown).
    pub description: String,
    /// Its status.
    pub status: TaskStatus,
    /// The teammate that holds the claim.
    pub owner: Option<Name>,
    /// The tasks that must be completed before.
    pub blocked_by: BTreeSet<TaskId>,
    /// The tasks that wait for this one.
    pub blocks: BTreeSet<TaskId>,
    /// The name or role of the only teammates that may claim it.
    #[serde(rename = "for")]
    pub reserved_for: Option<String>,
    /// Higher first, then the lower id.
    pub priority: i32,
    /// Its own check, in addition to that of the team.
    pub check: Option<Check>,
    /// Whether no check runs, not even the team's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_check: bool,
    /// Who must approve the work after the check; none: approval is needed only if a protected file
    /// was changed.
    pub review: Option<ApproveBy>,
    /// Whether a claim closes the gate, until a plan is approved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plan: bool,
    /// How many checks failed.
    pub attempts: u32,
    /// How many may fail.
    pub max_attempts: u32,
    /// How often the work was sent back without a failed check: it conflicts, or was not approved.
    pub returns: u32,
    /// How often the owner was reminded since its claim.
    pub reminders: u32,
    /// How often in a row its owner went idle without submitting, or died, and has lost it: at the
    /// third it waits for a person or the lead.
    pub idle_releases: u32,
    /// What the protected files were when a person or the lead made, edited or retried it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protected: Option<Baseline>,
    /// The names under which the team repository keeps the work of earlier owners, for the present
    /// one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
    /// The last submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submission: Option<Submission>,
    /// Why its check could not run so far, or why it could not be given to a teammate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalled: Option<String>,
    /// Why the last submission was sent back, if not for a failed check: it conflicts, or was not
    /// approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returned: Option<String>,
    /// The branch of the user that it is to integrate, if it was made for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<UserBranch>,
    /// The order that made it, or from a task of which it follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<OfOrder>,
    /// Where its text is from, such as `gh:owner/repo#12`, if a person imported it. Strangers have
    /// written it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// How the last check ended.
    pub result: Option<TaskResult>,
    /// Who made it: `user`, the name of a member, or `team.toml` for an order.
    pub created_by: String,
    /// Seconds since 1970.
    pub created_at: f64,
    /// Seconds since 1970.
    pub updated_at: f64,
}

json::record!(Task);

impl Task {
    /// Returns the task after an event, of which only the status is taken over; none if the two do
    /// not fit.
    pub fn after(&self, event: TaskEvent, at: f64) -> Option<Self> {
        let mut next = Self {
            status: event.leads_to(self.status)?,
            updated_at: at,
            ..self.clone()
        };
        // The owner of submitted work may be gone when its check fails.
        if next.status == TaskStatus::InProgress
            && event == TaskEvent::Returned
            && self.owner.is_none()
        {
            next.status = TaskStatus::Pending;
        }
        if !matches!(next.status, TaskStatus::InProgress | TaskStatus::InReview) {
            next.owner = None;
        }
        if matches!(
            event,
            TaskEvent::Submitted | TaskEvent::Synced | TaskEvent::Retried
        ) {
            next.returned = None;
        }
        if event == TaskEvent::Retried {
            next.attempts = 0;
            next.returns = 0;
            next.result = None;
        }
        // Its owner has done something, or a person or the lead has looked at it.
        if matches!(
            event,
            TaskEvent::Submitted | TaskEvent::Assigned | TaskEvent::Edited | TaskEvent::Retried
        ) {
            next.idle_releases = 0;
        }
        Some(next)
    }

    /// Returns the task as its new owner begins with it.
    #[must_use]
    pub fn held_by(self, owner: &Name) -> Self {
        Self {
            owner: Some(owner.clone()),
            reminders: 0,
            stalled: None,
            ..self
        }
    }

    /// Returns why it makes no progress, if something went wrong.
    pub fn held_up(&self) -> Option<String> {
        if self.waits_for_person() {
            let id = self.id;
            let times = self.idle_releases;
            return Some(format!(
                "{times} owners in a row went idle or died without submitting it; `teamctl task assign {id} NAME` or `task edit {id}` lets it continue"
            ));
        }
        let why = self.stalled.as_ref()?;
        match self.status {
            TaskStatus::Pending => Some(why.clone()),
            TaskStatus::InReview => Some(format!("its check could not run: {why}")),
            _ => None,
        }
    }

    /// Tells whether no teammate gets or may claim it before a person or the lead has assigned or
    /// edited it.
    pub fn waits_for_person(&self) -> bool {
        self.status == TaskStatus::Pending && self.idle_releases >= MAX_IDLE_RELEASES
    }

    /// Returns the task after its owner went idle without submitting, or died. That does not count
    /// as a failed check.
    #[must_use]
    pub fn let_lie(self) -> Self {
        Self {
            idle_releases: self.idle_releases + 1,
            reminders: 0,
            ..self
        }
    }

    /// Returns the task when its owner has ended for good: submitted work continues without it.
    pub fn without_owner(&self, at: f64) -> Self {
        let released = if self.status == TaskStatus::InProgress {
            self.after(TaskEvent::Released, at)
        } else {
            None
        };
        released.unwrap_or_else(|| Self {
            owner: None,
            updated_at: at,
            ..self.clone()
        })
    }

    /// Tells whether its check runs, or is to run.
    pub fn is_checked(&self) -> bool {
        let submission = if self.status == TaskStatus::InReview {
            self.submission.as_ref()
        } else {
            None
        };
        submission.is_some_and(|submission| submission.stage == Stage::Checking)
    }

    /// Returns the author of work that is being checked in the workspace itself, and not as a
    /// commit in a clone of its own.
    pub fn checked_in_place(&self) -> Option<&Name> {
        if !self.is_checked() {
            return None;
        }
        let submission = self.submission.as_ref()?;
        submission.commit.is_none().then_some(&submission.by)
    }

    /// Returns the review that the present submission waits for.
    pub fn review_id(&self) -> Option<&RequestId> {
        if self.status != TaskStatus::InReview {
            return None;
        }
        match &self.submission.as_ref()?.stage {
            Stage::Reviewing { request_id } => Some(request_id),
            Stage::Checking | Stage::Queued | Stage::Integrating => None,
        }
    }

    /// Tells whether it is for a member: for all, for its name, or for its role.
    pub fn is_for(&self, member: &Member) -> bool {
        self.reserved_for
            .as_ref()
            .is_none_or(|who| who == member.name.as_str() || *who == member.terms.role)
    }

    /// Returns the text that its owner gets with its title.
    pub fn assignment(&self) -> String {
        let kept = self.kept.last().map(|kept| {
            format!("Earlier work on it is kept as {kept}: see it with `git log -p {kept}`, or continue from it with `git merge {kept}`.")
        });
        [self.description.clone(), kept.unwrap_or_default()]
            .join("\n\n")
            .trim()
            .to_owned()
    }

    /// Returns the task in a few words: `task 3 (subject)`.
    pub fn title(&self) -> String {
        format!("task {} ({})", self.id, self.subject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of `docs/work.md`: `-` is a conflict.
    #[test]
    fn every_event_leads_from_every_status_where_the_table_says() {
        use TaskEvent as E;
        use TaskStatus as S;
        let statuses = [
            S::Pending,
            S::InProgress,
            S::InReview,
            S::Completed,
            S::Failed,
            S::Cancelled,
        ];
        for (event, table) in [
            (E::Created, "pending - - - - -"),
            (E::Claimed, "in_progress - - - - -"),
            (E::Submitted, "- in_review - - - -"),
            (E::Released, "- pending pending - - -"),
            (E::Assigned, "pending pending - - - -"),
            (E::Cancelled, "cancelled cancelled cancelled - - -"),
            (E::Edited, "pending in_progress - - failed cancelled"),
            (E::Retried, "- - - - pending pending"),
            (E::Reminded, "- in_progress - - - -"),
            (E::Stalled, "pending - in_review - - -"),
            (E::Synced, "in_review - - - - -"),
            (E::Queued, "- - in_review - - -"),
            (E::Integrating, "- - in_review - - -"),
            (E::Checked, "- - in_review - - -"),
            (E::Completed, "- - completed - - -"),
            (E::Returned, "- - in_progress - - -"),
            (E::Failed, "- failed failed - - -"),
        ] {
            let found: Vec<&str> = statuses
                .iter()
                .map(|&status| event.leads_to(status).map_or("-", TaskStatus::as_str))
                .collect();
            assert_eq!(found.join(" "), table, "{event:?}");
        }
    }

    /// Who reviews: of what the task asks for (rows) and what a changed protected file needs
    /// (columns).
    #[test]
    fn an_owner_is_kept_with_its_work_and_nowhere_else() {
        let owner = || Some(Name::new("bob").unwrap());
        let fields = TaskFields {
            subject: Some("x".to_owned()),
            ..TaskFields::default()
        };
        let task = |status| Task {
            status,
            owner: owner(),
            ..fields.create(1, "user", 0.0).unwrap()
        };
        let submitted = task(TaskStatus::InProgress)
            .after(TaskEvent::Submitted, 1.0)
            .unwrap();
        assert_eq!(
            (submitted.status, &submitted.owner),
            (TaskStatus::InReview, &owner())
        );
        let returned = submitted.after(TaskEvent::Returned, 2.0).unwrap();
        assert_eq!(
            (returned.status, returned.owner),
            (TaskStatus::InProgress, owner())
        );
        // Submitted work continues without the teammate; work that was only begun is given back.
        let orphan = submitted.without_owner(3.0);
        assert_eq!(
            (orphan.status, &orphan.owner),
            (TaskStatus::InReview, &None)
        );
        assert_eq!(
            orphan.after(TaskEvent::Returned, 4.0).unwrap().status,
            TaskStatus::Pending
        );
        assert_eq!(
            task(TaskStatus::InProgress).without_owner(3.0).status,
            TaskStatus::Pending
        );
        let failed = Task {
            attempts: 3,
            ..task(TaskStatus::Failed)
        };
        assert_eq!(failed.after(TaskEvent::Retried, 5.0).unwrap().attempts, 0);
        let mut lost = task(TaskStatus::InProgress);
        for times in 1..=MAX_IDLE_RELEASES {
            let held = Task {
                status: TaskStatus::InProgress,
                ..lost
            };
            lost = held.let_lie().after(TaskEvent::Released, 5.0).unwrap();
            assert_eq!(
                (lost.waits_for_person(), lost.attempts),
                (times == MAX_IDLE_RELEASES, 0)
            );
        }
        assert!(
            lost.held_up()
                .unwrap()
                .starts_with("3 owners in a row went idle or died")
        );
        for event in [TaskEvent::Assigned, TaskEvent::Edited] {
            assert!(
                !lost.after(event, 5.0).unwrap().waits_for_person(),
                "{event:?}"
            );
        }
        for event in [
            TaskEvent::Completed,
            TaskEvent::Failed,
            TaskEvent::Released,
            TaskEvent::Cancelled,
        ] {
            assert_eq!(
                submitted.after(event, 6.0).unwrap().owner,
                None,
                "{event:?}"
            );
        }
    }
}
