//! `teamctl`: talks to the daemon, and reads the team directory.

use std::process::ExitCode;

fn main() -> ExitCode {
    teamd_lead::teamctl(env!("TEAMD_VERSION"))
}
