//! Messages into the turn that runs: `_session/steering`, an extension of the protocol that the
//! adapters of Claude Code and Codex announce.
//!
//! The agent answers that a message has joined its turn, not that its model has read it: a turn that
//! is cut off may lose it. So the message is part of the turn when that ends by itself. Until then
//! the session may hold it or not, and the next process is told so.

use std::collections::HashMap;

use agent_client_protocol_schema::v1::Meta;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::AgentOutput;
use super::{Acp, Awaited, record};

/// The request.
const METHOD: &str = "_session/steering";

/// The outcome of a message that has joined the turn.
const INJECTED: &str = "injected";

/// The outcome of a message that has begun a turn, although that was not asked for.
const OWN_TURN: &str = "startedNewTurn";

/// The messages that were sent into a turn.
#[derive(Debug, Default)]
pub(super) struct Steering {
    is_supported: bool,
    /// Those that the agent has not answered, by their request.
    sent: HashMap<u64, (Uuid, String)>,
    /// Those that have joined the turn that runs.
    joined: Vec<Uuid>,
    /// How the last turn has failed, for a message that joined it and is answered behind it.
    failure: Option<String>,
}

impl Steering {
    /// Reads whether the agent announces that it takes such messages.
    pub(super) fn announced(meta: Option<&Meta>) -> Self {
        let steering = meta.and_then(|meta| meta.get("steering"));
        Self {
            is_supported: steering.is_some_and(|steering| steering["supported"] == true),
            ..Self::default()
        }
    }

    /// Forgets the messages: their turn is cut off.
    pub(super) fn forget(&mut self) {
        self.sent.clear();
        self.joined.clear();
    }
}

impl Acp {
    /// Returns whether a message can be sent into a turn now. None overtakes another.
    pub(super) fn can_steer(&self) -> bool {
        let turn = self.turn.as_ref();
        let runs = turn.is_some_and(|turn| !turn.is_interrupted);
        self.session.steering.is_supported && runs && self.waiting.is_empty()
    }

    /// Sends a message into the turn that runs.
    pub(super) fn steer(&mut self, message: Uuid, text: &str) -> String {
        self.record.push_str(&record::steered_line(message));
        let params = json!({
            "sessionId": self.session.id,
            "prompt": [{"type": "text", "text": text}],
            // Its turn may have ended: then the message is the next prompt.
            "_meta": {"steering": {"idleBehavior": "promptRequired"}},
        });
        let lines = self.ask(Awaited::Steering, METHOD, &params);
        let sent = (message, text.to_owned());
        self.session.steering.sent.insert(self.requests.last, sent);
        lines
    }

    /// Applies that the agent has taken a message into its turn, or has not.
    pub(super) fn steering_answered(
        &mut self,
        request: u64,
        result: &Value,
        error: Option<String>,
    ) -> String {
        let Some((message, text)) = self.session.steering.sent.remove(&request) else {
            return String::new();
        };
        if let Some(why) = error {
            tracing::info!("the agent takes no message into its turn: {why}");
            self.session.steering.is_supported = false;
        }
        match result["outcome"].as_str() {
            Some(INJECTED) if self.turn.is_some() => {
                self.session.steering.joined.push(message);
                String::new()
            }
            Some(INJECTED) => {
                self.taken(message);
                let failure = self.session.steering.failure.clone();
                self.output.push(AgentOutput::TurnEnded { failure });
                String::new()
            }
            Some(OWN_TURN) => {
                self.unusable("has begun a turn whose end it would not report".to_owned())
            }
            _ => {
                self.waiting.push((message, text));
                self.prompt_waiting()
            }
        }
    }

    /// Applies that a turn has ended: what has joined it was part of it, unless it was cut off.
    pub(super) fn end_steering(&mut self, is_cut_off: bool, failure: Option<&str>) {
        self.session.steering.failure = failure.map(str::to_owned);
        for message in std::mem::take(&mut self.session.steering.joined) {
            if !is_cut_off {
                self.taken(message);
            }
        }
    }
}
