//! The gate of an agent that runs: what is wanted of it, and what it is, between the toolbox and
//! the shim.
//!
//! It counts as open from the moment the shim gets the order to open it, and as closed when the
//! shim says that it is.

use std::time::Duration;

use teamd_shared::member::Gate;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::shim::{CLOSE_GATE, GateSet, OPEN_GATE};

/// How long a shim may take to set the gate. What it starts for that stands in the pid namespace of
/// the agent, which can stop it there where no Landlock keeps signals inside.
const SET_WITHIN: Duration = Duration::from_secs(10);

/// The toolbox's end.
#[derive(Debug)]
pub struct GateHandle {
    wanted: watch::Sender<Gate>,
    /// None: nothing of the agent is left.
    held: watch::Receiver<Option<Gate>>,
    /// What the shim has said last; none: nothing of the agent is left.
    set: watch::Receiver<Option<Gate>>,
}

impl GateHandle {
    /// Tells whether the agent may write, or could in a moment.
    pub fn may_write(&self) -> bool {
        let held = *self.held.borrow();
        held.is_some() && (held == Some(Gate::Open) || *self.wanted.borrow() == Gate::Open)
    }

    /// Opens it, if the agent runs and it is closed; tells whether that was so.
    pub fn open(&self) -> bool {
        let opens = *self.held.borrow() == Some(Gate::Closed) && !self.may_write();
        opens && self.want(Gate::Open)
    }

    /// Waits until the agent can write, once it is to be opened.
    pub async fn opened(&mut self) {
        if *self.wanted.borrow() == Gate::Open
            && self
                .set
                .wait_for(|set| *set != Some(Gate::Closed))
                .await
                .is_err()
        {
            tracing::debug!("the agent is gone");
        }
    }

    /// Closes it; returns when the agent cannot write any more. May be dropped and called again.
    pub async fn close(&mut self) {
        self.want(Gate::Closed);
        // The other end is only dropped with the shim, whose agent ends then.
        if self
            .held
            .wait_for(|held| *held != Some(Gate::Open))
            .await
            .is_err()
        {
            tracing::debug!("the agent is gone");
        }
    }

    /// Waits until nothing of the agent is left.
    pub async fn gone(&mut self) {
        if self.held.wait_for(Option::is_none).await.is_err() {
            tracing::debug!("the agent is gone");
        }
    }

    /// Returns what is wanted of the gate, from now on.
    pub fn follow(&self) -> watch::Receiver<Gate> {
        self.wanted.subscribe()
    }

    fn want(&self, gate: Gate) -> bool {
        self.wanted
            .send_if_modified(|wanted| std::mem::replace(wanted, gate) != gate)
    }
}

/// The shim handle's end.
#[derive(Debug)]
pub struct AgentGate {
    wanted: watch::Receiver<Gate>,
    held: watch::Sender<Option<Gate>>,
    set: watch::Sender<Option<Gate>>,
    /// Whether the gate changes while the agent runs.
    is_live: bool,
    /// What the shim was told last, and how many answers it owes.
    told: Gate,
    due: u32,
    due_by: Option<Instant>,
    has_ended_it: bool,
}

/// Makes both ends, for an agent that begins with this gate.
pub fn pair(gate: Gate, is_live: bool) -> (GateHandle, AgentGate) {
    let (wants, wanted) = watch::channel(gate);
    let (holds, held) = watch::channel(Some(gate));
    let (sets, set) = watch::channel(Some(gate));
    let side = AgentGate {
        wanted,
        held: holds,
        set: sets,
        is_live,
        told: gate,
        due: 0,
        due_by: None,
        has_ended_it: false,
    };
    (
        GateHandle {
            wanted: wants,
            held,
            set,
        },
        side,
    )
}

/// Waits until another gate is wanted, if there is an agent. Dropping the future loses nothing.
pub(super) async fn wanted(gate: &mut Option<AgentGate>) -> Gate {
    if let Some(gate) = gate
        && gate.wanted.changed().await.is_ok()
    {
        return *gate.wanted.borrow_and_update();
    }
    std::future::pending().await
}

