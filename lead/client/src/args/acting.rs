//! The arguments of the commands that act on teammates, or talk to them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use teamd_shared::free_text::FreeText;
use teamd_shared::member::{MemberStatus, Permissions, TermsPatch};
use teamd_shared::name::Name;
use teamd_shared::task::TaskId;

use super::InstallFlags;
use super::value::{MailboxName, duration, mailbox, sha256, teammate};
use crate::args::completers::{names, plans, servers};

#[derive(Debug, Args)]
pub struct MemoryArgs {
    #[command(subcommand)]
    pub command: Option<MemoryCommand>,
}

#[derive(Debug, Subcommand)]
pub enum MemoryCommand {
    /// Forget what you had accepted
    Forget {
        /// Its id, or the beginning of it
        id: String,
    },
}

#[derive(Debug, Args)]
pub struct Spawn {
    /// Name: 1 to 32 characters of a-z, 0-9, _ and -
    #[arg(value_parser = teammate, add = names())]
    pub name: Name,
    #[command(flatten)]
    pub terms: TermsPatch,
    /// Read the prompt from a file, or from stdin (-)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "prompt")]
    pub prompt_file: Option<PathBuf>,
    /// Allow no changes before a plan is approved
    #[arg(long, help_heading = "How it works")]
    pub plan: bool,
    /// Deny its commands the network
    #[arg(long, help_heading = "Sandbox")]
    pub no_network: bool,
    /// Which certificate authorities to trust for the model's service: platform, embedded or a PEM
    /// file
    #[arg(long, value_name = "CA", value_hint = ValueHint::FilePath)]
    pub ca: Option<String>,
    /// Continue the conversation of its last incarnation, beginning with its unread messages;
    /// --prompt is the next one
    #[arg(long)]
    pub resume: bool,
    /// How long to wait until it is ready
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub timeout: Duration,
    /// Do not start the daemon if it is not running
    #[arg(long)]
    pub no_start: bool,
}

#[derive(Debug, Args)]
pub struct Up {
    /// Members of team.toml; one with `count` means all of its teammates [default: all]
    #[arg(value_name = "NAME", value_parser = teammate, add = names())]
    pub names: Vec<Name>,
    /// Continue the conversations of teammates that have ended, those that team.toml does not
    /// define among them
    #[arg(long)]
    pub resume: bool,
    /// How long to wait until each is ready
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub timeout: Duration,
    /// Do not start the daemon if it is not running
    #[arg(long)]
    pub no_start: bool,
}

#[derive(Debug, Args)]
pub struct Down {
    /// Also terminate teammates that reject the shutdown
    #[arg(long)]
    pub force: bool,
    /// How long to wait for the teammates to exit
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration)]
    pub timeout: Duration,
}

#[derive(Debug, Args)]
pub struct Shutdown {
    /// Teammates to shut down
    #[arg(value_name = "NAME", required_unless_present = "all")]
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub names: Vec<Name>,
    /// Shut down every running teammate except the lead agent
    #[arg(long)]
    pub all: bool,
    /// Reason, which the teammate's model gets
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    #[arg(allow_hyphen_values = true, value_parser = FreeText)]
    pub reason: String,
    /// How long to wait; with --force, when to send signals (0s: at once) [default: 120s, with
    /// --force 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// How long its model has to decide before its runtime approves [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub decide_within: Option<Duration>,
    /// After --timeout, terminate it even if it rejects: SIGTERM, then SIGKILL
    #[arg(long)]
    pub force: bool,
    /// Return as soon as the request is recorded
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(Debug, Args)]
pub struct Wait {
    /// Teammates
    #[arg(value_name = "NAME", required_unless_present_any = ["all", "task", "tasks", "events"])]
    #[arg(conflicts_with_all = ["all", "task", "tasks", "events"], value_parser = Name::of_inbox, add = names())]
    pub names: Vec<Name>,
    /// Wait until a task is completed
    #[arg(long, value_name = "ID", conflicts_with_all = ["all", "tasks", "status"])]
    pub task: Option<TaskId>,
    /// Wait until no task is left to do
    #[arg(long, conflicts_with_all = ["all", "status"])]
    pub tasks: bool,
    /// Wait for every running teammate except the lead agent
    #[arg(long)]
    pub all: bool,
    /// Wait until something comes for the lead, and show it. Below an agent that leads by `teamctl
    /// mcp`: what that has not got yet
    #[arg(long, conflicts_with_all = ["all", "task", "tasks", "status"])]
    pub events: bool,
    /// With --events: exit with 7 unless such an agent runs this, and when its server ends
    #[arg(long, requires = "events", hide = true)]
    pub below_lead: bool,
    /// Status to wait for (comma-separated) [default: idle, with --all also ended; where a plan
    /// needs an answer first, it exits with 7]
    #[arg(long = "for", value_name = "STATUS", value_delimiter = ',')]
    pub status: Vec<MemberStatus>,
    /// How long to wait [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub struct Forget {
    /// Teammates
    #[arg(
        value_name = "NAME",
        required_unless_present = "ended",
        conflicts_with = "ended"
    )]
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub names: Vec<Name>,
    /// Forget every ended teammate
    #[arg(long)]
    pub ended: bool,
    /// Give up running teammates whose host is gone for good: their status becomes `lost`
    #[arg(long, conflicts_with_all = ["ended", "discard"])]
    pub lost: bool,
    /// Also delete checkouts with work that is not integrated or saved
    #[arg(long)]
    pub discard: bool,
}

