//! The lists that every view has: the requests that are pending, and the tasks as a board. Pure.

use teamd_client::print::grouping::Group;
use teamd_client::print::render::count;
use teamd_shared::journal::Team;
use teamd_shared::name::Name;
use teamd_shared::request::{Answerer, Request};
use teamd_shared::task::{Task, TaskId, TaskStatus, Verified};

use super::past::Past;

/// The titles of the columns of a board.
pub(crate) const COLUMNS: [&str; 4] = ["PENDING", "IN PROGRESS", "IN REVIEW", "ENDED"];

/// Tells whether a text has the filter in it, in whatever case.
pub(crate) fn matches(filter: &str, texts: &[&str]) -> bool {
    filter.is_empty()
        || texts
            .iter()
            .any(|text| text.to_lowercase().contains(&filter.to_lowercase()))
}

/// Returns the requests that are pending, oldest first.
pub(crate) fn pending<'t>(team: &'t Team, filter: &str) -> Vec<&'t Request> {
    let mut pending: Vec<&Request> = team
        .requests
        .values()
        .filter(|it| it.is_pending() && matches(filter, &[&it.from, &it.to, it.kind.as_str()]))
        .collect();
    // What a person can answer comes before what only its teammate can.
    pending.sort_by(|a, b| a.created_at.total_cmp(&b.created_at));
    pending.sort_by_key(|request| request.kind.rules().answered_by != Answerer::Lead);
    pending
}

/// Returns the tasks in the columns of the board.
pub(crate) fn by_status(team: &Team, past: &Past, filter: &str) -> [Vec<TaskId>; 4] {
    let mut columns: [Vec<&Task>; 4] = Default::default();
    for task in past.tasks.values().map(|past| &past.task).filter(|task| {
        let owner = task.owner.as_ref().map(Name::as_str).unwrap_or_default();
        matches(filter, &[&task.id.to_string(), &task.subject, owner])
    }) {
        let column = match task.status {
            TaskStatus::Pending => 0,
            TaskStatus::InProgress => 1,
            TaskStatus::InReview => 2,
            TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled => 3,
        };
        columns[column].push(task);
    }
    // The next task to be assigned comes first, and the one that ended last.
    columns[0].sort_by_key(|task| {
        (
            !team.blockers(task).is_empty(),
            std::cmp::Reverse(task.priority),
            task.id,
        )
    });
    columns[3].sort_by(|a, b| b.updated_at.total_cmp(&a.updated_at));
    columns.map(|tasks| tasks.into_iter().map(|task| task.id).collect())
}

/// Returns how many of all tasks are completed, once there is a task.
pub(crate) fn tasks_done(team: &Team) -> Option<String> {
    // A snapshot leaves out what was completed before it.
    let others = team
        .tasks
        .values()
        .filter(|task| task.status != TaskStatus::Completed)
        .count();
    let all = usize::try_from(team.last_task).unwrap_or(usize::MAX);
    (all > 0).then(|| format!("{} of {all} tasks done", all.saturating_sub(others)))
}

/// Returns how many tasks have failed: each waits for a person to try it again or to cancel it.
pub(crate) fn tasks_failed(team: &Team) -> usize {
    let tasks = team.tasks.values();
    tasks
        .filter(|task| task.status == TaskStatus::Failed)
        .count()
}

/// Describes the status of a task, and returns the group of members that it resembles. `sender` is
/// the host from which its work is on its way.
pub(crate) fn standing(task: &Task, blocked_by: &str, sender: Option<&Name>) -> (String, Group) {
    let owner = task
        .owner
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    let attempts = match task.attempts {
        0 => String::new(),
        attempts => format!(" · attempt {} of {}", attempts + 1, task.max_attempts),
    };
    match task.status {
        TaskStatus::Pending if !blocked_by.is_empty() => {
            (format!("blocked by {blocked_by}"), Group::Ended)
        }
        TaskStatus::Pending if task.held_up().is_some() => {
            (task.held_up().unwrap_or_default(), Group::Stuck)
        }
        TaskStatus::Pending => {
            let whom = task.reserved_for.as_ref().map(|whom| format!("for {whom}"));
            (
                whom.unwrap_or_else(|| "unclaimed".to_owned()) + &attempts,
                Group::Ended,
            )
        }
        TaskStatus::InProgress => {
            let sending = sender.map(|host| format!(" · sending its work from {host}"));
            let sending = sending.unwrap_or_default();
            (owner + &attempts + &sending, Group::Working)
        }
        TaskStatus::InReview => match task.held_up() {
            Some(why) => (format!("{owner} · {why}"), Group::Stuck),
            None if task.review_id().is_some() => {
                (format!("{owner} · waits for its review"), Group::NeedsYou)
            }
            None => (format!("{owner} · checking"), Group::Working),
        },
        TaskStatus::Completed => {
            let result = task.result.as_ref();
            let is_checked = result
                .is_some_and(|it| it.verified != Verified::No && it.touched_protected.is_none());
            let verified = result.map_or("no", |result| result.verified());
            (
                format!("✓ verified: {verified}"),
                if is_checked {
                    Group::Idle
                } else {
                    Group::Ended
                },
            )
        }
        TaskStatus::Failed => (
            format!(
                "✕ failed after {}",
                count(task.attempts as usize, "attempt")
            ),
            Group::Stuck,
        ),
        TaskStatus::Cancelled => ("cancelled".to_owned(), Group::Ended),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use teamd_shared::journal::reader::fold;

    #[test]
    fn the_tasks_that_are_done_are_counted_also_those_that_a_snapshot_has_left_out() {
        let task = |seq: u64, id: u64, status: &str| {
            let line = json!({"seq": seq, "at": 1.0, "version": 1, "done": 0, "record": "task", "event": "created",
                "by": "user", "id": id, "subject": "x", "description": "", "status": status, "owner": null,
                "blocked_by": [], "blocks": [], "for": null, "priority": 0, "check": null, "attempts": 0, "returns": 0, "reminders": 0, "idle_releases": 0,
                "max_attempts": 3, "result": null, "created_by": "user", "created_at": 1.0, "updated_at": 1.0});
            format!("{line}\n")
        };
        let done = |lines: &str| tasks_done(&fold(lines.as_bytes(), |_, _| {}).unwrap());
        assert_eq!(done(""), None);
        let lines = [
            task(1, 2, "completed"),
            task(2, 3, "failed"),
            task(3, 4, "pending"),
        ]
        .concat();
        assert_eq!(done(&lines).as_deref(), Some("2 of 4 tasks done"));
        let team = fold(lines.as_bytes(), |_, _| {}).unwrap();
        assert_eq!(tasks_failed(&team), 1);
    }

    #[test]
    fn work_that_is_on_its_way_from_a_host_is_said_to_be_beside_its_owner() {
        let task = json!({"id": 1, "subject": "x", "description": "", "status": "in_progress", "owner": "alice",
            "blocked_by": [], "blocks": [], "for": null, "priority": 0, "check": null, "review": null, "attempts": 0,
            "returns": 0, "reminders": 0, "idle_releases": 0, "max_attempts": 3, "result": null,
            "created_by": "user", "created_at": 1.0, "updated_at": 1.0});
        let task: Task = serde_json::from_value(task).unwrap();
        let host = Name::new("box").unwrap();
        let (how, group) = standing(&task, "", Some(&host));
        assert_eq!(how, "alice · sending its work from box");
        assert_eq!(group, Group::Working);
        assert_eq!(standing(&task, "", None).0, "alice");
    }
}
