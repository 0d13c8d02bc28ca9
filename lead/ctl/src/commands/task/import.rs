//! Many tasks from one file: a Markdown checklist, TOML, or JSON. Pure but for the reading of the
//! file.

mod checklist;
mod issues;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use teamd_client::context::Context;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::read::text;
use teamd_shared::message::USER;
use teamd_shared::task::{TaskFields, TaskId};
use toml::{Spanned, Table};

pub(super) use issues::import as import_issues;

/// The most tasks of a file.
const MOST: usize = 10_000;

/// How many tasks are named that wait for each other.
const NAMED: usize = 10;

/// A task of a file: with a number of its own, that others of the file name.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ImportItem {
    id: Option<TaskId>,
    #[serde(flatten)]
    fields: TaskFields,
    /// Any other key: a field that only the daemon sets, or a mistake.
    #[serde(flatten)]
    more: BTreeMap<String, IgnoredAny>,
    /// Its line in the file.
    #[serde(skip)]
    line: usize,
}

/// Keys of the JSON of a task that are ignored.
const SET_BY_DAEMON: [&str; 17] = [
    "status",
    "owner",
    "blocks",
    "attempts",
    "reminders",
    "returns",
    "idle_releases",
    "kept",
    "protected",
    "submission",
    "sending_from",
    "stalled",
    "result",
    "source",
    "created_by",
    "created_at",
    "updated_at",
];

