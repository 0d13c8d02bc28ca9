//! The input of `shutdown_request`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::input::not_blank;

/// Asks a teammate to leave. Returns at once with the id of the request: an idle teammate leaves, a
/// busy one may reject. You hear by itself when its process is gone, or why it rejects. Only for a
/// teammate that has finished, or when the person says so.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShutdownRequest {
    /// Its name.
    #[serde(deserialize_with = "not_blank")]
    pub teammate: String,
    /// Why, for the teammate to weigh.
    #[serde(default)]
    pub reason: String,
}
