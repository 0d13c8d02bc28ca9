//! `shutdown_request`: asks a teammate to leave.

use schemars::JsonSchema;
use serde::Deserialize;
use teamd_shared::control::{Command, Done, ShutdownOrder};

use super::input::not_blank;
use super::orders::unexpected;
use super::{Tools, team};
use crate::agent::session::Session;

/// Seconds that the model of a teammate has to decide whether it leaves, as with
/// `teamctl shutdown`.
const DECIDE_WITHIN: f64 = 30.0;

/// Asks a teammate to leave. Returns at once with the id of the request: an idle teammate leaves, a
/// busy one may reject. You hear by itself when its process is gone, or why it rejects. Only for a
/// teammate that has finished, or when the person says so.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShutdownRequest {
    /// Its name.
    #[serde(deserialize_with = "not_blank")]
    teammate: String,
    /// Why, for the teammate to weigh.
    #[serde(default)]
    reason: String,
}

impl<T: Tools> Session<T> {
    /// Asks a teammate to leave, and does not wait for its answer.
    pub(super) async fn request_shutdown(
        &mut self,
        input: ShutdownRequest,
    ) -> Result<String, String> {
        let name = team::teammate(&input.teammate)?;
        let order = ShutdownOrder {
            request_id: self.ids.request(),
            name: name.clone(),
            reason: input.reason,
            decide_within: DECIDE_WITHIN,
            force_after: None,
            wait: false,
        };
        match self.order(Command::Shutdown(order)).await? {
            Done::Asked { request_id } => Ok(format!(
                "{name} is asked to leave (request {request_id}); you are told when its process is gone, or why it stays"
            )),
            Done::Withdrawn => Ok(format!(
                "{name} was still being prepared: it is not started"
            )),
            other => Err(unexpected(&other)),
        }
    }
}
