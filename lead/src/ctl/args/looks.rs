//! What only looks: roster, inboxes, conversations, logs, journal.

use clap::Args;
use teamd_shared::name::Name;

use super::value::{LogName, Mailbox, log_name, mailbox};

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Show everything about one teammate
    #[arg(value_parser = Name::of_inbox)]
    pub(crate) name: Option<Name>,
}

// Which records of a file to show. (As documentation this would take the place of what the command says.)
#[derive(Debug, Clone, Args)]
pub(crate) struct Range {
    /// Show only the last N
    #[arg(long, value_name = "N")]
    pub(crate) last: Option<usize>,
    /// Go on with what is added, until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Inbox {
    /// Whose inbox
    #[arg(default_value = "lead", value_parser = mailbox)]
    pub(crate) name: Mailbox,
    /// Show the last N
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) last: usize,
    /// Go on with what arrives, until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Transcript {
    /// The teammate
    #[arg(value_parser = Name::of_inbox)]
    pub(crate) name: Name,
    /// Which entries.
    #[command(flatten)]
    pub(crate) range: Range,
}

#[derive(Debug, Args)]
pub(crate) struct Log {
    /// A teammate, or teamd
    #[arg(value_parser = log_name)]
    pub(crate) name: LogName,
    /// Which lines.
    #[command(flatten)]
    pub(crate) range: Range,
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Which events.
    #[command(flatten)]
    pub(crate) range: Range,
}

#[derive(Debug, Args)]
pub(crate) struct Requests {
    /// Show everything about one: its id, or the beginning of it
    pub(crate) id: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Plans {
    /// Show the whole of one: its id, or the beginning of it
    pub(crate) id: Option<String>,
}
