//! `teamctl chat` and `teamctl attach`: a conversation with an agent, at a terminal and in a pipe.
//!
//! A message to the agent is a line in its inbox, and its answers are in its transcript. The chat
//! follows these files, and asks the daemon only for decisions. The agent does not know about the
//! chat, and leaving the chat ends nothing.

mod agent;
mod console;
mod conversation;
mod log;
mod pipe;
mod print_queue;
mod prompt;
mod session;

use std::time::Duration;

use teamd_client::act::Perform;
use teamd_client::context::{Context, block_on};
use teamd_client::error::CommandResult;

use crate::terminal;

pub use agent::{ChatTarget, LeadOptions};

/// The model that is built in.
const SCRIPT: &str = "script";

/// What a chat is started with.
#[derive(Clone)]
pub struct ChatOptions {
    /// The agent.
    pub target: ChatTarget,
    /// How many entries of the transcript are shown at first.
    pub last: usize,
    /// Carries out what the person orders by a command of `teamctl`.
    pub perform: Perform,
    /// How long a chat in a pipe waits for the end of the work; none: without limit.
    pub timeout: Option<Duration>,
}

/// Runs the chat until the person leaves; in a pipe, and at a terminal without a cursor, until the
/// work is done.
///
/// # Errors
/// If the agent cannot be reached, or as its work ends.
pub fn run(context: &Context, options: &ChatOptions) -> CommandResult {
    let dir = context.dir()?;
    if terminal::is_possible(context) {
        return block_on(session::run(context, &dir, options));
    }
    pipe::run(context, &dir, options)
}
