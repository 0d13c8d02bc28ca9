//! A task as a person reads it: its status in colour, and everything about it.

use std::collections::BTreeSet;

use anstyle::{AnsiColor, Style};
use teamd_shared::journal::Team;
use teamd_shared::member::ApproveBy;
use teamd_shared::name::Name;
use teamd_shared::task::{MAX_IDLE_RELEASES, Task, TaskId, TaskStatus};

use crate::print::render::{BAD, BOLD, DIM, count, facts};
use crate::print::style::paint;
use crate::print::{clock, escape};

/// Describes what a pending task waits for: `3, 5 (failed)`.
pub fn blockers(team: &Team, task: &Task) -> String {
    if task.status != TaskStatus::Pending {
        return String::new();
    }
    let reasons = team
        .blockers(task)
        .into_iter()
        .map(|(id, status)| match status {
            TaskStatus::Failed | TaskStatus::Cancelled => format!("{id} ({})", status.as_str()),
            _ => id.to_string(),
        });
    reasons.collect::<Vec<_>>().join(", ")
}

/// Describes how a completed task was verified.
pub fn verified(task: &Task) -> &'static str {
    match (&task.result, task.status) {
        (Some(result), TaskStatus::Completed) => result.verified(),
        _ => "",
    }
}

/// Returns the style of a status.
pub fn style(status: TaskStatus) -> Style {
    match status {
        TaskStatus::Completed => AnsiColor::Green.on_default(),
        TaskStatus::Failed => BAD,
        TaskStatus::Cancelled => DIM,
        TaskStatus::InProgress | TaskStatus::InReview => AnsiColor::Cyan.on_default(),
        TaskStatus::Pending => Style::new(),
    }
}

/// Returns the status of a task in words. `sender` is the host from which its work is on its way.
pub fn status(task: &Task, sender: Option<&Name>) -> String {
    let sending = if sender.is_some() { " (sending)" } else { "" };
    format!("{}{sending}", task.status.as_str())
}

/// Describes everything about a task; `sender` as for [`status`].
pub fn details(team: &Team, task: &Task, sender: Option<&Name>) -> String {
    let status = paint(style(task.status), status(task, sender));
    let heading = format!(
        "{}  {}  {status}",
        paint(BOLD, task.id),
        escape::line(&task.subject)
    );
    facts(heading, &fields(team, task, sender))
}

/// Returns everything about a task beside its subject and status, each part with its label; a part
/// that it has not is empty. `sender` as for [`status`].
pub fn fields(team: &Team, task: &Task, sender: Option<&Name>) -> Vec<(&'static str, String)> {
    let of_team = if task.no_check {
        None
    } else {
        team.work.check()
    };
    let checks: Vec<String> = of_team
        .into_iter()
        .chain(task.check.clone())
        .map(|check| format!("{} (set by {})", check.command, check.set_by))
        .collect();
    let check = task
        .result
        .as_ref()
        .and_then(|result| result.check.as_ref())
        .map(|check| {
            let exit = check
                .exit
                .map_or("was ended".to_owned(), |exit| format!("exited with {exit}"));
            format!(
                "`{}` {exit} after {}",
                check.check.command,
                clock::span(check.seconds)
            )
        });
    vec![
        ("source", task.source.clone().unwrap_or_default()),
        ("description", task.description.clone()),
        (
            "owner",
            task.owner
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
        ),
        ("for", task.reserved_for.clone().unwrap_or_default()),
        ("order", order(task)),
        ("blocked by", blockers(team, task)),
        ("blocks", ids(&task.blocks)),
        ("check", checks.join("\n")),
        ("review", review(team, task)),
        (
            "failed checks",
            format!("{} of {}", task.attempts, task.max_attempts),
        ),
        ("sending", sender.map(sending).unwrap_or_default()),
        ("submitted", submitted(task)),
        ("last check", check.clone().unwrap_or_default()),
        ("given back", given_back(task)),
        ("stalled", task.held_up().clone().unwrap_or_default()),
        ("sent back", sent_back(task)),
        ("verified", verified(task).to_owned()),
        (
            "protected files",
            task.result
                .as_ref()
                .and_then(|result| result.touched_protected.clone())
                .unwrap_or_default(),
        ),
        (
            "created",
            format!(
                "{}, by {}",
                clock::time_of_day(task.created_at),
                task.created_by
            ),
        ),
    ]
}

/// Describes the order that made it, or from which it follows.
fn order(task: &Task) -> String {
    let Some(of) = &task.order else {
        return String::new();
    };
    let due = clock::time_of_day(of.due);
    if of.follows {
        format!("it follows from {}, due {due}", of.name)
    } else {
        format!("{}, due {due}", of.name)
    }
}

fn sending(host: &Name) -> String {
    format!("its commits are on their way from {host}; then it is submitted")
}

/// Describes who has submitted what. A branch of the user is no teammate's work, and has no
/// summary.
fn submitted(task: &Task) -> String {
    let Some(submission) = &task.submission else {
        return String::new();
    };
    match &task.branch {
        Some(of) if submission.commit.as_ref() == Some(&of.commit) => {
            format!(
                "by you: {} at {}",
                of.name,
                of.commit.get(..12).unwrap_or(&of.commit)
            )
        }
        _ => format!("by {}: {}", submission.by, submission.summary)
            .trim_end_matches(": ")
            .to_owned(),
    }
}

/// Describes how often it was sent back without a failed check, and why the last time.
fn sent_back(task: &Task) -> String {
    let why = task.returned.clone().unwrap_or_default();
    match task.returns {
        0 => why,
        times => format!("{}: {why}", count(times as usize, "time"))
            .trim_end_matches(": ")
            .to_owned(),
    }
}

/// Describes how often in a row its owner has not worked on it.
fn given_back(task: &Task) -> String {
    match task.idle_releases {
        0 => String::new(),
        times => format!(
            "{times} of {MAX_IDLE_RELEASES} times in a row by an owner that went idle or died"
        ),
    }
}

/// Describes who must approve the work, and what it waits for:
/// `by a person, a1b2c3d4 waits for the answer`.
fn review(team: &Team, task: &Task) -> String {
    let waits = task.review_id().and_then(|id| team.requests.get(id));
    let by = waits
        .map(|request| team.judge_of(request))
        .or(task.review)
        .map(|by| match by {
            ApproveBy::Person => "by a person".to_owned(),
            ApproveBy::Lead => "by the lead".to_owned(),
        });
    let waits = waits.map(|request| format!("{} waits for the answer", request.request_id));
    by.into_iter().chain(waits).collect::<Vec<_>>().join(", ")
}

fn ids(ids: &BTreeSet<TaskId>) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    ids.join(", ")
}
