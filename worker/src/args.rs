//! The command line of `team-worker`: the daemon writes it, `ps` shows it.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use teamd_shared::member::{Sandbox, SandboxMode};
use teamd_shared::name::Name;
use teamd_shared::sandbox::{Layers, Namespaces};

/// The process of one teammate, started by teamd.
#[derive(Debug, Parser)]
#[command(name = "team-worker", version, about, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// What it is to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What the program does. (`shim` and `init`, for one command of a worker, are told apart before.)
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
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

/// Which incarnation.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The teammate
    #[arg(long, value_parser = Name::of_inbox)]
    pub(crate) name: Name,
    /// Which incarnation of it this is
    #[arg(long, value_name = "N")]
    pub(crate) incarnation: u32,
    /// Where and by which means it works
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

/// For which team something is done, and by which means.
#[derive(Debug, clap::Args)]
pub(crate) struct JobArgs {
    /// The team directory
    #[arg(long, value_name = "DIR")]
    pub(crate) team_dir: PathBuf,
    /// The cgroup that the daemon has made for it: it is entered before the first command
    #[arg(long, value_name = "DIR")]
    pub(crate) cgroup: Option<PathBuf>,
    /// The means to confine its commands
    #[command(flatten)]
    pub(crate) confinement: Confinement,
}

/// The means to confine commands.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Confinement {
    /// A program of the team, as the daemon was started: no command replaces it
    #[arg(long = "program", value_name = "FILE")]
    pub(crate) programs: Vec<PathBuf>,
    /// The configuration of the user as the daemon finds it: no tool writes there
    #[arg(long, value_name = "DIR")]
    pub(crate) config: Option<PathBuf>,
    /// How commands are confined: the layers that the daemon found
    #[arg(long = "sandbox-layers", value_name = "LAYERS", default_value = "none")]
    pub(crate) layers: Layers,
    /// Run commands although these layers do not keep all that a sandbox promises
    #[arg(long = "allow-weak-sandbox")]
    pub(crate) weak: bool,
}

impl Confinement {
    /// Tells whether commands that are confined in this way have mounts of their own.
    pub(crate) fn seals(&self, sandbox: &Sandbox) -> bool {
        self.layers.namespaces != Namespaces::None && sandbox.mode != SandboxMode::Off
    }
}

/// What to find out.
#[derive(Debug, clap::Args)]
pub(crate) struct ProbeArgs {
    /// Let a confined child try to break out, too
    #[arg(long)]
    pub(crate) attack: bool,
}

/// What to attack.
#[derive(Debug, clap::Args)]
pub(crate) struct AttackArgs {
    /// Attack as with a closed gate: only the network
    #[arg(long)]
    pub(crate) closed: bool,
    /// Which of the targets is the team directory
    #[arg(long, default_value = "work/.team")]
    pub(crate) team: PathBuf,
    /// A file in the shared memory of the machine
    #[arg(long)]
    pub(crate) shared: Option<PathBuf>,
    /// The directory that holds the targets
    pub(crate) scratch: PathBuf,
    /// A process outside
    pub(crate) pid: i32,
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
