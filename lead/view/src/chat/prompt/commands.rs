//! The lines of a chat: words for the agent, and the commands of the prompt, which call those of
//! `teamctl`.
//!
//! A line that begins with a slash is never sent to the agent: a misspelt command must not reach a
//! model. `//` in front sends a text that begins with a slash.

use clap::Parser;
use teamd_client::act::{Perform, answer};
use teamd_client::args::{Cli, TeamctlCommand};
use teamd_client::context::{Context, explain};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_shared::name::Name;
use teamd_shared::suggest;

use crate::terminal::{COMMANDS, Slash};

/// What a line means.
#[derive(Debug)]
pub(in crate::chat) enum ChatInput {
    /// The line is empty.
    Nothing,
    /// Words for the agent.
    Say(String),
    /// A command of `teamctl`.
    Call(Box<TeamctlCommand>),
    /// Shows the model, or takes another one.
    Model(Option<String>),
    /// Begins a new conversation.
    Clear,
    /// Turns to another agent.
    Attach(Name),
    /// Runs a command of the person.
    Shell(String),
    /// Lists the commands.
    Help,
    /// Leaves.
    Quit,
    /// The line begins with a slash, and there is no such command.
    Unknown(String, CommandError),
    /// The command cannot be carried out.
    Wrong(CommandError),
}

impl ChatInput {
    /// Decides on a line that is no command: the built-in model calls tools by such lines; to no
    /// other one is it sent.
    pub(in crate::chat) fn for_model(self, is_script: bool) -> Self {
        match self {
            Self::Unknown(line, _) if is_script => Self::Say(line),
            Self::Unknown(_, error) => Self::Wrong(error),
            input => input,
        }
    }
}

/// Reads a line, or several that were typed or pasted as one. A command without a name means
/// `agent`.
pub(in crate::chat) fn parse(text: &str, agent: &Name) -> ChatInput {
    let text = text.trim_end();
    if let Some(command) = text.strip_prefix('!') {
        return match command.trim() {
            "" => ChatInput::Nothing,
            command => ChatInput::Shell(command.to_owned()),
        };
    }
    match text.strip_prefix('/') {
        None if text.is_empty() => ChatInput::Nothing,
        None => ChatInput::Say(text.to_owned()),
        Some(rest) if rest.starts_with('/') => ChatInput::Say(rest.to_owned()),
        Some(_) => command(text, agent),
    }
}

fn command(text: &str, agent: &Name) -> ChatInput {
    let (word, rest) = first_word(text);
    let error = |why: String| CommandError::new(ExitCode::Usage, why).hint("//TEXT sends /TEXT");
    let Some(slash) = COMMANDS.iter().find(|slash| slash.word == word) else {
        let all = completions("/");
        let error = error(format!("there is no command {word}"));
        return match suggest::nearest(word, all.iter().copied()) {
            Some(meant) => ChatInput::Wrong(error.hint(format!("did you mean {meant}?"))),
            None => ChatInput::Unknown(text.to_owned(), error.hint(all.join(" "))),
        };
    };
    arguments(slash, rest, agent).unwrap_or_else(|why| ChatInput::Wrong(error(why)))
}

/// Reads what follows a command.
fn arguments(slash: &Slash, rest: &str, agent: &Name) -> Result<ChatInput, String> {
    let (first, more) = first_word(rest);
    match slash.word {
        word if rest.is_empty() && !matches!(slash.takes.chars().next(), None | Some('[')) => {
            Err(format!("{word} takes {}", slash.takes))
        }
        word if !rest.is_empty() && slash.takes.is_empty() => {
            Err(format!("{word} takes no arguments"))
        }
        "/cost" => call(&[slash.calls, "--columns=name,model,tokens,cost"]),
        "/clear" => Ok(ChatInput::Clear),
        "/model" => Ok(ChatInput::Model(
            (!rest.is_empty()).then(|| rest.to_owned()),
        )),
        "/attach" => Name::of_inbox(rest)
            .map(ChatInput::Attach)
            .map_err(|error| error.to_string()),
        "/tasks" if rest.is_empty() => call(&[slash.calls, "list"]),
        "/tasks" => call(&[slash.calls, "show", "--", rest]),
        "/events" => call(&[slash.calls, "--last=20"]),
        "/help" => Ok(ChatInput::Help),
        "/quit" | "/exit" => Ok(ChatInput::Quit),
        "/inbox" | "/interrupt" | "/compact" if rest.is_empty() => {
            call(&[slash.calls, agent.as_str()])
        }
        "/approve" | "/reject" => call(&[slash.calls, &format!("--feedback={more}"), "--", first]),
        "/shutdown" => call(&[slash.calls, &format!("--reason={more}"), "--", first]),
        _ => call(
            &[slash.calls, "--"]
                .into_iter()
                .chain(rest.split_whitespace())
                .collect::<Vec<_>>(),
        ),
    }
}

