//! Gives the daemon orders about tasks.

use teamd_shared::control::{Command, Done, ImportedTask, TaskOrder};
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::task::{Task, TaskFields};

use crate::act::waiting::{Early, Requester};
use crate::connection::unexpected;
use crate::context::{Context, block_on};
use crate::error::CommandError;
use crate::read::journal;
use crate::read::tasks::find;

/// Makes tasks; with `within` they name each other by their places among them.
///
/// # Errors
/// As the daemon refuses.
pub async fn make(
    context: &Context,
    tasks: Vec<TaskFields>,
    within: bool,
) -> Result<Vec<Task>, CommandError> {
    give(
        context,
        TaskOrder::Add {
            id: RandomIds.request(),
            tasks,
            within,
        },
    )
    .await
}

/// Makes tasks of what strangers have written elsewhere.
///
/// # Errors
/// As the daemon refuses: above all a source that a task was made of before.
pub async fn import(
    context: &Context,
    tasks: Vec<ImportedTask>,
) -> Result<Vec<Task>, CommandError> {
    let id = RandomIds.request();
    give(context, TaskOrder::Import { id, tasks }).await
}

/// Gives an order, and returns the tasks as they are after it.
pub fn ask(context: &Context, order: TaskOrder) -> Result<Vec<Task>, CommandError> {
    block_on(give(context, order))
}

async fn give(context: &Context, order: TaskOrder) -> Result<Vec<Task>, CommandError> {
    let dir = context.dir()?;
    let caller = Requester {
        dir: &dir,
        out: &context.out,
        timeout: None,
    };
    match caller.one(Command::Task(order)).await? {
        Ok(Ok(Done::Tasks(tasks))) => Ok(tasks),
        Ok(Ok(Done::Made(ids))) => {
            let team = journal::fold(&dir)?;
            ids.into_iter().map(|id| find(&team, &dir, id)).collect()
        }
        Ok(Ok(other)) => Err(unexpected(&other)),
        Ok(Err(refusal)) => Err(refusal.into()),
        Err(early) => Err(Early::error(
            early,
            "the daemon",
            String::new(),
            "`teamctl task list` shows the tasks",
        )),
    }
}
