//! The way of a command into a localhost.

use std::fs::File;
use std::io;

use nix::sched::{CloneFlags, setns};
use serde::{Deserialize, Serialize};

/// The descriptors by which a command enters a localhost. The shim alone inherits them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalhostEntry {
    /// Of the user namespace that owns the network namespace.
    pub(crate) user: i32,
    /// Of the network namespace.
    pub(crate) net: i32,
}

impl LocalhostEntry {
    /// Enters both, and closes the descriptors. The process must have one thread.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn enter(self) -> io::Result<()> {
        let (user, net) = (taken(self.user)?, taken(self.net)?);
        setns(&user, CloneFlags::CLONE_NEWUSER)?;
        Ok(setns(&net, CloneFlags::CLONE_NEWNET)?)
    }
}

/// Takes a namespace whose descriptor was inherited by its number.
fn taken(number: i32) -> io::Result<File> {
    let held = File::open(format!("/proc/self/fd/{number}"))?;
    nix::unistd::close(number)?;
    Ok(held)
}
