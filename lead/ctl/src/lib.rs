//! `teamctl`: one command, one answer, then it ends.
//!
//! It reads what the files of the team directory show, and asks the daemon for what needs a
//! decision. It writes nothing but messages into inboxes, what `agents install` installs, and, with
//! `doctor --fix`, what no daemon writes at that time. What several commands and views do is in `teamd-client`.

mod at;
pub mod commands;
pub mod completion;
mod github;
mod stream;

use clap::CommandFactory;
use teamd_client::args::{self, Cli, TeamctlCommand};
use teamd_client::context::{self, Context};
use teamd_client::error::CommandResult;
use teamd_client::over_ssh::OverSsh;

/// Runs the program.
pub fn run(version: &'static str) -> std::process::ExitCode {
    if completion::answer(|| args::completed(Cli::command())) {
        return std::process::ExitCode::SUCCESS;
    }
    if let Some(code) = at::become_ssh().or_else(|| at::version(version)) {
        return code;
    }
    context::run(
        version,
        args::lay_out,
        |cli: &Cli| cli.global.clone(),
        |cli, out| at::run(cli, out, version),
        |cli, context| dispatch(cli.command, context),
    )
}

fn dispatch(command: TeamctlCommand, context: &Context) -> CommandResult {
    context.set_signals();
    if let Some(Err(error)) = OverSsh::told().map(OverSsh::end_with_connection) {
        context.out.note(format_args!(
            "this command goes on if the connection is lost: {error}"
        ));
    }
    if !matches!(
        command,
        TeamctlCommand::Completions(_) | TeamctlCommand::Lint(_) | TeamctlCommand::Schema(_)
    ) {
        context.note_passed_over();
    }
    match &command {
        // Spawn, up and shutdown need a valid team.toml; `--force` does not.
        TeamctlCommand::Spawn(_) | TeamctlCommand::Up(_) | TeamctlCommand::Run(_) => {
            // A team.toml beside an unregistered team directory is ignored, with its mistakes.
            if !context.is_missing() {
                context.dir()?;
            }
            context.ask_for_trust()?;
        }
        TeamctlCommand::Shutdown(args) if !args.force => drop(context.team_file()?),
        TeamctlCommand::Completions(_) | TeamctlCommand::Lint(_) | TeamctlCommand::Schema(_) => {}
        _ => context.warn_of_team_file(),
    }
    commands::perform(command, context)
}