impl ImportItem {
    /// Checks whether it can become a task. Otherwise a misspelled key could, for example, remove a
    /// check.
    fn is_usable(&self) -> Result<(), String> {
        if let Some(unknown) = self
            .more
            .keys()
            .find(|it| !SET_BY_DAEMON.contains(&it.as_str()))
        {
            return Err(format!(
                "line {}: a task has no field `{unknown}`",
                self.line
            ));
        }
        let alone = TaskFields {
            blocked_by: None,
            ..self.fields.clone()
        };
        match alone.create(0, USER, 0.0) {
            Ok(_) => Ok(()),
            Err(why) => Err(format!("line {}: {why}", self.line)),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TomlFile {
    task: Vec<Spanned<Table>>,
}

/// Reads a file: each task comes after those that it waits for, and names them by their places,
/// from 1. Notes which lines of a checklist became no task.
///
/// # Errors
/// [`ExitCode::Usage`] for what is no list of tasks, with the place in the file.
pub(crate) fn read(context: &Context, file: &Path) -> Result<Vec<TaskFields>, CommandError> {
    let content = text::from_file(file)?;
    let (tasks, passed_over) = parse(&content).map_err(|why| {
        CommandError::new(ExitCode::Usage, format!("{}: {why}", file.display()))
            .hint("`teamctl task import --help` shows the forms; nothing was made")
    })?;
    if tasks.len() > MOST {
        let message = format!(
            "{} has {} tasks, the limit is {MOST}",
            file.display(),
            tasks.len()
        );
        return Err(CommandError::new(ExitCode::Usage, message).hint("import it in parts"));
    }
    if let Some(note) = passed_over {
        context.out.note(note);
    }
    Ok(tasks)
}

/// Reads the tasks of a file, and which of its lines became none.
fn parse(content: &str) -> Result<(Vec<TaskFields>, Option<String>), String> {
    // Some editors put it in front.
    let content = content.strip_prefix('\u{feff}').unwrap_or(content);
    let (items, passed_over) = if is_json(content) {
        (json(content)?, None)
    } else if is_toml(content) {
        (toml(content)?, None)
    } else {
        checklist::read(content)?
    };
    if items.is_empty() {
        return Err("there are no tasks in it".to_owned());
    }
    items.iter().try_for_each(ImportItem::is_usable)?;
    Ok((in_order(items)?, passed_over))
}

/// Tells whether it is an array of JSON. (A Markdown text may begin with a link.)
fn is_json(content: &str) -> bool {
    let inside = content.trim_start().strip_prefix('[').map(str::trim_start);
    inside.is_some_and(|inside| inside.is_empty() || inside.starts_with(['{', ']']))
}

/// Tells whether it is TOML: its first line that is no comment begins a task. (A Markdown text may
/// show one further below.)
fn is_toml(content: &str) -> bool {
    let first = content
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| line.starts_with("[[task]]"))
}

fn line_of(content: &str, at: usize) -> usize {
    content[..at.min(content.len())].lines().count().max(1)
}

fn toml_error(content: &str, at: usize, error: &toml::de::Error) -> String {
    let line = line_of(content, at);
    format!(
        "line {line}: {}",
        error.to_string().trim().replace('\n', ", ")
    )
}

fn toml(content: &str) -> Result<Vec<ImportItem>, String> {
    let tasks = toml::from_str::<TomlFile>(content)
        .map_err(|it| toml_error(content, it.span().map_or(0, |span| span.start + 1), &it))?
        .task;
    tasks
        .into_iter()
        .map(|task| {
            let at = task.span().start + 1;
            let item = task
                .into_inner()
                .try_into::<ImportItem>()
                .map_err(|it| toml_error(content, at, &it))?;
            Ok(ImportItem {
                line: line_of(content, at),
                ..item
            })
        })
        .collect()
}

fn json(content: &str) -> Result<Vec<ImportItem>, String> {
    let items =
        serde_json::from_str::<Vec<ImportItem>>(content).map_err(|error| error.to_string())?;
    let raw = serde_json::from_str::<Vec<&RawValue>>(content).map_err(|error| error.to_string())?;
    let mut line = 1;
    let mut rest = content;
    let placed = items.into_iter().zip(raw).map(|(item, raw)| {
        let at = raw.get().as_ptr().addr() - rest.as_ptr().addr();
        line += rest[..at].matches('\n').count();
        rest = &rest[at..];
        ImportItem { line, ..item }
    });
    Ok(placed.collect())
}

/// Puts each task after those that it waits for.
fn in_order(items: Vec<ImportItem>) -> Result<Vec<TaskFields>, String> {
    let mut places = BTreeMap::new();
    for (place, item) in items.iter().enumerate() {
        let id = item
            .id
            .or_else(|| u32::try_from(place + 1).ok())
            .unwrap_or_default();
        if places.insert(id, place).is_some() {
            return Err(format!("line {}: two tasks have the id {id}", item.line));
        }
    }
    let mut waits: Vec<Vec<usize>> = Vec::new();
    for item in &items {
        let mut waits_for = Vec::new();
        for id in item.fields.blocked_by.iter().flatten() {
            let Some(place) = places.get(id) else {
                return Err(format!(
                    "line {}: it waits for {id}, which is not in the file",
                    item.line
                ));
            };
            waits_for.push(*place);
        }
        waits.push(waits_for);
    }
    let mut done = BTreeSet::new();
    let mut order = Vec::new();
    // Kahn's algorithm; of those that can come next, the first of the file.
    let mut open: BTreeSet<usize> = (0..items.len())
        .filter(|&place| waits[place].is_empty())
        .collect();
    let mut behind: Vec<Vec<usize>> = vec![Vec::new(); items.len()];
    for (place, before) in waits.iter().enumerate() {
        for &earlier in before.iter() {
            behind[earlier].push(place);
        }
    }
    while let Some(place) = open.pop_first() {
        done.insert(place);
        order.push(place);
        open.extend(behind[place].iter().filter(|&&next| {
            waits[next].iter().all(|earlier| done.contains(earlier)) && !done.contains(&next)
        }));
    }
    if let Some(stuck) = (0..items.len()).find(|place| !done.contains(place)) {
        return Err(cycle(&items, (stuck, &waits, &done)));
    }
    let new: BTreeMap<usize, TaskId> = order
        .iter()
        .zip(1..)
        .map(|(&place, new)| (place, new))
        .collect();
    let mut items: Vec<Option<ImportItem>> = items.into_iter().map(Some).collect();
    let taken = order.iter().filter_map(|&place| {
        let fields = items[place].take()?.fields;
        let blocked_by = waits[place].iter().map(|before| new[before]).collect();
        Some(TaskFields {
            blocked_by: Some(blocked_by),
            ..fields
        })
    });
    Ok(taken.collect())
}

/// Describes a cycle: from a task that is not done, follows one that it waits for and that is not
/// done.
fn cycle(
    items: &[ImportItem],
    (stuck, waits, done): (usize, &[Vec<usize>], &BTreeSet<usize>),
) -> String {
    let mut way = Vec::new();
    let mut at = stuck;
    while !way.contains(&at) {
        way.push(at);
        at = waits[at]
            .iter()
            .copied()
            .find(|next| !done.contains(next))
            .unwrap_or(stuck);
    }
    way.drain(
        ..way
            .iter()
            .position(|&first| first == at)
            .unwrap_or_default(),
    );
    let lines: Vec<String> = way
        .iter()
        .take(NAMED)
        .map(|&it| items[it].line.to_string())
        .collect();
    let more = if way.len() > NAMED { " and others" } else { "" };
    format!(
        "line {}: tasks wait for each other: lines {}{more}",
        items[at].line,
        lines.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &str) -> Result<Vec<(String, Vec<TaskId>)>, String> {
        let (tasks, _) = parse(content)?;
        Ok(tasks
            .into_iter()
            .map(|task| {
                (
                    task.subject.unwrap_or_default(),
                    task.blocked_by.unwrap_or_default(),
                )
            })
            .collect())
    }

    fn task(subject: &str, after: &[TaskId]) -> (String, Vec<TaskId>) {
        (subject.to_owned(), after.to_vec())
    }

    #[test]
    fn what_is_nested_comes_before_what_it_is_nested_in() {
        let content = "# Release\n\n- [ ] ship\n  - [ ] test\n    all of it\n    - [ ] build\n  - [x] old\n- [ ] tell\n";
        assert_eq!(
            read(content).unwrap(),
            [
                task("build", &[]),
                task("test", &[1]),
                task("ship", &[2]),
                task("tell", &[])
            ]
        );
        assert_eq!(
            parse(content).unwrap().0[1].description.as_deref(),
            Some("all of it")
        );
    }

    #[test]
    fn toml_and_json_have_the_fields_of_a_task() {
        let json = r#"[{"id": 7, "subject": "a", "blocked_by": [9], "check": "true"}, {"id": 9, "subject": "b", "status": "pending"}]"#;
        assert_eq!(read(json).unwrap(), [task("b", &[]), task("a", &[1])]);
        let toml =
            "[[task]]\nsubject = 'a'\nfor = 'coder'\n\n[[task]]\nsubject = 'b'\nblocked_by = [1]\n";
        assert_eq!(read(toml).unwrap(), [task("a", &[]), task("b", &[1])]);
        assert_eq!(
            parse(toml).unwrap().0[0].reserved_for.as_deref(),
            Some("coder")
        );
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_place() {
        for (content, told) in [
            ("", "line 1"),
            ("just text", "line 1"),
            ("[]", "no tasks"),
            ("[{\"subject\": 5}]", "line 1 column"),
            (
                "\n[[task]]\nsubject = 'a'\nblocked_by = 'x'\n",
                "line 2: invalid type",
            ),
            ("[[task]]\nsubject = \n", "line 2: "),
            (
                "\n[[task]]\nsubject = 'a'\nblocked_by = [4]\n",
                "line 2: it waits for 4",
            ),
            (
                "[\n{\"subject\":\"x\",\"blocked_by\":[3]},\n{\"subject\":\"a\",\"blocked_by\":[3]},\n{\"subject\":\"b\",\"blocked_by\":[2]}\n]",
                "line 4: tasks wait for each other: lines 4, 3",
            ),
            (
                "[{\"id\":1,\"subject\":\"a\"},\n {\"id\":1,\"subject\":\"b\"}]",
                "line 2: two tasks have the id 1",
            ),
            (
                "[[task]]\nsubject = 'a'\n\n[[task]]\nsubject = 'b'\nblocked_by = [2]\n",
                "line 4: tasks wait for each other: lines 4",
            ),
            ("- [ ] a\n- [ ]  \n", "line 2: the subject"),
            (
                "[\n{\"subject\": \"a\", \"chek\": \"false\"}]",
                "line 2: a task has no field `chek`",
            ),
            (
                "[[task]]\nsubject = 'a'\nChecks = 'x'\n",
                "line 1: a task has no field `Checks`",
            ),
            (
                "[{\"description\": \"a\"}]",
                "line 1: a task needs a subject",
            ),
        ] {
            let error = read(content).unwrap_err();
            assert!(error.contains(told), "{content:?}: {error}");
        }
    }
}
