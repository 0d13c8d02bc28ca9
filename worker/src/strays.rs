//! The last of what the worker started: processes that lost their keeper and became children of the worker.

use std::io;

use rustix::process::{WaitOptions, waitpid};

use crate::keeper::sweep;

/// Makes this process the one that inherits what its children leave behind.
pub(crate) fn adopt() {
    #[cfg(target_os = "linux")]
    if let Err(errno) = nix::sys::prctl::set_child_subreaper(true) {
        tracing::warn!("cannot adopt the processes that a command leaves behind: {errno}");
    }
}

/// Ends every child, and those that come to light with its end. To be called when no keeper runs any more.
pub(crate) fn end() {
    if let Err(error) = try_end() {
        tracing::error!("cannot end the processes that lost their keeper: {error}");
    }
}

fn try_end() -> io::Result<()> {
    loop {
        let killed = sweep::kill_children(|_| false)?;
        if killed.is_empty() {
            return Ok(());
        }
        tracing::warn!("{} processes had lost their keeper, and were ended", killed.len());
        for pid in killed {
            while matches!(waitpid(Some(pid), WaitOptions::empty()), Err(rustix::io::Errno::INTR)) {}
        }
    }
}
