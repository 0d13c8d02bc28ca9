//! `teamd-nats`: carries links over a NATS cluster. Only with the feature `nats`.

use std::process::ExitCode;

fn main() -> ExitCode {
    teamd_nats::run()
}
