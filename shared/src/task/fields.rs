//! The fields of a task that people, the lead and teammates set.

use std::collections::BTreeSet;

use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::free_text::FreeText;
use crate::member::ApproveBy;

use super::{Check, MAX_ATTEMPTS, Task, TaskId, TaskStatus};

/// The longest subject, in characters.
const MAX_SUBJECT: usize = 200;

/// The longest description and the longest check, in bytes: a task is part of one message.
const MAX_TEXT: usize = 200_000;

/// Means no check of its own, or no review.
const NONE: &str = "none";

/// Fields of a task. A field that is not set stays as it is, or has its default. An empty text
/// removes a value; for a check that is `none`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, Args)]
#[serde(default)]
pub struct TaskFields {
    /// What is to be done, in one line
    #[arg(skip)]
    pub subject: Option<String>,
    /// Full description, or - to read it from stdin
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = FreeText)]
    pub description: Option<String>,
    /// Tasks that must be completed first (comma-separated)
    #[arg(long = "after", value_name = "ID", value_delimiter = ',')]
    pub blocked_by: Option<Vec<TaskId>>,
    /// Only this teammate or role may claim it
    #[arg(long = "for", value_name = "NAME|ROLE")]
    #[serde(rename = "for")]
    pub reserved_for: Option<String>,
    /// Priority; higher comes first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub priority: Option<i32>,
    /// Command that must exit with 0, run after `[work] check`; none takes it away
    #[arg(long, value_name = "COMMAND", conflicts_with = "no_check")]
    pub check: Option<String>,
    /// Run no check, not even `[work] check`: the result is not verified
    #[arg(long, num_args = 0, default_missing_value = "true")]
    pub no_check: Option<bool>,
    /// Who must approve the work after the check: person, lead or none
    #[arg(long, value_name = "WHO", value_parser = ["person", "lead", "none"])]
    pub review: Option<String>,
    /// Make the teammate that claims it read-only until a plan is approved
    #[arg(long, num_args = 0, default_missing_value = "true")]
    pub plan: Option<bool>,
    /// How many checks may fail [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub max_attempts: Option<u32>,
}

impl TaskFields {
    /// Returns the first field that only a person or the lead sets: a teammate does not choose how
    /// its work is checked.
    pub fn reserved(&self) -> Option<&'static str> {
        let fields = [
            ("check", self.check.is_some()),
            ("no_check", self.no_check.is_some()),
            ("review", self.review.is_some()),
            ("for", self.reserved_for.is_some()),
            ("max_attempts", self.max_attempts.is_some()),
        ];
        fields
            .into_iter()
            .find(|(_, is_set)| *is_set)
            .map(|(name, _)| name)
    }

    /// Makes the task with this number. The caller has looked at the tasks that it waits for.
    ///
    /// # Errors
    /// What is wrong with a field. Fits behind "error: ".
    pub fn create(&self, id: TaskId, by: &str, at: f64) -> Result<Task, String> {
        let subject = self.subject.clone().ok_or("a task needs a subject")?;
        // Most often, a shell variable in the command was not set.
        if self
            .reserved_for
            .as_ref()
            .is_some_and(|who| who.trim().is_empty())
        {
            return Err("`for` is empty: name a teammate or a role, or leave it out".to_owned());
        }
        let new = Task {
            id,
            subject,
            description: String::new(),
            status: TaskStatus::Pending,
            owner: None,
            blocked_by: BTreeSet::new(),
            blocks: BTreeSet::new(),
            reserved_for: None,
            priority: 0,
            check: None,
            no_check: false,
            review: None,
            plan: false,
            attempts: 0,
            max_attempts: MAX_ATTEMPTS,
            returns: 0,
            reminders: 0,
            idle_releases: 0,
            protected: None,
            kept: Vec::new(),
            submission: None,
            stalled: None,
            returned: None,
            branch: None,
            order: None,
            source: None,
            result: None,
            created_by: by.to_owned(),
            created_at: at,
            updated_at: at,
        };
        self.change(&new, by)
    }

    /// Returns a task with these fields changed.
    ///
    /// # Errors
    /// What is wrong with a field. Fits behind "error: ".
    pub fn change(&self, task: &Task, by: &str) -> Result<Task, String> {
        let mut next = task.clone();
        if let Some(subject) = &self.subject {
            subject.trim().clone_into(&mut next.subject);
        }
        if let Some(text) = &self.description {
            next.description.clone_from(text);
        }
        if let Some(before) = &self.blocked_by {
            next.blocked_by = before.iter().copied().collect();
        }
        if let Some(who) = &self.reserved_for {
            next.reserved_for = not_blank(who);
        }
        if let Some(command) = &self.check {
            // Most often, a shell variable in the command was not set.
            let command =
                not_blank(command).ok_or("the check is empty: write a command, or `none`")?;
            next.check = (command != NONE).then(|| Check {
                command,
                set_by: by.to_owned(),
            });
            next.no_check = false;
        }
        if let Some(who) = &self.review {
            next.review = match who.as_str() {
                "" | NONE => None,
                who => Some(ApproveBy::from_str(who, false).map_err(|_| {
                    format!("`review` is \"person\", \"lead\" or \"none\", not {who:?}")
                })?),
            };
        }
        next.priority = self.priority.unwrap_or(next.priority);
        next.no_check = self.no_check.unwrap_or(next.no_check);
        next.plan = self.plan.unwrap_or(next.plan);
        next.max_attempts = self.max_attempts.unwrap_or(next.max_attempts);
        is_usable(&next)?;
        Ok(next)
    }
}

fn is_usable(task: &Task) -> Result<(), String> {
    if task.subject.is_empty() || task.subject.contains(['\n', '\r']) {
        return Err("the subject of a task is one line of text".to_owned());
    }
    if task.subject.chars().count() > MAX_SUBJECT {
        return Err(format!(
            "the subject has more than {MAX_SUBJECT} characters: the rest belongs into the description"
        ));
    }
    is_short_enough("description", &task.description)?;
    is_short_enough(
        "check",
        task.check.as_ref().map_or("", |check| &check.command),
    )?;
    if task.blocked_by.contains(&task.id) {
        Err(format!("task {} cannot wait for itself", task.id))
    } else {
        Ok(())
    }
}

fn is_short_enough(what: &str, text: &str) -> Result<(), String> {
    if text.len() > MAX_TEXT {
        return Err(format!(
            "the {what} has {} bytes, the limit is {MAX_TEXT}",
            text.len()
        ));
    }
    Ok(())
}

/// Returns a text without the blanks around it; none if nothing else is there.
fn not_blank(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
