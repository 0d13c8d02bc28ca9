//! `shutdown_request`: asks a teammate to leave.

use teamd_shared::control::{Command, Done, ShutdownOrder};
use teamd_worker_core::tools::ShutdownRequest;

use super::unexpected;
use crate::session::Session;
use crate::team;
use crate::tools::Tools;

/// How long the model of a teammate has to decide whether it leaves, in seconds, as with `teamctl
/// shutdown`.
const DECIDE_WITHIN: f64 = 30.0;

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
                "{name} is asked to leave (request {request_id}); you get a message when its process has ended, or why it stays"
            )),
            Done::Withdrawn => Ok(format!(
                "{name} was still being prepared: it is not started"
            )),
            other => Err(unexpected(&other)),
        }
    }
}
