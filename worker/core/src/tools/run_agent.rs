//! The input of `run`, which no model is told of: the mind of an agent calls it.

use schemars::JsonSchema;
use serde::Deserialize;

/// Runs the agent.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunAgent {
    /// What it reads from standard input.
    pub input: String,
}
