//! `request_plan`: its input, and what the call answers.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::name::Name;

use super::input::not_blank;

/// Closes the gate of a teammate, so that it can no longer change anything, and asks it for a plan
/// about `content`. You get a message when it submits the plan.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestPlan {
    /// The name of the teammate.
    #[serde(deserialize_with = "not_blank")]
    pub teammate: String,
    /// What the plan should cover.
    #[serde(deserialize_with = "not_blank")]
    pub content: String,
}

impl RequestPlan {
    /// Describes what is recorded.
    pub fn report(name: &Name) -> String {
        format!(
            "the gate of {name} is closed, and it is asked for a plan; you get a message when it submits the plan"
        )
    }
}
