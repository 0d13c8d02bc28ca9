//! An agent without a process, for simulations: what becomes of it, and when, the simulation
//! decides.

use super::agent_gate::AgentGate;
use super::*;

/// The other ends of an agent's process: those of the agent, and of its shim.
#[derive(Debug)]
pub(crate) struct SimulatedAgent {
    said: mpsc::UnboundedReceiver<Said>,
    hears: mpsc::Sender<Heard>,
    ends: oneshot::Sender<String>,
    gate: AgentGate,
}

impl AgentProcess {
    /// Makes it, with this gate; `is_live`: whether that changes while it runs.
    pub(crate) fn simulated(
        known: Known,
        gate: Gate,
        is_live: bool,
    ) -> (Self, GateHandle, SimulatedAgent) {
        let (handle, side) = agent_gate::pair(gate, is_live);
        let (hears, heard) = mpsc::channel(UNHEARD);
        let (says, said) = mpsc::unbounded_channel();
        let (ends, ended) = oneshot::channel();
        let fixed = (!is_live).then_some(gate);
        let process = Self {
            known,
            is_new: false,
            fixed,
            meter: Meter::default(),
            heard,
            says,
            ended: Some(ended),
            how: None,
            closed_at: None,
            _tasks: JoinSet::new(),
        };
        (
            process,
            handle,
            SimulatedAgent {
                said,
                hears,
                ends,
                gate: side,
            },
        )
    }
}

impl SimulatedAgent {
    /// Tells whether the worker has not ended it.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.ends.is_closed()
    }

    /// Returns what it is told next.
    pub(crate) fn next(&mut self) -> Option<Said> {
        self.said.try_recv().ok()
    }

    /// Says something.
    pub(crate) fn says(&self, heard: Heard) {
        // A mind that is gone hears nothing.
        drop(self.hears.try_send(heard));
    }

    /// Returns the gate that its shim is told to set; `Err`: it cannot, and a gate that closes ends
    /// the agent.
    pub(crate) fn ordered(&mut self) -> Option<Result<Gate, Gate>> {
        let wanted = self.gate.try_wanted()?;
        Some(if self.gate.ask(wanted).is_some() {
            Ok(wanted)
        } else {
            Err(wanted)
        })
    }

    /// Its shim answers that the gate is set.
    pub(crate) fn has_set(&mut self, gate: Gate) {
        let mut answer = serde_json::to_vec(&crate::shim::GateSet { gate }).unwrap();
        answer.push(b'\n');
        self.gate.hear(&mut answer);
    }

    /// Nothing of it is left.
    pub(crate) fn has_ended(mut self, how: &str) {
        self.gate.nothing_runs();
        drop(self.ends.send(how.to_owned()));
    }

    /// Of a mutant: its shim says that nothing of it is left.
    pub(crate) fn is_said_to_have_ended(&mut self) {
        self.gate.nothing_runs();
    }
}
