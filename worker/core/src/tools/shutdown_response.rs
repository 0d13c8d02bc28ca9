//! The input of `shutdown_response` of a teammate, and of a lead agent that is itself asked to leave.

use schemars::JsonSchema;
use serde::Deserialize;
use teamd_shared::id::RequestId;

/// Answers a shutdown request that was shown to you, under its id: `approve` true when your work is
/// done or can be left as it is (you then leave), false with a `reason` when you must finish
/// something first. Nothing else answers such a request, text does not.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShutdownResponse {
    /// The id of the shutdown request.
    pub request_id: RequestId,
    /// True to leave, false to stay.
    pub approve: bool,
    /// Why, or why not.
    #[serde(default)]
    pub reason: String,
}
