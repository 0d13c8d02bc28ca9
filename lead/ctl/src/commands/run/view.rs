//! What a run shows at a terminal, below the changes: how far the tasks and the limits are, and
//! what each member does. Pure.

use teamd_client::print::render::{BAD, BOLD, DIM};
use teamd_client::print::style::paint;
use teamd_client::print::table::{Cell, Table, cut};
use teamd_shared::config::Roster;
use teamd_shared::journal::Team;
use teamd_shared::member::MemberStatus;
use teamd_shared::task::TaskStatus;

use super::Scope;

/// The cells of a bar.
const BAR: usize = 20;

/// Returns how far the tasks are.
pub(super) fn tasks(team: &Team, scope: &Scope) -> String {
    let mut left = 0;
    let mut failed = 0;
    let mut cancelled = 0;
    for task in team.tasks.values().filter(|task| scope.has(task.id)) {
        match task.status {
            TaskStatus::Failed => failed += 1,
            TaskStatus::Cancelled => cancelled += 1,
            TaskStatus::Completed => {}
            TaskStatus::Pending | TaskStatus::InProgress | TaskStatus::InReview => left += 1,
        }
    }
    // A snapshot leaves out what was completed before it.
    let all = (1..=team.last_task).filter(|&id| scope.has(id)).count();
    let done = all - left - failed - cancelled;
    let more = if failed > 0 {
        paint(BAD, format_args!(", {failed} failed"))
    } else {
        String::new()
    };
    #[expect(clippy::cast_precision_loss, reason = "a bar has few cells")]
    let share = (all - left) as f64 / all.max(1) as f64;
    bar(
        "tasks",
        Some(share),
        &format!("{done} of {all} completed{more}"),
    )
}

/// Returns how much of something is used, and of which limit, if there is one.
pub(super) fn used(
    label: &str,
    (now, most): (f64, Option<f64>),
    say: impl Fn(f64) -> String,
) -> String {
    let text = most.map_or_else(|| say(now), |most| format!("{} of {}", say(now), say(most)));
    bar(label, most.map(|most| now / most), &text)
}

fn bar(label: &str, share: Option<f64>, text: &str) -> String {
    let Some(share) = share else {
        return format!("{label:<7}{text}");
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to the length of a bar"
    )]
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    format!(
        "{label:<7}{}{} {text}",
        "█".repeat(full),
        paint(DIM, "░".repeat(BAR - full))
    )
}

/// Returns the lines that stay below the changes, for so many columns.
pub(super) fn lines(
    bars: Vec<String>,
    team: &Team,
    roster: &Roster,
    columns: usize,
) -> Vec<String> {
    let mut table = Table::new(&["NAME", "STATUS", "TASK", "DOING"]);
    for member in roster
        .members
        .iter()
        .filter(|member| !member.status.is_ended())
    {
        let task = team
            .held_by(&member.name)
            .map(|task| format!("{}. {}", task.id, task.subject))
            .unwrap_or_default();
        let style = if member.status == MemberStatus::Working {
            BOLD
        } else {
            DIM
        };
        table.row(vec![
            Cell::styled(member.name.as_str(), BOLD),
            Cell::styled(member.status.as_str(), style),
            Cell::new(cut(&task, Some(columns / 3))),
            Cell::new(&member.activity),
        ]);
    }
    let lines = table.cut_lines(columns).into_iter().map(|(line, _)| line);
    let ends = "Ctrl-C ends the run".to_owned();
    lines.chain(bars).chain([ends]).collect()
}
