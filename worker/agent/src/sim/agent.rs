//! The agent of the simulated worker: what it gets, what it does, and how its gate is set, or
//! ends it.

use std::collections::VecDeque;

use serde_json::{Value, json};
use teamd_shared::member::{Agent as Program, Gate, Protocol};
use teamd_shared::terms::Login;
use teamd_shared::transcript::Usage;

use super::agent_history::SessionAgent;
use super::agent_process::SimulatedAgent;
use super::machine::Machine;
use super::{Mutant, Rng, World, alice};
use teamd_worker_core::tools::Caller;
use teamd_worker_model::{AgentInput, AgentMind, AgentOutput, AgentProcess, Known, Launch, Model};
use teamd_worker_sandbox::run::GateHandle;

/// Makes the mind.
pub(super) fn mind() -> Model {
    let program = Program {
        name: "stub".to_owned(),
        command: Vec::new(),
        protocol: Protocol::Claude,
        login: Login::Key,
    };
    let tools = Caller::of(&alice()).team_tools();
    Model::Agent(Box::new(AgentMind::new(program, alice(), tools, "", None)))
}

impl Machine {
    /// Starts a process with the session.
    pub(super) fn starts_agent(
        &mut self,
        launch: Launch,
        gate: Gate,
    ) -> (AgentProcess, GateHandle) {
        let is_alone = self.session.agent.is_none();
        self.promise(is_alone, || "two agents hold one session".to_owned());
        let ids = launch.messages.into_iter().map(|message| message.id);
        let messages = ids.filter(|id| self.session.holds.contains(id)).collect();
        let session = Known {
            messages,
            ..Known::default()
        };
        let (process, handle, ends) = SimulatedAgent::start(session, gate, self.session.is_live);
        self.session.agent = Some(SessionAgent {
            ends,
            gate,
            writes: false,
            dies: None,
            orders: VecDeque::new(),
            unread: VecDeque::new(),
            in_turn: false,
            call: None,
        });
        (process, handle)
    }

    /// The worker is gone, and its agent with it.
    pub(super) fn loses_agent(&mut self) {
        self.session.agent = None;
    }

    /// Tells whether an agent could write now.
    pub(super) fn agent_may_write(&self) -> bool {
        self.session
            .agent
            .as_ref()
            .is_some_and(|agent| agent.gate == Gate::Open)
    }

    /// Returns a call of a team tool whose outcome the agent waits for.
    pub(super) fn agent_waits_for(&self) -> Option<&str> {
        let agent = self
            .session
            .agent
            .as_ref()
            .filter(|agent| agent.dies.is_none())?;
        agent
            .call
            .as_ref()
            .filter(|(_, is_own)| !is_own)
            .map(|(call, _)| call.as_str())
    }

    /// The agent's input is on its way to it. What that says of its gate is true:
    /// `closes` tells whether the gate is closed since that message.
    pub(super) fn reads_input(&mut self, closes: impl Fn(&str) -> bool) {
        let Some(agent) = &mut self.session.agent else {
            return;
        };
        let mut lie = None;
        let open = agent.gate == Gate::Open && agent.dies.is_none();
        while let Some(input) = agent.ends.next_input() {
            match input {
                AgentInput::Message { id, text, .. } => {
                    if open && closes(&text) {
                        lie = Some(text.clone());
                    }
                    agent.unread.push_back((id, text));
                }
                AgentInput::Outcome { call: id, .. } => {
                    agent.call.take_if(|(call, _)| *call == id);
                }
                // It asks nothing.
                AgentInput::Permission { .. } => {}
                AgentInput::Interrupt => {
                    agent.in_turn = false;
                    agent.call = None;
                    agent.ends.output(AgentOutput::TurnEnded {
                        failure: Some("interrupted".to_owned()),
                    });
                }
            }
        }
        self.promise(lie.is_none(), || {
            format!(
                "an agent with an open gate is told that it is closed: {}",
                lie.unwrap_or_default()
            )
        });
    }

    /// One thing happens to the agent.
    pub(super) fn agent_acts(&mut self, rng: &mut Rng) -> Option<String> {
        let calm = self.calm;
        let mutant = self.mutant;
        let agent = self.session.agent.as_mut()?;
        if !agent.ends.is_wanted() {
            agent.dies = Some("its worker has ended it");
        }
        if agent.dies.is_some() {
            return (calm || rng.one_in(2)).then(|| self.agent_ends());
        }
        match agent.ends.ordered() {
            Some(Ok(gate)) => agent.orders.push_back(gate),
            // A gate that cannot change while it runs.
            Some(Err(Gate::Closed)) => agent.dies = Some("its gate closes"),
            Some(Err(Gate::Open)) | None => {}
        }
        if agent.dies.is_some() && mutant == Some(Mutant::FixedGateStays) {
            agent.ends.is_said_to_have_ended();
        }
        if (calm || rng.one_in(2))
            && let Some(gate) = agent.orders.pop_front()
        {
            return Some(agent.sets_gate(gate, mutant));
        }
        if !calm && rng.one_in(40) {
            agent.dies = Some("it was killed");
        }
        agent.writes = !calm && agent.gate == Gate::Open && rng.one_in(3);
        self.agent_continues(rng)
    }

