//! Talking to an agent: `teamctl chat` and `teamctl attach`, at a terminal and in a pipe.
//!
//! What is said to the agent is a line in its inbox, what it says stands in its transcript; the files are enough for
//! that, and the daemon is asked only for what needs a decision. Nothing here is known to the agent, and nothing of the
//! team ends with it.

mod act;
mod agree;
mod brief;
mod follow;
mod history;
mod keyboard;
mod live;
mod party;
mod pipe;
mod presence;
mod question;
mod quiet;
mod session;
mod slash;
mod terminal;
mod view;

use std::io::{self, IsTerminal};
use std::time::Duration;

use super::context::{Context, block_on};
use crate::error::CommandResult;

pub(super) use party::{Begin, Party};

/// How to talk in a pipe.
pub(super) struct Talk {
    /// To whom.
    pub(super) party: Party,
    /// How many entries of the transcript are shown at first.
    pub(super) last: usize,
    /// How long to wait for the end of the work; none: for ever. Without a terminal only.
    pub(super) timeout: Option<Duration>,
}

/// Talks until the person leaves; without a terminal until the work is done.
///
/// # Errors
/// As the one who is talked to cannot be reached.
pub(super) fn run(context: &Context, talk: &Talk) -> CommandResult {
    let dir = context.dir()?;
    if io::stdin().is_terminal() && io::stdout().is_terminal() && !context.out.is_json() {
        return block_on(session::run(context, &dir, talk));
    }
    pipe::run(context, &dir, talk)
}
