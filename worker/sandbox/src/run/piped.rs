//! A command whose output comes through a pipe, or from an agent's socket.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::PIECE;
use super::shim_handle::ShimHandle;
use super::source::OutputSource;
use crate::shim::{Report, ShimJob};

/// How much is read at most when the command is over, in bytes: more than the largest pipe holds
/// for a user.
const MAX_REST: usize = 2 << 20;

/// The command, and where its output comes from.
#[derive(Debug)]
pub(super) struct Piped {
    pub(super) shim: ShimHandle,
    pub(super) source: OutputSource,
    /// Whether the source may hold more.
    open: bool,
    piece: Vec<u8>,
}

impl Piped {
    /// Starts a command.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn start(job: &ShimJob, liveness_lock: &File) -> io::Result<Self> {
        let (source, writes) = OutputSource::pipe()?;
        Self::start_with(job, liveness_lock, source, writes)
    }

    /// Starts a command that writes there.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn start_with(
        job: &ShimJob,
        liveness_lock: &File,
        source: OutputSource,
        writes: OwnedFd,
    ) -> io::Result<Self> {
        let shim = ShimHandle::start(job, liveness_lock, writes)?;
        Ok(Self {
            shim,
            source,
            open: true,
            piece: vec![0; PIECE],
        })
    }

    /// Asks the command to end.
    pub(super) fn end(&mut self) {
        self.shim.end();
    }

    /// Waits for the end of the command, and hands over each piece of its output. May be dropped
    /// and called again, until it has returned.
    pub(super) async fn report(&mut self, mut take: impl FnMut(&[u8])) -> Report {
        let report = loop {
            tokio::select! {
                read = self.source.read(&mut self.piece), if self.open => match read {
                    Ok(0) | Err(_) => self.open = false,
                    Ok(read) => {
                        take(&self.piece[..read]);
                        // A flood would use up the budget of this task, and starve what is served
                        // beside it (the daemon, signals).
                        tokio::task::yield_now().await;
                    }
                },
                report = self.shim.ended() => break report,
            }
        };
        self.read_the_rest(take);
        report
    }

    /// Reads what is still in the pipe. All writers are gone, so it ends; but a pipe that was
    /// handed to a process elsewhere must not be waited for.
    fn read_the_rest(&mut self, mut take: impl FnMut(&[u8])) {
        let mut rest = MAX_REST;
        while self.open && rest > 0 {
            // Not through the runtime: what it knows of the pipe can be older than the end of the
            // shim.
            match rustix::io::read(self.source.as_fd(), &mut self.piece[..]) {
                Ok(0) => self.open = false,
                Ok(read) => {
                    take(&self.piece[..read]);
                    rest = rest.saturating_sub(read);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }
}
