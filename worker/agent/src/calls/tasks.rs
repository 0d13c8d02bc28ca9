//! The tools for tasks. The daemon decides each call: a task is claimed when its journal says so,
//! and completed when its check has passed.

use teamd_shared::control::{Command, Done, IntegrationOrder, TaskOrder};
use teamd_shared::task::{TaskFields, TaskId};
use teamd_shared::tools::TaskAction;
use teamd_shared::tools::task_text::{cut, describe_created, describe_tasks};
use teamd_shared::tools::unexpected;

use crate::session::Session;
use crate::tools::Tools;

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
            Done::Tasks(tasks) => Ok(describe_tasks(&order, &tasks, self.outbox.dir())),
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
        TaskAction::reopening(id, fields, tasks.last())
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
