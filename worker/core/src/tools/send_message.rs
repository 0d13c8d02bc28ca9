//! The inputs of `send_message`, of a teammate and of the lead agent.

use schemars::JsonSchema;
use serde::Deserialize;

/// Sends a message to a teammate by its name, to the lead (`lead`) or to all others (`all`). To
/// ask, to answer, to hand something over. The lead hears of your final answer by itself when you
/// finish: do not send it too. Answers come to you by themselves: do not wait or poll.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendMessage {
    /// The name of a teammate, `lead`, or `all`.
    pub to: String,
    /// The text.
    pub content: String,
}

/// Sends a message to one teammate; it reaches it with its next tool results, or wakes it. To give
/// a teammate work, correct it, or answer its question. `user` leaves a note in the inbox of the
/// person, who reads what you answer anyway. You hear of a teammate's answer by itself: do not wait
/// or poll.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LeadMessage {
    /// The name of a teammate, or `user`.
    pub(super) to: String,
    /// The text.
    pub(super) content: String,
}
