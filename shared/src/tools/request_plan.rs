//! `request_plan`: its input, and what the call answers.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::control::Done;
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
    pub fn report(name: &Name, done: &Done) -> String {
        if let Done::Waits { host, gate, .. } = done {
            let host = &host.name;
            let gate = gate.as_str();
            return format!(
                "waiting for {host}, which cannot be reached now: the gate of {name} is still {gate}; it is asked for \
                 a plan, with its gate closed, when {host} is reached"
            );
        }
        format!(
            "the gate of {name} is closed, and it is asked for a plan; you get a message when it submits the plan"
        )
    }
}
