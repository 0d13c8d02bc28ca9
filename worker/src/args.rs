//! The command line of `team-worker`: the daemon writes it, `ps` shows it.

use clap::{Parser, Subcommand};
use teamd_worker_agent::RunArgs;
use teamd_worker_jobs::JobArgs;
use teamd_worker_sandbox::{AttackArgs, ProbeArgs};

/// The process of one teammate, started by teamd.
#[derive(Debug, Parser)]
#[command(name = "team-worker", version, about, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// What it is to do.
    #[command(subcommand)]
    pub(crate) command: WorkerCommand,
}

/// What the program does. (`shim` and `init`, for one command of a worker, are told apart before.)
#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// Run one incarnation of a teammate; teamd runs this, with its connection as standard input
    Run(RunArgs),
    /// Do a job, such as the check of a task; teamd runs this, with its order on standard input
    Job(JobArgs),
    /// Find out how commands can be confined here, and print it as JSON
    #[command(hide = true)]
    Probe(ProbeArgs),
    /// Try to break out of a sandbox: what `probe --attack` runs inside of one
    #[command(hide = true)]
    Attack(AttackArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_name_is_validated_at_this_entry_too() {
        let parse = |name| {
            Args::try_parse_from([
                "team-worker",
                "run",
                "--team-dir",
                "d",
                "--incarnation",
                "1",
                "--name",
                name,
            ])
        };
        assert!(parse("alice").is_ok() && parse("lead").is_ok());
        for bad in ["user", "../x", "Alice", ""] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
