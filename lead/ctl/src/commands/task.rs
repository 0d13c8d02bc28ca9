//! `teamctl task`: the list of work. What changes something asks the daemon; what shows something
//! reads the files.

pub(super) mod import;
pub(crate) mod takers;

use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::json;
use teamd_client::act::task::{ask, make};
use teamd_client::act::waiting::within;
use teamd_client::args::{TaskCommand, TaskEdit, TaskImport, TaskListArgs, Tasks};
use teamd_client::connection::not_running;
use teamd_client::context::{Context, block_on};
use teamd_client::daemon_lock::is_locked;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::clock;
use teamd_client::print::render::DIM;
use teamd_client::print::style::paint;
use teamd_client::print::table::{Cell, Table};
use teamd_client::print::task::{blockers, details, status, style, verified};
use teamd_client::read::roster::{self, LoadedRoster};
use teamd_client::read::tail::Tail;
use teamd_client::read::tasks::{all, find, read_log};
use teamd_client::read::wake::Wake;
use teamd_client::read::{journal, text};
use teamd_shared::config::Roster;
use teamd_shared::control::TaskOrder;
use teamd_shared::journal::Team;
use teamd_shared::name::Name;
use teamd_shared::task::{Stage, Task, TaskFields, TaskId, TaskStatus};
use teamd_shared::team_dir::{TeamDir, TeamPath};

use crate::github::PREFIX;

/// A task with what the journal does not know of it.
#[derive(Serialize)]
struct ShownTask<'t> {
    #[serde(flatten)]
    task: &'t Task,
    /// The host from which its work is on its way; left out otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    sending_from: Option<&'t Name>,
}

impl<'t> ShownTask<'t> {
    fn of(task: &'t Task, roster: &'t Roster) -> Self {
        let sending_from = roster.sender_of(task);
        Self { task, sending_from }
    }
}

/// How many lines of a running check `task show` shows.
const OUTPUT_LINES: usize = 10;

/// Runs the command.
pub(crate) fn run(context: &Context, args: Tasks) -> CommandResult {
    match args.command {
        TaskCommand::Add(add) => {
            let fields = TaskFields {
                subject: Some(add.subject),
                ..given(add.fields)?
            };
            takers::check(context, std::slice::from_ref(&fields), add.later)?;
            let made = block_on(make(context, vec![fields], false))?;
            let Some(task) = made.first() else {
                return Ok(ExitCode::Failed);
            };
            context.out.result(task, task.id).map(|()| ExitCode::Done)
        }
        TaskCommand::Import(import) => {
            let made = import_from(context, &import)?;
            if made.is_empty() && !context.out.is_json() {
                return Ok(ExitCode::Done);
            }
            let ids: Vec<String> = made.iter().map(|task| task.id.to_string()).collect();
            context
                .out
                .result(&made, ids.join("\n"))
                .map(|()| ExitCode::Done)
        }
        TaskCommand::List(args) => list(context, &args),
        TaskCommand::Show(args) => show(context, args.id),
        TaskCommand::Log(args) if args.follow => follow_log(context, args.id),
        TaskCommand::Log(args) => log(context, args.id),
        TaskCommand::Edit(edit) => {
            let id = edit.id;
            let fields = changes(context, *edit)?;
            if fields == TaskFields::default() {
                return Err(CommandError::new(ExitCode::Usage, "nothing to change")
                    .hint("`teamctl task edit --help` shows what can be changed"));
            }
            order(context, TaskOrder::Edit(id, Box::new(fields)), "is changed")
        }
        TaskCommand::Assign(args) => order(
            context,
            TaskOrder::Assign(args.id, args.name.clone()),
            &format!("is kept for {}", args.name),
        ),
        TaskCommand::Release(args) => order(context, TaskOrder::Release(args.id), "is released"),
        TaskCommand::Submit(args) => order(
            context,
            TaskOrder::Submit(args.id, args.summary),
            "is submitted",
        ),
        TaskCommand::Cancel(args) => order(context, TaskOrder::Cancel(args.id), "is cancelled"),
        TaskCommand::Retry(args) => {
            let id = args.id;
            order(
                context,
                TaskOrder::Retry(id, Box::new(changes(context, *args)?)),
                "is open again",
            )
        }
    }
}

