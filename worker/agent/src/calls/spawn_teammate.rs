//! `spawn_teammate`: starts teammates that may do no more than the lead agent itself.

use teamd_shared::control::Command;
use teamd_shared::name::Name;
use teamd_shared::tools::{SpawnReport, SpawnTeammate};

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
        let report = SpawnReport::of(&order);
        let spawn = Command::Spawn {
            id: self.ids.request(),
            order: Box::new(order),
        };
        report.text(self.order(spawn).await?)
    }
}
