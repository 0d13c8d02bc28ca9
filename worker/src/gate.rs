//! What the gate lets through, pure. The gate itself is a fact of the state. `bash` is let through: with the gate closed
//! the kernel refuses what it would change ([`crate::sandbox`]).

use teamd_shared::member::Gate;

/// What a call is told that the gate does not let through.
pub(crate) const CLOSED: &str = "refused: the gate is closed, nothing may be changed; submit a plan with plan_approval \
     and wait for the verdict";

/// Tells whether a call may begin; `changes`: only its refusal keeps it from that.
///
/// # Errors
/// What the model is told.
pub(crate) fn admit(gate: Gate, changes: bool) -> Result<(), &'static str> {
    match (gate, changes) {
        (Gate::Closed, true) => Err(CLOSED),
        (Gate::Closed, false) | (Gate::Open, _) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_gate_stops_changes_and_nothing_else() {
        assert_eq!(admit(Gate::Open, true), Ok(()));
        assert_eq!(admit(Gate::Open, false), Ok(()));
        assert_eq!(admit(Gate::Closed, false), Ok(()));
        assert!(admit(Gate::Closed, true).unwrap_err().starts_with("refused: the gate is closed"));
    }
}
