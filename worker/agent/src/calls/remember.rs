//! The tool `remember`: the daemon records the proposal, and a person answers it.

use teamd_shared::control::{Command, Done};
use teamd_shared::tools::{Remember, unexpected};

use crate::session::Session;
use crate::tools::Tools;

impl<T: Tools> Session<T> {
    /// Proposes what the team is to remember.
    pub(super) async fn remember(&mut self, input: Remember) -> Result<String, String> {
        let order = Command::Remember {
            id: self.ids.request(),
            text: input.text,
        };
        match self.order(order).await? {
            Done::Asked { request_id } => Ok(format!(
                "proposed as {request_id}: a person decides. Do not wait for the answer."
            )),
            other => Err(unexpected(&other)),
        }
    }
}
