//! `shutdown_request`: asks a teammate to leave.

use teamd_shared::control::Command;
use teamd_shared::tools::ShutdownRequest;

use crate::session::Session;
use crate::team;
use crate::tools::Tools;

impl<T: Tools> Session<T> {
    /// Asks a teammate to leave, and does not wait for its answer.
    pub(super) async fn request_shutdown(
        &mut self,
        input: ShutdownRequest,
    ) -> Result<String, String> {
        let name = team::teammate(&input.teammate)?;
        let order = input.order(self.ids.request(), name.clone());
        let done = self.order(Command::Shutdown(order)).await?;
        ShutdownRequest::report(&name, &done)
    }
}
