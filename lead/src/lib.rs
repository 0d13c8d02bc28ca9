//! The lead, put together: `teamd`, the daemon of a team, and `teamctl`, which talks to it.
//!
//! The two sides meet on the control socket and in the files of the team directory. Only the front
//! of `teamd` knows both.

mod teamd;

use clap::{Command, CommandFactory};

/// Runs `teamd`, from its command line to its exit code.
pub fn teamd(version: &'static str) -> std::process::ExitCode {
    teamd::run(version)
}

/// Runs `teamctl`, from its command line to its exit code.
pub fn teamctl(version: &'static str) -> std::process::ExitCode {
    teamd_ctl::run(version)
}

/// Returns the command lines of `teamd` and `teamctl`, for their manual pages.
pub fn command_lines() -> [Command; 2] {
    [
        teamd::TeamdCli::command(),
        teamd_client::args::Cli::command(),
    ]
}
