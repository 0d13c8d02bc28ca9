//! The inputs of `send_message`, of a teammate and of the lead agent.

use schemars::JsonSchema;
use serde::Deserialize;

/// Sends a message to a teammate by its name, to the lead (`lead`), or to all other members
/// (`all`): to ask, to answer or to hand something over. Do not send your final answer: the lead
/// gets a notice of it. Replies arrive by themselves: do not wait or poll.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendMessage {
    /// The name of a teammate, `lead`, or `all`.
    pub to: String,
    /// The text.
    pub content: String,
}

/// Sends a message to one teammate: to give it work, correct it or answer its question. It gets the
/// message with its next tool result, or wakes up if it is idle. `user` leaves a note in the
/// person's inbox; the person reads your answers anyway. Replies arrive by themselves: do not wait
/// or poll.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeadMessage {
    /// The name of a teammate, or `user`.
    pub to: String,
    /// The text.
    pub content: String,
}
