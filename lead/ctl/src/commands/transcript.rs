//! `teamctl transcript`: a teammate's conversation with its model.

mod entry;

use teamd_client::args::TranscriptArgs;
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_client::read::roster;
use teamd_shared::team_dir::TeamPath;

use crate::stream::Stream;
use entry::entry;

/// Runs the command.
pub(crate) fn run(context: &Context, args: &TranscriptArgs) -> CommandResult {
    let dir = context.dir()?;
    let at = TeamPath::transcript(&args.name);
    // A new teammate has no transcript yet, and that is no error.
    let missing = roster::find(&roster::load(&dir)?, &args.name).err();
    Stream {
        at,
        human: entry,
        since: None,
    }
    .show(context, &dir, &args.range, missing)
}
