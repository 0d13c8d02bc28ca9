//! `shutdown_request`: its input, and what the call answers.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::control::{Done, ShutdownOrder};
use crate::id::RequestId;
use crate::name::Name;

use super::input::not_blank;
use super::unexpected;

/// How long the model of a teammate has to decide whether it leaves, in seconds, as with `teamctl
/// shutdown`.
const DECIDE_WITHIN: f64 = 30.0;

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

impl ShutdownRequest {
    /// Returns the order, which does not wait for the answer of the teammate.
    pub fn order(self, request_id: RequestId, name: Name) -> ShutdownOrder {
        ShutdownOrder {
            request_id,
            name,
            reason: self.reason,
            decide_within: DECIDE_WITHIN,
            force_after: None,
            wait: false,
        }
    }

    /// Describes what came of the order.
    ///
    /// # Errors
    /// A text for the model, if that answers something else.
    pub fn report(name: &Name, done: &Done) -> Result<String, String> {
        match done {
            Done::Asked { request_id } => Ok(format!(
                "{name} is asked to leave (request {request_id}); you get a message when its process has ended, or why it stays"
            )),
            Done::Withdrawn => Ok(format!(
                "{name} was still being prepared: it is not started"
            )),
            other => Err(unexpected(other)),
        }
    }
}
