//! What a command needs of this machine: a terminal, stdin. And which words of the command line are
//! for the other one. Pure.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use teamd_client::args::{At, StatusArgs, TaskCommand, TeamctlCommand};

/// What a terminal is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FarTerminalUse {
    /// A view on the whole screen, or a program of the user's own.
    Screen,
    /// Perhaps a question: whether `team.toml` is trusted, which request is meant.
    Question,
}

/// Returns what the command would use a terminal for, if there is one. Programs that ask for JSON are
/// asked nothing.
pub(super) fn terminal_use(command: &TeamctlCommand, is_json: bool) -> Option<FarTerminalUse> {
    use TeamctlCommand::{Approve, Attach, Chat, Reject, Review, Run, Spawn, Status, Top, Up};
    if is_json {
        return None;
    }
    match command {
        Top | Chat(_) | Attach(_) | Review(_) => Some(FarTerminalUse::Screen),
        Status(args) => is_top(args).then_some(FarTerminalUse::Screen),
        Spawn(_) | Up(_) | Run(_) | Approve(_) | Reject(_) => Some(FarTerminalUse::Question),
        _ => None,
    }
}

/// At a terminal, `status --watch` without more is `top`.
fn is_top(args: &StatusArgs) -> bool {
    *args
        == (StatusArgs {
            watch: true,
            ..StatusArgs::default()
        })
}

/// Tells whether the command reads stdin without a terminal.
pub(super) fn reads_stdin(command: &TeamctlCommand, args: &[OsString]) -> bool {
    use TeamctlCommand::{Acp, Attach, Chat, Mcp};
    let is_fed = match command {
        Chat(_) | Attach(_) | Acp(_) => true,
        Mcp(args) => args.command.is_none() && args.print_plugin.is_none(),
        _ => false,
    };
    let is_stdin = |word: &OsString| word == "-" || word.as_bytes().ends_with(b"=-");
    is_fed || args.iter().any(is_stdin)
}

/// Tells whether the command ends when the reader of its output is gone, as `events --follow | head`
/// does.
pub(super) fn ends_with_reader(command: &TeamctlCommand) -> bool {
    use TeamctlCommand::{Acp, Events, Inbox, Logs, Pr, Status, Task, Transcript};
    match command {
        Events(args) => args.range.follow,
        Logs(args) => args.range.follow,
        Transcript(args) => args.range.follow,
        Inbox(args) => args.follow,
        Status(args) => args.watch,
        Task(args) => matches!(&args.command, TaskCommand::Log(args) if args.follow),
        Acp(_) | Pr(_) => true,
        _ => false,
    }
}

/// Returns the files that the command reads a text from.
pub(super) fn files(command: &TeamctlCommand) -> Vec<&Path> {
    match command {
        TeamctlCommand::Spawn(args) => args.prompt_file.as_deref().into_iter().collect(),
        TeamctlCommand::Run(args) => args.tasks.as_deref().into_iter().collect(),
        TeamctlCommand::Task(args) => match &args.command {
            TaskCommand::Import(args) => vec![&args.file],
            _ => Vec::new(),
        },
        TeamctlCommand::Lint(args) => args.files.iter().map(Path::new).collect(),
        _ => Vec::new(),
    }
}

/// Takes the machine out of a command line that was read without an error.
pub(super) fn without_machine(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words = words.fuse();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match Word::of(&word) {
            Word::Machine(Some(_)) => {}
            Word::Machine(None) => drop(words.next()),
            Word::TeamDir => {
                kept.push(word);
                kept.extend(words.next());
            }
            Word::Option => kept.push(word),
            Word::Command => {
                kept.push(word);
                kept.extend(words.by_ref());
            }
        }
    }
    kept
}

/// Returns the machine of a command line that only asks for the version there.
pub(super) fn asks_for_version(words: &[OsString]) -> Option<At> {
    let mut machine = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match Word::of(word) {
            Word::Machine(Some(named)) => machine = Some(named.to_owned()),
            Word::Machine(None) => machine = words.next().cloned(),
            Word::TeamDir => drop(words.next()),
            Word::Option if word == "--version" || word == "-V" => return At::read(&machine?).ok(),
            Word::Option => {}
            Word::Command => return None,
        }
    }
    None
}

/// A word before the command, or the command.
enum Word<'a> {
    /// `-H`, with the machine if it is in the same word.
    Machine(Option<&'a OsStr>),
    /// `--team-dir`, and its value is the next word.
    TeamDir,
    Option,
    Command,
}

