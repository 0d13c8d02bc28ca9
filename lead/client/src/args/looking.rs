//! The arguments of the commands that show or check something.

use clap::{Args, Subcommand, ValueHint};
use clap_complete::Shell;
use teamd_shared::name::Name;
use teamd_shared::schema::Of;

use super::value::{MailboxName, log_name, mailbox, past, schema};
use crate::args::completers::{agents, names, plans};

#[derive(Debug, Default, PartialEq, Args)]
pub struct StatusArgs {
    /// Show all details of one teammate
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub name: Option<Name>,
    /// Show only teammates that are waiting for you
    #[arg(long, conflicts_with = "name")]
    pub waiting: bool,
    /// Show only running teammates
    #[arg(long, conflicts_with_all = ["name", "waiting"])]
    pub running: bool,
    /// Show all columns and full lines, and list ended teammates individually
    #[arg(long, conflicts_with = "name")]
    pub wide: bool,
    /// Show these columns (comma-separated), and list ended teammates individually
    #[arg(long, short = 'o', value_name = "COLUMNS", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["name", "wide"])]
    pub columns: Vec<Column>,
    /// Keep showing: at a terminal as `top` does, in a pipe or with other flags again after each
    /// change
    #[arg(long, conflicts_with = "name")]
    pub watch: bool,
}

/// A column of the table of teammates, in the usual order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Column {
    Name,
    Role,
    Status,
    Since,
    Unread,
    Gate,
    Host,
    Pid,
    Model,
    Tokens,
    Cost,
    Restarts,
    Task,
    Doing,
}

// The records of a file to show. (A doc comment would replace the help of the command.)
#[derive(Debug, Clone, Args)]
pub struct Range {
    /// Show only the last N entries
    #[arg(long, value_name = "N")]
    pub last: Option<usize>,
    /// Keep printing new entries until Ctrl-C
    #[arg(long, short)]
    pub follow: bool,
}

#[derive(Debug, Args)]
pub struct Web {
    /// Port on 127.0.0.1 [default: a free one]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// Refuse every action: the page only shows the team
    #[arg(long)]
    pub read_only: bool,
    /// Also serve /metrics in the Prometheus text format, without a key: counts, no names and no
    /// texts
    #[arg(long)]
    pub metrics: bool,
    /// The port of another machine that is forwarded to the page: `teamctl -H` sets it
    #[arg(long, value_name = "PORT", hide = true)]
    pub forwarded_port: Option<u16>,
}

#[derive(Debug, Args)]
pub struct PortArgs {
    /// The teammate; it was spawned with `localhost = "own"`
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub name: Name,
    /// The port on its localhost
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Port on your 127.0.0.1 [default: a free one]
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub at: u16,
    /// Pass any protocol through, without a key: each program and each web page that you open
    /// reaches it
    #[arg(long)]
    pub tcp: bool,
}

#[derive(Debug, Args)]
pub struct InboxArgs {
    /// Owner of the inbox: a teammate, `lead` or `user`, which share one
    #[arg(default_value = "lead", value_parser = mailbox, add = names())]
    pub name: MailboxName,
    /// Show the last N messages
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub last: usize,
    /// Keep printing new messages until Ctrl-C
    #[arg(long, short)]
    pub follow: bool,
}

#[derive(Debug, Args)]
pub struct TranscriptArgs {
    /// Teammate
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub name: Name,
    /// The entries.
    #[command(flatten)]
    pub range: Range,
}

#[derive(Debug, Args)]
pub struct Logs {
    /// Teammates, or `teamd` for the daemon [default: all]
    #[arg(value_name = "NAME", value_parser = log_name, add = names())]
    pub names: Vec<String>,
    /// The lines of each.
    #[command(flatten)]
    pub range: Range,
}

#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Show only events since a time (14:05, 2026-11-23 14:05), or of the last 10m
    #[arg(long, value_name = "TIME", value_parser = past)]
    pub since: Option<f64>,
    /// The events.
    #[command(flatten)]
    pub range: Range,
}

#[derive(Debug, Args)]
pub struct Diagram {
    /// Draw only what happened since a time (14:05, 2026-11-23 14:05), or in the last 10m
    #[arg(long, value_name = "TIME", value_parser = past)]
    pub since: Option<f64>,
    /// Draw only this request (its id, or the beginning of it)
    #[arg(long, value_name = "ID", add = plans())]
    pub request: Option<String>,
    /// Output format
    #[arg(long, default_value = "mermaid")]
    pub format: DiagramFormat,
}

/// How a diagram is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum DiagramFormat {
    /// Text that code hosts draw in Markdown
    Mermaid,
    /// An image for light and dark pages
    Svg,
}

// Requests of some kind. (A doc comment would replace the help of the commands.)
#[derive(Debug, Args)]
pub struct RequestsArgs {
    /// Show this one in full (its id, or the beginning of it)
    #[arg(add = plans())]
    pub id: Option<String>,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// Repair what can be repaired without deleting data, and list every change
    ///
    /// While a daemon runs, its own files are left alone. Without a daemon, this also ends
    /// workers and shims that no record names.
    #[arg(long)]
    pub fix: bool,
    /// Also show what is in order, and how each promise of the sandbox is enforced
    #[arg(long, short)]
    pub verbose: bool,
}

#[derive(Debug, Args)]
pub struct Lint {
    /// Files to check, or - for stdin
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub files: Vec<String>,
    /// Kind of the files [default: judged by their names, else messages]
    #[arg(long = "as", value_name = "WHAT")]
    pub kind: Option<LintAs>,
}

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LintAs {
    /// An inbox
    Messages,
    /// journal.jsonl
    Journal,
    /// config.json
    Roster,
    /// A transcript
    Transcript,
    /// team.toml
    Settings,
}

// (A doc comment would replace the help of the command.)
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Agents {
    /// What to do
    #[command(subcommand)]
    pub command: Option<AgentsCommand>,
}

// What can be done with agents. (A doc comment would replace the help of the command.)
#[derive(Debug, Subcommand)]
pub enum AgentsCommand {
    /// Install an agent, once, for every later spawn
    ///
    /// Installs what the launcher would fetch (npm for `npx`, uv for `uvx`) outside of any sandbox,
    /// into ~/.local/share/teamd/tools. Teammates run that, and cannot change it. ID is claude,
    /// codex, opencode or gemini (with @VERSION if need be), an agent of team.toml whose command
    /// begins with `npx` or `uvx`, or one that FILE lists: a registry.json of the ACP registry.
    Install(InstallArgs),
}

#[derive(Debug, Args)]
pub struct InstallArgs {
    /// Agent to install; before it a file of the ACP registry, if that lists it
    #[arg(value_name = "[FILE] ID", num_args = 1..=2, required = true, add = agents())]
    pub agent: Vec<String>,
    /// How it is installed
    #[command(flatten)]
    pub how: InstallFlags,
}

/// How a program is installed.
#[derive(Debug, Clone, Copy, Args)]
pub struct InstallFlags {
    /// Look for a newer version, if one is installed
    #[arg(long)]
    pub upgrade: bool,
    /// Install it again, and run the install scripts of what it depends on: they run as you
    #[arg(long)]
    pub scripts: bool,
}

#[derive(Debug, Args)]
pub struct Schema {
    /// File or output to describe
    #[arg(value_name = "WHAT", value_parser = schema())]
    pub of: Option<Of>,
}

#[derive(Debug, Args)]
pub struct Completions {
    /// Shell
    pub shell: Shell,
}