/// Makes the tasks of a file, or of issues.
fn import_from(context: &Context, import: &TaskImport) -> Result<Vec<Task>, CommandError> {
    if let Some(named) = import.file.to_str().filter(|it| it.starts_with(PREFIX)) {
        return import::import_issues(context, named, import);
    }
    if import.label.is_some() || import.no_plan {
        let message = "`--label` and `--no-plan` are for issues";
        return Err(CommandError::new(ExitCode::Usage, message)
            .hint("`teamctl task import gh:OWNER/REPO --label NAME`"));
    }
    let tasks = import::read(context, &import.file)?;
    takers::check(context, &tasks, import.later)?;
    block_on(make(context, tasks, true))
}

/// Returns what is shown of a task.
fn changes(context: &Context, edit: TaskEdit) -> Result<TaskFields, CommandError> {
    let fields = TaskFields {
        subject: edit.subject,
        ..given(edit.fields)?
    };
    takers::check(context, std::slice::from_ref(&fields), edit.later)?;
    Ok(fields)
}

fn given(fields: TaskFields) -> Result<TaskFields, CommandError> {
    let description = fields.description.as_deref().map(text::given).transpose()?;
    Ok(TaskFields {
        description,
        ..fields
    })
}

fn order(context: &Context, order: TaskOrder, done: &str) -> CommandResult {
    let tasks = ask(context, order)?;
    let Some(task) = tasks.last() else {
        return Ok(ExitCode::Failed);
    };
    let done = if task.status == TaskStatus::Completed {
        "is completed"
    } else {
        done
    };
    context
        .out
        .result(task, format_args!("{} {done}", task.title()))
        .map(|()| ExitCode::Done)
}

fn list(context: &Context, args: &TaskListArgs) -> CommandResult {
    let dir = context.dir()?;
    let team = journal::fold(&dir)?;
    let mut tasks = if args.all {
        all(&dir, &team)?
    } else {
        team.tasks.values().cloned().collect()
    };
    if !args.all {
        tasks.retain(|task| !task.status.is_finished());
        tasks.sort_by_key(|task| (std::cmp::Reverse(task.priority), task.id));
    }
    let roster = roster_with_senders(&dir, &team)?;
    if context.out.is_json() {
        let tasks: Vec<ShownTask<'_>> = tasks.iter().map(|it| ShownTask::of(it, &roster)).collect();
        return context.out.json(&tasks).map(|()| ExitCode::Done);
    }
    if tasks.is_empty() {
        let done = team.last_task;
        context.out.note(match done {
            0 => "there are no tasks; `teamctl task add SUBJECT` makes one".to_owned(),
            _ => format!("nothing is left to do; `teamctl task list --all` shows all {done}"),
        });
        return Ok(ExitCode::Done);
    }
    context
        .out
        .text(table((&team, &roster), &tasks).render(context.out.width()))?;
    takers::note(context, &team);
    Ok(ExitCode::Done)
}

/// Returns the roster, if something can be on its way: of a team that has hosts, and a daemon that
/// takes it.
fn roster_with_senders(dir: &TeamDir, team: &Team) -> Result<Roster, CommandError> {
    if team.hosts.is_none() {
        return Ok(Roster::default());
    }
    let LoadedRoster { roster, daemon } = roster::load_with_daemon(dir)?;
    Ok(daemon.map(|_| roster).unwrap_or_default())
}

fn table((team, roster): (&Team, &Roster), tasks: &[Task]) -> Table {
    let mut table = Table::new(&["ID", "STATUS", "OWNER", "VERIFIED", "SUBJECT"]);
    for task in tasks {
        let done_by = if task.status.is_finished() {
            task.submission.as_ref().map(|it| &it.by)
        } else {
            None
        };
        let owner = task.owner.as_ref().or(done_by).map(ToString::to_string);
        let owner = owner
            .or_else(|| task.reserved_for.as_ref().map(|whom| format!("({whom})")))
            .unwrap_or_default();
        let blockers = blockers(team, task);
        let subject = if blockers.is_empty() {
            task.subject.clone()
        } else {
            format!("{} (blocked by {blockers})", task.subject)
        };
        table.row(vec![
            Cell::new(task.id.to_string()),
            Cell::styled(status(task, roster.sender_of(task)), style(task.status)),
            Cell::new(owner),
            Cell::new(verified(task)),
            Cell::new(subject),
        ]);
    }
    table
}