// One teammate by its name. (A doc comment would replace the help of the command.)
#[derive(Debug, Args)]
pub struct Teammate {
    /// Teammate
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub name: Name,
}

#[derive(Debug, Args)]
pub struct Send {
    /// Recipient: a teammate, `lead` or `user`
    #[arg(value_parser = mailbox, add = names())]
    pub name: MailboxName,
    /// Message, or - to read it from stdin
    #[arg(allow_hyphen_values = true, value_parser = FreeText)]
    pub text: String,
    /// Also send to a teammate that is not running; its next incarnation reads the message
    #[arg(long)]
    pub queue: bool,
}

#[derive(Debug, Args)]
pub struct BroadcastArgs {
    /// Message, or - to read it from stdin
    #[arg(allow_hyphen_values = true, value_parser = FreeText)]
    pub text: String,
}

#[derive(Debug, Args)]
pub struct Chat {
    /// Model for a lead agent that is started: PROVIDER or PROVIDER:MODEL
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Agent for a lead agent that is started: builtin, claude, codex, opencode, gemini, or one defined in team.toml
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Workspace for a lead agent that is started [default: the parent of the team directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub workspace: Option<String>,
    /// Start a new conversation; refused while the lead agent is running
    #[arg(long)]
    pub fresh: bool,
    /// First show the last N entries of the conversation
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub last: usize,
    /// In a pipe: how long to wait until the work is done [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Do not start the daemon if it is not running
    #[arg(long)]
    pub no_start: bool,
}

// (A doc comment would replace the help of the command.)
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Mcp {
    /// Write a plugin for Claude Code into a directory instead: the server, a hook that wakes Claude
    /// when something comes for it, and a skill
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub print_plugin: Option<PathBuf>,
    /// Do not start the daemon if it is not running
    #[arg(long)]
    pub no_start: bool,
    /// What to do instead
    #[command(subcommand)]
    pub command: Option<McpCommand>,
}

// What can be done with MCP servers. (A doc comment would replace the help of the command.)
#[derive(Debug, Subcommand)]
pub enum McpCommand {
    /// List the MCP servers of team.toml: who has each, its tools and what they cost
    #[command(alias = "ls")]
    List,
    /// Install an MCP server of team.toml, once, for every later spawn
    ///
    /// Installs what its launcher would fetch (npm for `npx`, uv for `uvx`) outside of any sandbox,
    /// into ~/.local/share/teamd/tools. Teammates run that, and cannot change it.
    Install(McpInstall),
}

#[derive(Debug, Args)]
pub struct McpInstall {
    /// Server to install
    #[arg(add = servers())]
    pub name: String,
    /// How it is installed
    #[command(flatten)]
    pub how: InstallFlags,
}

#[derive(Debug, Args)]
pub struct AcpArgs {
    /// Teammate, or `lead`
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub name: Name,
    /// What is answered in the editor is a person's answer: also where a person must decide
    #[arg(long)]
    pub i_am_a_person: bool,
    /// Do not start the daemon if it is not running
    #[arg(long)]
    pub no_start: bool,
}

#[derive(Debug, Args)]
pub struct Attach {
    /// Teammate
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub name: Name,
    /// First show the last N entries of the conversation
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub last: usize,
    /// In a pipe: how long to wait until the work is done [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub struct VerdictArgs {
    /// Id of the plan, work or permission, or its first 4 or more characters; at a terminal also
    /// the teammate's name
    #[arg(add = plans())]
    pub id: String,
    /// Feedback for the teammate, or - to read it from stdin
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    #[arg(allow_hyphen_values = true, value_parser = FreeText)]
    pub feedback: String,
    /// The four digits that `top`, the page or a hook shows (`approve_code` in team.toml)
    #[arg(long, value_name = "DIGITS")]
    pub code: Option<String>,
}

#[derive(Debug, Args)]
pub struct Approve {
    #[command(flatten)]
    pub verdict: VerdictArgs,
    /// How permission questions of its agent are answered from now on: allow or ask
    #[arg(long, value_name = "HOW", hide_possible_values = true)]
    pub permissions: Option<Permissions>,
    /// Approve the plan only if the SHA-256 of its text is this (`teamctl plans --json`)
    #[arg(long, value_name = "HASH", value_parser = sha256)]
    pub plan_sha256: Option<String>,
}

#[derive(Debug, Args)]
pub struct RequestPlanArgs {
    /// Teammate
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub name: Name,
    /// Instructions for the plan, or - to read them from stdin
    #[arg(default_value = "Submit a plan before you change anything else.")]
    #[arg(allow_hyphen_values = true, value_parser = FreeText)]
    pub text: String,
    /// How long to wait for running commands to finish
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration)]
    pub timeout: Duration,
}

#[derive(Debug, Args)]
pub struct CompactArgs {
    /// Teammate
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub name: Name,
    /// How long to wait for the summary
    #[arg(long, value_name = "TIME", default_value = "600s", value_parser = duration)]
    pub timeout: Duration,
}
