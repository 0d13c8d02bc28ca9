//! `teamctl log`: the log of a worker, or of the daemon.

use teamd_shared::team_dir::TeamPath;

use crate::ctl::args::Log;
use crate::ctl::context::Context;
use crate::ctl::stream::Stream;
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &Log) -> CommandResult {
    let dir = context.dir()?;
    let at = TeamPath::log(&args.name.0);
    let missing =
        CommandError::new(ExitCode::NotFound, format!("there is no log at {}", dir.path(&at).display()))
            .hint("`teamctl status` shows the teammates; `teamctl log teamd` shows the daemon's log");
    Stream { at, human: None, since: None }.show(context, &dir, &args.range, Some(missing))
}
