//! What the agent shows of its turn, and the calls of team tools in it.

use agent_client_protocol_schema::v1::{
    SessionUpdate, ToolCall, ToolCallStatus, ToolCallUpdateFields,
};
use serde_json::Value;
use teamd_worker_core::tools::Outcome;
use uuid::Uuid;

use super::super::AgentOutput;
use super::endpoint::TeamCall;
use super::{Acp, NO_TURN, frames};

/// The outcome of a call that the agent has shown and that the team has answered.
const ANSWERED: &str = "[answered by the team]";

impl Acp {
    /// Applies an update of the session. Outside of a turn there is nothing to record.
    pub(super) fn updated(&mut self, update: SessionUpdate) {
        if self.turn.is_none() {
            return;
        }
        match update {
            SessionUpdate::AgentMessageChunk(chunk) => {
                let Some(piece) = frames::piece_of(chunk) else {
                    return;
                };
                self.begin_answer();
                if let Some(turn) = &mut self.turn {
                    turn.text.push_str(&piece);
                }
                self.output.push(AgentOutput::Piece(piece));
            }
            SessionUpdate::ToolCall(call) => {
                let id = call.tool_call_id.0.to_string();
                if self.shown.running.contains_key(&id) || self.shown.of_team.contains(&id) {
                    return;
                }
                self.shown.announced.insert(id.clone(), call);
                self.call_changes(&id, ToolCallUpdateFields::new());
            }
            SessionUpdate::ToolCallUpdate(update) => {
                self.call_changes(&update.tool_call_id.0, update.fields);
            }
            SessionUpdate::Plan(plan) => self.planned(frames::plan_input(&plan)),
            _ => {}
        }
    }

    /// Applies output of its model: it may begin another answer.
    fn begin_answer(&mut self) {
        let Some(turn) = &mut self.turn else {
            return;
        };
        turn.has_output = true;
        if std::mem::take(&mut turn.answer_is_whole) {
            self.output.push(AgentOutput::Begins);
        }
    }

    /// The next output of its model begins another answer.
    fn answer_is_whole(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.answer_is_whole = true;
        }
    }

    /// Outputs the text so far.
    pub(super) fn flush_text(&mut self) {
        if let Some(turn) = &mut self.turn
            && !turn.text.is_empty()
        {
            let text = std::mem::take(&mut turn.text);
            self.output.push(AgentOutput::Text(text));
        }
    }

    /// Applies what has changed of a call, or that it begins.
    pub(super) fn call_changes(&mut self, id: &str, fields: ToolCallUpdateFields) {
        if self.shown.of_team.contains(id) {
            return;
        }
        if let Some(call) = self.shown.running.get_mut(id) {
            call.update(fields);
            return self.end_if_over(id);
        }
        let call = self
            .shown
            .announced
            .entry(id.to_owned())
            .or_insert_with(|| ToolCall::new(id.to_owned(), ""));
        call.update(fields);
        let shows_team_call = self
            .calls
            .tools
            .iter()
            .any(|tool| frames::shows(call, tool.text.name));
        if shows_team_call {
            self.shown.announced.remove(id);
            self.shown.of_team.insert(id.to_owned());
            return;
        }
        // All that it is given is known when it runs, or is asked about.
        if call.status != ToolCallStatus::Pending {
            self.tell(id);
            self.end_if_over(id);
        }
    }

    /// Outputs a call of a tool of its own, if that is not done.
    pub(super) fn tell(&mut self, id: &str) {
        let Some(call) = self.shown.announced.remove(id) else {
            return;
        };
        self.flush_text();
        self.begin_answer();
        self.output.push(AgentOutput::Call {
            id: id.to_owned(),
            name: self.own_name(&call),
            input: frames::input_of(&call),
            is_of_team: false,
            refused: None,
        });
        self.shown.running.insert(id.to_owned(), call);
    }

    /// Names the tool of a call of its own: never as a team tool.
    pub(super) fn own_name(&self, call: &ToolCall) -> String {
        let name = frames::name_of(call);
        if self.calls.has(&name) {
            format!("own_{name}")
        } else {
            name
        }
    }

    /// Outputs the outcome of a call, if it has one.
    fn end_if_over(&mut self, id: &str) {
        let status = self.shown.running.get(id).map(|call| call.status);
        let is_error = match status {
            Some(ToolCallStatus::Completed) => false,
            Some(ToolCallStatus::Failed) => true,
            _ => return,
        };
        let Some(call) = self.shown.running.remove(id) else {
            return;
        };
        if self.shown.running.is_empty() {
            self.answer_is_whole();
        }
        self.output.push(AgentOutput::Outcome {
            id: id.to_owned(),
            content: frames::outcome_of(&call),
            is_error,
        });
    }

    /// Ends the calls without an outcome.
    pub(super) fn end_running(&mut self, why: &str) {
        for id in std::mem::take(&mut self.shown.running).into_keys() {
            self.output.push(AgentOutput::Outcome {
                id,
                content: why.to_owned(),
                is_error: false,
            });
        }
    }

    /// Applies a plan, which is recorded as a call: it is no part of what the agent says.
    fn planned(&mut self, plan: Value) {
        if plan == self.plans.last {
            return;
        }
        self.plans.last = plan.clone();
        self.plans.count += 1;
        let id = format!("plan_{}_{}", self.plans.count, Uuid::new_v4().simple());
        self.flush_text();
        self.begin_answer();
        self.output.push(AgentOutput::Call {
            id: id.clone(),
            name: "plan".to_owned(),
            input: plan,
            is_of_team: false,
            refused: None,
        });
        self.output.push(AgentOutput::Outcome {
            id,
            content: "shown".to_owned(),
            is_error: false,
        });
    }

    /// Applies a call of a team tool.
    pub(super) fn team_called(&mut self, call: TeamCall) {
        let TeamCall { name, input, reply } = call;
        let is_known = self.calls.has(&name);
        if self.turn.is_none() || !is_known {
            let why = if is_known {
                NO_TURN.to_owned()
            } else {
                format!("there is no team tool {name}")
            };
            // Without a receiver the agent has given the call up.
            drop(reply.send(Outcome::error(why)));
            return;
        }
        self.flush_text();
        // The session runs one call after the other, and the agent may wait for this one.
        let mut running = self.shown.running.iter();
        let shown = running.find(|(_, shown)| frames::is_given(shown, &input));
        if let Some(id) = shown.map(|(id, _)| id.clone()) {
            self.shown.running.remove(&id);
            self.output.push(AgentOutput::Outcome {
                id,
                content: ANSWERED.to_owned(),
                is_error: false,
            });
        }
        self.end_running("[runs on in the background]");
        self.begin_answer();
        self.answer_is_whole();
        let id = format!("call_{}", Uuid::new_v4().simple());
        let refused = self.calls.called(&id, &name).flatten();
        self.output.push(AgentOutput::Call {
            id: id.clone(),
            name,
            input,
            is_of_team: true,
            refused,
        });
        match self.calls.asked(&id, ()) {
            Some(outcome) => drop(reply.send(outcome)),
            None => drop(self.replies.insert(id, reply)),
        }
    }
}