impl<'a> Word<'a> {
    fn of(word: &'a OsStr) -> Self {
        let bytes = word.as_bytes();
        if bytes == b"--at" || bytes == b"-H" {
            return Self::Machine(None);
        }
        if bytes == b"--team-dir" {
            return Self::TeamDir;
        }
        let short = bytes.strip_prefix(b"-H");
        let short = short.map(|value| value.strip_prefix(b"=").unwrap_or(value));
        if let Some(value) = bytes.strip_prefix(b"--at=").or(short) {
            return Self::Machine(Some(OsStr::from_bytes(value)));
        }
        if bytes.starts_with(b"-") && bytes != b"-" {
            return Self::Option;
        }
        Self::Command
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use teamd_client::args::Cli;

    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn command(line: &str) -> TeamctlCommand {
        Cli::try_parse_from(line.split(' ')).unwrap().command
    }

    #[test]
    fn only_the_machine_is_taken_out_and_only_before_the_command() {
        for (given, kept) in [
            ("-H box status", "status"),
            ("-Hbox --json status", "--json status"),
            ("--json --at box status", "--json status"),
            ("--at=box --team-dir -H status", "--team-dir -H status"),
            (
                "--team-dir=x -H=box send alice -H",
                "--team-dir=x send alice -H",
            ),
            ("-H box send alice --at", "send alice --at"),
        ] {
            let kept_words = without_machine(words(given).into_iter());
            assert_eq!(kept_words, words(kept), "{given}");
        }
    }

    #[test]
    fn the_version_there_is_asked_for_before_a_command() {
        let asked = |line| asks_for_version(&words(line)).map(|at| at.destination);
        assert_eq!(asked("-H box --version"), Some("box".to_owned()));
        assert_eq!(asked("--json --at=box -V"), Some("box".to_owned()));
        assert_eq!(asked("--version"), None);
        assert_eq!(asked("-H box status --version"), None);
        assert_eq!(asked("-H -x --version"), None);
    }

    #[test]
    fn a_terminal_is_used_by_views_and_by_questions() {
        use FarTerminalUse::{Question, Screen};
        for (line, used) in [
            ("teamctl top", Some(Screen)),
            ("teamctl chat", Some(Screen)),
            ("teamctl attach alice", Some(Screen)),
            ("teamctl review 1", Some(Screen)),
            ("teamctl status --watch", Some(Screen)),
            ("teamctl status --watch --wide", None),
            ("teamctl status", None),
            ("teamctl spawn alice", Some(Question)),
            ("teamctl approve alice", Some(Question)),
            ("teamctl wait alice", None),
            ("teamctl mcp", None),
            ("teamctl acp alice", None),
        ] {
            assert_eq!(terminal_use(&command(line), false), used, "{line}");
            assert_eq!(terminal_use(&command(line), true), None, "{line}");
        }
    }

    #[test]
    fn what_follows_ends_with_its_reader() {
        for (line, ends) in [
            ("teamctl events --follow", true),
            ("teamctl logs -f", true),
            ("teamctl inbox -f", true),
            ("teamctl transcript alice --follow", true),
            ("teamctl status --watch", true),
            ("teamctl task log 1 -f", true),
            ("teamctl events", false),
            ("teamctl shutdown alice", false),
            ("teamctl wait alice", false),
        ] {
            assert_eq!(ends_with_reader(&command(line)), ends, "{line}");
        }
    }

    #[test]
    fn stdin_is_for_those_that_read_it() {
        for (line, is_read) in [
            ("teamctl status", false),
            ("teamctl send alice hi", false),
            ("teamctl send alice -", true),
            ("teamctl task add x --description -", true),
            ("teamctl task add x --description=-", true),
            ("teamctl spawn alice --prompt-file -", true),
            ("teamctl chat", true),
            ("teamctl mcp", true),
            ("teamctl mcp list", false),
            ("teamctl acp alice", true),
        ] {
            assert_eq!(reads_stdin(&command(line), &words(line)), is_read, "{line}");
        }
    }

    #[test]
    fn the_files_that_are_read_are_known() {
        for line in [
            "teamctl spawn alice --prompt-file plan.md",
            "teamctl run --tasks plan.md",
            "teamctl task import plan.md",
            "teamctl lint plan.md",
        ] {
            assert_eq!(files(&command(line)), [Path::new("plan.md")], "{line}");
        }
    }
}
