//! What is in a team directory: everything is read once, and no lock but that of the daemon is
//! tried.

use std::io;
use std::sync::Arc;

use teamd_client::daemon_lock::is_locked;
use teamd_client::read::processes::Processes;
use teamd_shared::config::{ConfigError, Roster};
use teamd_shared::inbox::owner_of;
use teamd_shared::journal::Team;
use teamd_shared::journal::reader::{self, JournalError};
use teamd_shared::locks::{self, Held};
use teamd_shared::member::Member;
use teamd_shared::name::Name;
use teamd_shared::process::Identity;
use teamd_shared::team_dir::{DirError, FOLDERS, FileKind, Found, TeamDir};

/// What was read.
pub(super) struct Snapshot {
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
    /// The locks that are held, or why they cannot be listed.
    pub(super) locks: io::Result<Vec<Held>>,
}

/// The journal.
pub(super) struct JournalView {
    /// Whether it is there.
    pub(super) exists: bool,
    pub(super) team: Team,
    /// How many bytes follow its last newline.
    pub(super) torn: Option<usize>,
}

impl Snapshot {
    /// Reads everything.
    pub(super) fn take(dir: &Arc<TeamDir>) -> Self {
        let locked = is_locked(dir);
        let processes = Processes::read();
        let roster = Roster::load(dir);
        let journal = JournalView::read(dir);
        let mut files = Vec::new();
        let mut unlisted = Vec::new();
        for folder in [None].into_iter().chain(FOLDERS.map(Some)) {
            match dir.list(folder) {
                Ok(entries) => files.extend(entries),
                Err(error) => unlisted.push(error),
            }
        }
        let locks = locks::list();
        // A daemon that has started meanwhile has changed what was read.
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
        self.team()
            .into_iter()
            .flat_map(|team| team.members.values())
            .map(|state| &state.record)
            .filter(|member| !member.phase.is_ended())
    }

    /// Returns how many workers are alive, by the journal.
    pub(super) fn workers_alive(&self) -> usize {
        self.running()
            .filter_map(|member| member.process.as_ref())
            .filter(|process| self.is_alive(process))
            .count()
    }

    /// Tells whether a daemon or a worker may be writing: the last line of a file may be
    /// unfinished.
    pub(super) fn is_at_work(&self) -> bool {
        self.locked || self.workers_alive() > 0
    }

    /// Tells whether the journal was written in another directory, of which this one is a copy.
    pub(super) fn is_copied(&self) -> bool {
        let daemon = self.team().and_then(|team| team.daemon.as_ref());
        daemon.is_some_and(|daemon| daemon.is_of_another(&self.dir))
    }

    /// Tells whether a process that the journal names is alive, and one of this directory.
    fn is_alive(&self, process: &Identity) -> bool {
        !self.is_copied() && process.is_alive()
    }

    /// Returns the files in a folder that belong to a teammate or the lead.
    pub(super) fn owned(&self, folder: &'static str) -> impl Iterator<Item = (&Found, Name)> {
        self.files
            .iter()
            .filter(move |file| file.at.folder() == Some(folder) && file.kind == FileKind::File)
            .filter_map(|file| Some((file, owner_of(file.at.file_name())?)))
    }

    /// Returns the processes that took the lock of a file.
    pub(super) fn holders(&self, file: &Found) -> impl Iterator<Item = u32> {
        let identity = file.identity;
        self.locks
            .iter()
            .flatten()
            .filter(move |held| held.is_of(identity))
            .map(|held| held.pid)
    }
}

impl JournalView {
    fn read(dir: &TeamDir) -> Result<Self, JournalError> {
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
