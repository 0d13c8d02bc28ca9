//! The lead: `teamd`, the daemon of a team, and `teamctl`, which talks to it.
//!
//! The two sides of this crate meet on the control socket and in the files of the team directory: `ctl`
//! uses nothing of `daemon`, and `daemon` nothing of `ctl`.

mod daemon;
mod error;
mod exit_code;

/// Runs `teamd`.
pub fn teamd() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}

/// Runs `teamctl`.
pub fn teamctl() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
