//! What a person orders on the page. Each order is the command of `teamctl` that does it: its words,
//! checks and errors are those of the command.

use clap::Parser;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use teamd_client::act::Perform;
use teamd_client::args::{Cli, TaskCommand, TaskEdit, TeamctlCommand};
use teamd_client::context::{Context, explain};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_shared::task::TaskId;

use super::answer::ReviewAnswer;
use crate::act::PersonOrder;

/// The kinds of orders: each has the path of this name.
pub(super) const KINDS: [&str; 11] = [
    "answer",
    "review",
    "send",
    "add_task",
    "edit_task",
    "retry_task",
    "cancel_task",
    "spawn",
    "interrupt",
    "shutdown",
    "request_plan",
];

/// An order of a person.
#[derive(Debug)]
pub(super) enum PageOrder {
    Person(PersonOrder),
    Review(ReviewAnswer),
    Command(CommandOrder),
}

/// An order that is a command of `teamctl`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CommandOrder {
    AddTask(TaskForm),
    EditTask(TaskForm),
    RetryTask(TaskForm),
    CancelTask(TaskForm),
    Spawn(SpawnForm),
    Interrupt(TeammateForm),
    Shutdown(TeammateForm),
    RequestPlan(TeammateForm),
}

/// What a form says of a task. A field that is not there stays as it is.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TaskForm {
    id: Option<TaskId>,
    subject: Option<String>,
    description: Option<String>,
    check: Option<String>,
    #[serde(rename = "for")]
    reserved_for: Option<String>,
    after: Option<String>,
    review: Option<String>,
    /// For one that no teammate has yet.
    later: bool,
}

/// What a form says of a teammate that is to be started. A blank text is as if it were not there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpawnForm {
    name: String,
    #[serde(default)]
    role: String,
    #[serde(default)]
    agent: String,
    #[serde(default)]
    model: String,
    #[serde(default)]
    prompt: String,
    #[serde(default)]
    plan: bool,
    #[serde(default)]
    auto: bool,
    #[serde(default)]
    checkout: bool,
    #[serde(default)]
    resume: bool,
}

/// What a form says to a teammate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TeammateForm {
    name: String,
    /// The reason of a shutdown, or what a plan is to be about.
    #[serde(default)]
    text: String,
    #[serde(default)]
    force: bool,
}

impl PageOrder {
    /// Reads the body of an order of a kind.
    ///
    /// # Errors
    /// If it is not such an order.
    pub(super) fn read(kind: &str, body: &[u8]) -> serde_json::Result<Self> {
        // A list would be read as the fields in their order.
        let body: Map<String, Value> = serde_json::from_slice(body)?;
        if kind == "review" {
            return serde_json::from_value(Value::Object(body)).map(Self::Review);
        }
        let order = json!({kind: body});
        if ["answer", "send"].contains(&kind) {
            return serde_json::from_value(order).map(Self::Person);
        }
        serde_json::from_value(order).map(Self::Command)
    }

    /// Carries the order out, and prints what came of it.
    pub(super) fn run(self, context: &Context, perform: Perform) -> CommandResult {
        let order = match self {
            Self::Person(order) => return order.run(context),
            Self::Review(answer) => {
                let feedback = answer.feedback(context)?;
                let order = PersonOrder::Answer {
                    id: answer.id,
                    approve: answer.approve,
                    feedback,
                    code: answer.code,
                    what: None,
                };
                return order.run(context);
            }
            Self::Command(order) => order,
        };
        let command = order.command()?;
        // As before the command itself.
        match &command {
            TeamctlCommand::Spawn(_) => context.ask_for_trust()?,
            TeamctlCommand::Shutdown(args) if !args.force => drop(context.team_file()?),
            _ => {}
        }
        perform(command, context)
    }
}

