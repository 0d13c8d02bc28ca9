//! What a shim tells its worker when nothing of the command is left.

use std::io;

use serde::{Deserialize, Serialize};

/// How a command ended. Code and signal are those of `bash`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Its exit code, if it exited.
    pub(crate) code: Option<i32>,
    /// The signal that ended it, if one did.
    pub(crate) signal: Option<i32>,
    /// Why the command was over.
    pub(crate) cause: ExitCause,
    /// What the shim could not do. Fits behind "error: ".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// What else the user is told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// Why a command was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExitCause {
    /// It ended by itself.
    Exited,
    /// Its time was up.
    TimedOut,
    /// The worker closed the lifeline, or died.
    Lifeline,
    /// A signal told the shim to end.
    Signalled,
    /// It had more processes than it may.
    TooMany,
    /// It could not be started, or not be watched.
    Failed,
    /// The shim was killed, by the command or by the worker: the worker has ended the command.
    ShimLost,
}

impl Report {
    /// Makes the report of a command that has no code and no signal.
    pub(crate) fn new(cause: ExitCause) -> Self {
        Self { code: None, signal: None, cause, error: None, notes: Vec::new() }
    }

    pub(super) fn failed(error: String) -> Self {
        Self { error: Some(error), ..Self::new(ExitCause::Failed) }
    }

    /// Sends it over standard output, as one line.
    pub(super) fn send(&self) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        rustix::io::write(io::stdout(), &line)?;
        Ok(())
    }

    /// Returns the last line of a log: how the command ended.
    pub(crate) fn as_log_line(&self) -> String {
        match (self.cause, self.code, self.signal) {
            (ExitCause::Exited, Some(code), _) => format!("[exit code {code}]"),
            (ExitCause::Exited, _, Some(signal)) => format!("[ended by signal {signal}]"),
            (ExitCause::TimedOut, ..) => "[timed out]".to_owned(),
            (ExitCause::TooMany, ..) => "[ended: more processes than it may have]".to_owned(),
            _ => "[ended]".to_owned(),
        }
    }
}
