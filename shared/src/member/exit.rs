//! How a life ended, as its exit record says.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::RequestId;
use crate::position::Position;
use crate::transcript::Usage;

/// Why a worker is being ended by signals: journaled before the first one is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// `--force`.
    Force,
    /// It was let go, and is still there a grace period later.
    Overdue,
    /// Somebody sent its process SIGTERM, and it said so.
    Sigterm,
    /// The daemon was told by a signal to end.
    Stop,
    /// It did not answer the daemon for too long: it counts as crashed.
    Hung,
    /// It reached a limit of what a life may use.
    Limit,
}

/// How it was established that nothing of a life is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Emptied {
    /// The kernel says that no process is in its cgroup any more; and its life lock is free.
    Cgroup,
    /// Its life lock is free, so every keeper has seen its command to the end; and nothing that a worker and its keeper
    /// left when they were killed together has come to the daemon that started them, or it was ended.
    Keepers,
    /// Its life lock is free. What a worker and its keeper left when they were killed together is not known: the daemon that
    /// saw it end is not the one that started it, or cannot tell that from what others left, or may not end it.
    Lock,
}

/// How a life ended, as far as anybody could see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Exit {
    /// The exit code; null if a signal ended it, or nobody could see.
    pub code: Option<i32>,
    /// The signal; null if it exited, or nobody could see.
    pub signal: Option<i32>,
    /// Seconds since 1970, when it was seen.
    pub at: f64,
    /// The shutdown request that it answered with yes.
    pub request_id: Option<RequestId>,
    /// Messages that it had not taken in.
    #[serde(default)]
    pub unread: u64,
    /// Where its inbox stood: a fresh life begins there.
    #[serde(default)]
    pub inbox: Position,
    /// Why it was ended by the daemon itself, and why it is not (or could not be) started again, in plain words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What its conversation had cost, as far as it had said.
    #[serde(default, skip_serializing_if = "Usage::is_nothing")]
    pub usage: Usage,
    /// Why it was ended by signals; null if it was not.
    #[serde(default)]
    pub ending: Option<Ending>,
    /// How it was established that nothing of it is left; null for one that was never run, and where that is not known.
    #[serde(default)]
    pub emptied: Option<Emptied>,
    /// Processes of its commands that had to be killed after its worker had ended; null where nobody could count them.
    #[serde(default)]
    pub left_behind: Option<u32>,
}
