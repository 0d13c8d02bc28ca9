//! `spawn_teammate`: starts teammates that may do no more than the lead agent itself.

use teamd_shared::spawn::SpawnCall;
use teamd_shared::tools::SpawnTeammate;

use crate::session::Session;
use crate::tools::Tools;

impl<T: Tools> Session<T> {
    /// Asks the daemon for teammates, one after the other, and waits until each is ready.
    pub(super) async fn spawn(&mut self, spawn: &SpawnTeammate) -> Result<String, String> {
        let mut call = SpawnCall::new(spawn)?;
        let left = self.dispatcher.state.budget_left();
        left.can_grant(spawn.grant())?;
        loop {
            let id = self.ids.request();
            let Some(command) = call.next(&self.spawner, self.outbox.dir(), id) else {
                return call.finish();
            };
            call.record(self.order(command).await);
        }
    }
}
