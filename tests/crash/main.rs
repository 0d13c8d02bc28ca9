//! Death, and errors, at every system call: the protocol's scenarios with the real programs, a
//! fault at the first, second, third … call of the daemon, a worker or `teamctl`, then what a user
//! would do, then the invariants.
//!
//! As a test it runs a sample; `scripts/crash-test` runs the whole. `docs/reliability.md` explains
//! it.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a harness: it stops where it cannot test"
)]

mod choice;
#[path = "../support/far.rs"]
mod far;
mod faults;
mod invariants;
mod ledger;
mod options;
mod order;
mod plan;
mod report;
mod scenarios;
mod stage;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "the end-to-end tests use the rest")]
mod support;
mod syscalls;
mod trace;
mod tracer;
mod truth;
mod unsynced;
mod user;
mod wrapper;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = wrapper::run() {
        return code;
    }
    match options::Options::read(std::env::args().skip(1)) {
        Ok(Some(options)) => plan::run(&options),
        Ok(None) => ExitCode::SUCCESS,
        Err(usage) => {
            println!("{usage}");
            ExitCode::from(2)
        }
    }
}
