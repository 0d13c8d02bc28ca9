//! The input of `request_plan`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::input::not_blank;

/// Closes the gate of a teammate, so that it can change nothing more, and asks it for a plan about
/// `content`. You hear by itself when the plan is there.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestPlan {
    /// Its name.
    #[serde(deserialize_with = "not_blank")]
    pub teammate: String,
    /// What the plan shall be about.
    #[serde(deserialize_with = "not_blank")]
    pub content: String,
}