fn first_word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

fn call(words: &[&str]) -> Result<ChatInput, String> {
    let parsed = Cli::try_parse_from(["teamctl"].iter().chain(words));
    parsed
        .map(|cli| ChatInput::Call(Box::new(cli.command)))
        .map_err(|error| explain(&error).message().to_owned())
}

/// Runs a command. `says_answer` tells whether the answer to a plan of this teammate is to be
/// printed. Blocks, and starts a runtime: not to be called within one.
///
/// # Errors
/// As the command of `teamctl`.
pub(in crate::chat) fn run(
    context: &Context,
    command: TeamctlCommand,
    perform: Perform,
    says_answer: impl FnOnce(&str) -> bool,
) -> CommandResult {
    let (id, answer): (_, answer::Answer) = match command {
        TeamctlCommand::Approve(args) => (args.verdict.id.clone(), args.into()),
        TeamctlCommand::Reject(args) => (args.id.clone(), args.into()),
        other => return perform(other, context),
    };
    let answered = answer::give(context, &id, answer)?;
    if answered.repeated || says_answer(&answered.from) {
        answered.print(context)?;
    }
    Ok(ExitCode::Done)
}

/// Returns the commands that begin with what is typed.
pub(in crate::chat) fn completions(typed: &str) -> Vec<&'static str> {
    COMMANDS
        .iter()
        .map(|slash| slash.word)
        .filter(|word| word.starts_with(typed))
        .collect()
}

/// What can be completed behind a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chat) enum Takes {
    /// The name of a teammate.
    Name,
    /// The id of a plan.
    Id,
}

/// Returns what a command takes.
pub(in crate::chat) fn takes(word: &str) -> Option<Takes> {
    let slash = COMMANDS.iter().find(|slash| slash.word == word)?;
    match slash.takes.trim_start_matches('[') {
        takes if takes.starts_with("NAME") => Some(Takes::Name),
        takes if takes.starts_with("ID") => Some(Takes::Id),
        _ => None,
    }
}

/// Rewrites a hint for the prompt: a command of `teamctl` becomes the command of the prompt that
/// calls it.
pub(in crate::chat) fn in_chat(hint: &str) -> String {
    if !hint.matches('`').count().is_multiple_of(2) {
        return hint.to_owned();
    }
    let mut rewritten = String::new();
    let mut of_teamctl = false;
    for (at, part) in hint.split('`').enumerate() {
        let quoted = at % 2 == 1;
        let command = part.strip_prefix("teamctl ");
        of_teamctl |= quoted && command.is_some();
        // A second command often follows without `teamctl`.
        match if quoted && of_teamctl {
            as_slash(command.unwrap_or(part))
        } else {
            None
        } {
            Some(command) => rewritten.push_str(&command),
            None if quoted => rewritten.extend(["`", part, "`"]),
            None => rewritten.push_str(part),
        }
    }
    rewritten
}

