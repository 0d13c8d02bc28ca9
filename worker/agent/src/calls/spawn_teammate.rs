//! `spawn_teammate`: starts teammates that may do no more than the lead agent itself.

use teamd_shared::control::{Command, Done};
use teamd_shared::member::ApproveBy;
use teamd_shared::name::Name;
use teamd_worker_core::tools::SpawnTeammate;

use super::unexpected;
use crate::session::Session;
use crate::tools::Tools;

impl<T: Tools> Session<T> {
    /// Asks the daemon for teammates, one after the other, and waits until each is ready. It is an
    /// error only if none has started: those that have are there, and cost something.
    pub(super) async fn spawn(&mut self, spawn: &SpawnTeammate) -> Result<String, String> {
        let names = spawn.names()?;
        let left = self.dispatcher.state.budget_left();
        left.can_grant(spawn.grant())?;
        let mut reports = Vec::new();
        for name in &names {
            match self.spawn_one(name, spawn).await {
                Ok(report) => reports.push(report),
                Err(why) if reports.is_empty() => return Err(why),
                Err(why) => {
                    reports.push(format!("{name} has not started, nor any after it: {why}"));
                    break;
                }
            }
        }
        Ok(reports.join("\n"))
    }

    async fn spawn_one(&mut self, name: &Name, spawn: &SpawnTeammate) -> Result<String, String> {
        let order = self.spawner.order(self.outbox.dir(), name, spawn)?;
        let plan = order.terms.plan == Some(true);
        let approve_by = order.terms.approve_by.unwrap_or_default();
        let spawn = Command::Spawn {
            id: self.ids.request(),
            order: Box::new(order),
        };
        let (incarnation, skipped, notes) = match self.order(spawn).await? {
            Done::Ready {
                incarnation,
                skipped,
                notes,
                ..
            } => (incarnation, skipped, notes),
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
        for note in notes {
            report.push_str(&format!("; note: {note}"));
        }
        Ok(report)
    }
}
