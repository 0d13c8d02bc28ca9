//! The signals that end the daemon: SIGTERM and SIGINT. None is lost, also while the daemon becomes
//! another program.
//!
//! Only the main thread receives them. While the daemon could not act on them they are blocked in
//! every thread, and what is blocked stays pending through an `exec(2)`. What they mean is not
//! decided here.

use nix::sys::signal::{SigSet, Signal, raise};
use tokio::signal::unix::{self, SignalKind, signal};

use teamd_client::error::CommandError;

/// The two signals, as streams.
#[derive(Debug)]
pub(crate) struct TerminationSignals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
}

impl TerminationSignals {
    /// Installs the handlers. Must be called within the runtime.
    ///
    /// # Errors
    /// [`teamd_client::exit_code::ExitCode::Failed`] if the system refuses.
    pub(crate) fn catch() -> Result<Self, CommandError> {
        let catch =
            |kind| signal(kind).map_err(|e| CommandError::refused("cannot handle signals", &e));
        Ok(Self {
            terminate: catch(SignalKind::terminate())?,
            interrupt: catch(SignalKind::interrupt())?,
        })
    }

    /// Waits until one comes. Dropping the future loses nothing.
    pub(crate) async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Raises again the signals that this program does not act on any more: they stay pending for
    /// the next program.
    pub(crate) async fn pass_on(mut self) {
        // Meanwhile the runtime receives the signals that have come.
        tokio::task::yield_now().await;
        let both = [
            (&mut self.terminate, Signal::SIGTERM),
            (&mut self.interrupt, Signal::SIGINT),
        ];
        for (caught, which) in both {
            let came = tokio::select! {
                biased;
                caught = caught.recv() => caught.is_some(),
                () = std::future::ready(()) => false,
            };
            if came && let Err(errno) = raise(which) {
                tracing::error!("cannot pass {which} on to the next program: {errno}");
            }
        }
    }
}

/// Blocks the signals in the calling thread, and in the threads that it starts meanwhile. A thread
/// that received them would take them from this process, which does not act on them then.
pub(crate) fn hold_back() {
    if let Err(errno) = both().thread_block() {
        tracing::warn!("cannot block signals: {errno}");
    }
}

/// Unblocks the signals that this program or the one before has blocked. Must be called after
/// [`TerminationSignals::catch`].
pub(crate) fn hear() {
    if let Err(errno) = both().thread_unblock() {
        tracing::warn!("cannot unblock signals: {errno}");
    }
}

fn both() -> SigSet {
    SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT])
}
