//! `teamctl log`: the log of a worker, or of the daemon.

use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use crate::ctl::args::Log;
use crate::ctl::context::Context;
use crate::ctl::roster;
use crate::ctl::stream::Stream;
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &Log) -> CommandResult {
    let dir = context.dir()?;
    let at = TeamPath::log(&args.name);
    let missing = missing(&dir, &args.name);
    Stream { at, human: None, since: None }.show(context, &dir, &args.range, Some(missing))
}

/// Makes the error of a log that is not there.
pub(super) fn missing(dir: &TeamDir, name: &str) -> CommandError {
    let owner = Name::of_inbox(name).ok();
    // A teammate that is on the roster and has no log was never started.
    let unknown = owner.and_then(|owner| roster::find(&roster::load(dir).ok()?, &owner).err());
    unknown.unwrap_or_else(|| {
        let path = dir.path(&TeamPath::log(name));
        CommandError::new(ExitCode::NotFound, format!("there is no log at {}", path.display()))
            .hint("`teamctl status` shows the teammates; `teamctl log teamd` shows the daemon's log")
    })
}
