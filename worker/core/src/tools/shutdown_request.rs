//! The input of `shutdown_request`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::input::not_blank;

/// Asks a teammate to leave. Use it only if the teammate has finished or the person says so.
/// Returns at once with the id of the request. An idle teammate leaves; a busy one may reject. You
/// get a message when its process has ended, or when it rejects, with the reason.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShutdownRequest {
    /// The name of the teammate.
    #[serde(deserialize_with = "not_blank")]
    pub teammate: String,
    /// Why, so that the teammate can decide.
    #[serde(default)]
    pub reason: String,
}
