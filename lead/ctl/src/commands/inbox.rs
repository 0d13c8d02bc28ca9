//! `teamctl inbox`: the last messages of an inbox. It consumes nothing: readers remember for
//! themselves how far they are.

use teamd_client::args::{InboxArgs, Range};
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_client::print::render::message::{brief, message};
use teamd_client::read::roster;
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamPath;

use crate::stream::Stream;

/// Runs the command.
pub(crate) fn run(context: &Context, args: &InboxArgs) -> CommandResult {
    let dir = context.dir()?;
    let owner = &args.name.owner;
    let at = TeamPath::inbox(owner);
    let missing = if *owner == Name::lead() {
        None
    } else {
        roster::find(&roster::load(&dir)?, owner).err()
    };
    let range = Range {
        last: Some(args.last),
        follow: args.follow,
    };
    // At a terminal a long plan would push the other messages off the screen.
    let human = if context.out.width().is_some() {
        brief
    } else {
        message
    };
    Stream {
        at,
        human,
        since: None,
    }
    .show(context, &dir, &range, missing)
}
