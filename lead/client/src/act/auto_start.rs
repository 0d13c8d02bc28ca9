//! Starts the daemon for a command that needs one, as `teamd start` does without a terminal: it
//! trusts nothing and adopts nothing.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use teamd_shared::team_dir::{DirError, TeamDir};

use crate::act::stop;
use crate::connection::Client;
use crate::context::{Context, block_on};
use crate::daemon_lock::is_locked;
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;
use crate::print::escape;
use crate::read::roster;
use crate::{programs, registered};

/// Starts the daemon if none runs, unless the person or a setting forbids it; then the command
/// itself reports what is missing. Returns whether it has started one.
/// `check` is called first: whether the command could be done at all, in the team directory if
/// there is one.
///
/// # Errors
/// As `check` and `teamd start`, or [`ExitCode::NotRunning`] in a directory that is no project.
pub fn ensure_daemon(
    context: &Context,
    no_start: bool,
    check: impl FnOnce(Option<&TeamDir>) -> Result<(), CommandError>,
) -> Result<bool, CommandError> {
    let dir = match TeamDir::open(&context.path) {
        Ok(dir) => Some(dir),
        Err(DirError::Missing(_)) => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(dir) = &dir {
        registered::check(&context.register, dir, ExitCode::NotRunning)?;
        // One that was killed may hold the lock for a moment longer, but it no longer answers.
        if is_locked(dir)
            && !block_on(Client::connect(dir))
                .is_err_and(|error| error.code() == ExitCode::NotRunning)
        {
            return Ok(false);
        }
    }
    if no_start || !context.settings.auto_start {
        return Ok(false);
    }
    refuse_home(&context.path)?;
    check(dir.as_ref())?;
    start(context)
}

/// Stops a daemon again that a command has started, if the command failed and has left nothing for
/// it to do.
pub fn undo(context: &Context, started: bool, result: CommandResult) -> CommandResult {
    // After a timeout or Ctrl-C the command itself continues.
    let has_failed = result
        .as_ref()
        .is_err_and(|error| !matches!(error.code(), ExitCode::TimedOut | ExitCode::Interrupted));
    if started
        && has_failed
        && let Ok(dir) = context.dir()
        && roster::load(&dir)
            .is_ok_and(|roster| roster.members.iter().all(|member| member.status.is_ended()))
        && block_on(stop::request_stop(&dir, false, &[])).is_ok()
    {
        context
            .out
            .aside("stopped teamd again: it has nothing to do");
    }
    result
}

/// Refuses the home directory and the root: a team there could write everything that belongs to the
/// user, and a person who happens to be there does not mean that.
fn refuse_home(path: &Path) -> Result<(), CommandError> {
    let above = path.parent().and_then(|above| above.canonicalize().ok());
    let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
    let which = match above {
        Some(above) if above == Path::new("/") => "the root directory",
        Some(above) if Some(&above) == home.as_ref() => "the home directory",
        _ => return Ok(()),
    };
    let message = format!(
        "no daemon is running for {}, and none is started automatically in {which}",
        path.display()
    );
    Err(CommandError::new(ExitCode::NotRunning, message)
        .hint("change to your project's directory; `teamd start` starts one here, if that is what you want"))
}

/// Runs `teamd start`, and reports it if that started the daemon. Returns whether it did.
fn start(context: &Context) -> Result<bool, CommandError> {
    let program = programs::teamd().map_err(|error| cannot_start(error.to_string()))?;
    let output = Command::new(&program)
        .args(["--json", "--team-dir"])
        .arg(&context.path)
        .arg("start")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            cannot_start(format!("{}: {error}", program.display()))
                .hint("install teamd, teamctl and team-worker together, from the same version")
        })?;
    if !output.status.success() {
        let error = last_json(&output.stderr).and_then(|json| CommandError::of_json(&json));
        return Err(error.unwrap_or_else(|| {
            cannot_start(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }));
    }
    let Some(started) =
        last_json(&output.stdout).filter(|started| started["already_running"] == false)
    else {
        return Ok(false);
    };
    let path = context.path.to_string_lossy();
    context.out.aside(format_args!(
        "started teamd (pid {}) for {}",
        started["pid"],
        escape::line(&path)
    ));
    Ok(true)
}

fn cannot_start(why: String) -> CommandError {
    CommandError::new(ExitCode::Failed, format!("cannot start the daemon: {why}"))
}

/// Returns the last line of an output, if it is JSON.
fn last_json(output: &[u8]) -> Option<Value> {
    let text = String::from_utf8_lossy(output);
    serde_json::from_str(text.lines().last()?).ok()
}
