//! The last of what the worker started: processes that lost their shim and became children of the worker.

use std::io;

use rustix::process::{WaitOptions, waitpid};

use crate::shim::sweep;

/// Ends every child, and those that come to light with its end. To be called when no shim runs any more.
pub(crate) fn end() {
    let mut told = false;
    while let Err(error) = try_end() {
        if !std::mem::replace(&mut told, true) {
            tracing::error!("cannot look for the processes that lost their shim (tried again): {error}");
        }
        sweep::pause();
    }
}

fn try_end() -> io::Result<()> {
    loop {
        let killed = sweep::kill_children(|_| false)?;
        if killed.is_empty() {
            return Ok(());
        }
        tracing::warn!("{} processes had lost their shim, and were ended", killed.len());
        for pid in killed {
            while matches!(waitpid(Some(pid), WaitOptions::empty()), Err(rustix::io::Errno::INTR)) {}
        }
    }
}
