//! The arguments of `team-worker` that say how commands are confined, and what a probe finds out.

use std::path::PathBuf;

use teamd_shared::member::{Sandbox, SandboxMode};
use teamd_shared::sandbox::{Layers, Namespaces};

/// The means to confine commands.
#[derive(Debug, Clone, clap::Args)]
pub struct ConfinementArgs {
    /// A program of the team, as the daemon was started: no command replaces it
    #[arg(long = "program", value_name = "FILE")]
    pub programs: Vec<PathBuf>,
    /// The configuration of the user as the daemon finds it: no tool writes there
    #[arg(long, value_name = "DIR")]
    pub config: Option<PathBuf>,
    /// How commands are confined: the layers that the daemon found
    #[arg(long = "sandbox-layers", value_name = "LAYERS", default_value = "none")]
    pub layers: Layers,
    /// Run commands although these layers do not keep all that a sandbox promises
    #[arg(long = "allow-weak-sandbox")]
    pub weak: bool,
}

impl ConfinementArgs {
    /// Tells whether commands that are confined in this way have mounts of their own.
    pub fn seals(&self, sandbox: &Sandbox) -> bool {
        self.layers.namespaces != Namespaces::None && sandbox.mode != SandboxMode::Off
    }
}

/// What to find out.
#[derive(Debug, clap::Args)]
pub struct ProbeArgs {
    /// Let a confined child try to break out, too
    #[arg(long)]
    pub attack: bool,
}

/// What to attack.
#[derive(Debug, clap::Args)]
pub struct AttackArgs {
    /// Attack as with a closed gate: only the network
    #[arg(long)]
    pub closed: bool,
    /// Which of the targets is the team directory
    #[arg(long, default_value = "work/.team")]
    pub team: PathBuf,
    /// A file in the shared memory of the machine
    #[arg(long)]
    pub shared: Option<PathBuf>,
    /// The directory that holds the targets
    pub scratch: PathBuf,
    /// A process outside
    pub pid: i32,
}
