//! The input of `read_inbox`.

use schemars::JsonSchema;
use serde::Deserialize;

/// Returns the messages that have arrived since the last ones you got. You rarely need it: messages
/// also come with the results of your other calls.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadInbox {}
