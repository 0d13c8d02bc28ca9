//! The arguments of the commands that act on teammates, or talk to them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use teamd_shared::member::{MemberStatus, TermsPatch};
use teamd_shared::name::Name;
use teamd_shared::task::TaskId;

use super::super::completion::{names, plans};
use super::value::{Mailbox, duration, mailbox, teammate};

#[derive(Debug, Args)]
pub(crate) struct Spawn {
    /// Its name: 1 to 32 of a-z, 0-9, _ and -
    #[arg(value_parser = teammate, add = names())]
    pub(crate) name: Name,
    #[command(flatten)]
    pub(crate) terms: TermsPatch,
    /// Read the prompt from a file, or from stdin (-)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "prompt")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// It must submit a plan, and change nothing before the plan is approved
    #[arg(long)]
    pub(crate) plan: bool,
    /// Its commands reach no network
    #[arg(long)]
    pub(crate) no_network: bool,
    /// Who is trusted to name its model's service: platform, embedded or a FILE of certificates
    #[arg(long, value_name = "CA", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<String>,
    /// Go on with the conversation of its last incarnation, and read all mail that it had not read
    #[arg(long)]
    pub(crate) resume: bool,
    /// How long to wait until it is ready
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Do not start the daemon if none runs
    #[arg(long)]
    pub(crate) no_start: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Members of team.toml; one with `count` stands for all of its teammates [default: all]
    #[arg(value_name = "NAME", value_parser = teammate, add = names())]
    pub(crate) names: Vec<Name>,
    /// How long to wait for each until it is ready
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Do not start the daemon if none runs
    #[arg(long)]
    pub(crate) no_start: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Down {
    /// Also terminate teammates that reject the shutdown
    #[arg(long)]
    pub(crate) force: bool,
    /// How long to wait for the teammates
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Shutdown {
    /// Teammates to shut down
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub(crate) names: Vec<Name>,
    /// Shut down every teammate that runs; the lead agent stays
    #[arg(long)]
    pub(crate) all: bool,
    /// Reason, for the teammate's model to weigh
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
    /// How long to wait; with --force the time until signals are sent, 0s for at once [default: 120s, with --force 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// How long its model has to decide, before its runtime approves [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) decide_within: Option<Duration>,
    /// End it even if it rejects: by SIGTERM, then SIGKILL, when the time of --timeout is over
    #[arg(long)]
    pub(crate) force: bool,
    /// Return when the request is recorded
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
    /// Wait until no task is left to be done
    #[arg(long, conflicts_with_all = ["all", "status"])]
    pub(crate) tasks: bool,
    /// Wait for every teammate that runs, but not for the lead agent; without --for, one whose plan waits for an answer ends the
    /// waiting for it (exit code 7)
    #[arg(long)]
    pub(crate) all: bool,
    /// Status to wait for (comma-separated) [with --all: idle; one that has left is not waited for]
    #[arg(long = "for", value_name = "STATUS", required_unless_present_any = ["all", "task", "tasks"])]
    #[arg(value_delimiter = ',')]
    pub(crate) status: Vec<MemberStatus>,
    /// How long to wait [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Forget {
    /// Teammates
    #[arg(value_name = "NAME", required_unless_present = "ended", conflicts_with = "ended")]
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub(crate) names: Vec<Name>,
    /// Remove every teammate that has ended
    #[arg(long)]
    pub(crate) ended: bool,
    /// Also remove a checkout with work that is neither integrated nor kept
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
    /// Message; - reads it from stdin
    #[arg(allow_hyphen_values = true)]
    pub(crate) text: String,
    /// Also send to a teammate that is not running: its next incarnation reads the message
    #[arg(long)]
    pub(crate) queue: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Broadcast {
    /// Message; - reads it from stdin
    #[arg(allow_hyphen_values = true)]
    pub(crate) text: String,
}

#[derive(Debug, Args)]
pub(crate) struct Chat {
    /// Model of a lead agent that is started, as PROVIDER or PROVIDER:MODEL
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Workspace of a lead agent that is started [default: the parent of the team directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<String>,
    /// Begin a new conversation instead of continuing the last one; refused while the lead agent runs
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Show the last N entries of the conversation first
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) last: usize,
    /// Without a terminal: how long to wait for the end of the work [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Do not start the daemon if none runs
    #[arg(long)]
    pub(crate) no_start: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Attach {
    /// Teammate
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub(crate) name: Name,
    /// Show the last N entries of the conversation first
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) last: usize,
    /// Without a terminal: how long to wait for the end of the work [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct VerdictArgs {
    /// Plan: its id, or at least 4 characters of the beginning; at a terminal also the name of the teammate
    #[arg(add = plans())]
    pub(crate) id: String,
    /// Feedback for the teammate; - reads it from stdin
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub(crate) feedback: String,
}

#[derive(Debug, Args)]
pub(crate) struct RequestPlan {
    /// Teammate
    #[arg(value_parser = Name::of_inbox, add = names())]
    pub(crate) name: Name,
    /// Instructions for the plan; - reads them from stdin
    #[arg(default_value = "Submit a plan before you change anything else.", allow_hyphen_values = true)]
    pub(crate) text: String,
    /// How long to wait for running commands to finish
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = duration)]
    pub(crate) timeout: Duration,
}
