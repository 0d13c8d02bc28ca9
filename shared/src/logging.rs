//! Logs: one file a process, opened for append, a line an event.

use std::fs::File;
use std::io;
use std::sync::Mutex;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;

/// Sends the process's log into a file. The level comes from `TEAM_LOG` (default `info`).
///
/// A second call in the same process changes nothing.
pub fn to_file(file: File) {
    begin(Mutex::new(file));
}

/// Sends the process's log to stderr (a daemon in the foreground).
pub fn to_stderr() {
    begin(io::stderr);
}

fn begin(writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) {
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_target(false).with_writer(writer);
    // It fails where there is a log already.
    drop(tracing_subscriber::registry().with(filter()).with(lines).try_init());
}

/// Reads a level (`debug`), or levels by module (`teamd_worker=debug,info`).
///
/// Not as `EnvFilter` does, which also tells spans apart: its regular expressions are a quarter of a program.
fn filter() -> Targets {
    let wanted = std::env::var("TEAM_LOG").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO))
}
