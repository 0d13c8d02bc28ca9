//! The tools for tasks. The daemon decides each call: a task is claimed when its journal says so,
//! and completed when its check has passed.

use teamd_shared::control::{Command, Done, TaskOrder};
use teamd_shared::task::{MOST_LISTED, Task, TaskId, TaskStatus};

use super::Tools;
use super::orders::unexpected;
use crate::session::Session;
use teamd_worker_core::tools::TaskAction;

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
