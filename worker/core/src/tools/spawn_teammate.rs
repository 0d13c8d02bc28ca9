//! The input of `spawn_teammate`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::input::not_blank;

/// Starts a teammate: a separate agent process that works on `prompt` at once. It sees nothing of
/// this conversation, so the prompt must contain all that it needs. Returns when the teammate is
/// ready. You get a message when it submits a plan, writes to you or has finished: do not wait or
/// poll.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpawnTeammate {
    /// Its name: 1 to 32 of a-z, 0-9, _ and -.
    #[serde(deserialize_with = "not_blank")]
    pub name: String,
    /// Its role in a word or two, such as `coder` or `reviewer`.
    pub role: String,
    /// Its task, with all that it must know.
    #[serde(deserialize_with = "not_blank")]
    pub prompt: String,
    /// True: it must submit a plan, and can change nothing before the plan is approved.
    #[serde(default)]
    pub plan: bool,
    /// PROVIDER or PROVIDER:MODEL; only if the person asks for one.
    pub model: Option<String>,
    /// A directory in your workspace; only if it should not work in yours.
    pub workspace: Option<String>,
}
