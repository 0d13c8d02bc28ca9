//! `tasks/ID.json`: the projection of the tasks for people and tools. The only place that writes
//! them.

use std::collections::BTreeMap;
use std::time::Instant;

use teamd_shared::fs::replace;
use teamd_shared::task::{Task, TaskId, TaskStatus};
use teamd_shared::team_dir::{TeamDir, TeamPath};

use crate::core::dispatcher::RETRY;

/// How many files are written at a time: an import may make thousands, and neither a client nor a
/// worker waits for them.
const PIECE: usize = 64;

/// The tasks whose files are still to be written.
#[derive(Debug, Default)]
pub(crate) struct TaskFiles {
    waiting: BTreeMap<TaskId, Task>,
    /// Until when they wait, since one could not be written.
    not_before: Option<Instant>,
}

impl TaskFiles {
    /// Writes the files of tasks; of many only the first, and the others when [`TaskFiles::due`]
    /// says so.
    pub(crate) fn show(&mut self, dir: &TeamDir, tasks: &[&Task]) {
        for (place, task) in tasks.iter().enumerate() {
            // A snapshot leaves a completed task out: its file is there before.
            if place < PIECE || task.status == TaskStatus::Completed {
                self.waiting.remove(&task.id);
                self.write(dir, task);
            } else {
                self.waiting.insert(task.id, Task::clone(task));
            }
        }
    }

    /// Returns when the next are to be written.
    pub(crate) fn due(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then(|| self.not_before.unwrap_or_else(Instant::now))
    }

    /// Writes some of the files, unless they wait for another try.
    pub(crate) fn write_some(&mut self, dir: &TeamDir) {
        if self.not_before.is_some_and(|at| at > Instant::now()) {
            return;
        }
        self.not_before = None;
        for _ in 0..PIECE {
            let Some((_, task)) = self.waiting.pop_first() else {
                return;
            };
            if !self.write(dir, &task) {
                return;
            }
        }
    }

    /// Writes all that wait, until one cannot be written: the daemon ends.
    pub(crate) fn finish(&mut self, dir: &TeamDir) {
        while self
            .waiting
            .pop_first()
            .is_some_and(|(_, task)| self.write(dir, &task))
        {}
    }

    /// Writes the file of a task, and returns whether that worked. If not, it waits for another
    /// try.
    fn write(&mut self, dir: &TeamDir, task: &Task) -> bool {
        let written = write(dir, task);
        if let Err(why) = &written {
            tracing::error!(
                "cannot write the file of task {} (tried again): {why}",
                task.id
            );
            self.waiting.insert(task.id, task.clone());
            self.not_before = Some(Instant::now() + RETRY);
        }
        written.is_ok()
    }
}

/// Writes the file of a task, unless it is so already.
fn write(dir: &TeamDir, task: &Task) -> Result<(), String> {
    let mut text = serde_json::to_vec_pretty(task).map_err(|error| error.to_string())?;
    text.push(b'\n');
    let at = TeamPath::task(task.id);
    if dir.read(&at).is_ok_and(|there| there == text) {
        Ok(())
    } else {
        replace(dir, &at, &text).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teamd_shared::task::TaskFields;

    #[test]
    fn many_files_are_written_in_pieces_and_a_later_state_goes_before_an_earlier_one() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let fields = TaskFields {
            subject: Some("x".to_owned()),
            ..TaskFields::default()
        };
        let count = TaskId::try_from(PIECE).unwrap() * 2;
        let tasks: Vec<Task> = (1..=count)
            .map(|id| fields.create(id, "user", 1.0).unwrap())
            .collect();
        let mut files = TaskFiles::default();
        files.show(&dir, &tasks.iter().collect::<Vec<_>>());
        let is_there = |id: TaskId| dir.read(&TeamPath::task(id)).is_ok();
        assert_eq!(
            (is_there(1), is_there(count), files.due().is_some()),
            (true, false, true)
        );
        let last = Task {
            priority: 7,
            ..tasks[tasks.len() - 1].clone()
        };
        files.show(&dir, &[&last]);
        files.write_some(&dir);
        assert!(files.due().is_none());
        let written: Task =
            serde_json::from_slice(&dir.read(&TeamPath::task(count)).unwrap()).unwrap();
        assert_eq!(written.priority, 7);
    }
}
