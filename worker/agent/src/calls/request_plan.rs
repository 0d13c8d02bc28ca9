//! `request_plan`: closes the gate of a teammate and asks it for a plan.

use teamd_shared::control::Command;
use teamd_shared::tools::RequestPlan;

use crate::session::Session;
use crate::team;
use crate::tools::Tools;

impl<T: Tools> Session<T> {
    /// Asks a teammate for a plan, and does not wait for it.
    pub(super) async fn request_plan(&mut self, input: RequestPlan) -> Result<String, String> {
        let name = team::teammate(&input.teammate)?;
        let id = self.ids.request();
        let content = input.content;
        let ask = Command::RequestPlan {
            id,
            name: name.clone(),
            content,
            wait: false,
        };
        let done = self.order(ask).await?;
        Ok(RequestPlan::report(&name, &done))
    }
}
