//! `teamctl attach`: a chat with a teammate.

use crate::ctl::args::Attach;
use crate::ctl::chat::{self, ChatOptions, ChatTarget};
use crate::ctl::context::Context;
use teamd_client::error::CommandResult;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &Attach) -> CommandResult {
    let target = ChatTarget {
        name: args.name.clone(),
        start: None,
    };
    chat::run(
        context,
        &ChatOptions {
            target,
            last: args.last,
            timeout: args.timeout,
        },
    )
}
