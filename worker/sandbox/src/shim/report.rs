//! What a shim tells its worker when nothing of the command is left, and a sandbox init its shim
//! when `bash` has ended.

use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;

use rustix::process::WaitStatus;
use serde::{Deserialize, Serialize};
use teamd_shared::member::Gate;

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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Notices for the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// That the gate of an agent is open or closed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateSet {
    /// What it is now.
    pub gate: Gate,
}

impl GateSet {
    /// Sends it, as one line.
    pub(super) fn send(self, to: impl AsFd) -> io::Result<()> {
        send(&self, to)
    }
}

fn send(what: &impl Serialize, to: impl AsFd) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    rustix::io::write(to, &line)?;
    Ok(())
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
    /// Its gate was to be closed, and it held files open for writing itself.
    GateClosed,
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
        Self {
            code: None,
            signal: None,
            cause,
            error: None,
            notes: Vec::new(),
        }
    }

    /// Makes the report of a command that could not be started, or not be watched.
    pub(crate) fn failed(error: String) -> Self {
        Self {
            error: Some(error),
            ..Self::new(ExitCause::Failed)
        }
    }

    /// Makes the report of a command that ended by itself.
    pub(crate) fn exited(status: Option<WaitStatus>) -> Self {
        let code = status.and_then(WaitStatus::exit_status);
        Self {
            code,
            signal: status.and_then(WaitStatus::terminating_signal),
            ..Self::new(ExitCause::Exited)
        }
    }

    /// Reads what was sent; to be called when the sender has ended.
    pub(super) fn read(mut from: PipeReader) -> Option<Self> {
        let mut text = String::new();
        from.read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Sends it, as one line.
    pub(crate) fn send(&self, to: impl AsFd) -> io::Result<()> {
        send(self, to)
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
