//! `teamctl completions`: a completion script for a shell.

use clap::CommandFactory;

use crate::ctl::args::{Cli, Completions};
use crate::ctl::context::Context;
use crate::error::CommandResult;
use crate::exit_code::ExitCode;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &Completions) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "teamctl", &mut script);
    context.out.write(&script)?;
    Ok(ExitCode::Done)
}
