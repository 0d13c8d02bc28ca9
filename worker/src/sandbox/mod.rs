//! The sandbox: what the kernel refuses a command, in layers. One builder serves all that runs confined.
//!
//! ```text
//! worker ─▶ shim (outside; makes user and pid namespace) ─▶ sandbox init ─▶ bash
//!                                                           mounts, network, capabilities, Landlock, seccomp
//! ```
//!
//! `places` says where things lie, `policy` what a command may do: three sets of paths, and the network. The other modules
//! enforce that and decide nothing. A layer that was promised and fails ends the sandbox init before `bash` begins: nothing
//! ever runs unconfined.

mod bubblewrap;
mod git;
mod identity;
pub(crate) mod init;
mod landlock;
mod loopback;
mod missing;
mod mount_table;
mod mounts;
mod place;
mod places;
mod plan;
mod policy;
pub(crate) mod probe;
mod seccomp;
mod secrets;
mod temp;

pub(crate) use git::{GIT, is_setting};
pub(crate) use missing::AbsentFiles;
pub(crate) use place::Place;
pub(crate) use places::{Origin, Places, take_writable, teams};
pub(crate) use policy::Policy;
pub(crate) use temp::TempDir;

use std::ffi::OsStr;
use std::io::{self, PipeReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use teamd_shared::sandbox::Namespaces;

use crate::shim::{OrderFile, own_program};

/// Where the shim reads what the sandbox init says at its end.
#[derive(Debug)]
pub(crate) struct VerdictReader(PipeReader);

impl VerdictReader {
    /// Returns the verdict; none if `bash` took the place of the sandbox init, or the sandbox init was killed. To be called
    /// when both have ended.
    pub(crate) fn read(mut self) -> Option<init::Verdict> {
        let mut text = String::new();
        self.0.read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }
}

/// Makes the namespaces that only the parent of a confined command can make. Comes before the shim denies tracing:
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

/// Returns the command line of the sandbox init, and where its verdict is read. The caller gives it its outputs.
///
/// # Errors
/// The system's error, or that `bwrap` is gone.
pub(crate) fn command(
    policy: Option<&Policy>,
    order: &OrderFile,
    (workspace, command): (&Path, &OsStr),
) -> io::Result<(Command, VerdictReader)> {
    let (reader, writer) = io::pipe()?;
    let mut init = match policy.filter(|policy| policy.layers.namespaces == Namespaces::Bubblewrap) {
        Some(policy) => {
            let mut bwrap = bubblewrap::command(policy, workspace)?;
            bwrap.args([init::SUBCOMMAND, &order.hand_on()?]).arg(workspace).arg(command);
            bwrap.env_clear().current_dir("/");
            bwrap
        }
        None => own_program(init::SUBCOMMAND, order, (workspace, command))?,
    };
    init.stdin(Stdio::from(writer));
    Ok((init, VerdictReader(reader)))
}
