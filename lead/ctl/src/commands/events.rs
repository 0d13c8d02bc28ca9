//! `teamctl events`: what the daemon has decided, line by line of its journal.

use teamd_client::args::EventsArgs;
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_client::print::render::event::event;
use teamd_shared::team_dir::TeamPath;

use crate::stream::Stream;

/// Runs the command.
pub(crate) fn run(context: &Context, args: &EventsArgs) -> CommandResult {
    let stream = Stream {
        at: TeamPath::journal(),
        human: event,
        since: args.since,
    };
    stream.show(context, &context.dir()?, &args.range, None)
}
