//! What the calls of the tools for tasks answer.

use crate::config::Roster;
use crate::control::TaskOrder;
use crate::task::{MOST_LISTED, Task, TaskId, TaskStatus};
use crate::team_dir::TeamDir;

/// How much of a diff a model is shown, in bytes.
const MAX_DIFF: usize = 60_000;

/// Cuts a long diff at the end of a line.
pub fn cut(diff: String) -> String {
    if diff.len() <= MAX_DIFF {
        return diff;
    }
    let end = diff.as_bytes()[..MAX_DIFF]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .unwrap_or_default();
    let left = diff.len() - end;
    format!(
        "{}\n[cut: {left} more bytes; read the files themselves]",
        &diff[..end]
    )
}

/// Describes new tasks.
pub fn describe_created(order: &TaskOrder, ids: &[TaskId]) -> String {
    let TaskOrder::Add { tasks, .. } = order else {
        return String::new();
    };
    let subjects = tasks
        .iter()
        .map(|task| task.subject.as_deref().unwrap_or_default());
    ids.iter()
        .zip(subjects)
        .map(|(id, subject)| format!("task {id} ({subject}) is created"))
        .collect()
}

/// Describes the tasks as they are after an order. Where they are only looked at, the roster says
/// whose work is on its way.
pub fn describe_tasks(order: &TaskOrder, tasks: &[Task], dir: &TeamDir) -> String {
    let Some(task) = tasks.last() else {
        return "there are no tasks to do".to_owned();
    };
    let title = task.title();
    match order {
        TaskOrder::List(None) => list(tasks, roster(dir).as_ref()),
        TaskOrder::Claim(_) => format!("{title} is yours\n\n{}", task.assignment())
            .trim_end()
            .to_owned(),
        TaskOrder::Submit(..) if task.status == TaskStatus::Completed => {
            format!("{title} is completed; it has no check")
        }
        TaskOrder::Submit(..) => {
            format!("{title} is submitted: its check decides. You get a message if it fails.")
        }
        TaskOrder::List(Some(_)) => describe(task, roster(dir).as_ref()),
        _ => format!("{title} is {}", task.status.as_str().replace('_', " ")),
    }
}

/// Returns the roster; none if it cannot be read, which hides no task.
fn roster(dir: &TeamDir) -> Option<Roster> {
    Roster::load(dir).ok().flatten()
}

fn list(tasks: &[Task], roster: Option<&Roster>) -> String {
    let mut lines: Vec<String> = tasks.iter().map(|task| line(task, roster)).collect();
    if tasks.len() >= MOST_LISTED {
        lines.push(format!("(the first {MOST_LISTED}; there may be more)"));
    }
    lines.join("\n")
}

/// Returns a task in one line.
fn line(task: &Task, roster: Option<&Roster>) -> String {
    let mut state = task.status.as_str().to_owned();
    if roster.is_some_and(|roster| roster.sender_of(task).is_some()) {
        state.push_str(", sending");
    }
    if let Some(owner) = &task.owner {
        state.push_str(&format!(" ({owner})"));
    }
    if !task.blocked_by.is_empty() {
        state.push_str(", after");
        for id in &task.blocked_by {
            state.push_str(&format!(" #{id}"));
        }
    }
    if let Some(member) = &task.reserved_for {
        state.push_str(&format!(", for {member}"));
    }
    format!("{}. {} [{state}]", task.id, task.subject)
}

fn describe(task: &Task, roster: Option<&Roster>) -> String {
    let mut lines = vec![line(task, roster), task.description.clone()];
    if let Some(check) = &task.check {
        lines.push(format!("check: {}", check.command));
    }
    let result = task.result.as_ref();
    if let Some(check) = result.and_then(|result| result.check.as_ref()) {
        let exit = match check.exit {
            Some(exit) => format!("exited with {exit}"),
            None => "was ended".to_owned(),
        };
        lines.push(format!(
            "last check: {exit} (attempt {} of {})",
            task.attempts, task.max_attempts
        ));
    }
    if let Some(id) = task.review_id() {
        lines.push(format!("its review {id} waits for an answer"));
    }
    lines.retain(|line| !line.trim().is_empty());
    lines.join("\n")
}
