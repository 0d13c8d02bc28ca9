//! A member as the journal records it, and the status that people see, pure.

mod exit;
mod phase;
mod process;
mod status;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::Name;
use crate::position::Position;
use crate::process::Identity;

pub use exit::{Emptied, Ending, Exit};
pub use phase::{End, Phase};
pub use status::{Doing, MemberStatus, Waiting};

pub use crate::terms::{
    Agent, ApproveBy, Bounds, Cgroup, Gate, Limits, Localhost, Permissions, Protocol, Restart,
    RestartLimit, Sandbox, SandboxMode, Terms, TermsPatch,
};

/// A member as the journal records it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Member {
    /// Its name.
    pub name: Name,
    /// Its terms.
    #[serde(flatten)]
    pub terms: Terms,
    /// The incarnation: 1, 2, 3 …
    pub incarnation: u32,
    /// The incarnation in which its conversation began.
    pub conversation: u32,
    /// Where its inbox stood when the conversation began.
    pub begins_at: Position,
    /// How far the incarnation has come.
    pub phase: Phase,
    /// Its process, once there is one.
    #[serde(flatten, deserialize_with = "process::read")]
    #[schemars(with = "process::ProcessFields")]
    pub process: Option<Identity>,
    /// The cgroup of that process; none where it has none of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<Cgroup>,
    /// Whether it may change anything.
    pub gate: Gate,
    /// Why it is being ended by signals, if it is.
    pub ending: Option<Ending>,
    /// The reason in plain words, where there is more to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ending_note: Option<String>,
    /// Times of its restarts by the policy, seconds since 1970: those that still count.
    pub restarts: Vec<f64>,
    /// How often the policy has started it again since it was spawned on request.
    pub restarted: u32,
    /// Since when it has not answered the daemon, seconds since 1970, if the lead was notified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<f64>,
    /// How the last incarnation ended; null in the first one.
    pub exit: Option<Exit>,
    /// Seconds since 1970.
    pub spawned_at: f64,
    /// Seconds since 1970, of the last change that was journaled.
    pub updated_at: f64,
}

impl Member {
    /// Tells whether it can be given tasks: on a host only what is in a checkout can be checked.
    pub fn can_take_tasks(&self) -> bool {
        self.terms.host.is_none() || self.terms.checkout.is_some()
    }
}
