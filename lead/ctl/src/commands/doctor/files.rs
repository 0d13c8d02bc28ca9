//! The team's own files, as `lint` checks them.

use std::collections::BTreeSet;

use teamd_client::print::render::count;
use teamd_shared::fingerprint::ProtectedFiles;
use teamd_shared::json;
use teamd_shared::name::Name;
use teamd_shared::task::{Task, TaskId, TaskStatus};
use teamd_shared::team_dir::TeamPath;
use teamd_shared::transcript;

use super::finding::DoctorCheck;
use super::snapshot::Snapshot;
use crate::commands::lint::{self, Remark};
use crate::commands::task::takers::Untaken;

/// Judges the inboxes: each line is a message, and each inbox has a reader.
pub(super) fn inboxes(snapshot: &Snapshot, check: &mut DoctorCheck) -> Option<String> {
    let mut inboxes = 0;
    let mut lines = 0;
    for (inbox, name) in snapshot.owned("inbox") {
        if let Some(bytes) = read(snapshot, check, &inbox.at) {
            let remarks = lint::messages::lint(&bytes);
            let offset = consumed(snapshot, &name).min(bytes.len());
            let consumed_lines = newlines(&bytes[..offset]);
            let unread = remarks
                .iter()
                .filter(|remark| is_error(remark) && remark.line > consumed_lines)
                .count();
            if let Some(error) = Unusable::of(&inbox.at, &remarks) {
                let means = format!("{}; {unread} still to be read", error.means);
                check.note(error.what, &means, &error.next);
            }
            torn(snapshot, check, &inbox.at, &remarks);
            inboxes += 1;
            lines += newlines(&bytes);
        }
        let has_reader = snapshot
            .team()
            .is_none_or(|team| team.members.contains_key(&name));
        if !has_reader && name != Name::lead() && !snapshot.locked {
            let what = format!("there is an inbox of {name}, who is not on the roster");
            let next = format!("`teamctl spawn {name}` makes a reader; else move the file away");
            check.note(what, "no worker reads it", &next);
        }
    }
    let inboxes = if inboxes == 1 {
        "1 inbox".to_owned()
    } else {
        format!("{inboxes} inboxes")
    };
    let lines = count(lines, "line");
    Some(format!("{inboxes}, {lines}, each a message"))
}

fn newlines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte == b'\n').count()
}

/// Judges the transcripts: each line is an entry, and each result belongs to a call.
pub(super) fn transcripts(snapshot: &Snapshot, check: &mut DoctorCheck) -> Option<String> {
    let mut transcripts = 0;
    for (transcript, _) in snapshot.owned("transcript") {
        if let Some(bytes) = read(snapshot, check, &transcript.at) {
            let remarks = lint::transcript::lint(&bytes);
            if let Some(error) = Unusable::of(&transcript.at, &remarks) {
                check.problem(error.what, error.means, &error.next);
            }
            torn(snapshot, check, &transcript.at, &remarks);
            transcripts += 1;
        }
    }
    let transcripts = count(transcripts, "transcript");
    Some(format!("{transcripts}, each line an entry"))
}

/// Judges the tasks: each can continue, and someone can take it.
pub(super) fn tasks(snapshot: &Snapshot, check: &mut DoctorCheck) -> Option<String> {
    let team = snapshot.team()?;
    for task in team.tasks.values() {
        let Some(why) = task.held_up() else {
            continue;
        };
        let next = match task.status {
            TaskStatus::Pending => format!("fix that, then `teamctl task assign {} NAME`", task.id),
            _ => "fix that: it is tried again".to_owned(),
        };
        let what = format!("{} is stalled: {why}", task.title());
        check.problem(what, "it cannot continue until this is fixed", &next);
    }
    for untaken in Untaken::of(team) {
        check.note(untaken.describe(), "it waits until one can", &untaken.next);
    }
    protected(snapshot, &team.work.protect, check);
    Some(format!("none of {} is stalled", team.tasks.len()))
}

