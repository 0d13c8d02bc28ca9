//! The list of steps that a model keeps of its work: what a call of `todo_write` holds. Pure.
//!
//! The last call that was carried out is the list. It is in the transcript already, so it needs no
//! record of its own.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::visible::is_hidden;

/// The tool that writes it.
pub const TODO_WRITE: &str = "todo_write";

/// How many steps a list has at most.
pub const MAX_STEPS: usize = 50;

/// How long a step may be, in characters.
pub const MAX_STEP: usize = 200;

/// How much of the present step is shown in a few words, in characters.
const SHOWN: usize = 60;

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(description = "")]
pub struct TodoStep {
    /// What is to be done.
    #[schemars(description = "")]
    pub content: String,
    /// How far it is.
    #[schemars(with = "String", description = "pending, in_progress or completed")]
    pub status: TodoStatus,
}

/// How far a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// It has not begun.
    Pending,
    /// It is done now.
    InProgress,
    /// It is done.
    Completed,
}

/// The steps, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TodoList(Vec<TodoStep>);

impl TodoList {
    /// Makes a list.
    ///
    /// # Errors
    /// A text for the model: what a list must be.
    pub fn new(mut steps: Vec<TodoStep>) -> Result<Self, String> {
        if steps.len() > MAX_STEPS {
            return Err(format!(
                "a list has at most {MAX_STEPS} steps, and this one has {}: put small ones together",
                steps.len()
            ));
        }
        for step in &mut steps {
            step.content = step
                .content
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ");
            let length = step.content.chars().count();
            if length == 0 {
                return Err("the content of a step is blank: say what is to be done".to_owned());
            }
            if length > MAX_STEP {
                return Err(format!(
                    "the content of a step has at most {MAX_STEP} characters, and one has {length}: say it in fewer words"
                ));
            }
        }
        let list = Self(steps);
        let begun = list.count(TodoStatus::InProgress);
        if begun > 1 {
            return Err(format!(
                "at most one step is in_progress, and {begun} are: mark what is done as completed, and the others as pending"
            ));
        }
        Ok(list)
    }

    /// Reads the input of a call; none if it is no list.
    pub fn of_call(input: &Value) -> Option<Self> {
        let steps = input.get("todos")?.clone();
        Self::new(serde_json::from_value(steps).ok()?).ok()
    }

    /// Tells whether nothing of it is left to do.
    pub fn is_done(&self) -> bool {
        self.count(TodoStatus::Completed) == self.0.len()
    }

    /// Says how far it is, on one line: `2/5, now: …`. Characters that nobody sees are shown.
    pub fn summary(&self) -> String {
        let done = self.count(TodoStatus::Completed);
        let count = format!("{done}/{}", self.0.len());
        let mut begun = self.0.iter();
        let Some(now) = begun.find(|step| step.status == TodoStatus::InProgress) else {
            return count;
        };
        let mut shown: String = now.content.chars().take(SHOWN).collect();
        if shown.len() < now.content.len() {
            shown.push('…');
        }
        let mut text = format!("{count}, now: ");
        for c in shown.chars() {
            if is_hidden(c) {
                text.extend(c.escape_default());
            } else {
                text.push(c);
            }
        }
        text
    }

    fn count(&self, status: TodoStatus) -> usize {
        self.0.iter().filter(|step| step.status == status).count()
    }
}

impl fmt::Display for TodoList {
    /// Writes a line for each step.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.0.iter().enumerate() {
            let mark = match step.status {
                TodoStatus::Pending => ' ',
                TodoStatus::InProgress => '>',
                TodoStatus::Completed => 'x',
            };
            let end = if number == 0 { "" } else { "\n" };
            write!(f, "{end}[{mark}] {}", step.content)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn list(steps: &[(&str, &str)]) -> Option<TodoList> {
        let steps = steps
            .iter()
            .map(|(content, status)| json!({"content": content, "status": status}));
        TodoList::of_call(&json!({"todos": steps.collect::<Vec<_>>()}))
    }

    #[test]
    fn it_says_how_far_it_is() {
        let steps = [
            ("Read", "completed"),
            ("Write  the\nparser", "in_progress"),
            ("Test", "pending"),
        ];
        let all = list(&steps).unwrap();
        assert_eq!(all.summary(), "1/3, now: Write the parser");
        assert_eq!(all.to_string(), "[x] Read\n[>] Write the parser\n[ ] Test");
        assert!(!all.is_done() && list(&steps[..1]).unwrap().is_done());
        assert_eq!(list(&steps[..1]).unwrap().summary(), "1/1");
        let long = list(&[(&"x".repeat(150), "in_progress")]).unwrap();
        assert_eq!(long.summary(), format!("0/1, now: {}…", "x".repeat(60)));
        let odd = list(&[("a\u{1b}[2J\u{202e}b", "in_progress")]).unwrap();
        assert_eq!(odd.summary(), "0/1, now: a\\u{1b}[2J\\u{202e}b");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let many: Vec<_> = (0..=MAX_STEPS).map(|_| ("a", "pending")).collect();
        assert!(list(&many).is_none() && list(&many[1..]).is_some());
        assert!(list(&[("a", "in_progress"), ("b", "in_progress")]).is_none());
        assert!(list(&[("a", "done")]).is_none() && list(&[(" \n", "pending")]).is_none());
        assert!(list(&[(&"x".repeat(MAX_STEP + 1), "pending")]).is_none());
        assert!(TodoList::of_call(&json!({"todos": "all"})).is_none());
        assert!(list(&[]).is_some_and(|list| list.is_done()));
    }
}
