//! The calls of team tools: the model of an agent makes one, the agent asks for its outcome, and the
//! session gives that. The last two come in either order.

use std::collections::{HashMap, HashSet};

use super::TeamTool;
use teamd_worker_core::tools::Outcome;

/// The outcome if no model has made the call, or if the agent has already asked for its outcome.
const UNKNOWN: &str = "the team does not know this call: only your main conversation can call team tools, and each call counts once";

/// The calls without an outcome; `A`: where the agent wants it.
#[derive(Debug)]
pub(super) struct TeamCalls<A> {
    pub(super) tools: Vec<TeamTool>,
    /// Calls whose outcome the agent did not ask for yet, each with its immediate reply.
    called: HashMap<String, Option<Outcome>>,
    /// Calls that were accepted with an immediate reply, and have no outcome.
    open: HashSet<String>,
    /// Whether one of them was made in this turn.
    is_waiting: bool,
    asked: HashMap<String, A>,
    /// Outcomes that the agent did not ask for yet.
    early: HashMap<String, Outcome>,
}

impl<A> TeamCalls<A> {
    pub(super) fn new(tools: Vec<TeamTool>) -> Self {
        Self {
            tools,
            called: HashMap::new(),
            open: HashSet::new(),
            is_waiting: false,
            asked: HashMap::new(),
            early: HashMap::new(),
        }
    }

    /// Returns whether a tool is a team tool.
    pub(super) fn has(&self, tool: &str) -> bool {
        self.tools
            .iter()
            .any(|team_tool| team_tool.text.name == tool)
    }

    /// Applies a call by the model. Returns none if the tool is not a team tool, else why the call
    /// is refused, if it is.
    pub(super) fn called(&mut self, id: &str, tool: &str) -> Option<Option<&'static str>> {
        let tool = self
            .tools
            .iter()
            .find(|team_tool| team_tool.text.name == tool)?;
        let Some(reply) = tool.immediate_reply else {
            self.called.insert(id.to_owned(), None);
            return Some(None);
        };
        let refusal = if self.is_waiting { reply.refusal } else { None };
        let outcome = match refusal {
            Some(why) => Outcome::error(why),
            None => Outcome::ok(reply.text),
        };
        self.called.insert(id.to_owned(), Some(outcome));
        if refusal.is_none() {
            self.is_waiting = true;
            self.open.insert(id.to_owned());
        }
        Some(refusal)
    }

    /// Applies that the agent asks for the outcome of a call. Returns the outcome, or none if it
    /// comes later.
    pub(super) fn asked(&mut self, id: &str, by: A) -> Option<Outcome> {
        let early = self.early.remove(id);
        let Some(reply) = self.called.remove(id) else {
            return Some(Outcome::error(UNKNOWN));
        };
        let outcome = reply.or(early);
        if outcome.is_none() {
            self.asked.insert(id.to_owned(), by);
        }
        outcome
    }

    /// Returns whether the agent is to end its turn, because a call of it has its outcome later.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Applies that the turn has ended.
    pub(super) fn turn_ended(&mut self) {
        self.is_waiting = false;
    }

    /// Applies that a call has its outcome. Returns where the agent wants it, if it has asked.
    pub(super) fn answered(&mut self, id: &str, outcome: &Outcome) -> Option<A> {
        let by = self.asked.remove(id);
        if self.open.remove(id) {
            self.is_waiting = false;
        } else if by.is_none() {
            self.early.insert(id.to_owned(), outcome.clone());
        }
        by
    }
}
