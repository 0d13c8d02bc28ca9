//! What a person means by a line at the prompt: words for the agent, or a command of the prompt itself. Pure.
//!
//! A line that begins with a slash is never sent as it stands: a command that was misspelt must not reach a model.
//! `//` in front sends a text that begins with a slash.

use teamd_shared::name::Name;

/// The commands, as `/help` lists them.
const COMMANDS: [(&str, &str); 10] = [
    ("/team [NAME]", "who is on the roster, and what everybody does"),
    ("/inbox [NAME]", "the last messages of an inbox"),
    ("/plans [ID]", "the plans that wait for an answer, or the whole of one"),
    ("/approve ID [FEEDBACK]", "approve a plan; the beginning of its id is enough"),
    ("/reject ID [FEEDBACK]", "reject a plan"),
    ("/shutdown NAME [REASON]", "ask a teammate to leave, and wait until it is gone"),
    ("/interrupt [NAME]", "end the turn of a teammate, but not the teammate"),
    ("/help", "this list"),
    ("/quit", "leave; the agents go on (also Ctrl-D)"),
    ("//TEXT", "send /TEXT: a text that begins with a slash"),
];

/// What a line means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Input {
    /// Nothing was typed.
    Nothing,
    /// Words for the agent.
    Say(String),
    /// A command.
    Do(Slash),
    /// It begins with a slash and is no command: why, as an error says it.
    Wrong(String),
}

/// A command of the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Slash {
    /// The roster, or everything about one teammate.
    Team(Option<Name>),
    /// The last messages of an inbox.
    Inbox(Option<Name>),
    /// The plans that wait, or the whole of one.
    Plans(Option<String>),
    /// The answer to a plan.
    Answer {
        /// Its id, or the beginning of it.
        id: String,
        /// Yes or no.
        approve: bool,
        /// What to mind, or to change.
        feedback: String,
    },
    /// Asks a teammate to leave.
    Shutdown {
        /// Whom.
        name: Name,
        /// Why.
        reason: String,
    },
    /// Ends a turn; without a name that of the one who is talked to.
    Interrupt(Option<Name>),
    /// Lists the commands.
    Help,
    /// Leaves.
    Quit,
}

/// Reads a line, or several that were typed or pasted as one.
pub(super) fn parse(text: &str) -> Input {
    let text = text.trim_end();
    if text.is_empty() {
        return Input::Nothing;
    }
    match text.strip_prefix('/') {
        None => Input::Say(text.to_owned()),
        Some(said) if said.starts_with('/') => Input::Say(said.to_owned()),
        Some(command) => read(command).map_or_else(Input::Wrong, Input::Do),
    }
}

/// Returns the words that begin a command and continue what is typed.
pub(super) fn completions(typed: &str) -> Vec<&'static str> {
    let words = COMMANDS.iter().filter_map(|(usage, _)| usage.split(' ').next());
    words.filter(|word| !word.starts_with("//") && word.starts_with(typed)).collect()
}

/// Explains the commands.
pub(super) fn help() -> String {
    let mut text = String::new();
    for (usage, what) in COMMANDS {
        text.push_str(&format!("  {usage:<25} {what}\n"));
    }
    text + "A line that ends with \\ goes on in the next one. Ctrl-C ends the turn that runs, not the team.\n"
}

/// The commands of `teamctl` that can be given here, too.
const HERE: [(&str, &str); 8] = [
    ("status", "/team"),
    ("inbox", "/inbox"),
    ("plans", "/plans"),
    // Those that can be answered.
    ("requests", "/plans"),
    ("approve", "/approve"),
    ("reject", "/reject"),
    ("shutdown", "/shutdown"),
    ("interrupt", "/interrupt"),
];

/// Puts a hint into the words of the prompt: a command of `teamctl` that can be given here is named as it is typed here.
pub(super) fn of_prompt(hint: &str) -> String {
    if !hint.matches('`').count().is_multiple_of(2) {
        return hint.to_owned();
    }
    let mut said = String::new();
    let (mut quoted, mut of_teamctl) = (false, false);
    for part in hint.split('`') {
        let command = part.strip_prefix("teamctl ");
        of_teamctl |= quoted && command.is_some();
        // A second one is often named without `teamctl`; a word without one before it is no command.
        match here(command.unwrap_or(part)).filter(|_| quoted && of_teamctl) {
            Some(command) => said.push_str(&command),
            None if quoted => said.extend(["`", part, "`"]),
            None => said.push_str(part),
        }
        quoted = !quoted;
    }
    said
}

/// Returns how a command of `teamctl` is given here; none if it cannot be.
fn here(command: &str) -> Option<String> {
    let command = command.replacen(" --feedback ", " ", 1);
    let (word, rest) = command.split_once(' ').unwrap_or((&command, ""));
    let (_, slash) = HERE.into_iter().find(|(known, _)| *known == word)?;
    match rest {
        "" => Some(slash.to_owned()),
        // What flags ask for, only a shell can.
        rest if rest.split(' ').any(|word| word.starts_with('-')) => None,
        rest => Some(format!("{slash} {rest}")),
    }
}

