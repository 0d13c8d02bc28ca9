//! The process of one teammate: it reads its inbox, asks its model, runs the tools, and keeps the
//! protocol.
//!
//! It never decides alone that it may leave or that its gate is open: only a directive of the
//! daemon on its connection does.

mod agent;
mod args;
mod bounds;
mod caches;
mod cgroup;
mod check;
mod core;
mod git;
mod job;
mod locks;
mod model;
mod sandbox;
mod shim;
#[cfg(test)]
mod sim;
mod tools;
mod variables;

use std::process::ExitCode;

use clap::{Command, CommandFactory, FromArgMatches};

/// Runs `team-worker`: an incarnation of a teammate, the shim of one of its commands, or the
/// sandbox init or the live gate of that.
pub fn team_worker(version: &'static str) -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(first) if first == shim::SUBCOMMAND => return shim::shim_main(),
        Some(first) if first == sandbox::init::SUBCOMMAND => return sandbox::init::init_main(),
        Some(first) if first == sandbox::gate::SUBCOMMAND => return sandbox::gate::gate_main(),
        _ => {}
    }
    let matches = command_line().version(version).try_get_matches();
    match matches.and_then(|mut matches| args::Args::from_arg_matches_mut(&mut matches)) {
        Ok(args::Args {
            command: args::Command::Probe(what),
        }) => sandbox::probe::probe_main(&what),
        Ok(args::Args {
            command: args::Command::Attack(what),
        }) => sandbox::probe::attack_main(&what),
        Ok(args::Args {
            command: args::Command::Job(what),
        }) => job::job_main(&what),
        Ok(args::Args {
            command: args::Command::Run(incarnation),
        }) => agent::run::run(&incarnation),
        Err(error) => {
            // If that fails, it cannot be shown at all.
            drop(error.print());
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
        }
    }
}

/// Returns the command line of `team-worker`, for its manual page.
pub fn command_line() -> Command {
    args::Args::command()
}
