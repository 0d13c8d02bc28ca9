//! The phases of an incarnation, and the events between them. Pure.

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
}

impl Phase {
    /// Returns how the incarnation before ended: one that is started again, or was never run, had crashed.
    pub fn ended_as(self) -> MemberStatus {
        match self {
            Self::Shutdown => MemberStatus::Shutdown,
            Self::Killed => MemberStatus::Killed,
            Self::Crashed | Self::Spawning | Self::Running => MemberStatus::Crashed,
        }
    }
}

/// What can happen to an incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseEvent {
    /// A new incarnation is decided.
    Spawning,
    /// Its process exists.
    Spawned,
    /// It ended for good.
    Ended(End),
    /// It ended, and the next incarnation is decided in the same line.
    Restarted,
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
}

/// An event that cannot happen in a phase: a mistake of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} cannot happen to an incarnation that is {phase:?}")]
pub struct Impossible {
    phase: Phase,
    event: PhaseEvent,
}

impl Phase {
    /// Computes the phase after an event: every cell of (phase × event).
    ///
    /// # Errors
    /// [`Impossible`] for the cells that no correct decision reaches.
    pub fn after(self, event: PhaseEvent) -> Result<Self, Impossible> {
        match (self, event) {
            (Self::Shutdown | Self::Killed | Self::Crashed, PhaseEvent::Spawning) => Ok(Self::Spawning),
            (Self::Spawning, PhaseEvent::Spawned) => Ok(Self::Running),
            (Self::Spawning | Self::Running, PhaseEvent::Ended(end)) => Ok(match end {
                End::Shutdown => Self::Shutdown,
                End::Killed => Self::Killed,
                End::Crashed => Self::Crashed,
            }),
            (Self::Spawning | Self::Running, PhaseEvent::Restarted) => Ok(Self::Spawning),
            (Self::Spawning | Self::Running, PhaseEvent::Spawning)
            | (Self::Running | Self::Shutdown | Self::Killed | Self::Crashed, PhaseEvent::Spawned)
            | (Self::Shutdown | Self::Killed | Self::Crashed, PhaseEvent::Ended(_) | PhaseEvent::Restarted) => {
                Err(Impossible { phase: self, event })
            }
        }
    }

    /// Tells whether the incarnation has ended.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Shutdown | Self::Killed | Self::Crashed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [Phase; 5] =
        [Phase::Spawning, Phase::Running, Phase::Shutdown, Phase::Killed, Phase::Crashed];

    #[test]
    fn every_cell_of_the_phases_is_named() {
        let ends =
            [(End::Shutdown, Phase::Shutdown), (End::Killed, Phase::Killed), (End::Crashed, Phase::Crashed)];
        for phase in PHASES {
            let live = !phase.is_ended();
            assert_eq!(phase.after(PhaseEvent::Spawning).ok(), (!live).then_some(Phase::Spawning));
            assert_eq!(phase.after(PhaseEvent::Restarted).ok(), live.then_some(Phase::Spawning));
            let spawned = (phase == Phase::Spawning).then_some(Phase::Running);
            assert_eq!(phase.after(PhaseEvent::Spawned).ok(), spawned);
            for (end, after) in ends {
                assert_eq!(phase.after(PhaseEvent::Ended(end)).ok(), live.then_some(after));
            }
        }
    }
}
