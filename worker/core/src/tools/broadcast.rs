//! `broadcast`: sends one message to every teammate that runs, as
//! [`SendMessage`](teamd_shared::tools::SendMessage) does to one.

use schemars::JsonSchema;
use serde::Deserialize;

use teamd_shared::tools::input::not_blank;

/// Sends one message to all running teammates. To write to one, use `send_message`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Broadcast {
    /// The text.
    #[serde(deserialize_with = "not_blank")]
    pub(super) content: String,
}
