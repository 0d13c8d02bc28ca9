//! A task is what its file says. One that is completed was claimed and submitted before, once, and its check has passed.

use serde_json::{Value, json};
use teamd_shared::journal::{Record, Team as Fold};
use teamd_shared::task::{TaskEvent, TaskStatus};

use crate::stage::{Checked, Stage, hold};

pub(super) fn check(stage: &Stage, fold: &Fold) -> Checked {
    for (id, task) in &fold.tasks {
        let file = stage.team.file(&format!("tasks/{id}.json"));
        let shown: Value = serde_json::from_str(&file).unwrap_or_default();
        hold(shown == json!(task), || {
            format!("task {id} is {task:?} in the journal, and in its file {file}")
        })?;
        let journal = stage.journal();
        let events = journal.iter().filter_map(|line| match &line.record {
            Record::Task(it) if it.task.id == *id && it.derived_from.is_none() => Some(it.event),
            _ => None,
        });
        let events: Vec<TaskEvent> = events.collect();
        let count = |event: TaskEvent| events.iter().filter(|it| **it == event).count();
        hold(count(TaskEvent::Created) == 1, || format!("task {id} was made twice: {events:?}"))?;
        let completed = usize::from(task.status == TaskStatus::Completed);
        hold(count(TaskEvent::Completed) == completed, || {
            format!("task {id} is {:?}, after {events:?}", task.status)
        })?;
        if task.status == TaskStatus::Completed {
            let known = count(TaskEvent::Claimed) > 0 && count(TaskEvent::Submitted) > 0;
            hold(known && stage.team.made("made"), || {
                format!("task {id} is completed, and its work is not done: {events:?}")
            })?;
        }
    }
    Ok(())
}
