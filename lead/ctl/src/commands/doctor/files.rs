//! The team's own files, as `lint` checks them.

use std::collections::BTreeSet;

use teamd_client::print::render::count;
use teamd_shared::fingerprint::ProtectedFiles;
use teamd_shared::json;
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::task::{Task, TaskId, TaskStatus};
use teamd_shared::team_dir::TeamPath;
use teamd_shared::transcript;

use super::finding::{Check, Severity};
use super::seen::Seen;
use crate::commands::lint::{self, Remark};
use crate::commands::task::takers::Untaken;

/// Judges the inboxes: each line is a message, and each inbox has a reader.
pub(super) fn inboxes(seen: &Seen, check: &mut Check) -> Option<String> {
    let mut inboxes = 0;
    let mut lines = 0;
    for (found, name) in seen.owned("inbox") {
        if let Some(bytes) = read(seen, check, &found.at) {
            let remarks = lint::messages::lint(&bytes);
            let newlines = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == b'\n').count();
            // What is no message in the inbox of the lead is put into quarantine by the daemon.
            let read = if name == Name::lead() {
                seen.team().map(|team| team.lead)
            } else {
                position(seen, &name)
            };
            let consumed = read.map_or(0, |it| usize::try_from(it.offset).unwrap_or(0));
            let consumed = newlines(&bytes[..consumed.min(bytes.len())]);
            let unread = remarks
                .iter()
                .filter(|it| is_error(it) && it.line > consumed)
                .count();
            report(
                check,
                &found.at,
                &remarks,
                (Severity::Note, &format!("; {unread} still to be read")),
            );
            inboxes += 1;
            lines += newlines(&bytes);
        }
        let has_reader = seen
            .team()
            .is_none_or(|team| team.members.contains_key(&name));
        if !has_reader && name != Name::lead() {
            check.note(
                format!("there is an inbox of {name}, who is not on the roster"),
                "no worker reads it",
                &format!("`teamctl spawn {name}` makes a reader; else move the file away"),
            );
        }
    }
    let inboxes = if inboxes == 1 {
        "1 inbox".to_owned()
    } else {
        format!("{inboxes} inboxes")
    };
    Some(format!(
        "{inboxes}, {}, each a message",
        count(lines, "line")
    ))
}

/// Judges the transcripts: each line is an entry, and each result belongs to a call.
pub(super) fn transcripts(seen: &Seen, check: &mut Check) -> Option<String> {
    let mut transcripts = 0;
    for (found, _) in seen.owned("transcript") {
        if let Some(bytes) = read(seen, check, &found.at) {
            report(
                check,
                &found.at,
                &lint::transcript::lint(&bytes),
                (Severity::Problem, ""),
            );
            transcripts += 1;
        }
    }
    Some(format!(
        "{}, each line an entry",
        count(transcripts, "transcript")
    ))
}