fn show(context: &Context, id: TaskId) -> CommandResult {
    let dir = context.dir()?;
    let team = journal::fold(&dir)?;
    let task = find(&team, &dir, id)?;
    let roster = roster_with_senders(&dir, &team)?;
    if context.out.is_json() {
        let shown = ShownTask::of(&task, &roster);
        return context.out.json(&shown).map(|()| ExitCode::Done);
    }
    let sender = roster.sender_of(&task);
    context.out.wrapped(&details(&team, &task, sender))?;
    let is_checked = task.status == TaskStatus::InReview
        && task
            .submission
            .as_ref()
            .is_some_and(|it| it.stage == Stage::Checking);
    if is_checked && let Some(output) = read_log(&dir, id)? {
        let lines: Vec<&str> = output.lines().collect();
        let last = lines[lines.len().saturating_sub(OUTPUT_LINES)..].join("\n");
        let heading = paint(DIM, format!("the check runs (`teamctl task log {id} -f`):"));
        context.out.text(format!(
            "{heading}\n{}",
            teamd_client::print::escape::text(&last)
        ))?;
    }
    Ok(ExitCode::Done)
}

/// Waits until a task is completed, or none is left to be done, and prints that.
pub(super) fn wait(
    context: &Context,
    dir: &TeamDir,
    (id, timeout): (Option<TaskId>, Option<Duration>),
) -> CommandResult {
    let team = until(context, dir, (id, timeout), |team| reached(team, dir, id))?;
    let completed = team.last_task as usize
        - team
            .tasks
            .values()
            .filter(|it| it.status != TaskStatus::Completed)
            .count();
    let text = id.map_or(
        format!("no task is left to be done; {completed} completed"),
        |id| format!("task {id} is completed"),
    );
    context
        .out
        .result(&json!({"task": id, "completed": completed}), text)
        .map(|()| ExitCode::Done)
}

/// Waits until a submitted task is completed, and returns it as it is then. One that was sent back
/// is an error.
///
/// # Errors
/// Why it is not completed.
pub(super) fn until_completed(
    context: &Context,
    (id, timeout): (TaskId, Option<Duration>),
) -> Result<Task, CommandError> {
    let dir = context.dir()?;
    let team = until(context, &dir, (Some(id), timeout), |team| {
        match team.tasks.get(&id) {
            Some(task) if !matches!(task.status, TaskStatus::InReview | TaskStatus::Completed) => {
                Err(not_integrated(task))
            }
            _ => reached(team, &dir, Some(id)),
        }
    })?;
    find(&team, &dir, id)
}

/// Explains why a submitted branch is not integrated, and the ways out.
fn not_integrated(task: &Task) -> CommandError {
    let id = task.id;
    let title = task.title();
    let by = task
        .owner
        .as_ref()
        .map(|owner| format!(" ({owner} works on it)"))
        .unwrap_or_default();
    let failed = task
        .result
        .as_ref()
        .and_then(|result| result.check.as_ref());
    let branch = task
        .branch
        .as_ref()
        .map(|of| format!(" on {}", of.name))
        .unwrap_or_default();
    let shown = task
        .branch
        .as_ref()
        .and_then(|of| of.shown.as_deref())
        .unwrap_or("team/integration");
    let (why, next) = match (&task.returned, failed) {
        (Some(why), _) => (
            format!("it {why}"),
            format!(
                "a teammate resolves task {id}, or you do: `git merge {shown}`{branch}, commit, and `teamctl land` again"
            ),
        ),
        (None, Some(check)) => {
            let exit = check
                .exit
                .map_or("was ended".to_owned(), |exit| format!("exited with {exit}"));
            let next = format!(
                "`teamctl task log {id}` shows the output; commit a fix and try again, or a teammate takes task {id}"
            );
            (
                format!("its check failed: `{}` {exit}", check.check.command),
                next,
            )
        }
        (None, None) => {
            let next =
                format!("`teamctl task show {id}` shows more; try again, or a teammate takes it");
            (
                format!("it is {}", task.status.as_str().replace('_', " ")),
                next,
            )
        }
    };
    CommandError::new(
        ExitCode::Conflict,
        format!("{title} is not integrated{by}: {why}"),
    )
    .hint(next)
}

fn until(
    context: &Context,
    dir: &TeamDir,
    (id, timeout): (Option<TaskId>, Option<Duration>),
    is_reached: impl Fn(&Team) -> Result<bool, CommandError>,
) -> Result<Team, CommandError> {
    let what = id.map_or("the tasks".to_owned(), |id| format!("task {id}"));
    let waited = block_on(within(timeout, async {
        let mut wake = Wake::new(dir, &TeamPath::journal(), context.settings.poll);
        wake.until(|| {
            let team = journal::fold(dir)?;
            if is_reached(&team)? {
                Ok(Some(team))
            } else if is_locked(dir) {
                Ok(None)
            } else {
                Err(not_running(dir))
            }
        })
        .await
    }))?;
    waited.map_err(|early| {
        let time = clock::span(timeout.unwrap_or_default().as_secs_f64());
        let late = format!("{what}: not done after {time}");
        early.error(&what, late, "`teamctl tasks` shows their progress")
    })
}