impl AgentGate {
    /// Returns what the shim is to be told; none if the gate does not change while the agent runs.
    pub fn ask(&mut self, wanted: Gate) -> Option<[u8; 1]> {
        if !self.is_live {
            return None;
        }
        if wanted == Gate::Open {
            self.held.send_replace(Some(Gate::Open));
        }
        self.told = wanted;
        self.due += 1;
        self.due_by = Some(Instant::now() + SET_WITHIN);
        Some(if wanted == Gate::Open {
            OPEN_GATE
        } else {
            CLOSE_GATE
        })
    }

    /// Takes the answers of the shim out of what was heard.
    pub fn hear(&mut self, heard: &mut Vec<u8>) {
        while let Some(end) = heard.iter().position(|&byte| byte == b'\n') {
            let Ok(GateSet { gate }) = serde_json::from_slice(&heard[..end]) else {
                return;
            };
            heard.drain(..=end);
            self.due = self.due.saturating_sub(1);
            self.due_by = if self.due > 0 { self.due_by } else { None };
            if self.due == 0 && gate == self.told {
                self.held.send_replace(Some(gate));
                self.set.send_replace(Some(gate));
            }
        }
    }

    /// Returns when the shim must have answered, if it owes an answer.
    pub(super) fn due_by(&self) -> Option<Instant> {
        self.due_by
    }

    /// The agent is ended because its gate closes.
    pub(super) fn ends_it(&mut self) {
        self.has_ended_it = true;
    }

    pub(super) fn has_ended_it(&self) -> bool {
        self.has_ended_it
    }

    /// Nothing of the agent is left.
    pub fn nothing_runs(&mut self) {
        self.held.send_replace(None);
        self.set.send_replace(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(side: &mut AgentGate, gate: Gate) {
        let mut heard = serde_json::to_vec(&GateSet { gate }).unwrap();
        heard.push(b'\n');
        side.hear(&mut heard);
        assert!(heard.is_empty());
    }

    #[test]
    fn a_gate_is_open_when_that_is_told_and_closed_when_the_last_answer_says_so() {
        let (handle, mut side) = pair(Gate::Closed, true);
        assert!(!handle.may_write() && handle.open() && handle.may_write() && !handle.open());
        assert_eq!(side.ask(Gate::Open), Some(OPEN_GATE));
        handle.want(Gate::Closed);
        assert!(handle.may_write(), "the shim may just open it");
        assert_eq!(side.ask(Gate::Closed), Some(CLOSE_GATE));
        answer(&mut side, Gate::Open);
        assert!(handle.may_write());
        answer(&mut side, Gate::Closed);
        assert!(!handle.may_write());
        let mut report = b"{\"code\":0,\"signal\":null,\"cause\":\"exited\"}\n".to_vec();
        side.hear(&mut report);
        assert!(!report.is_empty(), "that is for another reader");
    }

    #[test]
    fn an_answer_that_closes_does_not_count_while_a_later_order_opens() {
        let (handle, mut side) = pair(Gate::Open, true);
        for gate in [Gate::Closed, Gate::Open] {
            handle.want(gate);
            side.ask(gate);
        }
        answer(&mut side, Gate::Closed);
        assert!(handle.may_write());
        side.nothing_runs();
        assert!(!handle.may_write() && !handle.open());
    }

    #[tokio::test]
    async fn a_gate_is_waited_for_until_the_shim_has_opened_it() {
        let (mut handle, mut side) = pair(Gate::Closed, true);
        handle.opened().await;
        assert!(handle.open());
        side.ask(Gate::Open);
        tokio::select! {
            biased;
            () = handle.opened() => panic!("it is still closed"),
            () = std::future::ready(()) => {}
        }
        answer(&mut side, Gate::Open);
        handle.opened().await;
    }

    #[tokio::test]
    async fn a_gate_that_cannot_change_closes_with_the_end_of_the_agent() {
        let (mut handle, mut side) = pair(Gate::Open, false);
        assert_eq!(side.ask(Gate::Closed), None);
        tokio::select! {
            biased;
            () = handle.close() => panic!("it is still open"),
            () = std::future::ready(()) => {}
        }
        side.nothing_runs();
        handle.close().await;
    }
}
