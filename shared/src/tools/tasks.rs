//! The inputs of the tools for tasks, and what each asks for.

use crate::control::TaskOrder;
use crate::name::Name;
use crate::task::{Task, TaskFields, TaskId, TaskStatus};
use schemars::JsonSchema;
use serde::Deserialize;

use super::input::{count, not_blank};

/// Adds a task to the team's list, for a teammate to claim: work with a clear end that one teammate
/// can do alone.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskCreate {
    /// The task in one line.
    #[serde(deserialize_with = "not_blank")]
    subject: String,
    /// The task in full.
    #[serde(default)]
    description: String,
    /// The numbers of the tasks that must be completed first, separated by commas.
    #[serde(default)]
    blocked_by: String,
}

/// Adds a task to the team's list, for a teammate to claim: work with a clear end that one teammate
/// can do alone.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeadTaskCreate {
    /// The task in one line.
    #[serde(deserialize_with = "not_blank")]
    subject: String,
    /// The task in full.
    description: Option<String>,
    /// The numbers of the tasks that must be completed first, separated by commas.
    blocked_by: Option<String>,
    /// The one teammate or role that may claim it.
    #[serde(rename = "for")]
    reserved_for: Option<String>,
    /// A command that must exit with 0 before the task is completed.
    check: Option<String>,
    /// `person` or `lead`: who must approve the work after its check.
    review: Option<String>,
    /// True: who claims it must submit a plan first.
    plan: Option<bool>,
    /// Higher comes first; 0 by default.
    priority: Option<i32>,
}

/// Lists the unfinished tasks.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskList {}

/// Shows a task: what to do, how it is checked, and the result of its last check.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskGet {
    /// Its number.
    task_id: TaskId,
}

/// Claims a task: it is yours until you submit or release it with `task_update`. You can hold one
/// at a time.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimTask {
    /// Its number. Without it, you get the next task that you may claim.
    #[serde(default, deserialize_with = "count")]
    task_id: Option<u64>,
}

/// Changes the status of your task. `completed` submits it: its check decides, and you get a
/// message if that fails. `pending` releases it for other teammates.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskUpdate {
    /// Its number.
    task_id: TaskId,
    /// `completed` or `pending`.
    #[serde(deserialize_with = "not_blank")]
    status: String,
    /// What you have done, in a few lines.
    #[serde(default)]
    summary: String,
}

/// Changes a task. `pending` takes it back from its owner (with `for`: for another one), or has a
/// failed or cancelled one tried again, with the changes that you name. `cancelled` removes it from
/// the list. `completed` submits it for its owner: its check decides.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeadTaskUpdate {
    /// Its number.
    task_id: TaskId,
    /// `pending`, `cancelled` or `completed`; leave it out to change only fields.
    status: Option<String>,
    /// With `completed`: what was done.
    summary: Option<String>,
    /// The task in one line.
    subject: Option<String>,
    /// The task in full.
    description: Option<String>,
    /// Task numbers; `[]` for none.
    blocked_by: Option<String>,
    /// A teammate or role.
    #[serde(rename = "for")]
    reserved_for: Option<String>,
    /// A command; `none` removes it.
    check: Option<String>,
    /// `person`, `lead` or `none`.
    review: Option<String>,
    /// True or false.
    plan: Option<bool>,
    /// A number.
    priority: Option<i32>,
}

/// Shows the work that was submitted for a task as a diff, to review it.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskDiff {
    /// The number of the task.
    task_id: TaskId,
}

/// What is done with tasks.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskAction {
    /// Makes one.
    Create(Box<TaskFields>),
    /// Gives an order about those that are there.
    Order(TaskOrder),
    /// Makes one pending again that is held, submitted, failed or cancelled, with these changes.
    Reopen(TaskId, Box<TaskFields>),
    /// Shows what was submitted for one.
    Diff(TaskId),
    /// Nothing, because of this.
    Refuse(String),
}

impl TaskAction {
    /// Returns the order that makes a task pending again: which one it is depends on its status. The
    /// daemon refuses it if that changes meanwhile.
    ///
    /// # Errors
    /// A text for the model: what must be done first.
    pub fn reopening(
        id: TaskId,
        fields: Box<TaskFields>,
        task: Option<&Task>,
    ) -> Result<TaskOrder, String> {
        let status = task.map(|task| task.status);
        if matches!(status, Some(TaskStatus::Failed | TaskStatus::Cancelled)) {
            return Ok(TaskOrder::Retry(id, fields));
        }
        let TaskFields { reserved_for, .. } = fields.as_ref();
        let only_for = TaskFields {
            reserved_for: reserved_for.clone(),
            ..TaskFields::default()
        };
        if *fields != only_for {
            return Err(format!(
                "task {id} is not finished: change its fields first, without a status"
            ));
        }
        match reserved_for {
            Some(name) => {
                let name = Name::new(name).map_err(|error| error.to_string())?;
                Ok(TaskOrder::Assign(id, name))
            }
            None => Ok(TaskOrder::Release(id)),
        }
    }
}

