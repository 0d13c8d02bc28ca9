//! The process of one teammate: it reads its inbox, asks its model, runs the tools, and keeps the protocol.
//!
//! It never decides alone that it may leave or that its gate is open: only the daemon's word on its connection does.

mod args;
mod bounds;
mod connection;
mod desk;
mod keeper;
mod live;
mod mailbox;
mod model;
mod outbox;
mod persona;
mod plan;
mod replay;
mod run;
mod sandbox;
mod session;
#[cfg(test)]
mod sim;
mod state;
mod strays;
mod tools;
mod transcript;
mod turn;
mod variables;

use std::process::ExitCode;

use clap::Parser;

/// Runs `team-worker`: a life of a teammate, the keeper of one of its commands, or its helper.
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
        Ok(args::Args { command: args::Command::Run(life) }) => run::run(&life),
        Err(error) => {
            // Nobody reads it if that fails.
            drop(error.print());
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
        }
    }
}
