//! The recorded calls without a result, and the outcomes that are not recorded yet.

use std::collections::{HashMap, HashSet};

use teamd_shared::transcript::Event;

use super::super::TeamTool;
use teamd_worker_core::tools::Outcome;

/// The calls.
#[derive(Debug, Default)]
pub(super) struct AgentCalls {
    /// Those whose outcome comes from the agent, or was reported by it.
    running: Vec<String>,
    /// Those of team tools that have got an immediate reply: the outcome follows as a message.
    replied: HashSet<String>,
    /// Those of other team tools.
    of_team: HashSet<String>,
    /// Outcomes of the agent's own calls that are not recorded yet.
    outcomes: HashMap<String, Outcome>,
    /// Why other calls were refused when the agent made them.
    refused: HashMap<String, &'static str>,
}

/// Where the result of a call goes.
pub(super) enum Receiver {
    /// To the agent, which waits for it.
    Caller,
    /// To the agent as a message: the call has had its reply.
    Inbox,
    /// Nowhere: it came from the agent.
    Nobody,
}

impl AgentCalls {
    pub(super) fn is_refused(&self, id: &str) -> bool {
        self.refused.contains_key(id)
    }

    pub(super) fn refuse(&mut self, id: &str, why: &'static str) {
        self.refused.insert(id.to_owned(), why);
    }

    /// Returns whether the outcome of a call is still to follow its reply.
    pub(super) fn has_replied(&self) -> bool {
        !self.replied.is_empty()
    }

    /// Applies that a call is recorded; `tool`: the team tool, unless it is the agent's own.
    pub(super) fn record(&mut self, id: &str, tool: Option<&TeamTool>) {
        let is_refused = self.is_refused(id);
        if is_refused || tool.is_none() {
            self.running.push(id.to_owned());
        }
        let Some(tool) = tool else { return };
        if tool.immediate_reply.is_some() {
            self.replied.insert(id.to_owned());
        } else if !is_refused {
            self.of_team.insert(id.to_owned());
        }
    }

    /// Applies that the result of a call is recorded.
    pub(super) fn end(&mut self, id: &str) -> Receiver {
        self.running.retain(|running| running != id);
        if self.replied.remove(id) {
            Receiver::Inbox
        } else if self.of_team.remove(id) {
            Receiver::Caller
        } else {
            Receiver::Nobody
        }
    }

    /// Returns the first call whose outcome comes from the agent.
    pub(super) fn first_running(&self) -> Option<&str> {
        self.running.first().map(String::as_str)
    }

    pub(super) fn add_outcome(&mut self, id: String, outcome: Outcome) {
        self.outcomes.insert(id, outcome);
    }

    /// Gives a call this error as its outcome, unless it has one.
    pub(super) fn fail(&mut self, id: &str, why: &'static str) {
        self.outcomes
            .entry(id.to_owned())
            .or_insert_with(|| Outcome::error(why));
    }

    /// Gives every call without an outcome that the agent runs this error.
    pub(super) fn end_running(&mut self, why: &'static str) {
        for id in self.running.clone() {
            self.fail(&id, why);
        }
    }

    /// Takes out the outcome of a call, if that is known.
    pub(super) fn take_outcome(&mut self, id: &str) -> Option<Outcome> {
        match self.refused.remove(id) {
            Some(why) => Some(Outcome::error(why)),
            None => self.outcomes.remove(id),
        }
    }

    /// Takes out the next result that is known of a call that the agent runs; not of `except`.
    /// `otherwise`: the error of a call without an outcome, if there can be none any longer.
    pub(super) fn next_result(
        &mut self,
        except: Option<&str>,
        otherwise: Option<&'static str>,
    ) -> Option<Event> {
        for id in self.running.clone() {
            if Some(id.as_str()) == except {
                continue;
            }
            let outcome = self.take_outcome(&id);
            if let Some(outcome) = outcome.or_else(|| otherwise.map(Outcome::error)) {
                return Some(outcome.into_result(id));
            }
        }
        None
    }

    /// Applies that the work has ended.
    pub(super) fn end_work(&mut self) {
        self.running.clear();
        self.forget_turn();
    }

    /// Forgets what is not recorded.
    pub(super) fn forget_turn(&mut self) {
        self.outcomes.clear();
        self.refused.clear();
    }
}
