//! `teamd`: the lead daemon of one team directory.

use std::process::ExitCode;

fn main() -> ExitCode {
    teamd_lead::teamd(env!("TEAMD_VERSION"))
}