fn read(command: &str) -> Result<Slash, String> {
    let (word, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let rest = rest.trim();
    match word {
        "team" => optional(rest).map(Slash::Team),
        "inbox" => optional(rest).map(Slash::Inbox),
        "plans" => Ok(Slash::Plans(only_word(word, rest)?.map(str::to_owned))),
        "approve" | "reject" => {
            let (id, feedback) = first(rest).ok_or_else(|| format!("/{word} takes the id of a plan"))?;
            Ok(Slash::Answer { id, approve: word == "approve", feedback })
        }
        "shutdown" => {
            let (who, reason) = first(rest).ok_or("/shutdown takes the name of a teammate")?;
            Ok(Slash::Shutdown { name: name(&who)?, reason })
        }
        "interrupt" => optional(rest).map(Slash::Interrupt),
        "help" | "?" => nothing_behind(word, rest, Slash::Help),
        "quit" | "exit" => nothing_behind(word, rest, Slash::Quit),
        _ => {
            let known: Vec<&str> = completions("/");
            Err(format!("there is no command /{word}; there are {}", known.join(" ")))
        }
    }
}

fn first(rest: &str) -> Option<(String, String)> {
    let (first, more) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    (!first.is_empty()).then(|| (first.to_owned(), more.trim().to_owned()))
}

fn only_word<'r>(command: &str, rest: &'r str) -> Result<Option<&'r str>, String> {
    match rest.split_whitespace().count() {
        0 => Ok(None),
        1 => Ok(Some(rest)),
        _ => Err(format!("/{command} takes one word at most")),
    }
}

fn nothing_behind(command: &str, rest: &str, means: Slash) -> Result<Slash, String> {
    if rest.is_empty() { Ok(means) } else { Err(format!("/{command} takes nothing more")) }
}

fn optional(rest: &str) -> Result<Option<Name>, String> {
    if rest.is_empty() { Ok(None) } else { name(rest).map(Some) }
}

fn name(text: &str) -> Result<Name, String> {
    Name::of_inbox(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(id: &str, approve: bool, feedback: &str) -> Input {
        Input::Do(Slash::Answer { id: id.to_owned(), approve, feedback: feedback.to_owned() })
    }

    #[test]
    fn words_are_said_and_two_slashes_say_one() {
        assert_eq!(parse(" \n"), Input::Nothing);
        assert_eq!(parse("fix it\n"), Input::Say("fix it".to_owned()));
        assert_eq!(parse("//bash ls\n/bash pwd"), Input::Say("/bash ls\n/bash pwd".to_owned()));
        assert_eq!(parse(" /team"), Input::Say(" /team".to_owned()));
    }

    #[test]
    fn commands_take_names_ids_and_text() {
        let alice = Name::new("alice").unwrap();
        assert_eq!(parse("/team"), Input::Do(Slash::Team(None)));
        assert_eq!(parse("/inbox alice "), Input::Do(Slash::Inbox(Some(alice.clone()))));
        assert_eq!(parse("/approve a1b2"), answer("a1b2", true, ""));
        assert_eq!(
            parse("/reject a1  keep the cache\nand the log"),
            answer("a1", false, "keep the cache\nand the log")
        );
        let reason = "the work is done".to_owned();
        assert_eq!(
            parse("/shutdown alice the work is done"),
            Input::Do(Slash::Shutdown { name: alice, reason })
        );
        assert_eq!(parse("/quit"), Input::Do(Slash::Quit));
    }

    #[test]
    fn what_is_no_command_is_not_sent() {
        let Input::Wrong(why) = parse("/bash ls") else { panic!() };
        assert_eq!(
            why,
            "there is no command /bash; there are /team /inbox /plans /approve /reject /shutdown /interrupt /help /quit"
        );
        for line in ["/", "/approve", "/shutdown", "/shutdown ../x", "/team a b", "/plans a b", "/quit now"] {
            assert!(matches!(parse(line), Input::Wrong(_)), "{line}");
        }
    }

    #[test]
    fn hints_name_what_can_be_typed_at_the_prompt() {
        for (hint, expected) in [
            (
                "`teamctl plans ID` shows the whole of one; `teamctl approve ID` or `reject ID --feedback TEXT` answers",
                "/plans ID shows the whole of one; /approve ID or /reject ID TEXT answers",
            ),
            ("`teamctl status` shows who is there", "/team shows who is there"),
            (
                "take another name, or `teamctl shutdown bob` first; `make` it",
                "take another name, or /shutdown bob first; `make` it",
            ),
            ("end it: `teamctl shutdown bob --force`", "end it: `teamctl shutdown bob --force`"),
            ("`teamctl log bob` and `teamd start`", "`teamctl log bob` and `teamd start`"),
            ("status", "status"),
            ("unknown key `inbox` in `status`", "unknown key `inbox` in `status`"),
            ("`inbox` is full: `teamctl status` shows why", "`inbox` is full: /team shows why"),
            ("an odd ` one", "an odd ` one"),
        ] {
            assert_eq!(of_prompt(hint), expected);
        }
        for (_, slash) in HERE {
            assert_eq!(completions(slash), [slash]);
        }
    }

    #[test]
    fn a_command_is_completed_by_its_beginning() {
        assert_eq!(completions("/s"), ["/shutdown"]);
        assert_eq!(completions("x"), Vec::<&str>::new());
        assert!(help().contains("//TEXT"));
    }
}
