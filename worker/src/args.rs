//! The command line of `team-worker`: the daemon writes it, `ps` shows it.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use teamd_shared::name::Name;

/// The process of one teammate, started by teamd.
#[derive(Debug, Parser)]
#[command(name = "team-worker", version, about, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// What it is to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What the program does. (`keeper`, one command under a worker, is told apart before.)
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Live one life of a teammate; teamd runs this, with its connection as standard input
    Run(RunArgs),
}

/// Which life.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The team directory
    #[arg(long, value_name = "DIR")]
    pub(crate) team_dir: PathBuf,
    /// The teammate
    #[arg(long, value_parser = Name::of_inbox)]
    pub(crate) name: Name,
    /// Which life of it this is
    #[arg(long, value_name = "N")]
    pub(crate) incarnation: u32,
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
