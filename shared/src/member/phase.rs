//! The phases of an incarnation. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MemberStatus;

/// How far the incarnation of a member has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Journaled, but no pid yet.
    Spawning,
    /// Its pid is journaled.
    Running,
    /// Ended by the handshake.
    Shutdown,
    /// Ended by force.
    Killed,
    /// Ended by itself.
    Crashed,
    /// A person said that its host is gone for good.
    Lost,
}

impl Phase {
    /// Returns how the incarnation before ended: one that is started again, or was never run, had
    /// crashed.
    pub fn ended_as(self) -> MemberStatus {
        match self {
            Self::Shutdown => MemberStatus::Shutdown,
            Self::Killed => MemberStatus::Killed,
            Self::Lost => MemberStatus::Lost,
            Self::Crashed | Self::Spawning | Self::Running => MemberStatus::Crashed,
        }
    }
}

/// How an incarnation ended: a function of the journal alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A shutdown of that incarnation was approved.
    Shutdown,
    /// A signal was journaled before it was sent.
    Killed,
    /// Neither.
    Crashed,
    /// A person said that its host is gone for good.
    Lost,
}

impl From<End> for Phase {
    fn from(end: End) -> Self {
        match end {
            End::Shutdown => Self::Shutdown,
            End::Killed => Self::Killed,
            End::Crashed => Self::Crashed,
            End::Lost => Self::Lost,
        }
    }
}

impl Phase {
    /// Tells whether the incarnation has ended.
    pub fn is_ended(self) -> bool {
        matches!(
            self,
            Self::Shutdown | Self::Killed | Self::Crashed | Self::Lost
        )
    }
}
