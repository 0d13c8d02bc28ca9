//! The process of one teammate: it reads its inbox, asks its model, runs the tools, and keeps the
//! protocol.
//!
//! It never decides alone that it may leave or that its gate is open: only a directive of the
//! daemon on its connection does.

mod args;

use std::process::ExitCode;

use clap::{Command, CommandFactory, FromArgMatches};
use teamd_worker_agent::{SEARCH, search_main};
use teamd_worker_sandbox::{gate, init, localhost, probe, shim};

/// Runs `team-worker`: an incarnation of a teammate, the shim of one of its commands, the sandbox
/// init or the live gate of that, its localhost, or a search.
pub fn team_worker(version: &'static str) -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(first) if first == shim::SUBCOMMAND => return shim::shim_main(),
        Some(first) if first == init::SUBCOMMAND => return init::init_main(),
        Some(first) if first == localhost::SUBCOMMAND => return localhost::localhost_main(),
        Some(first) if first == gate::SUBCOMMAND => return gate::gate_main(),
        Some(first) if first == SEARCH => return search_main(),
        _ => {}
    }
    let matches = command_line().version(version).try_get_matches();
    match matches.and_then(|mut matches| args::Args::from_arg_matches_mut(&mut matches)) {
        Ok(args::Args {
            command: args::WorkerCommand::Probe(what),
        }) => probe::probe_main(&what),
        Ok(args::Args {
            command: args::WorkerCommand::Attack(what),
        }) => probe::attack_main(&what),
        Ok(args::Args {
            command: args::WorkerCommand::Job(what),
        }) => teamd_worker_jobs::job_main(&what),
        Ok(args::Args {
            command: args::WorkerCommand::Run(incarnation),
        }) => teamd_worker_agent::run(&incarnation),
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