impl CommandOrder {
    /// Makes the command.
    fn command(&self) -> Result<TeamctlCommand, CommandError> {
        let words = match self {
            Self::AddTask(form) => form.add()?,
            Self::EditTask(form) => form.change("edit")?,
            Self::RetryTask(form) => form.change("retry")?,
            Self::CancelTask(form) => form.change("cancel")?,
            Self::Spawn(form) => form.words(),
            Self::Interrupt(form) => words(&["interrupt"], [], &[&form.name]),
            Self::Shutdown(form) => {
                let force = form.force.then(|| "--force".to_owned());
                let flags = flag("reason", &form.text).into_iter().chain(force);
                words(&["shutdown"], flags, &[&form.name])
            }
            Self::RequestPlan(form) => {
                let text = Some(form.text.as_str()).filter(|text| !text.trim().is_empty());
                not_stdin(text.unwrap_or_default())?;
                let rest: Vec<&str> = [form.name.as_str()].into_iter().chain(text).collect();
                words(&["request-plan"], [], &rest)
            }
        };
        let mut command = Cli::try_parse_from(words)
            .map_err(|error| explain(&error))?
            .command;
        if let Self::EditTask(form) | Self::RetryTask(form) = self
            && form.after.as_deref().is_some_and(|it| it.trim().is_empty())
        {
            wait_for_nothing(&mut command);
        }
        Ok(command)
    }
}

impl TaskForm {
    fn add(&self) -> Result<Vec<String>, CommandError> {
        let subject = self.subject.clone().unwrap_or_default();
        let mut flags = self.flags()?;
        // What was left blank in the form of a new task is not set.
        flags.retain(|flag| !flag.ends_with('='));
        Ok(words(&["task", "add"], flags, &[&subject]))
    }

    fn change(&self, verb: &str) -> Result<Vec<String>, CommandError> {
        let id = self.id.map(|id| id.to_string()).unwrap_or_default();
        let subject = self.subject.iter().map(|it| format!("--subject={it}"));
        let flags = self.flags()?;
        Ok(words(&["task", verb], subject.chain(flags), &[&id]))
    }

    fn flags(&self) -> Result<Vec<String>, CommandError> {
        not_stdin(self.description.as_deref().unwrap_or_default())?;
        let after = self.after.as_deref().map(|it| it.replace(' ', ""));
        let after = after.filter(|it| !it.is_empty());
        let fields = [
            ("description", self.description.as_deref()),
            ("check", self.check.as_deref()),
            ("for", self.reserved_for.as_deref()),
            ("after", after.as_deref()),
            ("review", self.review.as_deref()),
        ];
        let given = fields
            .into_iter()
            .filter_map(|(name, text)| Some(format!("--{name}={}", text?)));
        let later = self.later.then(|| "--later".to_owned());
        Ok(given.chain(later).collect())
    }
}

impl SpawnForm {
    fn words(&self) -> Vec<String> {
        let texts = [
            ("role", &self.role),
            ("agent", &self.agent),
            ("model", &self.model),
            ("prompt", &self.prompt),
        ];
        let choices = [
            ("--plan", self.plan),
            ("--auto", self.auto),
            ("--checkout", self.checkout),
            ("--resume", self.resume),
        ];
        let texts = texts
            .into_iter()
            .filter_map(|(name, text)| flag(name, text));
        let choices = choices.into_iter().filter(|(_, is_chosen)| *is_chosen);
        let choices = choices.map(|(name, _)| name.to_owned());
        words(&["spawn"], texts.chain(choices), &[&self.name])
    }
}

/// Makes a command line in which no text is ever a flag.
fn words(command: &[&str], flags: impl IntoIterator<Item = String>, rest: &[&str]) -> Vec<String> {
    let owned = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut all = owned(&["teamctl"]);
    all.extend(owned(command));
    all.extend(flags);
    all.push("--".to_owned());
    all.extend(owned(rest));
    all
}

fn flag(name: &str, text: &str) -> Option<String> {
    (!text.trim().is_empty()).then(|| format!("--{name}={text}"))
}

/// Refuses the text for which a command would read stdin.
fn not_stdin(text: &str) -> Result<(), CommandError> {
    if text == "-" {
        return Err(
            CommandError::new(ExitCode::Usage, "`-` means stdin, which the page has not")
                .hint("write the text itself"),
        );
    }
    Ok(())
}

