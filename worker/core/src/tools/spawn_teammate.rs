//! The input of `spawn_teammate`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::input::not_blank;

/// Starts a teammate: an agent of its own, in a process of its own, that works on `prompt` at once.
/// It sees nothing of this conversation: the prompt must hold all that it needs. With `plan` it can
/// change nothing before a plan of it is approved. Returns when it is ready; you hear by itself
/// when it submits a plan, writes, or has finished: do not wait or poll.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpawnTeammate {
    /// Its name: 1 to 32 of a-z, 0-9, _ and -.
    #[serde(deserialize_with = "not_blank")]
    pub name: String,
    /// What it is for, in a word or two, such as `coder` or `reviewer`.
    pub role: String,
    /// What it shall do, with all that it must know to do it.
    #[serde(deserialize_with = "not_blank")]
    pub prompt: String,
    /// True: it must submit a plan, and can change nothing before the plan is approved.
    #[serde(default)]
    pub plan: bool,
    /// Only if the person asks for one: PROVIDER or PROVIDER:MODEL.
    pub model: Option<String>,
    /// Only if it shall not be yours: a directory in your workspace.
    pub workspace: Option<String>,
}
