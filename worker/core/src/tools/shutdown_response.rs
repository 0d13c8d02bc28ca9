//! The input of `shutdown_response` of a teammate, and of a lead agent that is itself asked to leave.

use schemars::JsonSchema;
use serde::Deserialize;
use teamd_shared::id::RequestId;

/// Answers a shutdown request. Set `approve` to true if your work is done or can be left as it is:
/// you then leave. Set it to false, with a `reason`, if you must finish something first. Text alone
/// is no answer to the request.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShutdownResponse {
    /// The id of the shutdown request.
    pub request_id: RequestId,
    /// True to leave, false to stay.
    pub approve: bool,
    /// Why.
    #[serde(default)]
    pub reason: String,
}