fn as_slash(command: &str) -> Option<String> {
    let command = command.replacen(" --feedback ", " ", 1);
    let (word, rest) = first_word(&command);
    let calls = if word == "requests" { "plans" } else { word };
    let slash = COMMANDS.iter().find(|slash| slash.calls == calls)?;
    // The prompt has no flags.
    let has_flags = rest.split(' ').any(|word| word.starts_with('-'));
    (!has_flags).then(|| format!("{} {rest}", slash.word).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::list_commands;
    use teamd_client::args::Approve;

    fn parsed(text: &str) -> ChatInput {
        parse(text, &Name::new("alice").unwrap())
    }

    fn called(text: &str) -> TeamctlCommand {
        let ChatInput::Call(command) = parsed(text) else {
            panic!("{text}")
        };
        *command
    }

    fn said(text: &str) -> String {
        let ChatInput::Say(said) = parsed(text) else {
            panic!("{text}")
        };
        said
    }

    #[test]
    fn words_are_said_and_two_slashes_say_one() {
        assert!(matches!(parsed(" \n"), ChatInput::Nothing));
        assert_eq!(said("fix it\n"), "fix it");
        assert_eq!(said("//bash ls\n/bash pwd"), "/bash ls\n/bash pwd");
        assert_eq!(said(" /team"), " /team");
    }

    #[test]
    fn commands_take_names_ids_and_text() {
        assert!(matches!(called("/team"), TeamctlCommand::Status(args) if args.name.is_none()));
        assert!(
            matches!(called("/team bob "), TeamctlCommand::Status(args) if args.name.is_some())
        );
        assert!(matches!(called("/inbox"), TeamctlCommand::Inbox(args) if args.name.to == "alice"));
        assert!(
            matches!(called("/interrupt"), TeamctlCommand::Interrupt(args) if args.name.as_str() == "alice")
        );
        let TeamctlCommand::Approve(Approve { verdict, .. }) = called("/approve a1b2") else {
            panic!()
        };
        assert_eq!(
            (verdict.id.as_str(), verdict.feedback.as_str()),
            ("a1b2", "")
        );
        let TeamctlCommand::Reject(verdict) = called("/reject a1  --keep the cache\nand the log")
        else {
            panic!()
        };
        assert_eq!(
            (verdict.id.as_str(), verdict.feedback.as_str()),
            ("a1", "--keep the cache\nand the log")
        );
        let TeamctlCommand::Shutdown(args) = called("/shutdown bob the work is done") else {
            panic!()
        };
        assert_eq!(
            (args.names[0].as_str(), args.reason.as_str()),
            ("bob", "the work is done")
        );
        assert!(
            matches!(called("/events"), TeamctlCommand::Events(args) if args.range.last == Some(20))
        );
        assert!(
            matches!(parsed("/attach alice"), ChatInput::Attach(name) if name.as_str() == "alice")
        );
        assert!(matches!(parsed("/model"), ChatInput::Model(None)));
        assert!(
            matches!(parsed("/model openai:x"), ChatInput::Model(Some(model)) if model == "openai:x")
        );
        assert!(matches!(parsed("! ls -l"), ChatInput::Shell(command) if command == "ls -l"));
        assert!(matches!(called("/cost"), TeamctlCommand::Status(args) if args.columns.len() == 4));
        assert!(matches!(parsed("/quit"), ChatInput::Quit));
    }

    #[test]
    fn a_line_that_is_no_command_is_not_sent() {
        let ChatInput::Unknown(_, why) = parsed("/bash ls") else {
            panic!()
        };
        assert_eq!(why.message(), "there is no command /bash");
        assert!(
            why.next_step()
                .unwrap()
                .ends_with("/help /quit /team /exit"),
            "{why:?}"
        );
        let ChatInput::Wrong(why) = parsed("/stauts") else {
            panic!()
        };
        assert!(
            why.next_step().unwrap().ends_with("did you mean /status?"),
            "{why:?}"
        );
        for line in [
            "/",
            "/approve",
            "/shutdown",
            "/shutdown ../x",
            "/team a b",
            "/team --json",
            "/plans a b",
            "/quit now",
            "/cost all",
            "/attach",
            "/attach ../x",
        ] {
            assert!(
                matches!(parsed(line).for_model(false), ChatInput::Wrong(_)),
                "{line}"
            );
        }
    }

    #[test]
    fn the_built_in_model_takes_what_is_no_command() {
        let is_said = |line: &str| matches!(parsed(line).for_model(true), ChatInput::Say(said) if said == line);
        assert!(is_said("/bash ls") && !is_said("/approve") && !is_said("/quit now"));
    }

    #[test]
    fn hints_name_what_can_be_typed_at_the_prompt() {
        for (hint, expected) in [
            (
                "`teamctl plans ID` shows the whole of one; `teamctl approve ID` or `reject ID --feedback TEXT` answers",
                "/plans ID shows the whole of one; /approve ID or /reject ID TEXT answers",
            ),
            (
                "`teamctl status` shows the teammates",
                "/status shows the teammates",
            ),
            (
                "take another name, or `teamctl shutdown bob` first; `make` it",
                "take another name, or /shutdown bob first; `make` it",
            ),
            (
                "end it: `teamctl shutdown bob --force`",
                "end it: `teamctl shutdown bob --force`",
            ),
            (
                "`teamctl log bob` and `teamd start`",
                "`teamctl log bob` and `teamd start`",
            ),
            ("status", "status"),
            (
                "unknown key `inbox` in `status`",
                "unknown key `inbox` in `status`",
            ),
            (
                "`inbox` is full: `teamctl status` shows why",
                "`inbox` is full: /status shows why",
            ),
            ("`teamctl requests` shows them", "/plans shows them"),
            ("an odd ` one", "an odd ` one"),
        ] {
            assert_eq!(in_chat(hint), expected);
        }
    }

    #[test]
    fn a_command_is_completed_by_its_beginning() {
        assert_eq!(completions("/s"), ["/status", "/shutdown"]);
        assert_eq!(
            (takes("/inbox"), takes("/reject"), takes("/model")),
            (Some(Takes::Name), Some(Takes::Id), None)
        );
        assert_eq!(completions("x"), Vec::<&str>::new());
        assert!(list_commands(80).contains("//TEXT"));
        assert!(
            list_commands(60)
                .lines()
                .all(|line| line.chars().count() <= 60)
        );
    }
}
