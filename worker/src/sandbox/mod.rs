//! The sandbox: what the kernel refuses a command, in layers. One builder serves all that runs
//! confined.
//!
//! ```text
//! worker ─▶ shim (outside; makes user and pid namespace) ─▶ sandbox init ─▶ bash
//!                                                           mounts, network, capabilities, Landlock, seccomp
//! ```
//!
//! `places` says where things lie, `policy` what a command may do: three sets of paths, and the
//! network. The other modules enforce that and decide nothing. A layer that was promised and fails
//! ends the sandbox init before `bash` begins: nothing ever runs unconfined.

mod bubblewrap;
pub(crate) mod gate;
mod git;
mod git_settings;
mod home;
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
pub(crate) mod policy;
pub(crate) mod probe;
mod seccomp;
mod secrets;
mod temp;

pub(crate) use gate::LiveGate;
pub(crate) use git::{GIT, is_setting};
pub(crate) use missing::AbsentFiles;
pub(crate) use place::Place;
pub(crate) use places::{Origin, Places, take_writable, teams};
pub(crate) use policy::Policy;
pub(crate) use secrets::{Node, Secrets};
pub(crate) use temp::TempDir;

use std::io::{self, PipeReader};
use std::process::{Command, Stdio};

use teamd_shared::sandbox::Namespaces;

use crate::shim::Job;

/// Makes the namespaces that only the parent of a confined command can make. Comes before the shim
/// denies tracing: a process that cannot be traced may not write its own maps.
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

/// Returns the command line of the sandbox init, and where its report is read. The caller gives it
/// its outputs.
///
/// # Errors
/// The system's error, or that `bwrap` is gone.
pub(crate) fn command(job: &Job) -> io::Result<(Command, PipeReader)> {
    let (reader, writer) = io::pipe()?;
    let policy = job.order.policy.as_ref();
    let mut init = match policy.filter(|policy| policy.layers.namespaces == Namespaces::Bubblewrap)
    {
        Some(policy) => {
            let mut bwrap = bubblewrap::command(policy, &job.workspace)?;
            job.put_on(&mut bwrap, init::SUBCOMMAND)?;
            bwrap
        }
        None => job.program(init::SUBCOMMAND)?,
    };
    init.stdin(Stdio::from(writer));
    Ok((init, reader))
}
