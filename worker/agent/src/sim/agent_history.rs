//! The session of the simulated agents, and the process that has it.

use std::collections::{BTreeSet, VecDeque};

use teamd_shared::member::Gate;
use uuid::Uuid;

use super::agent_process::SimulatedAgent;

/// What every agent of a schedule has in common: its session, which outlives its processes.
#[derive(Debug, Default)]
pub(super) struct AgentHistory {
    /// What it holds.
    pub(super) holds: BTreeSet<Uuid>,
    /// The texts of that, in order.
    pub(super) texts: Vec<String>,
    pub(super) calls: u64,
    /// Whether the gate changes while an agent runs.
    pub(super) is_live: bool,
    pub(super) agent: Option<SessionAgent>,
}

/// A process.
#[derive(Debug)]
pub(super) struct SessionAgent {
    pub(super) ends: SimulatedAgent,
    /// What its mounts let it do.
    pub(super) gate: Gate,
    /// Whether it holds a file open for writing: then its gate cannot be closed.
    pub(super) writes: bool,
    /// Why it ends.
    pub(super) dies: Option<&'static str>,
    /// What its shim was ordered, and has not done.
    pub(super) orders: VecDeque<Gate>,
    /// The messages that it has not read.
    pub(super) unread: VecDeque<(Uuid, String)>,
    pub(super) in_turn: bool,
    /// The call without an outcome, and whether it is of a tool of its own.
    pub(super) call: Option<(String, bool)>,
}

impl AgentHistory {
    pub(super) fn new(is_live: bool) -> Self {
        Self {
            is_live,
            ..Self::default()
        }
    }
}
