//! `teamctl chat` and `teamctl attach`: a conversation with an agent, at a terminal and in a pipe.
//!
//! A message to the agent is a line in its inbox, and its answers are in its transcript. The chat follows these files, and
//! asks the daemon only for decisions. The agent does not know of the chat, and leaving the chat ends nothing.

mod commands;
mod compare_settings;
mod complete;
mod follow;
mod history;
mod keyboard;
mod line;
pub(super) mod markdown;
mod mention;
mod pipe;
mod presence;
mod question;
mod session;
pub(super) mod summary;
mod target;
mod view;

use std::io::{self, IsTerminal};
use std::time::Duration;

use super::context::{Context, block_on};
use crate::error::CommandResult;

pub(super) use target::{ChatTarget, LeadOptions};

/// What a chat is started with.
pub(super) struct ChatOptions {
    /// The agent.
    pub(super) target: ChatTarget,
    /// How many entries of the transcript are shown at first.
    pub(super) last: usize,
    /// How long a chat in a pipe waits for the end of the work; none: without limit.
    pub(super) timeout: Option<Duration>,
}

/// Runs the chat until the person leaves; in a pipe until the work is done.
///
/// # Errors
/// If the agent cannot be reached, or as its work ends.
pub(super) fn run(context: &Context, options: &ChatOptions) -> CommandResult {
    let dir = context.dir()?;
    if io::stdin().is_terminal() && io::stdout().is_terminal() && !context.out.is_json() {
        return block_on(session::run(context, &dir, options));
    }
    pipe::run(context, &dir, options)
}
