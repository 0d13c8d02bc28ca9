//! `teamctl events`: what the daemon has decided, line by line of its journal.

use teamd_shared::team_dir::TeamPath;

use crate::ctl::args::Events;
use crate::ctl::context::Context;
use crate::ctl::render::event::event;
use crate::ctl::stream::Stream;
use teamd_client::error::CommandResult;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &Events) -> CommandResult {
    let stream = Stream {
        at: TeamPath::journal(),
        human: event,
        since: args.since,
    };
    stream.show(context, &context.dir()?, &args.range, None)
}
