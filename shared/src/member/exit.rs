//! How an incarnation ended, as its exit record says.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::RequestId;
use crate::position::Position;
use crate::usage::Usage;

/// Why a worker is being ended by signals: journaled before the first one is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// `--force`.
    Force,
    /// It was released, and was still running a grace period later.
    Overdue,
    /// Its process received SIGTERM, and reported it.
    Sigterm,
    /// The daemon received a signal to stop.
    Stop,
    /// It did not answer the daemon for too long, and counts as crashed.
    Hung,
    /// It reached a limit of what an incarnation may use.
    Limit,
}

/// How the daemon knew that no process of an incarnation was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Emptied {
    /// Its liveness lock is free, and the kernel says that its cgroup is empty.
    Cgroup,
    /// Its liveness lock is free, so each shim has ended its command; and the daemon found no
    /// orphan, or ended it.
    Tree,
}

/// How an incarnation ended, as far as the daemon could see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Exit {
    /// The exit code; null if a signal ended it, or the daemon did not see its end.
    pub code: Option<i32>,
    /// The signal; null if it exited, or the daemon did not see its end.
    pub signal: Option<i32>,
    /// Seconds since 1970, when it was seen.
    pub at: f64,
    /// The shutdown request that it approved.
    pub request_id: Option<RequestId>,
    /// How many messages it had not consumed.
    pub unread: u64,
    /// The end of its inbox: a fresh incarnation begins there.
    pub inbox: Position,
    /// How many of the unread messages came back to their senders with this end.
    #[serde(default, skip_serializing_if = "crate::json::is_zero")]
    pub returned: u64,
    /// Up to here, what could come back has come back: with this end, or with an earlier one of
    /// this member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned_up_to: Option<Position>,
    /// Why it was ended by the daemon itself, and why it is not (or could not be) started again, in
    /// plain words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What its conversation had cost, as far as it had reported.
    #[serde(default, skip_serializing_if = "Usage::is_nothing")]
    pub usage: Usage,
    /// What of that other models have used than the recorded one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub other_usage: BTreeMap<String, Usage>,
    /// Why it was ended by signals; null if it was not.
    pub ending: Option<Ending>,
    /// How the daemon knew that no process of it was left; null if it never ran, or if the daemon
    /// does not know.
    pub emptied: Option<Emptied>,
}
