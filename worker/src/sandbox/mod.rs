//! The sandbox of `bash`: what the kernel refuses a command, in layers.
//!
//! ```text
//! worker ─▶ keeper (outside; makes user and pid namespace) ─▶ helper (`confine`) ─▶ bash
//!                                                             mounts, network, capabilities, Landlock, seccomp
//! ```
//!
//! `policy` says what a command may do, and knows nothing of how that is enforced; the others enforce it and decide
//! nothing. A layer that was promised and fails ends the helper before `bash` begins: nothing ever runs unconfined.

mod absent;
mod bubblewrap;
pub(crate) mod confine;
mod files;
mod folders;
mod guarded;
mod identity;
mod known;
mod linked;
mod mountinfo;
mod mounts;
mod network;

pub(crate) mod policy;
pub(crate) mod probe;
mod secrets;
mod surroundings;
mod syscalls;
mod temp;
pub(crate) mod writable;

use absent::Absent;
pub(crate) use known::Known;
pub(crate) use policy::Policy;
use policy::{Guard, Protected};
pub(crate) use surroundings::{Origin, Surroundings, teams};
pub(crate) use temp::TempDir;

use std::ffi::OsStr;
use std::io::{self, PipeReader, Read};
use std::os::fd::IntoRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use teamd_shared::member::Bounds;
use teamd_shared::sandbox::Namespaces;

use crate::variables::Variables;

/// The hidden subcommand under which the worker's binary is the helper.
pub(crate) const SUBCOMMAND: &str = "confine";

/// What the helper tells the keeper: why it could not confine the command, or how `bash` ended (as the first process
/// of a pid namespace it outlives it).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verdict {
    /// Nothing was run. Fits behind "error: ".
    Refused(String),
    /// The exit code, or the signal.
    Ended { code: Option<i32>, signal: Option<i32> },
}

/// Where the keeper hears the verdict.
#[derive(Debug)]
pub(crate) struct Hearing(PipeReader);

impl Hearing {
    /// Returns the verdict; none if `bash` was run in the place of the helper, or the helper was killed. To be called
    /// when both have ended.
    pub(crate) fn verdict(mut self) -> Option<Verdict> {
        let mut text = String::new();
        self.0.read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }
}

/// Makes the namespaces that only the parent of a confined command can make. Comes before the keeper denies tracing:
/// a process that cannot be traced may not write its own maps.
///
/// # Errors
/// The system's error.
pub(crate) fn prepare(policy: &Policy) -> io::Result<()> {
    if policy.layers.namespaces == Namespaces::Own {
        identity::enter_user_and_pid_namespace()
    } else {
        Ok(())
    }
}

/// The places of what is protected and not there. Given up when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Places {
    absent: Vec<Absent>,
}

impl Places {
    /// Gives them up. Returns what the user is to be told.
    pub(crate) fn give_up(mut self) -> Vec<String> {
        self.absent.iter_mut().filter_map(Absent::give_up).collect()
    }
}

/// Holds the places of what is protected and not there, as long as what is returned lives.
///
/// # Errors
/// The system's error.
pub(crate) fn hold_places(policy: &Policy) -> io::Result<Places> {
    let mut places = Places::default();
    if policy.layers.namespaces == Namespaces::None {
        return Ok(places);
    }
    for Protected { path, guard } in &policy.protected {
        match guard {
            Guard::IfThere | Guard::IfFile | Guard::Program => {}
            Guard::MadeEmpty => folders::make_empty(path)?,
            Guard::NeverMade => places.absent.extend(Absent::note(path, &policy.notes)?),
        }
    }
    Ok(places)
}

/// Returns the command line of the helper, and where its verdict is heard. The caller gives it its outputs.
///
/// # Errors
/// The system's error, or that `bwrap` is gone.
pub(crate) fn command(
    policy: &Policy,
    (command, bounds): (&OsStr, &Bounds),
    variables: &Variables,
) -> io::Result<(Command, Hearing)> {
    let (hearing, voice) = io::pipe()?;
    let mut helper = match policy.layers.namespaces {
        Namespaces::Own | Namespaces::None => Command::new("/proc/self/exe"),
        Namespaces::Bubblewrap => bubblewrap::command(policy)?,
    };
    // For `ps`: it is started by a path in `/proc`.
    if policy.layers.namespaces != Namespaces::Bubblewrap {
        helper.arg0("team-worker");
    }
    // It stays open until this process ends: it starts nothing else.
    let variables = variables.hand_over()?.into_raw_fd();
    helper.args([SUBCOMMAND, &variables.to_string()]).arg(serde_json::to_string(policy)?).arg(command);
    helper.arg(serde_json::to_string(bounds)?);
    helper.env_clear().current_dir("/").stdin(Stdio::from(voice));
    Ok((helper, Hearing(hearing)))
}
