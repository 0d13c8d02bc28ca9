//! The lead: `teamd`, the daemon of a team, and `teamctl`, which talks to it.
//!
//! The two sides of this crate meet on the control socket and in the files of the team directory:
//! `ctl` uses nothing of `daemon`, and `daemon` nothing of `ctl`. Only the front of `teamd` knows
//! both.

mod client;
mod ctl;
mod daemon;
mod error;
mod exit_code;
mod programs;
mod registered;
mod teamd;
mod unwritten;

use clap::{Command, CommandFactory};

/// Runs `teamd`, from its command line to its exit code.
pub fn teamd(version: &'static str) -> std::process::ExitCode {
    teamd::run(version)
}

/// Runs `teamctl`, from its command line to its exit code.
pub fn teamctl(version: &'static str) -> std::process::ExitCode {
    ctl::run(version)
}

/// Returns the command lines of `teamd` and `teamctl`, for their manual pages.
pub fn command_lines() -> [Command; 2] {
    [teamd::TeamdCli::command(), ctl::args::Cli::command()]
}
