//! What was checked: submitted work, merged with the integration branch.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A merge that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Merged {
    /// The commit.
    pub commit: String,
    /// Where the integration branch was: its first parent.
    pub old: String,
}
