//! The inputs of the tools for tasks, and what each asks for.

use schemars::JsonSchema;
use serde::Deserialize;
use teamd_shared::control::TaskOrder;
use teamd_shared::task::{TaskFields, TaskId};

use super::TeamAction;
use super::input::{count, not_blank};

/// Adds a task to the team's list, for a teammate to claim: work with a clear end that one teammate
/// can do alone.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskCreate {
    /// The task in one line.
    #[serde(deserialize_with = "not_blank")]
    subject: String,
    /// The task in full.
    #[serde(default)]
    description: String,
    /// The numbers of the tasks that must be completed first, separated by commas.
    #[serde(default)]
    blocked_by: String,
    /// Only for the lead: the one teammate or role that may claim it.
    #[serde(default, rename = "for")]
    reserved_for: Option<String>,
    /// Only for the lead: a command that must exit with 0 before the task is completed.
    #[serde(default)]
    check: Option<String>,
}

/// Lists the unfinished tasks.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskList {}

/// Shows a task: what to do, how it is checked, and the result of its last check.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskGet {
    /// Its number.
    task_id: TaskId,
}

/// Claims a task: it is yours until you submit or release it with `task_update`. You can hold one
/// at a time.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimTask {
    /// Its number. Without it, you get the next task that you may claim.
    #[serde(default, deserialize_with = "count")]
    task_id: Option<u64>,
}

/// Changes the status of your task. `completed` submits it: its check decides, and you get a
/// message if that fails. `pending` releases it for other teammates. `cancelled` (only for the
/// lead) removes it from the list.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskUpdate {
    /// Its number.
    task_id: TaskId,
    /// `completed`, `pending` or `cancelled`.
    #[serde(deserialize_with = "not_blank")]
    status: String,
    /// What you have done, in a few lines.
    #[serde(default)]
    summary: String,
}

/// What is done with tasks.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskAction {
    /// Makes one.
    Create(Box<TaskFields>),
    /// Gives an order about those that are there.
    Order(TaskOrder),
    /// Nothing, because of this.
    Refuse(String),
}

impl TaskCreate {
    pub(super) fn action(self) -> TeamAction {
        let Self {
            subject,
            description,
            blocked_by,
            reserved_for,
            check,
        } = self;
        let ids: Result<Vec<TaskId>, _> = blocked_by
            .split([',', ' ', '[', ']'])
            .filter(|id| !id.is_empty())
            .map(str::parse)
            .collect();
        TeamAction::Task(match ids {
            Ok(ids) => TaskAction::Create(Box::new(TaskFields {
                subject: Some(subject),
                description: Some(description),
                blocked_by: Some(ids),
                // A model writes an empty text for what it does not say.
                reserved_for: reserved_for.filter(|whom| !whom.trim().is_empty()),
                check: check.filter(|command| !command.trim().is_empty()),
                ..TaskFields::default()
            })),
            Err(_) => TaskAction::Refuse(
                "task_create: the field `blocked_by`: must be numbers of tasks, such as 1, 2"
                    .to_owned(),
            ),
        })
    }
}

impl TaskGet {
    pub(super) fn action(self) -> TeamAction {
        TeamAction::Task(TaskAction::Order(TaskOrder::List(Some(self.task_id))))
    }
}

impl ClaimTask {
    pub(super) fn action(self) -> TeamAction {
        // A number that no task can have is that of no task.
        let id = self.task_id.map(|id| TaskId::try_from(id).unwrap_or(0));
        TeamAction::Task(TaskAction::Order(TaskOrder::Claim(id)))
    }
}

impl TaskUpdate {
    pub(super) fn action(self) -> TeamAction {
        let Self {
            task_id,
            status,
            summary,
        } = self;
        TeamAction::Task(match status.as_str() {
            "completed" => TaskAction::Order(TaskOrder::Submit(task_id, summary)),
            "pending" => TaskAction::Order(TaskOrder::Release(task_id)),
            "cancelled" => TaskAction::Order(TaskOrder::Cancel(task_id)),
            "in_progress" => TaskAction::Order(TaskOrder::Claim(Some(task_id))),
            other => TaskAction::Refuse(format!(
                "task_update: the field `status`: must be completed, pending or cancelled, and not {other:?}"
            )),
        })
    }
}

impl TaskList {
    pub(super) fn action(self) -> TeamAction {
        TeamAction::Task(TaskAction::Order(TaskOrder::List(None)))
    }
}
