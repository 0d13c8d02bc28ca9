//! One look at a team directory: everything is read once, in an order that makes what runs
//! meanwhile look like work in progress and not like a mistake. Nothing is changed, and no lock but
//! that of the daemon is tried.

use std::sync::Arc;

use teamd_client::connection::is_locked;
use teamd_client::read::processes::Processes;
use teamd_shared::config::{ConfigError, Roster};
use teamd_shared::inbox::owner_of;
use teamd_shared::journal::Team;
use teamd_shared::journal::reader::{self, JournalError};
use teamd_shared::locks::{self, Held};
use teamd_shared::member::Member;
use teamd_shared::name::Name;
use teamd_shared::process::Identity;
use teamd_shared::team_dir::{DirError, FOLDERS, FileKind, Found, TeamDir, TeamPath};

/// What was seen.
pub(super) struct Seen {
    pub(super) dir: Arc<TeamDir>,
    /// Whether a daemon holds the lock.
    pub(super) locked: bool,
    pub(super) processes: Processes,
    pub(super) roster: Result<Option<Roster>, ConfigError>,
    pub(super) journal: Result<JournalView, JournalError>,
    /// Everything at the top and in the folders.
    pub(super) files: Vec<Found>,
    /// What could not be listed.
    pub(super) unlisted: Vec<DirError>,
    pub(super) locks: Vec<Held>,
}

/// The journal.
pub(super) struct JournalView {
    /// Whether it is there.
    pub(super) exists: bool,
    pub(super) team: Team,
    /// How many bytes stand behind its last newline.
    pub(super) torn: Option<usize>,
}

impl Seen {
    /// Looks. Processes come first: a worker that is seen before the journal is read, and is not in
    /// it, began without it. The roster comes before the journal, which is never behind it.
    pub(super) fn look(dir: &Arc<TeamDir>) -> Self {
        let locked = is_locked(dir);
        let processes = Processes::read();
        let roster = Roster::load(dir);
        let journal = JournalView::look(dir);
        let mut files = Vec::new();
        let mut unlisted = Vec::new();
        for folder in [None].into_iter().chain(FOLDERS.map(Some)) {
            match dir.list(folder) {
                Ok(found) => files.extend(found),
                Err(error) => unlisted.push(error),
            }
        }
        let locks = locks::list().unwrap_or_default();
        let locked = locked || is_locked(dir);
        let dir = Arc::clone(dir);
        Self {
            dir,
            locked,
            processes,
            roster,
            journal,
            files,
            unlisted,
            locks,
        }
    }

    /// Returns the state of the team, if all of the journal can be read.
    pub(super) fn team(&self) -> Option<&Team> {
        self.journal.as_ref().ok().map(|journal| &journal.team)
    }

    /// Returns the members that have not ended, by the journal.
    pub(super) fn running(&self) -> impl Iterator<Item = &Member> {
        let members = self
            .team()
            .into_iter()
            .flat_map(|team| team.members.values());
        members
            .map(|state| &state.record)
            .filter(|member| !member.phase.is_ended())
    }

    /// Tells whether the journal was written in another directory, of which this one is a copy.
    pub(super) fn is_copied(&self) -> bool {
        let daemon = self.team().and_then(|team| team.daemon.as_ref());
        daemon.is_some_and(|daemon| daemon.is_of_another(&self.dir))
    }

    /// Tells whether a process that the journal names is alive, and one of this directory.
    pub(super) fn is_alive(&self, process: &Identity) -> bool {
        !self.is_copied() && process.is_alive()
    }

    /// Returns the files in a folder that belong to a teammate or the lead.
    pub(super) fn owned(&self, folder: &'static str) -> impl Iterator<Item = (&Found, Name)> {
        let files = self
            .files
            .iter()
            .filter(move |it| it.at.folder() == Some(folder) && it.kind == FileKind::File);
        files.filter_map(|found| Some((found, owner_of(found.at.file_name())?)))
    }

    /// Returns the processes that hold a file's lock.
    pub(super) fn holders(&self, identity: (u64, u64)) -> impl Iterator<Item = u32> {
        self.locks
            .iter()
            .filter(move |held| held.is_of(identity))
            .map(|held| held.pid)
    }

    /// Tells whether a process holds the liveness lock of a member.
    pub(super) fn is_held(&self, name: &Name) -> bool {
        let at = TeamPath::transcript(name);
        let found = self.files.iter().find(|found| found.at == at);
        found.is_some_and(|found| self.holders(found.identity).next().is_some())
    }

    /// Tells whether a daemon or a worker may be at work here: what is found once may be gone in a
    /// moment.
    pub(super) fn is_at_work(&self) -> bool {
        self.locked
            || self
                .owned("transcript")
                .any(|(found, _)| self.holders(found.identity).next().is_some())
            || self.processes.all().any(|it| {
                it.command().worker_in(self.dir.root()).is_some() || it.is_shim_in(self.dir.root())
            })
    }
}

impl JournalView {
    fn look(dir: &TeamDir) -> Result<Self, JournalError> {
        let bytes = reader::read(dir)?;
        let exists = bytes.is_some();
        let bytes = bytes.unwrap_or_default();
        Ok(Self {
            exists,
            team: reader::fold(&bytes, |_, _| {})?,
            torn: reader::torn(&bytes),
        })
    }
}
