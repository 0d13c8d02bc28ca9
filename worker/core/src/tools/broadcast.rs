//! `broadcast`: sends one message to every teammate that runs. [`super::send_message`] does it.

use schemars::JsonSchema;
use serde::Deserialize;

use super::input::not_blank;

/// Sends one message to every teammate that runs. Use `send_message` where one is meant.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Broadcast {
    /// The text.
    #[serde(deserialize_with = "not_blank")]
    pub(super) content: String,
}
