//! What could not be done in a row: branches that were not begun, and checks that were not run.

use teamd_shared::control::{Command, TaskOrder};
use teamd_shared::job::JobReport;
use teamd_shared::journal::Team;
use teamd_shared::task::TaskId;

use super::Runtime;
use crate::core::caller::Actor;
use crate::core::job::Then;

/// The branches that could not be begun for a member.
#[derive(Debug, Default)]
pub(crate) struct BranchRefusals {
    /// How many there were in a row.
    pub(crate) in_a_row: u32,
    /// Whether the member has not worked since the last one: it is offered nothing before that.
    pub(crate) is_current: bool,
    /// Why the last one could not be begun.
    pub(crate) reason: String,
}

impl BranchRefusals {
    /// Records whether a branch could be begun: none, or why not.
    fn record(&mut self, refused: Option<&str>) {
        let Some(reason) = refused else {
            *self = Self::default();
            return;
        };
        self.in_a_row += 1;
        self.is_current = true;
        reason.clone_into(&mut self.reason);
    }
}

impl Runtime {
    /// Records that a job has ended, after what follows from it is journaled. A report that could
    /// not be journaled is decided again, and so counts once.
    pub(crate) fn job_ended(&mut self, team: &Team, job: u64, ended: &Result<JobReport, String>) {
        let Some(then) = self.jobs.end(job) else {
            return;
        };
        let refused = match ended {
            Ok(JobReport::Refused(refusal)) => Some(refusal.message.as_str()),
            Ok(_) => None,
            Err(why) => Some(why.as_str()),
        };
        match then {
            Then::Check { task, .. } | Then::Integrate { task, .. } => {
                self.check_ended(task, refused.is_none());
            }
            Then::Offer { incarnation, .. } => {
                // Where the link to its host broke it was not refused: it could not be tried.
                let member = team.members.get(&incarnation.name);
                let away = member.and_then(|state| self.unreachable_since(&state.record));
                if away.is_some() && refused.is_some() {
                    return;
                }
                if let Some(worker) = self.of_mut(&incarnation) {
                    worker.refusals.record(refused);
                }
            }
            Then::Command(suspended) if changes_tasks(&suspended.by, &suspended.command) => {
                self.forget_refusals();
            }
            _ => {}
        }
    }

    pub(super) fn forget_refusals(&mut self) {
        for worker in self.members.values_mut() {
            worker.refusals.is_current = false;
            worker.refusals.in_a_row = 0;
        }
    }

    fn check_ended(&mut self, task: TaskId, was_run: bool) {
        if was_run {
            self.fruitless_checks.remove(&task);
        } else {
            *self.fruitless_checks.entry(task).or_default() += 1;
        }
    }

    /// Returns how often in a row the check of a task, or its integration, could not be run.
    pub(crate) fn fruitless_checks(&self, task: TaskId) -> u32 {
        self.fruitless_checks
            .get(&task)
            .copied()
            .unwrap_or_default()
    }
}

/// Tells whether a person or the lead changes tasks: that may change why a branch could not be
/// begun.
pub(super) fn changes_tasks(by: &Actor, command: &Command) -> bool {
    match command {
        Command::Task(TaskOrder::List(_)) => false,
        Command::Task(_) => !by.is_teammate(),
        _ => false,
    }
}
