//! `team-worker`: the process of one teammate, started by `teamd`.

use std::process::ExitCode;

fn main() -> ExitCode {
    teamd_worker::team_worker(env!("TEAMD_VERSION"))
}
