//! `teamctl completions` and `teamd completions`: what makes a shell complete names, ids and options.

use crate::ctl::args::Completions;
use crate::ctl::completion::register;
use crate::ctl::context::Context;
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// Runs the command of this program.
pub(crate) fn run(context: &Context, args: &Completions, program: &str) -> CommandResult {
    let mut script = Vec::new();
    register(&args.shell.to_string(), program, &mut script)
        .map_err(|error| CommandError::refused("cannot write the completions", &error))?;
    context.out.write(&script)?;
    Ok(ExitCode::Done)
}
