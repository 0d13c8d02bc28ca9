//! Waits that only a thread can do: tokio takes foreign descriptors by `unsafe` only.

use std::future::Future;
use std::io;

use tokio::sync::oneshot;

/// Begins a wait in a thread of its own, and returns its result. If the future is dropped, the
/// thread stays until its wait is over or the process ends.
///
/// # Errors
/// The system's error if no thread can be started, or that of the wait.
pub fn in_thread<T: Send + 'static>(
    wait: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> impl Future<Output = io::Result<T>> {
    let (sender, result) = oneshot::channel();
    let started = std::thread::Builder::new().spawn(move || {
        // Without a receiver, no caller waits any longer.
        sender.send(wait()).ok();
    });
    async move {
        started?;
        result.await.map_err(io::Error::other)?
    }
}
