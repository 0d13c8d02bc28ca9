//! The arguments of the commands that talk to teammates and to the lead agent.

use std::time::Duration;

use clap::{Args, ValueHint};
use teamd_shared::name::Name;

use super::value::{Mailbox, duration, mailbox};

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// Recipient: a teammate, `lead` or `user`
    #[arg(value_parser = mailbox)]
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
pub(crate) struct Interrupt {
    /// Teammate
    #[arg(value_parser = Name::of_inbox)]
    pub(crate) name: Name,
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
}

#[derive(Debug, Args)]
pub(crate) struct Attach {
    /// Teammate
    #[arg(value_parser = Name::of_inbox)]
    pub(crate) name: Name,
    /// Show the last N entries of the conversation first
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) last: usize,
    /// Without a terminal: how long to wait for the end of the work [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}
