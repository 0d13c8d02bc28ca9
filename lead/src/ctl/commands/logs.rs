//! `teamctl logs`: the log of the daemon, or of a teammate.

use serde_json::{Value, json};
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use crate::ctl::args::Logs;
use crate::ctl::context::Context;
use crate::ctl::stream::Stream;
use crate::ctl::{escape, roster};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &Logs) -> CommandResult {
    let dir = context.dir()?;
    let human = |line: &[u8]| escape::text(&String::from_utf8_lossy(line)).into_owned();
    let stream = Stream { at: TeamPath::log(&args.name), human, json: record, since: None };
    stream.show(context, &dir, &args.range, Some(missing(&dir, &args.name)))
}

fn record(line: &[u8]) -> Value {
    json!({"line": String::from_utf8_lossy(line)})
}

fn missing(dir: &TeamDir, name: &str) -> CommandError {
    let owner = Name::of_inbox(name).ok();
    // A teammate that is on the roster and has no log was never started.
    let unknown = owner.and_then(|owner| roster::find(&roster::load(dir).ok()?, &owner).err());
    unknown.unwrap_or_else(|| {
        let path = dir.path(&TeamPath::log(name));
        CommandError::new(ExitCode::NotFound, format!("there is no log at {}", path.display()))
            .hint("`teamctl status` shows the teammates; `teamctl log teamd` shows the daemon's log")
    })
}
