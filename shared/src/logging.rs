//! Logs: each process writes to its standard error, one line for each event. For a worker and a
//! detached daemon that is a file of the team directory, and its size is bounded.
//!
//! **Who writes** `log/NAME.log`: the process of that name, and its children that inherit its
//! standard error. **Who reads**: people. A process whose log has grown to [`MAX_SIZE`] renames it
//! to `NAME.log.1`, which replaces an older one, and continues in a new file. **When it dies** in
//! between, its next incarnation begins a new file.

use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};

use rustix::fs::OFlags;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

use crate::team_dir::{DirError, OLDER_LOG, TeamDir, TeamPath};

/// How large a log may grow before a new one begins, in bytes.
pub const MAX_SIZE: u64 = 8 << 20;

/// Where standard error leads, if its size is to be bounded.
static BOUNDED: OnceLock<(Arc<TeamDir>, TeamPath)> = OnceLock::new();

/// Sends the process's log to standard error. The level comes from `TEAM_LOG` (default `info`).
///
/// A second call in the same process changes nothing.
pub fn to_stderr() {
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_target(false)
        .with_writer(|| {
            if let Some((dir, log)) = BOUNDED.get() {
                // A log that cannot be renamed keeps growing, so that no event is lost.
                drop(rotate_if_large(dir, log));
            }
            io::stderr()
        });
    // It fails where there is a log already.
    drop(
        tracing_subscriber::registry()
            .with(filter())
            .with(lines)
            .try_init(),
    );
}

/// Bounds the size of a log. It does so only while standard error leads to that very file, and not
/// to a terminal or a service manager.
pub fn keep_bounded(dir: &Arc<TeamDir>, log: TeamPath) {
    // A second log of one process would be a mistake without consequences: the first one stays
    // bounded.
    drop(BOUNDED.set((Arc::clone(dir), log)));
}

/// Opens a log for appending.
///
/// # Errors
/// [`DirError`] if the system refuses.
pub fn open(dir: &TeamDir, log: &TeamPath) -> Result<File, DirError> {
    dir.open_file(log, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE)
}

fn rotate_if_large(dir: &TeamDir, log: &TeamPath) -> Result<(), DirError> {
    let stderr = rustix::stdio::stderr();
    let now = rustix::fs::fstat(stderr).map_err(dir.cannot("rotate", log))?;
    let is_large = u64::try_from(now.st_size).is_ok_and(|size| size >= MAX_SIZE);
    if !is_large || dir.identity(log)? != Some((now.st_dev, now.st_ino)) {
        return Ok(());
    }
    dir.rename(log, &log.with_suffix(OLDER_LOG))?;
    let next = open(dir, log)?;
    // Standard output of a daemon also leads there.
    let stdout = rustix::fs::fstat(rustix::stdio::stdout());
    if stdout.is_ok_and(|stdout| (stdout.st_dev, stdout.st_ino) == (now.st_dev, now.st_ino)) {
        rustix::stdio::dup2_stdout(&next).map_err(dir.cannot("rotate", log))?;
    }
    rustix::stdio::dup2_stderr(&next).map_err(dir.cannot("rotate", log))
}

/// Reads a level (`debug`), or levels by module (`teamd_worker=debug,info`).
///
/// Not as `EnvFilter` does, which also tells spans apart: its regular expressions are a quarter of
/// a program.
fn filter() -> Targets {
    let wanted = std::env::var("TEAM_LOG")
        .ok()
        .and_then(|text| text.parse().ok());
    let wanted = wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    // It writes what MCP servers say, with the secrets that they were given.
    wanted.with_target("rmcp", LevelFilter::OFF)
}
