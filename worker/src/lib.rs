//! The process of one teammate: it reads its inbox, asks its model, runs the tools, and keeps the protocol.
//!
//! It never decides alone that it may leave or that its gate is open: only a directive of the daemon on its connection does.

mod agent;
mod args;
mod bounds;
mod core;
mod keeper;
mod model;
mod sandbox;
#[cfg(test)]
mod sim;
mod tools;
mod variables;

use std::process::ExitCode;

use clap::Parser;

/// Runs `team-worker`: an incarnation of a teammate, the shim of one of its commands, or its helper.
pub fn team_worker() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(first) if first == keeper::SUBCOMMAND => return keeper::keeper_main(),
        Some(first) if first == bounds::SUBCOMMAND => return bounds::bounded_main(),
        Some(first) if first == sandbox::SUBCOMMAND => return sandbox::confine::confine_main(),
        _ => {}
    }
    match args::Args::try_parse() {
        Ok(args::Args { command: args::Command::Probe(what) }) => sandbox::probe::probe_main(&what),
        Ok(args::Args { command: args::Command::Attack(what) }) => sandbox::probe::attack_main(&what),
        Ok(args::Args { command: args::Command::Run(incarnation) }) => agent::run::run(&incarnation),
        Err(error) => {
            // Nobody reads it if that fails.
            drop(error.print());
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
        }
    }
}
