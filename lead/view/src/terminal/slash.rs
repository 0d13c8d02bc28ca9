//! The commands of the chat, as the help lists them.

/// A command of the prompt, as `/help` lists it.
pub(crate) struct Slash {
    pub(crate) word: &'static str,
    /// What follows it; in brackets what may be left out.
    pub(crate) takes: &'static str,
    /// The command of `teamctl` that it calls.
    pub(crate) calls: &'static str,
    /// Empty: it is another name of a command.
    help: &'static str,
}

const fn slash(
    word: &'static str,
    takes: &'static str,
    calls: &'static str,
    help: &'static str,
) -> Slash {
    Slash {
        word,
        takes,
        calls,
        help,
    }
}

/// All commands.
pub(crate) const COMMANDS: [Slash; 19] = [
    slash(
        "/status",
        "[NAME]",
        "status",
        "the teammates and what they do (also /team)",
    ),
    slash("/inbox", "[NAME]", "inbox", "the last messages of an inbox"),
    slash("/events", "", "events", "what happened in the team last"),
    slash(
        "/tasks",
        "[TASK]",
        "task",
        "the tasks that are not finished, or one task in full",
    ),
    slash(
        "/cost",
        "",
        "status",
        "the tokens of each teammate, and what they cost",
    ),
    slash(
        "/plans",
        "[ID]",
        "plans",
        "the plans that wait, or one plan in full",
    ),
    slash(
        "/reviews",
        "[ID]",
        "reviews",
        "the work that waits for a review, or one in full",
    ),
    slash(
        "/approve",
        "ID [FEEDBACK]",
        "approve",
        "approve a plan or work; the beginning of its id is enough",
    ),
    slash(
        "/reject",
        "ID [FEEDBACK]",
        "reject",
        "reject a plan or work",
    ),
    slash(
        "/shutdown",
        "NAME [REASON]",
        "shutdown",
        "ask a teammate to shut down, and wait for it",
    ),
    slash(
        "/interrupt",
        "[NAME]",
        "interrupt",
        "interrupt a teammate's current turn",
    ),
    slash(
        "/compact",
        "[NAME]",
        "compact",
        "put a conversation into a summary",
    ),
    slash(
        "/attach",
        "NAME",
        "",
        "talk to another teammate; /attach lead comes back",
    ),
    slash(
        "/model",
        "[MODEL]",
        "",
        "the agent's model, or another for the lead agent",
    ),
    slash(
        "/clear",
        "",
        "",
        "begin a new conversation with the lead agent",
    ),
    slash("/help", "", "", "this list"),
    slash(
        "/quit",
        "",
        "",
        "leave; the agents keep working (also Ctrl-D)",
    ),
    slash("/team", "[NAME]", "status", ""),
    slash("/exit", "", "", ""),
];

/// Where the right column of the help begins.
const ASIDE: &str = "                            ";

/// What else is not sent as it is.
const OTHERS: &str = "  @PATH                     a file that goes with the message
  !COMMAND                  run a command of yours; no agent sees it
  //TEXT                    send /TEXT: a text that begins with a slash
A paste is one message; Alt-Enter, or \\ at the end of a line, continues it.
Ctrl-G lists the keys.
";

/// Lists the commands, in lines of so many columns.
pub(crate) fn list_commands(columns: usize) -> String {
    let listed = COMMANDS.iter().filter(|slash| !slash.help.is_empty());
    let lines = listed.map(|it| {
        format!(
            "  {:<25} {}\n",
            format!("{} {}", it.word, it.takes),
            it.help
        )
    });
    let text = lines.collect::<String>() + OTHERS;
    text.lines()
        .map(|line| {
            let indent = if line.starts_with(' ') { ASIDE } else { "" };
            textwrap::fill(
                line,
                textwrap::Options::new(columns).subsequent_indent(indent),
            ) + "\n"
        })
        .collect()
}