/// Judges the files of tasks: each says how a task stands.
pub(super) fn tasks(seen: &Seen, check: &mut Check) -> Option<String> {
    const FROM_JOURNAL: &str = "commands go by the journal, other programs by this file";
    let team = seen.team()?;
    let mut known: BTreeSet<TaskId> = team.tasks.keys().copied().collect();
    let mut files = 0;
    for found in seen
        .files
        .iter()
        .filter(|it| it.at.folder() == Some("tasks"))
    {
        let at = &found.at;
        let number = at
            .file_name()
            .strip_suffix(".json")
            .and_then(|it| it.parse::<TaskId>().ok());
        let Some(id) =
            number.filter(|&it| team.task_status(it).is_some() && TeamPath::task(it) == *at)
        else {
            let next = "move the file away, if no program of yours needs it";
            check.note(format!("{at} matches no task"), "no program reads it", next);
            continue;
        };
        known.remove(&id);
        files += 1;
        let Some(bytes) = read(seen, check, at) else {
            continue;
        };
        let shown = json::read::<Task>(&bytes);
        match (shown, team.tasks.get(&id)) {
            (Ok(shown), Some(task)) if shown == *task => {}
            (Ok(shown), None) if (shown.id, shown.status) == (id, TaskStatus::Completed) => {}
            (_, Some(_)) => {
                let next =
                    "`teamd start` writes it anew; `teamd start --replace` while a daemon runs";
                check.problem(
                    format!("{at} disagrees with the journal"),
                    FROM_JOURNAL,
                    next,
                );
            }
            (_, None) => check.problem(
                format!("{at} is not the file of a completed task any more"),
                "that file alone shows how the task was checked",
                "`teamctl events` shows what the journal says of it",
            ),
        }
    }
    for id in known {
        let next = "`teamd start` writes it anew; `teamd start --replace` while a daemon runs";
        check.problem(
            format!("there is no {}", TeamPath::task(id)),
            FROM_JOURNAL,
            next,
        );
    }
    for (task, why) in team
        .tasks
        .values()
        .filter_map(|task| Some((task, task.held_up()?)))
    {
        let next = match task.status {
            TaskStatus::Pending => format!("fix that, then `teamctl task assign {} NAME`", task.id),
            _ => "fix that: it is tried again".to_owned(),
        };
        check.problem(
            format!("{} is stalled: {why}", task.title()),
            "it cannot continue until this is fixed",
            &next,
        );
    }
    for untaken in Untaken::of(team) {
        check.note(untaken.describe(), "it waits until one can", &untaken.next);
    }
    protected(seen, &team.work.protect, check);
    Some(format!(
        "{}, each as the journal says",
        count(files, "task")
    ))
}

/// Judges the patterns of protected files.
fn protected(seen: &Seen, patterns: &[String], check: &mut Check) {
    for pattern in patterns {
        let next = "correct `[work] protect` in team.toml, and restart the daemon";
        match ProtectedFiles::find(&seen.dir.workspace(), std::slice::from_ref(pattern)) {
            Ok(files) if files.is_empty() => {
                check.note(
                    format!("no file matches the protected pattern {pattern:?}"),
                    "it protects nothing",
                    next,
                );
            }
            Ok(_) => {}
            Err(error) => {
                let what = format!(
                    "the files of the protected pattern {pattern:?} cannot be looked at: {error}"
                );
                check.note(what, "work in place counts as if it had touched them", next);
            }
        }
    }
}

fn read(seen: &Seen, check: &mut Check, at: &TeamPath) -> Option<Vec<u8>> {
    match seen.dir.read(at) {
        Ok(bytes) => Some(bytes),
        // It went away meanwhile.
        Err(error) if error.is_not_found() => None,
        Err(error) => {
            check.problem(
                error.to_string(),
                "its reader fails",
                "look at its permissions, and at the disk",
            );
            None
        }
    }
}

fn is_error(remark: &Remark) -> bool {
    remark.severity == lint::LintLevel::Error
}

/// Tells what is wrong with a file, but not what is legal and unwise.
fn report(
    check: &mut Check,
    at: &TeamPath,
    remarks: &[Remark],
    (severity, more): (Severity, &str),
) {
    let errors = remarks.iter().filter(|remark| is_error(remark)).count();
    if let Some(first) = remarks.iter().find(|remark| is_error(remark)) {
        check.add(
            severity,
            format!(
                "{} of {at} cannot be used; line {}: {}",
                count(errors, "line"),
                first.line,
                first.what
            ),
            &format!("{}{more}", first.reader),
            &format!("`teamctl lint {at}` in the team directory shows each"),
        );
    }
    if let Some(torn) = remarks
        .iter()
        .find(|remark| remark.severity == lint::LintLevel::Torn)
    {
        let next = "nothing, unless you wrote it: `echo >> FILE` ends the line";
        check.note(format!("{at}: {}", torn.what), &torn.reader, next);
    }
}

/// Returns how far a member has consumed its inbox: its transcript says, else the journal where it
/// begins.
fn position(seen: &Seen, name: &Name) -> Option<Position> {
    let told = transcript::position(&seen.dir, name).ok().flatten();
    told.or_else(|| {
        seen.team()?
            .members
            .get(name)
            .map(|state| state.record.begins_at)
    })
}
