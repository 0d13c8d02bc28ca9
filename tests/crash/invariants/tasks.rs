//! A task is what its file says. One that is completed was claimed and submitted before, once, and
//! its check has passed.

use serde_json::{Value, json};
use teamd_shared::journal::{Record, Team as Fold};
use teamd_shared::task::{TaskEvent, TaskStatus};

use crate::scenarios::work::ordered;
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
        hold(count(TaskEvent::Created) == 1, || {
            format!("task {id} was made twice: {events:?}")
        })?;
        let completed = usize::from(task.status == TaskStatus::Completed);
        hold(count(TaskEvent::Completed) == completed, || {
            format!("task {id} is {:?}, after {events:?}", task.status)
        })?;
        if task.status == TaskStatus::Completed {
            let known = count(TaskEvent::Claimed) > 0 && count(TaskEvent::Submitted) > 0;
            let is_merged = task
                .result
                .as_ref()
                .is_some_and(|result| result.merged.is_some());
            hold(known && (is_merged || stage.team.made("made")), || {
                format!("task {id} is completed, and its work is not done: {events:?}")
            })?;
        }
    }
    for name in fold.members.keys() {
        told(stage, name.as_str())?;
    }
    let (made, triggers) = ordered(fold);
    hold(made <= triggers, || {
        format!("orders made {made} tasks, and {triggers} were completed")
    })?;
    integrated(stage, fold)
}

/// What a teammate was told that it has claimed or submitted with a call, the journal has.
fn told(stage: &Stage, name: &str) -> Checked {
    let transcript = stage.transcript(name);
    let succeeded = |call: &Value| {
        let of_call =
            |entry: &&Value| entry["entry"] == "result" && entry["tool_use_id"] == call["id"];
        let result = transcript.iter().find(of_call);
        result.is_some_and(|result| result["is_error"] == false)
    };
    let blocks = transcript
        .iter()
        .flat_map(|entry| entry["content"].as_array().into_iter().flatten());
    let journal = stage.journal();
    for call in blocks.filter(|call| succeeded(call)) {
        let event = match call["name"].as_str().unwrap_or_default() {
            "claim_task" => TaskEvent::Claimed,
            "task_update" if call["input"]["status"] == "completed" => TaskEvent::Submitted,
            _ => continue,
        };
        let is_recorded = journal.iter().any(|line| match &line.record {
            Record::Task(it) => {
                it.event == event && it.by == name && call["input"]["task_id"] == it.task.id
            }
            _ => false,
        });
        hold(is_recorded, || {
            format!("{name} was told that this was done, and the journal has no {event:?}: {call}")
        })?;
    }
    Ok(())
}

/// The integration branch has one merge for each task that was integrated, in which its work is,
/// and nothing unfinished lies beside it.
fn integrated(stage: &Stage, fold: &Fold) -> Checked {
    let Some(home) = stage.git_home() else {
        return Ok(());
    };
    let git = |args: &[&str]| {
        let repository = format!("--git-dir={}", home.join("team.git").display());
        let args: Vec<&str> = [repository.as_str()]
            .into_iter()
            .chain(args.iter().copied())
            .collect();
        let run = stage.team.run_program("git", &args);
        hold(run.is_done(), || format!("git {args:?}: {run:?}"))?;
        Ok(run.stdout)
    };
    let format = "--format=%H %P %(trailers:key=Task,valueonly,separator=)";
    let merges = git(&["log", "--first-parent", "--merges", format, "integration"])?;
    let mut found: Vec<(u32, String)> = Vec::new();
    for merge in merges.lines() {
        let commit = merge.split(' ').next();
        let task = merge.rsplit(' ').next();
        found.extend(
            task.and_then(|task| task.trim().parse().ok())
                .zip(commit.map(str::to_owned)),
        );
    }
    found.sort_unstable();
    let merged = fold
        .tasks
        .values()
        .filter_map(|task| Some((task.id, task.result.as_ref()?.merged.clone()?)));
    let wanted: Vec<(u32, String)> = merged.collect();
    hold(found == wanted, || {
        format!("tasks that are completed: {wanted:?}, merges: {found:?}")
    })?;
    for (_, commit) in &found {
        git(&["cat-file", "-e", &format!("{commit}:made")])?;
    }
    git(&["fsck", "--strict", "--connectivity-only"])?;
    let unfinished = ["new.git", "alice.new", "bob.new"].map(|left| home.join(left));
    let left = unfinished
        .iter()
        .find(|left| left.symlink_metadata().is_ok());
    hold(left.is_none(), || format!("{left:?} is left"))?;
    let incoming = home.join("team.git/incoming/pack").read_dir();
    let is_empty = incoming.map_or(true, |mut files| files.next().is_none());
    hold(is_empty, || "a pack is left that came in".to_owned())
}
