//! An agent without a process: what becomes of it, and when, the simulation decides.

use teamd_shared::member::Gate;
use teamd_worker_model::{AgentEnds, AgentInput, AgentOutput, AgentProcess, Known, Meter};
use teamd_worker_sandbox::run::{AgentGate, GateHandle, gate_pair};
use teamd_worker_sandbox::shim::GateSet;
use tokio::sync::{oneshot, watch};

/// The other ends of an agent's process: those of the agent, and of its shim.
#[derive(Debug)]
pub(super) struct SimulatedAgent {
    ends: AgentEnds,
    ended: oneshot::Sender<String>,
    gate: AgentGate,
    wanted: watch::Receiver<Gate>,
}

impl SimulatedAgent {
    /// Makes it, with this gate; `is_live`: whether that changes while it runs.
    pub(super) fn start(
        known: Known,
        gate: Gate,
        is_live: bool,
    ) -> (AgentProcess, GateHandle, Self) {
        let (handle, side) = gate_pair(gate, is_live);
        let (ended, waits) = oneshot::channel();
        let fixed = (!is_live).then_some(gate);
        let (process, ends) = AgentProcess::new(Some(known), fixed, Meter::default(), waits);
        let agent = Self {
            ends,
            ended,
            gate: side,
            wanted: handle.follow(),
        };
        (process, handle, agent)
    }

    /// Tells whether the worker has not ended it.
    pub(super) fn is_wanted(&self) -> bool {
        !self.ended.is_closed()
    }

    /// Returns its next input.
    pub(super) fn next_input(&mut self) -> Option<AgentInput> {
        self.ends.input.try_recv().ok()
    }

    /// Outputs something.
    pub(super) fn output(&self, output: AgentOutput) {
        // A mind that is gone reads nothing.
        drop(self.ends.output.try_send(output));
    }

    /// Returns the gate that its shim is told to set; `Err`: it cannot, and a gate that closes ends
    /// the agent.
    pub(super) fn ordered(&mut self) -> Option<Result<Gate, Gate>> {
        let has_changed = self.wanted.has_changed().is_ok_and(|changed| changed);
        if !has_changed {
            return None;
        }
        let wanted = *self.wanted.borrow_and_update();
        Some(if self.gate.ask(wanted).is_some() {
            Ok(wanted)
        } else {
            Err(wanted)
        })
    }

    /// Its shim answers that the gate is set.
    pub(super) fn has_set(&mut self, gate: Gate) {
        let mut answer = serde_json::to_vec(&GateSet { gate }).unwrap();
        answer.push(b'\n');
        self.gate.hear(&mut answer);
    }

    /// Nothing of it is left.
    pub(super) fn has_ended(mut self, how: &str) {
        self.gate.nothing_runs();
        drop(self.ended.send(how.to_owned()));
    }

    /// Of a mutant: its shim says that nothing of it is left.
    pub(super) fn is_said_to_have_ended(&mut self) {
        self.gate.nothing_runs();
    }
}
