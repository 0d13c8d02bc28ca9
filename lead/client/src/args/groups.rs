//! The first help: the commands in groups, as a person needs them.

use anstyle::Style;
use clap::Subcommand;

use super::TeamctlCommand;
use crate::print::style::paint;

/// The style of a heading, as in the help of each command.
const HEADING: Style = Style::new().bold().underline();

/// The widest help where the terminal is wider, or none is there.
const WIDEST: usize = 100;

/// How far the names are indented, and what they take at most.
const INDENT: usize = 2;
const NAME: usize = 14;

/// Every command of the first help, once.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Start", &["spawn", "up", "run", "chat", "agents", "host"]),
    (
        "See",
        &[
            "status",
            "top",
            "web",
            "port",
            "inbox",
            "transcript",
            "logs",
            "events",
            "diagram",
            "stats",
        ],
    ),
    (
        "Talk",
        &["send", "broadcast", "attach", "interrupt", "compact"],
    ),
    (
        "Decide",
        &[
            "requests",
            "review",
            "approve",
            "reject",
            "request-plan",
            "memory",
        ],
    ),
    (
        "Work",
        &[
            "task", "tasks", "orders", "wait", "diff", "sync", "land", "pr",
        ],
    ),
    (
        "Care",
        &["shutdown", "down", "forget", "doctor", "completions"],
    ),
    (
        "For other programs, and their authors",
        &["mcp", "acp", "lint", "schema"],
    ),
];

/// Lays out the first help of `teamctl`.
pub fn lay_out(teamctl: clap::Command) -> clap::Command {
    teamctl.help_template(template())
}

fn template() -> String {
    let commands = TeamctlCommand::augment_subcommands(clap::Command::new("teamctl"));
    let columns = crate::print::output::terminal_width()
        .unwrap_or(WIDEST)
        .min(WIDEST);
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, names) in GROUPS {
        text.push_str(&format!("\n{}\n", paint(HEADING, format_args!("{group}:"))));
        for command in names
            .iter()
            .filter_map(|name| commands.find_subcommand(name))
        {
            text.push_str(&line(command, columns));
        }
    }
    let everywhere = paint(HEADING, "Options:");
    text + "\n" + &everywhere + "\n{options}{after-help}"
}

fn line(command: &clap::Command, columns: usize) -> String {
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    let alias = command
        .get_visible_aliases()
        .next()
        .map(|alias| format!(" [alias: {alias}]"));
    let begin = format!("{:INDENT$}{:<NAME$}", "", command.get_name());
    let next = " ".repeat(INDENT + NAME);
    let options = textwrap::Options::new(columns)
        .initial_indent(&begin)
        .subsequent_indent(&next);
    textwrap::fill(&format!("{about}{}", alias.unwrap_or_default()), options) + "\n"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_of_the_first_help_is_in_one_group() {
        let commands = TeamctlCommand::augment_subcommands(clap::Command::new("teamctl"));
        let shown = commands
            .get_subcommands()
            .filter(|command| !command.is_hide_set());
        let shown: BTreeSet<&str> = shown.map(clap::Command::get_name).collect();
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| names.iter().copied())
            .collect();
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), shown);
        assert_eq!(grouped.len(), shown.len());
    }
}
