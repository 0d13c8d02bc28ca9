//! The programs that have led the team by a server of their own, each until its process ends.
//!
//! A lead that ends or stops its server is still no person. So what is known of it outlives the
//! connection, and the daemon.
//!
//! `run/leads.json`: **who writes**: the daemon alone, by rename, when a lead is connected that it
//! did not know. **Who reads**: the next daemon. **When the daemon dies** before the file is there,
//! the lead's server connects again to the next one. **When the file is lost**, a lead without a
//! server is forgotten with this daemon.

use std::sync::Arc;

use teamd_shared::control::ConnectedLead;
use teamd_shared::fs::replace;
use teamd_shared::process::Identity;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};

use crate::io::mcp_leads;

/// The leads whose processes run, as far as they were looked at.
#[derive(Debug)]
pub(crate) struct KnownLeads {
    dir: Arc<TeamDir>,
    leads: Vec<ConnectedLead>,
}

impl KnownLeads {
    /// Reads what the daemon before has known. What cannot be read is shown in the log, and ends
    /// nothing: the servers connect again.
    pub(crate) fn open(dir: Arc<TeamDir>) -> Self {
        let leads = read(&dir).unwrap_or_else(|why| {
            tracing::warn!("the leads of the last daemon are not known: {why}");
            Vec::new()
        });
        Self { dir, leads }
    }

    /// Records a lead that is connected.
    pub(crate) fn record(&mut self, lead: &ConnectedLead) {
        if self.leads.iter().any(|it| it.process == lead.process) {
            return;
        }
        self.leads.retain(|it| it.process.is_alive());
        self.leads.push(lead.clone());
        if let Err(error) = self.write() {
            tracing::warn!(
                "the next daemon will not know the lead {}: {error}",
                lead.shown()
            );
        }
    }

    fn write(&self) -> Result<(), DirError> {
        let at = TeamPath::leads();
        let text = serde_json::to_vec(&self.leads).map_err(self.dir.cannot("write", &at))?;
        replace(&self.dir, &at, &text)
    }

    /// Tells whether one of them still runs.
    pub(crate) fn one_runs(&self) -> bool {
        self.leads.iter().any(|lead| lead.process.is_alive())
    }

    /// Returns the lead that runs a process.
    pub(crate) fn above(&self, process: &Identity) -> Option<&ConnectedLead> {
        mcp_leads::above(process, &self.leads)
    }
}

fn read(dir: &TeamDir) -> Result<Vec<ConnectedLead>, String> {
    let text = match dir.read(&TeamPath::leads()) {
        Ok(text) => text,
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    let mut leads: Vec<ConnectedLead> =
        serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    leads.retain(|lead| lead.process.is_alive());
    Ok(leads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::mcp_leads::of_peer;

    #[test]
    fn a_lead_stays_known_until_its_process_ends_and_to_the_next_daemon() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let below = Identity::of(child.id()).unwrap();
        let me = Identity::of_self().unwrap();
        let mut known = KnownLeads::open(Arc::clone(&dir));
        assert!(!known.one_runs());
        known.record(&of_peer(&below, below.clone()).unwrap());
        for known in [known, KnownLeads::open(Arc::clone(&dir))] {
            assert!(known.one_runs());
            assert!(known.above(&below).is_some());
            assert!(known.above(&me).is_none());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let mut known = KnownLeads::open(Arc::clone(&dir));
        assert!(!known.one_runs() && known.leads.is_empty());
        known.record(&of_peer(&me, me.clone()).unwrap());
        let text = dir.read(&TeamPath::leads()).unwrap();
        replace(&dir, &TeamPath::leads(), &text[..text.len() / 2]).unwrap();
        assert!(!KnownLeads::open(dir).one_runs());
    }
}
