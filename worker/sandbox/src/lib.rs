//! The sandbox: what the kernel refuses a command, in layers. One builder serves all that runs
//! confined.
//!
//! ```text
//! worker ─▶ shim (outside; makes user and pid namespace) ─▶ sandbox init ─▶ bash
//!                                                           mounts, network, capabilities, Landlock, seccomp
//! ```
//!
//! `find_places` says where things lie, `policy` what a command may do: three sets of paths, and the
//! network. The other modules enforce that and decide nothing. A layer that was promised and fails
//! ends the sandbox init before `bash` begins: nothing ever runs unconfined.
//!
//! `run` uses all of this: it runs the commands of tools and jobs, with their output, log and
//! time limit.

mod agent_stdio;
mod args;
mod bounds;
mod bubblewrap;
mod caches;
mod cgroup;
mod find_places;
pub mod gate;
mod gateway;
mod git;
mod git_setting_files;
mod git_settings;
mod home;
mod identity;
pub mod init;
mod landlock;
pub mod localhost;
mod loopback;
mod missing;
mod mount_table;
mod mounts;
mod place;
mod places;
mod plan;
mod policy;
pub mod probe;
mod protected;
mod remove;
pub mod run;
mod seccomp;
mod secret_paths;
mod secrets;
pub mod shim;
mod skills;
mod temp;
mod variables;

pub use args::{AttackArgs, ConfinementArgs, ProbeArgs};
pub use caches::{Keeps, accept};
pub use cgroup::OwnCgroup;
pub use find_places::teams;
pub(crate) use gate::LiveGate;
pub use gateway::{Answering, Body, Gateway, Models, TeamEndpoint, Vendor, refusal};
pub use git::is_setting;
pub(crate) use missing::AbsentFiles;
pub use place::Place;
pub use places::CommandPlaces;
pub use policy::Policy;
pub use remove::remove;
pub use secret_paths::{Node, Secrets};
pub use skills::{SKILL_FOLDERS, is_of_skills};
pub(crate) use temp::TempDir;

use std::io::{self, PipeReader};
use std::process::{Command, Stdio};

use teamd_shared::sandbox::Namespaces;

use crate::localhost::LocalhostEntry;
use crate::shim::ShimJob;

/// Makes the namespaces that only the parent of a confined command can make. Comes before the shim
/// denies tracing: a process that cannot be traced may not write its own maps.
///
/// # Errors
/// The system's error.
pub(crate) fn prepare(policy: &Policy, localhost: Option<LocalhostEntry>) -> io::Result<()> {
    // Those of the command lie in that of the localhost, and have no rights over it.
    if let Some(entry) = localhost {
        entry.enter()?;
    }
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
pub(crate) fn command(job: &ShimJob) -> io::Result<(Command, PipeReader)> {
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
