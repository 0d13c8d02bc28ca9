//! Logs: one file a process, opened for append, a line an event.

use std::fs::File;
use std::io;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;

/// Sends the process's log into a file. The level comes from `TEAM_LOG` (default `info`).
///
/// A second call in the same process changes nothing.
pub fn to_file(file: File) {
    let written = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_env("TEAM_LOG").unwrap_or_else(|_| EnvFilter::new("info")))
        .with_ansi(false)
        .with_target(false)
        .with_writer(Mutex::new(file))
        .try_init();
    drop(written);
}

/// Sends the process's log to stderr (a daemon in the foreground).
pub fn to_stderr() {
    let written = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_env("TEAM_LOG").unwrap_or_else(|_| EnvFilter::new("info")))
        .with_target(false)
        .with_writer(io::stderr)
        .try_init();
    drop(written);
}
