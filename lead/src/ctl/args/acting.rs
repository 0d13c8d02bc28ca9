//! The arguments of the commands that act on teammates, or talk to them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use teamd_shared::free_text::FreeText;
use teamd_shared::member::{MemberStatus, Permissions, TermsPatch};
use teamd_shared::name::Name;
use teamd_shared::task::TaskId;

use super::super::completion::{names, plans};
use super::value::{Mailbox, duration, mailbox, teammate};

#[derive(Debug, Args)]
pub(crate) struct Spawn {
    /// Name: 1 to 32 characters of a-z, 0-9, _ and -
    #[arg(value_parser = teammate, add = names())]
    pub(crate) name: Name,
    #[command(flatten)]
    pub(crate) terms: TermsPatch,
    /// Read the prompt from a file, or from stdin (-)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "prompt")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// Allow no changes before a plan is approved
    #[arg(long, help_heading = "How it works")]
    pub(crate) plan: bool,
    /// Deny its commands the network
    #[arg(long, help_heading = "Sandbox")]
    pub(crate) no_network: bool,
    /// Which certificate authorities to trust for the model's service: platform, embedded or a PEM
    /// file
    #[arg(long, value_name = "CA", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<String>,
    /// Continue the conversation of its last incarnation, beginning with its unread messages;
    /// --prompt is the next one
    #[arg(long)]
    pub(crate) resume: bool,
    /// How long to wait until it is ready
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Do not start the daemon if it is not running
    #[arg(long)]
    pub(crate) no_start: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Members of team.toml; one with `count` means all of its teammates [default: all]
    #[arg(value_name = "NAME", value_parser = teammate, add = names())]
    pub(crate) names: Vec<Name>,
    /// Continue the conversations of teammates that have ended, those that team.toml does not
    /// define among them
    #[arg(long)]
    pub(crate) resume: bool,
    /// How long to wait until each is ready
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Do not start the daemon if it is not running
    #[arg(long)]
    pub(crate) no_start: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Down {
    /// Also terminate teammates that reject the shutdown
    #[arg(long)]
    pub(crate) force: bool,
    /// How long to wait for the teammates to exit
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Shutdown {
    /// Teammates to shut down
    #[arg(value_name = "NAME", required_unless_present = "all")]
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub(crate) names: Vec<Name>,
    /// Shut down every running teammate except the lead agent
    #[arg(long)]
    pub(crate) all: bool,
    /// Reason, which the teammate's model is told
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    #[arg(allow_hyphen_values = true, value_parser = FreeText)]
    pub(crate) reason: String,
    /// How long to wait; with --force, when to send signals (0s: at once) [default: 120s, with
    /// --force 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// How long its model has to decide before its runtime approves [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) decide_within: Option<Duration>,
    /// After --timeout, terminate it even if it rejects: SIGTERM, then SIGKILL
    #[arg(long)]
    pub(crate) force: bool,
    /// Return as soon as the request is recorded
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// Teammates
    #[arg(value_name = "NAME", required_unless_present_any = ["all", "task", "tasks"])]
    #[arg(conflicts_with_all = ["all", "task", "tasks"], value_parser = Name::of_inbox, add = names())]
    pub(crate) names: Vec<Name>,
    /// Wait until a task is completed
    #[arg(long, value_name = "ID", conflicts_with_all = ["all", "tasks", "status"])]
    pub(crate) task: Option<TaskId>,
    /// Wait until no task is left to do
    #[arg(long, conflicts_with_all = ["all", "status"])]
    pub(crate) tasks: bool,
    /// Wait for every running teammate except the lead agent
    #[arg(long)]
    pub(crate) all: bool,
    /// Status to wait for (comma-separated) [default: idle, with --all also ended; where a plan
    /// needs an answer first, it exits with 7]
    #[arg(long = "for", value_name = "STATUS", value_delimiter = ',')]
    pub(crate) status: Vec<MemberStatus>,
    /// How long to wait [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Forget {
    /// Teammates
    #[arg(
        value_name = "NAME",
        required_unless_present = "ended",
        conflicts_with = "ended"
    )]
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub(crate) names: Vec<Name>,
    /// Forget every ended teammate
    #[arg(long)]
    pub(crate) ended: bool,
    /// Also delete checkouts with work that is not integrated or saved
    #[arg(long)]
    pub(crate) discard: bool,
}

// One teammate by its name. (A doc comment would replace the help of the command.)
#[derive(Debug, Args)]
pub(crate) struct Teammate {
    /// Teammate
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub(crate) name: Name,
}

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// Recipient: a teammate, `lead` or `user`
    #[arg(value_parser = mailbox, add = names())]
    pub(crate) name: Mailbox,
    /// Message, or - to read it from stdin
    #[arg(allow_hyphen_values = true, value_parser = FreeText)]
    pub(crate) text: String,
    /// Also send to a teammate that is not running; its next incarnation reads the message
    #[arg(long)]
    pub(crate) queue: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Broadcast {
    /// Message, or - to read it from stdin
    #[arg(allow_hyphen_values = true, value_parser = FreeText)]
    pub(crate) text: String,
}

#[derive(Debug, Args)]
pub(crate) struct Chat {
    /// Model for a lead agent that is started: PROVIDER or PROVIDER:MODEL
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Agent for a lead agent that is started: builtin, claude, codex, or one defined in team.toml
    #[arg(long, value_name = "AGENT")]
    pub(crate) agent: Option<String>,
    /// Workspace for a lead agent that is started [default: the parent of the team directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<String>,
    /// Start a new conversation; refused while the lead agent is running
    #[arg(long)]
    pub(crate) fresh: bool,
    /// First show the last N entries of the conversation
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) last: usize,
    /// In a pipe: how long to wait until the work is done [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Do not start the daemon if it is not running
    #[arg(long)]
    pub(crate) no_start: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Attach {
    /// Teammate
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub(crate) name: Name,
    /// First show the last N entries of the conversation
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) last: usize,
    /// In a pipe: how long to wait until the work is done [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct VerdictArgs {
    /// Id of the plan, work or permission, or its first 4 or more characters; at a terminal also
    /// the teammate's name
    #[arg(add = plans())]
    pub(crate) id: String,
    /// Feedback for the teammate, or - to read it from stdin
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    #[arg(allow_hyphen_values = true, value_parser = FreeText)]
    pub(crate) feedback: String,
}

#[derive(Debug, Args)]
pub(crate) struct Approve {
    #[command(flatten)]
    pub(crate) verdict: VerdictArgs,
    /// How permission questions of its agent are answered from now on: allow or ask
    #[arg(long, value_name = "HOW", hide_possible_values = true)]
    pub(crate) permissions: Option<Permissions>,
}

#[derive(Debug, Args)]
pub(crate) struct RequestPlan {
    /// Teammate
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub(crate) name: Name,
    /// Instructions for the plan, or - to read them from stdin
    #[arg(default_value = "Submit a plan before you change anything else.")]
    #[arg(allow_hyphen_values = true, value_parser = FreeText)]
    pub(crate) text: String,
    /// How long to wait for running commands to finish
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration)]
    pub(crate) timeout: Duration,
}
