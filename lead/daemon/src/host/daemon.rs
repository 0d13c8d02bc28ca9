//! What the host daemon owns. What it does with that is beside this file, by theme.

use std::sync::Arc;
use std::time::Duration;

use teamd_shared::fs::AppendLogError;
use teamd_shared::link::{FromHost, TeamNow};
use teamd_shared::team_dir::TeamDir;
use uuid::Uuid;

use super::jobs::HostJobs;
use super::links::HomeLinks;
use super::mail::{Mail, Submission};
use super::record::HostLog;
use super::roster::HostRoster;
use super::state::HostRecord;
use super::workers::Workers;

/// Everything that the host daemon owns.
pub(super) struct HostDaemon {
    pub(super) dir: Arc<TeamDir>,
    /// The home that it serves.
    pub(super) home: Uuid,
    pub(super) weakness: Option<String>,
    /// How long a process may take to end that home does not have any more.
    pub(super) grace: Duration,
    pub(super) log: HostLog,
    pub(super) workers: Workers,
    pub(super) mail: Mail,
    pub(super) links: HomeLinks,
    pub(super) jobs: HostJobs,
    /// What was submitted before home has said how far it has taken the outboxes.
    pub(super) submitted_early: Vec<Submission>,
    /// The team, as home has said it last.
    pub(super) team: TeamNow,
    pub(super) roster: HostRoster,
    /// Whether inboxes were made whose folder is not synced yet.
    pub(super) unsynced_inboxes: bool,
    pub(super) team_name: String,
    /// Whether it ends, or why it must.
    pub(super) over: Option<Result<(), String>>,
}

impl HostDaemon {
    /// Records something. Where that does not work it ends: nothing may follow from what is not
    /// recorded, and the next host daemon finds it out again. Returns whether it is recorded.
    pub(super) fn record(&mut self, record: HostRecord) -> bool {
        let appended: Result<(), AppendLogError> = self.log.append(record);
        if let Err(error) = &appended {
            self.over = Some(Err(format!("cannot write host.jsonl: {error}")));
        }
        appended.is_ok()
    }

    /// Tells home something that a person should know.
    pub(super) fn warn(&self, text: String) {
        tracing::warn!("{text}");
        self.links.say(&FromHost::Warning { text });
    }
}
