//! Who can take a task. A name or a role that no teammate has is usually a typing mistake, and then
//! the task would wait forever.

use std::collections::{BTreeMap, BTreeSet};

use teamd_client::context::Context;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::read::roster;
use teamd_shared::journal::Team;
use teamd_shared::message::LEAD;
use teamd_shared::suggest;
use teamd_shared::task::{Task, TaskFields, TaskId};

/// How many tasks are named that wait for the same reason, and how many reasons.
const NAMED: usize = 5;

/// Refuses tasks for a name or role that neither the roster nor `team.toml` knows, unless it is to
/// come later.
///
/// # Errors
/// [`ExitCode::NotFound`] for the first of them, or if the roster cannot be read.
pub(crate) fn check(
    context: &Context,
    tasks: &[TaskFields],
    later: bool,
) -> Result<(), CommandError> {
    let wanted = tasks
        .iter()
        .filter_map(|fields| fields.reserved_for.as_deref())
        .map(str::trim);
    let wanted: Vec<&str> = wanted.filter(|whom| !whom.is_empty()).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let names = names(context)?;
    match wanted
        .into_iter()
        .find(|whom| *whom == LEAD || !later && !names.contains(*whom))
    {
        None => Ok(()),
        Some(LEAD) => Err(
            CommandError::new(ExitCode::Usage, "the lead agent cannot hold tasks")
                .hint("`--for` takes the name or the role of a teammate"),
        ),
        Some(unknown) => Err(refused(unknown, &names)),
    }
}

/// Returns the names and roles that teammates have, or will have by `team.toml`.
fn names(context: &Context) -> Result<BTreeSet<String>, CommandError> {
    let mut names = BTreeSet::new();
    if let Ok(dir) = context.dir() {
        for member in roster::load(&dir)?
            .members
            .into_iter()
            .filter(|member| member.name.as_str() != LEAD)
        {
            names.extend([member.name.to_string(), member.role]);
        }
    }
    // What is wrong with the file has been reported already.
    if let Ok(file) = &context.file {
        for (member, terms) in &file.members {
            names.extend(file.teammates(member).iter().map(ToString::to_string));
            names.extend(terms.role.clone());
        }
        names.extend(file.roles.keys().cloned());
    }
    names.remove("");
    Ok(names)
}

fn refused(unknown: &str, names: &BTreeSet<String>) -> CommandError {
    let message = format!("no teammate is named {unknown:?}, or has this role");
    let error = CommandError::new(ExitCode::NotFound, message);
    let there_are = if names.is_empty() {
        "there is no teammate yet".to_owned()
    } else {
        suggest::among(
            unknown,
            "names and roles are",
            names.iter().map(String::as_str),
        )
    };
    error
        .hint(there_are)
        .hint("`--later` keeps the task for one that is spawned later")
}

/// Tasks that no teammate can take, for one reason.
pub(crate) struct Untaken {
    /// Why.
    pub(crate) why: String,
    ids: Vec<TaskId>,
    /// What to do next.
    pub(crate) next: String,
}

impl Untaken {
    /// Returns the tasks of a team that no teammate can take.
    pub(crate) fn of(team: &Team) -> Vec<Self> {
        let mut reasons: BTreeMap<String, Self> = BTreeMap::new();
        for task in team.tasks.values() {
            let Some(why) = team.no_taker(task) else {
                continue;
            };
            reasons
                .entry(why.clone())
                .or_insert_with(|| Self {
                    why: why.clone(),
                    ids: Vec::new(),
                    next: next_step(team, task),
                })
                .ids
                .push(task.id);
        }
        reasons.into_values().collect()
    }

    /// Names these tasks, and why no teammate can take them.
    pub(crate) fn describe(&self) -> String {
        let noun = if self.ids.len() == 1 { "task" } else { "tasks" };
        let ids: Vec<String> = self
            .ids
            .iter()
            .take(NAMED)
            .map(ToString::to_string)
            .collect();
        let more = match self.ids.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!(
            "no teammate can take {noun} {}{more}: {}",
            ids.join(", "),
            self.why
        )
    }
}

fn next_step(team: &Team, task: &Task) -> String {
    let able = team.able(task).next();
    match (able, &task.reserved_for) {
        (Some(member), _) => format!("`teamctl spawn {} --resume` starts it again", member.name),
        (None, Some(_)) => format!(
            "`teamctl task edit {} --for NAME` keeps it for another one",
            task.id
        ),
        (None, None) => "`teamctl spawn NAME --auto` starts one".to_owned(),
    }
}

/// Notes which tasks no teammate can take, and why.
pub(super) fn note(context: &Context, team: &Team) {
    for untaken in Untaken::of(team).iter().take(NAMED) {
        context.out.note(escape::line(&untaken.describe()));
        context.out.hint(escape::line(&untaken.next));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use teamd_client::testing::context;
    use teamd_client::testing::{member, team};

    #[test]
    fn a_task_is_for_a_name_or_a_role_that_there_is() {
        let mut alice = member("alice", "idle");
        alice["role"] = json!("coder");
        let (_scratch, dir) = team(&json!([alice, member("lead", "idle")]));
        let (context, ..) = context(&dir, false);
        let told = |whom: &str, later: bool| {
            let fields = TaskFields {
                reserved_for: Some(whom.to_owned()),
                ..TaskFields::default()
            };
            check(&context, &[TaskFields::default(), fields], later).map_err(|error| {
                (
                    error.code(),
                    error.next_step().unwrap_or_default().to_owned(),
                )
            })
        };
        for known in ["alice", "coder", " coder ", ""] {
            assert_eq!(told(known, false), Ok(()), "{known}");
        }
        let (code, hint) = told("codre", false).unwrap_err();
        assert_eq!(code, ExitCode::NotFound);
        assert!(
            hint.starts_with("did you mean coder? names and roles are alice, coder; `--later`"),
            "{hint}"
        );
        assert_eq!(told("zoe", true), Ok(()));
        assert_eq!(told("lead", true).unwrap_err().0, ExitCode::Usage);
    }
}