    fn agent_ends(&mut self) -> String {
        let Some(agent) = self.session.agent.take() else {
            return String::new();
        };
        let how = agent.dies.unwrap_or_default();
        agent.ends.has_ended(how);
        format!("the agent ends: {how}")
    }

    /// The agent reads a message, or continues its turn.
    fn agent_continues(&mut self, rng: &mut Rng) -> Option<String> {
        let calm = self.calm;
        let agent = self.session.agent.as_mut()?;
        if (calm || rng.one_in(2))
            && let Some((id, text)) = agent.unread.pop_front()
        {
            agent.ends.output(AgentOutput::Taken(id));
            agent.in_turn = true;
            let is_new = self.session.holds.insert(id);
            self.session.texts.push(text.clone());
            self.promise(is_new, || format!("the agent is told twice {text:?}"));
            return Some(format!("the agent reads {text:?}"));
        }
        if !agent.in_turn {
            return None;
        }
        match agent.call.clone() {
            Some((id, true)) if calm || rng.one_in(2) => {
                agent.call = None;
                agent.ends.output(AgentOutput::Outcome {
                    id: id.clone(),
                    content: "ran".to_owned(),
                    is_error: false,
                });
                Some(format!("the agent has run {id}"))
            }
            Some(_) => None,
            None if !calm && rng.one_in(3) => Some(self.agent_calls(rng)),
            None if !calm && rng.one_in(2) => None,
            None => {
                agent.in_turn = false;
                agent.ends.output(AgentOutput::Text("said".to_owned()));
                let failure = (!calm && rng.one_in(20)).then(|| "it has no answer".to_owned());
                agent.ends.output(AgentOutput::TurnEnded { failure });
                Some("the agent ends its turn".to_owned())
            }
        }
    }

    fn agent_calls(&mut self, rng: &mut Rng) -> String {
        self.session.calls += 1;
        let id = format!("call-{}-0", 1000 + self.session.calls);
        let (name, input): (&str, Value) = match rng.below(6) {
            0 => ("plan_approval", json!({ "plan": id })),
            1 => (
                "send_message",
                json!({ "to": rng.pick(&["lead", "bob"]), "content": id }),
            ),
            2 => ("read_inbox", json!({})),
            _ => ("Bash", json!({ "command": id })),
        };
        let is_own = name == "Bash";
        let Some(agent) = &mut self.session.agent else {
            return String::new();
        };
        // The verdict on a plan follows as a message.
        agent.call = (name != "plan_approval").then(|| (id.clone(), is_own));
        let story = format!("the agent calls {name} ({id})");
        agent.ends.output(AgentOutput::Begins);
        agent.ends.output(AgentOutput::Cost(Usage::default()));
        agent.ends.output(AgentOutput::Call {
            id,
            name: name.to_owned(),
            input,
            is_of_team: !is_own,
            refused: None,
        });
        story
    }
}

impl SessionAgent {
    /// Its shim sets the gate; where it holds a file open, it has to end.
    fn sets_gate(&mut self, gate: Gate, mutant: Option<Mutant>) -> String {
        let is_busy = gate == Gate::Closed && self.writes;
        if is_busy && mutant != Some(Mutant::BusyCountsAsClosed) {
            self.dies = Some("it holds a file open, and its gate closes");
            return "the gate of the agent cannot be closed".to_owned();
        }
        if !is_busy {
            self.gate = gate;
        }
        self.ends.has_set(gate);
        format!("the gate of the agent is {gate:?}")
    }
}

impl World<'_> {
    /// Something happens to the agent, if there is one.
    pub(super) fn agent_acts(&mut self) {
        let mut rng = self.rng.clone();
        self.rng.next();
        let what = self.machine.borrow_mut().agent_acts(&mut rng);
        if let Some(what) = what {
            self.note(|| what);
        }
    }

    /// The agent's input arrives.
    pub(super) fn agent_reads(&mut self) {
        let gate = self.daemon.gate;
        let closed_at = self.daemon.closed_at;
        self.machine.borrow_mut().reads_input(|text| {
            gate == Gate::Closed
                && text.contains("<plan_request")
                && text.contains(&format!("({closed_at})"))
        });
    }
}
