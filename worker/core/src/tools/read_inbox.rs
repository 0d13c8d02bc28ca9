//! The input of `read_inbox`.

use schemars::JsonSchema;
use serde::Deserialize;

/// Shows the messages that have arrived since the last ones you were given. Messages reach you with
/// the results of your calls anyway: it is needed only in the middle of long work.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadInbox {}
