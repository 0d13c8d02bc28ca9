//! `teamctl attach`: a chat with a teammate.

use teamd_client::args::Attach;
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_view::chat::{self, ChatOptions, ChatTarget};

/// Runs the command.
pub(crate) fn run(context: &Context, args: &Attach) -> CommandResult {
    let target = ChatTarget {
        name: args.name.clone(),
        start: None,
    };
    chat::run(
        context,
        &ChatOptions {
            target,
            perform: super::perform,
            last: args.last,
            timeout: args.timeout,
        },
    )
}
