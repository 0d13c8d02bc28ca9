//! The tools for tasks. The daemon decides each call: a task is claimed when its journal says so,
//! and completed when its check has passed.

use schemars::JsonSchema;
use serde::Deserialize;
use teamd_shared::control::{Command, Done, TaskOrder};
use teamd_shared::task::{MOST_LISTED, Task, TaskFields, TaskId, TaskStatus};

use super::input::{count, not_blank};
use super::orders::unexpected;
use super::{TeamAction, Tools};
use crate::agent::session::Session;

/// Makes a task for the team: work that a teammate can do by itself and that has an end. It is not
/// done by you unless you claim it.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskCreate {
    /// What is to be done, in one line.
    #[serde(deserialize_with = "not_blank")]
    subject: String,
    /// What is to be done, in full.
    #[serde(default)]
    description: String,
    /// The numbers of the tasks that must be completed before, separated by commas.
    #[serde(default)]
    blocked_by: String,
    /// Only for the lead: the teammate or role that alone may claim it.
    #[serde(default, rename = "for")]
    reserved_for: Option<String>,
    /// Only for the lead: a command that must exit with 0 before the task is completed.
    #[serde(default)]
    check: Option<String>,
}

/// Lists the tasks that are not finished.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskList {}

/// Shows a task: what is to be done, how it is checked, and how its last check ended.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskGet {
    /// Its number.
    task_id: TaskId,
}

/// Claims a task: from then on it is yours, until you submit or release it. You hold one at a time.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimTask {
    /// Its number; without it, the next one that you may claim.
    #[serde(default, deserialize_with = "count")]
    task_id: Option<u64>,
}

/// Says what becomes of a task of yours. `completed` submits it: its check decides, and you are
/// told if that fails. `pending` releases it, for another teammate. `cancelled` (only for the lead)
/// takes it off the list.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskUpdate {
    /// Its number.
    task_id: TaskId,
    /// completed, pending or cancelled.
    #[serde(deserialize_with = "not_blank")]
    status: String,
    /// What you have done, in a few lines.
    #[serde(default)]
    summary: String,
}

/// What is done with tasks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TaskAction {
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

impl<T: Tools> Session<T> {
    /// Asks the daemon to do something with tasks.
    pub(super) async fn do_task(&mut self, action: TaskAction) -> Result<String, String> {
        let order = match action {
            TaskAction::Create(fields) => TaskOrder::Add {
                id: self.ids.request(),
                tasks: vec![*fields],
                within: false,
            },
            TaskAction::Order(order) => order,
            TaskAction::Refuse(why) => return Err(why),
        };
        match self.order(Command::Task(order.clone())).await? {
            Done::Tasks(tasks) => Ok(told(&order, &tasks)),
            Done::Made(ids) => Ok(made(&order, &ids)),
            other => Err(unexpected(&other)),
        }
    }
}

fn made(order: &TaskOrder, ids: &[TaskId]) -> String {
    let TaskOrder::Add { tasks, .. } = order else {
        return String::new();
    };
    let subjects = tasks
        .iter()
        .map(|task| task.subject.as_deref().unwrap_or_default());
    ids.iter()
        .zip(subjects)
        .map(|(id, subject)| format!("task {id} ({subject}) is made"))
        .collect()
}

fn told(order: &TaskOrder, tasks: &[Task]) -> String {
    let Some(task) = tasks.last() else {
        return "there are no tasks to do".to_owned();
    };
    let title = task.title();
    match order {
        TaskOrder::List(None) => listed(tasks),
        TaskOrder::Claim(_) => format!("{title} is yours\n\n{}", task.assignment())
            .trim_end()
            .to_owned(),
        TaskOrder::Submit(..) if task.status == TaskStatus::Completed => {
            format!("{title} is completed; it has no check")
        }
        TaskOrder::Submit(..) => {
            format!("{title} is submitted: its check decides. You are told if that fails.")
        }
        TaskOrder::List(Some(_)) => described(task),
        _ => format!("{title} is {}", task.status.as_str().replace('_', " ")),
    }
}

fn listed(tasks: &[Task]) -> String {
    let mut lines: Vec<String> = tasks
        .iter()
        .map(|task| {
            let owner = task
                .owner
                .as_ref()
                .map(|owner| format!(" ({owner})"))
                .unwrap_or_default();
            let waits = task
                .blocked_by
                .iter()
                .map(|id| format!(" #{id}"))
                .collect::<String>();
            let waits = if waits.is_empty() {
                waits
            } else {
                format!(", after{waits}")
            };
            let whom = task
                .reserved_for
                .as_ref()
                .map(|whom| format!(", for {whom}"))
                .unwrap_or_default();
            format!(
                "{}. {} [{}{owner}{waits}{whom}]",
                task.id,
                task.subject,
                task.status.as_str()
            )
        })
        .collect();
    lines.extend(
        (tasks.len() >= MOST_LISTED)
            .then(|| format!("(the first {MOST_LISTED}; there may be more)")),
    );
    lines.join("\n")
}

fn described(task: &Task) -> String {
    let mut lines = vec![listed(std::slice::from_ref(task)), task.description.clone()];
    lines.extend(
        task.check
            .as_ref()
            .map(|check| format!("check: {}", check.command)),
    );
    lines.extend(
        task.result
            .as_ref()
            .and_then(|result| result.check.as_ref())
            .map(|check| {
                let exit = check
                    .exit
                    .map_or("was ended".to_owned(), |exit| format!("exited with {exit}"));
                format!(
                    "last check: {exit} (attempt {} of {})",
                    task.attempts, task.max_attempts
                )
            }),
    );
    lines.extend(
        task.review_id()
            .map(|id| format!("its review {id} waits for an answer")),
    );
    lines.retain(|line| !line.trim().is_empty());
    lines.join("\n")
}
