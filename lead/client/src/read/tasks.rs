//! The tasks of a team: those of the journal, and those that are in files of their own since they
//! were completed long ago.

use std::io::{Read as _, Seek as _, SeekFrom};

use rustix::fs::OFlags;
use teamd_shared::journal::Team;
use teamd_shared::json;
use teamd_shared::task::{Task, TaskId};
use teamd_shared::team_dir::{TeamDir, TeamPath};

use crate::error::CommandError;
use crate::exit_code::ExitCode;

/// Returns every task, by number. What was completed long ago is in its own file alone.
///
/// # Errors
/// [`CommandError`] for such a file that cannot be read.
pub fn all(dir: &TeamDir, team: &Team) -> Result<Vec<Task>, CommandError> {
    let mut tasks: Vec<Task> = team.tasks.values().cloned().collect();
    for id in (1..=team.last_task).filter(|id| !team.tasks.contains_key(id)) {
        tasks.extend(read(dir, id)?);
    }
    tasks.sort_by_key(|task| task.id);
    Ok(tasks)
}

/// Finds a task in the journal, or in its own file.
pub fn find(team: &Team, dir: &TeamDir, id: TaskId) -> Result<Task, CommandError> {
    let task = match team.tasks.get(&id) {
        Some(task) => Some(task.clone()),
        None => read(dir, id)?,
    };
    task.ok_or_else(|| {
        CommandError::new(ExitCode::NotFound, format!("there is no task {id}"))
            .hint("`teamctl task list --all` lists them")
    })
}

fn read(dir: &TeamDir, id: TaskId) -> Result<Option<Task>, CommandError> {
    let at = TeamPath::task(id);
    match dir.read(&at) {
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
        Ok(bytes) => json::read(&bytes).map(Some).map_err(|error| {
            CommandError::new(ExitCode::Failed, format!("{at} cannot be read: {error}"))
                .hint("`teamctl events` shows what happened")
        }),
    }
}

/// Returns the output of the last check of a task; none if none has run.
pub fn read_log(dir: &TeamDir, id: TaskId) -> Result<Option<String>, CommandError> {
    let log = read_log_from(dir, id, |_| 0)?;
    Ok(log.map(|log| log.text))
}

/// The end of the output of a check.
#[derive(Debug)]
pub struct LogEnd {
    /// The end.
    pub text: String,
    /// How many bytes come before it.
    pub before: u64,
}

/// Returns the end of the output of the last check of a task, at most so many bytes of it; none if
/// none has run. A view reads it for each frame.
pub fn read_log_end(dir: &TeamDir, id: TaskId, most: u64) -> Result<Option<LogEnd>, CommandError> {
    read_log_from(dir, id, |length| length.saturating_sub(most))
}

fn read_log_from(
    dir: &TeamDir,
    id: TaskId,
    from: impl FnOnce(u64) -> u64,
) -> Result<Option<LogEnd>, CommandError> {
    let at = TeamPath::check_log(id);
    let mut file = match dir.open_file(&at, OFlags::RDONLY) {
        Err(error) if error.is_not_found() => return Ok(None),
        file => file?,
    };
    let failed = |error: std::io::Error| {
        CommandError::new(ExitCode::Failed, format!("cannot read {at}: {error}"))
    };
    let length = file.metadata().map_err(failed)?.len();
    let before = from(length);
    file.seek(SeekFrom::Start(before)).map_err(failed)?;
    let mut output = Vec::new();
    file.read_to_end(&mut output).map_err(failed)?;
    let text = String::from_utf8_lossy(&output).into_owned();
    Ok(Some(LogEnd { text, before }))
}
