//! `teamctl transcript`: a teammate's conversation with its model.

use teamd_shared::team_dir::TeamPath;

use crate::ctl::args::TranscriptArgs;
use crate::ctl::context::Context;
use crate::ctl::render::entry::entry;
use crate::ctl::roster;
use crate::ctl::stream::Stream;
use teamd_client::error::CommandResult;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &TranscriptArgs) -> CommandResult {
    let dir = context.dir()?;
    let at = TeamPath::transcript(&args.name);
    // A teammate that has not said anything yet has no transcript, and that is no error.
    let missing = roster::find(&roster::load(&dir)?, &args.name).err();
    Stream {
        at,
        human: entry,
        since: None,
    }
    .show(context, &dir, &args.range, missing)
}
