//! What a run shows at a terminal, below the changes: how far the tasks and the limits are, and what each member does. Pure.

use teamd_shared::config::Roster;
use teamd_shared::journal::Team;
use teamd_shared::member::MemberStatus;
use teamd_shared::task::TaskStatus;

use super::progress::Scope;
use crate::ctl::output::{Dock, paint};
use crate::ctl::render::{BAD, BOLD, DIM};
use crate::ctl::table::{Cell, Table};

/// The cells of a bar.
const BAR: usize = 20;

/// How much of something is used up or done.
pub(super) struct Gauge {
    pub(super) label: &'static str,
    /// From 0 to 1; none where there is no limit.
    pub(super) share: Option<f64>,
    pub(super) text: String,
}

impl Gauge {
    fn line(&self) -> String {
        let Some(share) = self.share else { return format!("{:<7}{}", self.label, self.text) };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the length of a bar"
        )]
        let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
        format!("{:<7}{}{} {}", self.label, "█".repeat(full), paint(DIM, "░".repeat(BAR - full)), self.text)
    }
}

/// Returns how far the tasks are.
pub(super) fn tasks(team: &Team, scope: &Scope) -> Gauge {
    let known = team.tasks.values().filter(|task| scope.has(task.id));
    let count = |wanted: &[TaskStatus]| known.clone().filter(|task| wanted.contains(&task.status)).count();
    let left = count(&[TaskStatus::Pending, TaskStatus::InProgress, TaskStatus::InReview]);
    let failed = count(&[TaskStatus::Failed]);
    // A snapshot leaves out what was completed before it.
    let all = (1..=team.last_task).filter(|&id| scope.has(id)).count();
    let done = all - left - failed - count(&[TaskStatus::Cancelled]);
    let mut text = format!("{done} of {all} completed");
    if failed > 0 {
        text += &format!(", {}", paint(BAD, format_args!("{failed} failed")));
    }
    #[expect(clippy::cast_precision_loss, reason = "there are few tasks")]
    let share = (all - left) as f64 / all.max(1) as f64;
    Gauge { label: "tasks", share: Some(share), text }
}

/// Lays out what stays below the changes, for so many columns.
pub(super) fn dock(gauges: &[Gauge], team: &Team, roster: &Roster, columns: usize) -> Dock {
    let mut table = Table::new(&["NAME", "STATUS", "TASK", "DOING"]);
    for member in roster.members.iter().filter(|member| !member.status.is_ended()) {
        let task = team
            .held_by(&member.name)
            .map(|task| format!("{}. {}", task.id, task.subject))
            .unwrap_or_default();
        let style = if member.status == MemberStatus::Working { BOLD } else { DIM };
        table.row(vec![
            Cell::styled(member.name.as_str(), BOLD),
            Cell::styled(member.status.as_str(), style),
            Cell::new(crate::ctl::table::cut(&task, Some(columns / 3))),
            Cell::new(&member.activity),
        ]);
    }
    let lines = table.cut_lines(columns).into_iter().map(|(line, _)| line);
    let above = lines.chain(gauges.iter().map(Gauge::line)).collect();
    Dock { above, prompt: "Ctrl-C ends the run".to_owned(), ..Dock::default() }
}