/// Judges the files of tasks: each says what the journal says.
pub(super) fn files_of_tasks(snapshot: &Snapshot, check: &mut DoctorCheck) -> Option<String> {
    const FROM_JOURNAL: &str = "commands go by the journal, other programs by this file";
    const REWRITTEN: &str = "`teamd start` writes it again";
    let team = snapshot.team()?;
    let mut missing: BTreeSet<TaskId> = team.tasks.keys().copied().collect();
    let files = snapshot
        .files
        .iter()
        .filter(|file| file.at.folder() == Some("tasks"));
    for at in files.map(|file| &file.at) {
        let Some(id) = task_of(at).filter(|&id| team.task_status(id).is_some()) else {
            let next = "move the file away, if no program of yours needs it";
            check.note(format!("{at} matches no task"), "no program reads it", next);
            continue;
        };
        missing.remove(&id);
        let Some(bytes) = read(snapshot, check, at) else {
            continue;
        };
        let shown = json::read::<Task>(&bytes).ok();
        if let Some(task) = team.tasks.get(&id) {
            if shown.as_ref() != Some(task) {
                let what = format!("{at} disagrees with the journal");
                check.problem(what, FROM_JOURNAL, REWRITTEN);
            }
        } else if shown.is_none_or(|shown| (shown.id, shown.status) != (id, TaskStatus::Completed))
        {
            check.problem(
                format!("{at} is no longer the file of a completed task"),
                "that file alone shows how the task was checked",
                "`teamctl events` shows what the journal says of it",
            );
        }
    }
    for id in missing {
        let what = format!("there is no {}", TeamPath::task(id));
        check.problem(what, FROM_JOURNAL, REWRITTEN);
    }
    None
}

/// Returns the task whose file this is.
fn task_of(at: &TeamPath) -> Option<TaskId> {
    let id = at.file_name().strip_suffix(".json")?.parse().ok()?;
    Some(id).filter(|&id| TeamPath::task(id) == *at)
}

/// Judges the patterns of protected files.
fn protected(snapshot: &Snapshot, patterns: &[String], check: &mut DoctorCheck) {
    const NEXT: &str = "correct `[work] protect` in team.toml, and restart the daemon";
    for pattern in patterns {
        match ProtectedFiles::find(&snapshot.dir.workspace(), std::slice::from_ref(pattern)) {
            Ok(files) if files.is_empty() => {
                let what = format!("no file matches the protected pattern {pattern:?}");
                check.note(what, "it protects nothing", NEXT);
            }
            Ok(_) => {}
            Err(error) => {
                let what = format!("the protected pattern {pattern:?} cannot be examined: {error}");
                let means = "work in place counts as if it had touched the files";
                check.note(what, means, NEXT);
            }
        }
    }
}

fn read(snapshot: &Snapshot, check: &mut DoctorCheck, at: &TeamPath) -> Option<Vec<u8>> {
    match snapshot.dir.read(at) {
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

/// What is wrong with lines of a file; what is legal and unwise is not.
struct Unusable<'a> {
    what: String,
    means: &'a str,
    next: String,
}

impl<'a> Unusable<'a> {
    fn of(at: &TeamPath, remarks: &'a [Remark]) -> Option<Self> {
        let errors = remarks.iter().filter(|remark| is_error(remark)).count();
        let first = remarks.iter().find(|remark| is_error(remark))?;
        let lines = count(errors, "line");
        Some(Self {
            what: format!(
                "{lines} of {at} cannot be used; line {}: {}",
                first.line, first.what
            ),
            means: &first.reader,
            next: format!("`teamctl lint {at}` in the team directory shows each"),
        })
    }
}

/// Notes a last line without a newline, unless a process may be writing it.
fn torn(snapshot: &Snapshot, check: &mut DoctorCheck, at: &TeamPath, remarks: &[Remark]) {
    let torn = remarks
        .iter()
        .find(|remark| remark.severity == lint::LintLevel::Torn);
    if let Some(torn) = torn
        && !snapshot.is_at_work()
    {
        let next = "nothing, unless you wrote it: `echo >> FILE` ends the line";
        check.note(format!("{at}: {}", torn.what), &torn.reader, next);
    }
}

/// Returns how many bytes of its inbox a member has consumed, or the daemon of the lead's. The
/// transcript of a member says so, else the journal says where it begins.
fn consumed(snapshot: &Snapshot, name: &Name) -> usize {
    let position = if *name == Name::lead() {
        snapshot.team().map(|team| team.lead)
    } else {
        let recorded = transcript::position(&snapshot.dir, name).ok().flatten();
        recorded.or_else(|| {
            let member = snapshot.team()?.members.get(name)?;
            Some(member.record.begins_at)
        })
    };
    position.map_or(0, |position| {
        usize::try_from(position.offset).unwrap_or(usize::MAX)
    })
}
