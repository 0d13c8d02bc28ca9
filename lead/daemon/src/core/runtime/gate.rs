//! The gate of a worker by its own word: which of the gates that it was sent it has applied.

use teamd_shared::member::Gate;

/// The gate that a worker has confirmed.
#[derive(Debug, Default)]
pub(crate) struct ConfirmedGate {
    /// The last one; none: it has confirmed none to this daemon.
    confirmed: Option<Gate>,
    /// The last one that an earlier daemon knew. What that one had sent last is not known.
    recalled: Option<Gate>,
    /// The gates that were sent since, each with the number of its directive.
    sent: Vec<(u64, Gate)>,
}

impl ConfirmedGate {
    /// Takes over what an earlier daemon knew.
    pub(super) fn recall(&mut self, gate: Option<Gate>) {
        self.recalled = gate;
    }

    /// Records that a directive was sent.
    pub(super) fn send(&mut self, seq: u64, gate: Gate) {
        self.sent.push((seq, gate));
    }

    /// Records how many directives the worker has applied.
    pub(super) fn confirm(&mut self, applied: u64) {
        let is_applied = |(seq, _): &mut (u64, Gate)| *seq <= applied;
        let last = self.sent.extract_if(.., is_applied).last();
        if let Some((_, gate)) = last {
            self.confirmed = Some(gate);
        }
    }

    /// Forgets what was sent on a connection that has ended, and did not get there.
    pub(super) fn begin_connection(&mut self) {
        self.sent.clear();
    }

    /// Returns the gate that was confirmed last.
    pub(crate) fn confirmed(&self) -> Option<Gate> {
        self.confirmed.or(self.recalled)
    }

    /// Tells whether the gate is closed, whatever of what was sent has got there.
    pub(crate) fn is_surely_closed(&self) -> bool {
        let is_open = |(_, gate): &(u64, Gate)| *gate == Gate::Open;
        self.confirmed == Some(Gate::Closed) && !self.sent.iter().any(is_open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_counts_once_the_worker_has_applied_its_directive() {
        let mut gate = ConfirmedGate::default();
        gate.send(3, Gate::Closed);
        assert_eq!(gate.confirmed(), None);
        gate.confirm(3);
        assert!(gate.is_surely_closed());
        gate.send(7, Gate::Open);
        assert_eq!(gate.confirmed(), Some(Gate::Closed));
        assert!(!gate.is_surely_closed(), "it may have got there");
        gate.begin_connection();
        assert!(gate.is_surely_closed());
        gate.confirm(9);
        assert_eq!(gate.confirmed(), Some(Gate::Closed));
        let mut next = ConfirmedGate::default();
        next.recall(gate.confirmed());
        assert_eq!(next.confirmed(), Some(Gate::Closed));
        assert!(!next.is_surely_closed(), "what was sent last is not known");
    }
}
