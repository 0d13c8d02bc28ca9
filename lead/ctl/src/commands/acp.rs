//! `teamctl acp`: serves a teammate to an editor.

use teamd_client::args::AcpArgs;
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_view::acp::{self, AcpOptions};

/// Runs the command.
pub(crate) fn run(context: &Context, args: &AcpArgs) -> CommandResult {
    let options = AcpOptions {
        name: args.name.clone(),
        is_person: args.i_am_a_person,
        no_start: args.no_start,
    };
    acp::run(context, &options)
}
