//! Jobs: a checkout is at the branch of the task that its teammate holds, what is submitted is what
//! was kept for that task, and a spawn that was called off does not begin.

use teamd_shared::journal::{MemberRecord, TaskRecord};
use teamd_shared::name::Name;
use teamd_shared::task::{TaskEvent, TaskId};

use super::{Checked, Promises, check};
use crate::core::decide::tests::sim::Checkouts;

impl Promises {
    /// Checks that the branch of a task is not begun in a checkout in which another one is at work.
    pub(in super::super) fn branches(&self, name: &Name, task: TaskId) -> Checked {
        let held = self.fold.held_by(name).map(|held| held.id);
        check(held.is_none_or(|held| held == task), || {
            format!("the branch of task {task} is begun while {name} holds {held:?}")
        })
    }

    /// Checks a change of a task against the checkouts that are there.
    pub(in super::super) fn fits_checkouts(
        &self,
        record: &TaskRecord,
        checkouts: &Checkouts,
    ) -> Checked {
        let task = &record.task;
        let Some(owner) = &task.owner else {
            return Ok(());
        };
        let member = self.fold.members.get(owner).map(|state| &state.record);
        if member.is_none_or(|member| member.terms.checkout.is_none()) {
            return Ok(());
        }
        if record.event == TaskEvent::Claimed {
            let branch = checkouts.get(owner).copied().flatten();
            return check(branch == Some(task.id), || {
                format!(
                    "{owner} gets task {}, and its checkout is at {branch:?}",
                    task.id
                )
            });
        }
        let submission = task.submission.as_ref();
        if record.event == TaskEvent::Submitted
            && let Some(submission) = submission
        {
            let commit = submission.commit.as_ref();
            let kept = commit.and_then(|commit| self.commits.get(commit));
            let right = kept == Some(&(submission.by.clone(), task.id));
            return check(right, || {
                format!(
                    "{commit:?} is submitted for task {}, and was kept for {kept:?}",
                    task.id
                )
            });
        }
        Ok(())
    }

    pub(super) fn was_not_called_off(&self, record: &MemberRecord) -> Checked {
        let name = &record.member.name;
        let asked = record
            .command_id
            .as_ref()
            .and_then(|id| self.asked_at.get(id));
        let called_off = self.called_off.get(name);
        let late = asked
            .zip(called_off)
            .is_some_and(|(asked, off)| asked < off);
        check(!late, || format!("{name} begins, and was called off"))
    }
}
