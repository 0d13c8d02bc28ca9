//! `teamctl log`: the log of a worker, or of the daemon.

use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamPath;

use crate::ctl::args::Log;
use crate::ctl::context::Context;
use crate::ctl::roster;
use crate::ctl::stream::Stream;
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &Log) -> CommandResult {
    let dir = context.dir()?;
    let at = TeamPath::log(&args.name.0);
    let name = Name::of_inbox(&args.name.0).ok();
    // A teammate that is on the roster and has no log was never started.
    let unknown = name.and_then(|name| roster::find(&roster::load(&dir).ok()?, &name).err());
    let missing = unknown.unwrap_or_else(|| {
        CommandError::new(ExitCode::NotFound, format!("there is no log at {}", dir.path(&at).display()))
            .hint("`teamctl status` shows the teammates; `teamctl log teamd` shows the daemon's log")
    });
    Stream { at, human: None, since: None }.show(context, &dir, &args.range, Some(missing))
}
