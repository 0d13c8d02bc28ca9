//! The tools for tasks. The daemon decides each call: a task is claimed when its journal says so,
//! and completed when its check has passed.

use teamd_shared::control::{Command, Done, IntegrationOrder, TaskOrder};
use teamd_shared::name::Name;
use teamd_shared::task::{MOST_LISTED, Task, TaskFields, TaskId, TaskStatus};

use super::unexpected;
use crate::session::Session;
use crate::tools::Tools;
use teamd_worker_core::tools::TaskAction;

/// How much of a diff a model is shown, in bytes.
const MAX_DIFF: usize = 60_000;

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
            TaskAction::Reopen(id, fields) => self.reopening(id, fields).await?,
            TaskAction::Diff(id) => return self.diff_of(id).await,
            TaskAction::Refuse(why) => return Err(why),
        };
        match self.order(Command::Task(order.clone())).await? {
            Done::Tasks(tasks) => Ok(describe_tasks(&order, &tasks)),
            Done::Made(ids) => Ok(describe_created(&order, &ids)),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the order that makes a task pending again: which one it is depends on its status. The
    /// daemon refuses it if that changes meanwhile.
    async fn reopening(
        &mut self,
        id: TaskId,
        fields: Box<TaskFields>,
    ) -> Result<TaskOrder, String> {
        let listed = self.order(Command::Task(TaskOrder::List(Some(id)))).await?;
        let Done::Tasks(tasks) = listed else {
            return Err(unexpected(&listed));
        };
        let status = tasks.last().map(|task| task.status);
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

    /// Shows the work that was submitted for a task.
    async fn diff_of(&mut self, id: TaskId) -> Result<String, String> {
        let order = Command::Integration(IntegrationOrder::DiffOfTask(id));
        match self.order(order).await? {
            Done::Text(text) => Ok(cut(text)),
            other => Err(unexpected(&other)),
        }
    }
}

/// Cuts a long diff at the end of a line.
fn cut(diff: String) -> String {
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

fn describe_created(order: &TaskOrder, ids: &[TaskId]) -> String {
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

fn describe_tasks(order: &TaskOrder, tasks: &[Task]) -> String {
    let Some(task) = tasks.last() else {
        return "there are no tasks to do".to_owned();
    };
    let title = task.title();
    match order {
        TaskOrder::List(None) => list(tasks),
        TaskOrder::Claim(_) => format!("{title} is yours\n\n{}", task.assignment())
            .trim_end()
            .to_owned(),
        TaskOrder::Submit(..) if task.status == TaskStatus::Completed => {
            format!("{title} is completed; it has no check")
        }
        TaskOrder::Submit(..) => {
            format!("{title} is submitted: its check decides. You get a message if it fails.")
        }
        TaskOrder::List(Some(_)) => describe(task),
        _ => format!("{title} is {}", task.status.as_str().replace('_', " ")),
    }
}

fn list(tasks: &[Task]) -> String {
    let mut lines: Vec<String> = tasks.iter().map(line).collect();
    if tasks.len() >= MOST_LISTED {
        lines.push(format!("(the first {MOST_LISTED}; there may be more)"));
    }
    lines.join("\n")
}

/// Returns a task in one line.
fn line(task: &Task) -> String {
    let mut state = task.status.as_str().to_owned();
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

fn describe(task: &Task) -> String {
    let mut lines = vec![line(task), task.description.clone()];
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