impl TaskCreate {
    /// Returns what is to be done.
    pub fn action(self) -> TaskAction {
        let Self {
            subject,
            description,
            blocked_by,
        } = self;
        let fields = LeadTaskCreate {
            subject,
            description: Some(description),
            blocked_by: Some(blocked_by),
            reserved_for: None,
            check: None,
            review: None,
            plan: None,
            priority: None,
        };
        fields.action()
    }
}

impl LeadTaskCreate {
    /// Returns what is to be done.
    pub fn action(self) -> TaskAction {
        let Self {
            subject,
            description,
            blocked_by,
            reserved_for,
            check,
            review,
            plan,
            priority,
        } = self;
        let blocked_by = match task_ids("task_create", blocked_by) {
            Ok(ids) => ids,
            Err(why) => return TaskAction::Refuse(why),
        };
        TaskAction::Create(Box::new(TaskFields {
            subject: Some(subject),
            description,
            blocked_by,
            reserved_for: said(reserved_for),
            check: said(check),
            review: said(review),
            plan,
            priority,
            ..TaskFields::default()
        }))
    }
}

/// Returns a text unless it is blank: a model writes an empty text for what it does not say.
fn said(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty())
}

/// Reads the numbers of tasks; none if there is no text.
fn task_ids(tool: &str, text: Option<String>) -> Result<Option<Vec<TaskId>>, String> {
    let Some(text) = text else {
        return Ok(None);
    };
    text.split([',', ' ', '[', ']'])
        .filter(|id| !id.is_empty())
        .map(str::parse)
        .collect::<Result<Vec<TaskId>, _>>()
        .map(Some)
        .map_err(|_| {
            format!("{tool}: the field `blocked_by`: must be numbers of tasks, such as 1, 2")
        })
}

impl TaskGet {
    /// Returns what is to be done.
    pub fn action(self) -> TaskAction {
        TaskAction::Order(TaskOrder::List(Some(self.task_id)))
    }
}

impl ClaimTask {
    /// Returns what is to be done.
    pub fn action(self) -> TaskAction {
        // A number that no task can have is that of no task.
        let id = self.task_id.map(|id| TaskId::try_from(id).unwrap_or(0));
        TaskAction::Order(TaskOrder::Claim(id))
    }
}

impl TaskUpdate {
    /// Returns what is to be done.
    pub fn action(self) -> TaskAction {
        let Self {
            task_id,
            status,
            summary,
        } = self;
        match status.as_str() {
            "completed" => TaskAction::Order(TaskOrder::Submit(task_id, summary)),
            "pending" => TaskAction::Order(TaskOrder::Release(task_id)),
            "in_progress" => TaskAction::Order(TaskOrder::Claim(Some(task_id))),
            other => TaskAction::Refuse(format!(
                "task_update: the field `status`: must be completed or pending, and not {other:?}"
            )),
        }
    }
}

impl LeadTaskUpdate {
    /// Returns what is to be done.
    pub fn action(self) -> TaskAction {
        self.task_action().unwrap_or_else(TaskAction::Refuse)
    }

    fn task_action(self) -> Result<TaskAction, String> {
        let Self {
            task_id,
            status,
            summary,
            subject,
            description,
            blocked_by,
            reserved_for,
            check,
            review,
            plan,
            priority,
        } = self;
        let fields = TaskFields {
            subject: said(subject),
            description: said(description),
            blocked_by: task_ids("task_update", said(blocked_by))?,
            reserved_for: said(reserved_for),
            check: said(check),
            review: said(review),
            plan,
            priority,
            ..TaskFields::default()
        };
        let has_fields = fields != TaskFields::default();
        match status.as_deref().filter(|status| !status.is_empty()) {
            Some("pending") => Ok(TaskAction::Reopen(task_id, Box::new(fields))),
            Some("cancelled" | "completed") if has_fields => Err(
                "task_update: only `pending` goes with other fields: change them first, without a status".to_owned(),
            ),
            Some("cancelled") => Ok(TaskAction::Order(TaskOrder::Cancel(task_id))),
            Some("completed") => {
                let summary = summary.unwrap_or_default();
                Ok(TaskAction::Order(TaskOrder::Submit(task_id, summary)))
            }
            Some(other) => Err(format!(
                "task_update: the field `status`: must be pending, cancelled or completed, and not {other:?}"
            )),
            None if has_fields => Ok(TaskAction::Order(TaskOrder::Edit(task_id, Box::new(fields)))),
            None => Err("task_update: name a status, or a field to change".to_owned()),
        }
    }
}

impl TaskDiff {
    /// Returns what is to be done.
    pub fn action(self) -> TaskAction {
        TaskAction::Diff(self.task_id)
    }
}

impl TaskList {
    /// Returns what is to be done.
    pub fn action(self) -> TaskAction {
        TaskAction::Order(TaskOrder::List(None))
    }
}