/// Empties what a task waits for: a command line has no word for that.
fn wait_for_nothing(command: &mut TeamctlCommand) {
    let TeamctlCommand::Task(tasks) = command else {
        return;
    };
    if let TaskCommand::Edit(edit) | TaskCommand::Retry(edit) = &mut tasks.command {
        let edit: &mut TaskEdit = edit;
        edit.fields.blocked_by = Some(Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(kind: &str, body: &Value) -> Result<String, String> {
        let order = PageOrder::read(kind, body.to_string().as_bytes()).map_err(|it| it.to_string());
        let PageOrder::Command(order) = order? else {
            panic!("{kind} is no command")
        };
        let command = order.command().map_err(|it| it.to_string())?;
        Ok(format!("{command:?}"))
    }

    #[test]
    fn each_order_is_a_command_and_no_text_of_it_is_a_flag() {
        let hostile = json!({"subject": "--help me", "description": "-x", "check": "--json", "for": "", "after": "1, 2"});
        let said = command("add_task", &hostile).unwrap();
        for part in [
            "subject: \"--help me\"",
            "description: Some(\"-x\")",
            "check: Some(\"--json\")",
            "reserved_for: None",
            "blocked_by: Some([1, 2])",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let spawn = json!({"name": "ana", "role": "", "model": "script", "prompt": "--resume", "plan": true});
        let said = command("spawn", &spawn).unwrap_err();
        assert!(said.contains("--prompt"), "{said}");
        let spawn =
            json!({"name": "ana", "role": "", "model": "script", "prompt": "-- go", "plan": true});
        let said = command("spawn", &spawn).unwrap();
        for part in [
            "role: None",
            "prompt: Some(\"-- go\")",
            "plan: true",
            "resume: false",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let said = command(
            "shutdown",
            &json!({"name": "ana", "text": "--all", "force": true}),
        );
        assert!(said.is_err(), "{said:?}");
        let said = command("shutdown", &json!({"name": "ana", "text": "we are done"})).unwrap();
        assert!(
            said.contains("reason: \"we are done\"") && said.contains("all: false"),
            "{said}"
        );
        let said = command("request_plan", &json!({"name": "ana"})).unwrap();
        assert!(
            said.contains("Submit a plan before you change anything else."),
            "{said}"
        );
    }

    #[test]
    fn a_field_that_is_emptied_is_taken_away_and_one_that_is_not_there_stays() {
        let said = command("edit_task", &json!({"id": 7, "after": " ", "for": ""})).unwrap();
        for part in [
            "blocked_by: Some([])",
            "reserved_for: Some(\"\")",
            "description: None",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let said = command("retry_task", &json!({"id": 7})).unwrap();
        assert!(said.contains("blocked_by: None"), "{said}");
    }

    #[test]
    fn what_is_no_order_is_refused_in_the_words_of_the_command() {
        for (kind, body, why) in [
            ("interrupt", json!({"name": "Ana"}), "is not a name"),
            ("interrupt", json!({"name": "--all"}), "is not a name"),
            ("spawn", json!({"name": "lead"}), "teamctl chat"),
            (
                "spawn",
                json!({"name": "ana", "model": "scirpt"}),
                "did you mean script?",
            ),
            ("cancel_task", json!({}), "invalid value ''"),
            (
                "edit_task",
                json!({"id": 7, "after": "x"}),
                "invalid value 'x'",
            ),
            ("edit_task", json!({"id": 7, "description": "-"}), "stdin"),
            ("request_plan", json!({"name": "ana", "text": "-"}), "stdin"),
            (
                "spawn",
                json!({"name": "ana", "workspace": "/"}),
                "unknown field",
            ),
            ("spawn", json!({"role": "x"}), "missing field"),
            ("add_task", json!({"id": "x"}), "invalid type"),
        ] {
            let said = command(kind, &body).unwrap_err();
            assert!(said.contains(why), "{kind} {body}: {said}");
        }
        for kind in KINDS {
            assert!(PageOrder::read(kind, b"[1]").is_err(), "{kind}");
        }
    }
}
