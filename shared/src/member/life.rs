//! How far a life has come, and what takes it further. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Status;

/// How far the life of a member's worker has come.
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
    /// Returns how the life ended that led here: one that is started again, or was never run, had crashed.
    pub fn ended_as(self) -> Status {
        match self {
            Self::Shutdown => Status::Shutdown,
            Self::Killed => Status::Killed,
            Self::Crashed | Self::Spawning | Self::Running => Status::Crashed,
        }
    }
}

/// What can happen to the life of a member's worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifeEvent {
    /// A new life is decided.
    Spawning,
    /// Its process exists.
    Spawned,
    /// It ended for good.
    Ended(End),
    /// It ended, and the next life is decided in the same line.
    Restarted,
}

/// How a life ended: a function of the journal alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A shutdown of that life was approved.
    Shutdown,
    /// A signal was journaled before it was sent.
    Killed,
    /// Neither.
    Crashed,
}

/// An event that cannot happen in a phase: a mistake of whoever decided it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} cannot happen to a life that is {phase:?}")]
pub struct Impossible {
    phase: Phase,
    event: LifeEvent,
}

impl Phase {
    /// Computes the phase after an event: every cell of (phase × event).
    ///
    /// # Errors
    /// [`Impossible`] for the cells that no correct decision reaches.
    pub fn after(self, event: LifeEvent) -> Result<Self, Impossible> {
        match (self, event) {
            (Self::Shutdown | Self::Killed | Self::Crashed, LifeEvent::Spawning) => Ok(Self::Spawning),
            (Self::Spawning, LifeEvent::Spawned) => Ok(Self::Running),
            (Self::Spawning | Self::Running, LifeEvent::Ended(end)) => Ok(match end {
                End::Shutdown => Self::Shutdown,
                End::Killed => Self::Killed,
                End::Crashed => Self::Crashed,
            }),
            (Self::Spawning | Self::Running, LifeEvent::Restarted) => Ok(Self::Spawning),
            (Self::Spawning | Self::Running, LifeEvent::Spawning)
            | (Self::Running | Self::Shutdown | Self::Killed | Self::Crashed, LifeEvent::Spawned)
            | (Self::Shutdown | Self::Killed | Self::Crashed, LifeEvent::Ended(_) | LifeEvent::Restarted) => {
                Err(Impossible { phase: self, event })
            }
        }
    }

    /// Tells whether the life is over.
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
    fn every_cell_of_the_life_is_named() {
        let ends =
            [(End::Shutdown, Phase::Shutdown), (End::Killed, Phase::Killed), (End::Crashed, Phase::Crashed)];
        for phase in PHASES {
            let live = !phase.is_ended();
            assert_eq!(phase.after(LifeEvent::Spawning).ok(), (!live).then_some(Phase::Spawning));
            assert_eq!(phase.after(LifeEvent::Restarted).ok(), live.then_some(Phase::Spawning));
            let spawned = (phase == Phase::Spawning).then_some(Phase::Running);
            assert_eq!(phase.after(LifeEvent::Spawned).ok(), spawned);
            for (end, after) in ends {
                assert_eq!(phase.after(LifeEvent::Ended(end)).ok(), live.then_some(after));
            }
        }
    }
}