/// Tells whether it is done; an error tells why it can no longer be done.
fn reached(team: &Team, dir: &TeamDir, id: Option<TaskId>) -> Result<bool, CommandError> {
    if let Some(id) = id {
        let task = find(team, dir, id)?;
        return match task.status {
            TaskStatus::Completed => Ok(true),
            TaskStatus::Failed | TaskStatus::Cancelled => {
                let status = format!("is {}", task.status.as_str());
                Err(conflict(&task, &status))
            }
            _ => Ok(false),
        };
    }
    let stuck = team.stuck();
    let mut open = team
        .tasks
        .values()
        .filter(|task| !task.status.is_finished());
    if open.any(|task| !stuck.contains_key(&task.id)) {
        return Ok(false);
    }
    if let Some((id, why)) = stuck.first_key_value()
        && let Some(task) = team.tasks.get(id)
    {
        return Err(conflict(task, &format!("cannot be done: {why}")));
    }
    match team
        .tasks
        .values()
        .find(|task| task.status == TaskStatus::Failed)
    {
        Some(task) => Err(conflict(task, "has failed")),
        None => Ok(true),
    }
}

fn log(context: &Context, id: TaskId) -> CommandResult {
    let dir = context.dir()?;
    let output = read_log(&dir, id)?;
    let team = journal::fold(&dir)?;
    let task = find(&team, &dir, id)?;
    if output.is_none() {
        context
            .out
            .note(format_args!("no check of task {id} has run"));
    }
    let output = output.unwrap_or_default();
    let returned = task
        .returned
        .as_ref()
        .map(|why| format!("{} {why}", task.title()));
    let shown = [
        teamd_client::print::escape::text(output.trim_end()).into_owned(),
        returned.unwrap_or_default(),
    ];
    let shown: Vec<String> = shown.into_iter().filter(|part| !part.is_empty()).collect();
    let json = json!({"id": id, "output": output, "returned": task.returned});
    context.out.result(&json, shown.join("\n"))?;
    Ok(ExitCode::Done)
}

/// Shows the output of a check while it runs, until it ends.
fn follow_log(context: &Context, id: TaskId) -> CommandResult {
    let dir = context.dir()?;
    block_on(async {
        let mut wake = Wake::of_logs(&dir, context.settings.poll);
        let at = TeamPath::check_log(id);
        let mut tail = Tail::new(&dir, at.clone());
        // What was written before the submission is of an earlier check.
        let since = checked_since(&journal::fold(&dir)?, id);
        let written = dir
            .path(&at)
            .symlink_metadata()
            .and_then(|it| it.modified())
            .ok();
        let is_old = written
            .map(seconds)
            .zip(since)
            .is_some_and(|(written, since)| written < since);
        let is_there = tail.begin(is_old.then_some(0), |_| true)?;
        loop {
            // Whether it runs is read first: what it writes before its end is read after that.
            let runs = checked_since(&journal::fold(&dir)?, id).is_some();
            let mut lines = tail.read()?;
            while !lines.is_empty() {
                lines.iter().try_for_each(|line| show_line(context, line))?;
                lines = tail.read()?;
            }
            if !runs && since.is_none() && !is_there {
                find(&journal::fold(&dir)?, &dir, id)?;
                context
                    .out
                    .note(format_args!("no check of task {id} has run"));
            }
            if !runs || context.out.closed() {
                return Ok(ExitCode::Done);
            }
            if !is_locked(&dir) {
                return Err(not_running(&dir));
            }
            wake.changed().await;
        }
    })
}

fn seconds(at: SystemTime) -> f64 {
    at.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

fn show_line(context: &Context, line: &[u8]) -> Result<(), CommandError> {
    let line = String::from_utf8_lossy(line);
    if context.out.is_json() {
        context.out.json(&json!({"line": line}))
    } else {
        context.out.text(teamd_client::print::escape::text(&line))
    }
}

fn conflict(task: &Task, why: &str) -> CommandError {
    CommandError::new(ExitCode::Conflict, format!("{} {why}", task.title()))
        .hint(format!("`teamctl task show {}` shows more", task.id))
}

/// Returns since when the submission of a task is being checked, if it is.
fn checked_since(team: &Team, id: TaskId) -> Option<f64> {
    let task = team.tasks.get(&id)?;
    let stage = task.submission.as_ref().map(|submission| &submission.stage);
    let is_checked = task.status == TaskStatus::InReview && stage == Some(&Stage::Checking);
    is_checked.then_some(task.updated_at)
}
