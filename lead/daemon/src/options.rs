//! What the daemon is started with: what a person says, and the arguments with which this program
//! becomes the daemon.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use teamd_shared::register::Register;
use teamd_shared::settings::Settings;
use teamd_shared::team_dir::TeamDir;
use uuid::Uuid;

use super::confinement::TeamConfinement;

/// How to start.
#[derive(Debug, Clone)]
pub struct StartOptions {
    /// The team directory.
    pub dir: PathBuf,
    /// Whether this process becomes the daemon: for systemd and containers.
    pub foreground: bool,
    /// Whether a daemon that runs is to become this program.
    pub replace: bool,
    /// Whether it starts although commands cannot be confined as promised.
    pub allow_weak_sandbox: bool,
    /// Whether a team directory is registered that is there.
    pub adopt: bool,
    /// Where it is registered.
    pub register: Register,
    /// Its settings.
    pub settings: Settings,
}

/// How to start the host daemon of a home, or to find it.
#[derive(Debug, Clone)]
pub struct HostOptions {
    /// The team directory.
    pub dir: PathBuf,
    /// The home that it serves.
    pub home: Uuid,
    /// Whether a host daemon that runs makes room for one of this program.
    pub replace: bool,
    /// Whether it starts although commands cannot be confined as promised.
    pub allow_weak_sandbox: bool,
    /// Where its team directory is registered.
    pub register: Register,
    /// Its settings.
    pub settings: Settings,
}

/// What the program is that `teamd serve` runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaemonRole {
    /// The daemon that has the journal.
    Home {
        /// Whether the previous daemon became this program.
        handed_over: bool,
    },
    /// The host daemon of a home.
    Host(Uuid),
}

/// What a starting daemon has set aside, which the journal does not tell.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SetAside {
    /// The length of the torn end of the journal.
    pub torn: Option<usize>,
    /// What became of a roster that was none.
    pub roster: Option<String>,
}

/// Returns the arguments with which this program is the daemon. (The path of the directory is
/// UTF-8: [`super::start::start`].)
pub(super) fn serve_arguments(
    dir: &TeamDir,
    confinement: &TeamConfinement,
    role: DaemonRole,
) -> Vec<String> {
    let root = dir.root().to_string_lossy().into_owned();
    let layers = confinement.layers.to_string();
    let mut arguments = vec![
        "--team-dir".to_owned(),
        root,
        "serve".to_owned(),
        "--sandbox-layers".to_owned(),
        layers,
    ];
    if let Some(why) = &confinement.weakness {
        arguments.extend(["--weakness".to_owned(), why.clone()]);
    }
    match role {
        DaemonRole::Home { handed_over: false } => {}
        DaemonRole::Home { handed_over: true } => arguments.push("--handed-over".to_owned()),
        DaemonRole::Host(home) => arguments.extend(["--host-of".to_owned(), home.to_string()]),
    }
    arguments
}

/// Returns the arguments by which the daemon finds the worker's program, which it inherits.
pub(super) fn worker_arguments(descriptor: i32) -> [String; 2] {
    ["--worker".to_owned(), descriptor.to_string()]
}
