//! `spawn_teammate`: starts a teammate that may do no more than the lead agent itself.

use teamd_shared::control::{Command, Done};
use teamd_shared::member::ApproveBy;
use teamd_worker_core::tools::SpawnTeammate;

use super::unexpected;
use crate::session::Session;
use crate::tools::Tools;

impl<T: Tools> Session<T> {
    /// Asks the daemon for a teammate, and waits until that is ready.
    pub(super) async fn spawn(&mut self, spawn: &SpawnTeammate) -> Result<String, String> {
        let order = self.spawner.order(self.outbox.dir(), spawn)?;
        let name = order.name.clone();
        let plan = order.terms.plan == Some(true);
        let approve_by = order.terms.approve_by.unwrap_or_default();
        let spawn = Command::Spawn {
            id: self.ids.request(),
            order: Box::new(order),
        };
        let (incarnation, skipped) = match self.order(spawn).await? {
            Done::Ready {
                incarnation,
                skipped,
                ..
            } => (incarnation, skipped),
            other => return Err(unexpected(&other)),
        };
        let mut report =
            format!("{name} has started (incarnation {incarnation}) and works on your prompt");
        if plan {
            let who = if approve_by == ApproveBy::Lead {
                "you answer"
            } else {
                "a person answers"
            };
            report.push_str(&format!("; it submits a plan first, which {who}"));
        }
        if skipped > 0 {
            report.push_str(&format!(
                "; messages of its earlier incarnation that it will not read: {skipped}"
            ));
        }
        Ok(report)
    }
}
