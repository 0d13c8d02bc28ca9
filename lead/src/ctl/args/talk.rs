//! What talks to teammates and to the lead agent.

use std::time::Duration;

use clap::{Args, ValueHint};
use teamd_shared::name::Name;

use super::value::{Mailbox, duration, mailbox};

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// To whom: a teammate, lead or user
    #[arg(value_parser = mailbox)]
    pub(crate) name: Mailbox,
    /// The message; - reads it from stdin
    #[arg(allow_hyphen_values = true)]
    pub(crate) text: String,
    /// Send it although the teammate does not run: its next life reads it
    #[arg(long)]
    pub(crate) queue: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Broadcast {
    /// The message; - reads it from stdin
    #[arg(allow_hyphen_values = true)]
    pub(crate) text: String,
}

#[derive(Debug, Args)]
pub(crate) struct Interrupt {
    /// The teammate
    #[arg(value_parser = Name::of_inbox)]
    pub(crate) name: Name,
}

#[derive(Debug, Args)]
pub(crate) struct Chat {
    /// The model of a lead agent that is started, as PROVIDER or PROVIDER:MODEL
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// The directory in which it works [default: the one that holds the team directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<String>,
    /// Begin a new conversation instead of resuming the last one; not beside a lead agent that runs
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Show the last N entries of the conversation at first
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) last: usize,
    /// Without a terminal: how long to wait until the work is done [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Attach {
    /// The teammate
    #[arg(value_parser = Name::of_inbox)]
    pub(crate) name: Name,
    /// Show the last N entries of the conversation at first
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) last: usize,
    /// Without a terminal: how long to wait until the work is done [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}
