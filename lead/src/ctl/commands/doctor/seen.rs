//! One look at a team directory: everything is read once, in an order that makes what runs meanwhile look like work in
//! progress and not like a mistake. Nothing is changed, and no lock but that of the daemon is tried.

use std::path::PathBuf;
use std::sync::Arc;

use teamd_shared::config::{ConfigError, Roster};
use teamd_shared::journal::{FoldError, Team, read_lines};
use teamd_shared::locks::{self, Held};
use teamd_shared::process::Identity;
use teamd_shared::team_dir::{DirError, FOLDERS, Found, TeamDir, TeamPath};

use super::processes::{self, Process};
use crate::client::is_locked;

/// What was seen.
pub(super) struct Seen {
    pub(super) dir: Arc<TeamDir>,
    /// Whether a daemon holds the lock.
    pub(super) locked: bool,
    pub(super) processes: Vec<Process>,
    pub(super) roster: Result<Option<Roster>, ConfigError>,
    pub(super) journal: Journal,
    /// Everything at the top and in the folders.
    pub(super) files: Vec<Found>,
    /// What could not be listed.
    pub(super) unlisted: Vec<DirError>,
    pub(super) locks: Vec<Held>,
}

/// The journal, as far as it can be read.
#[derive(Default)]
pub(super) struct Journal {
    /// Whether it is there.
    pub(super) exists: bool,
    pub(super) lines: usize,
    /// When the last line was written, seconds since 1970.
    pub(super) last_at: Option<f64>,
    /// The boot in which its last daemon began.
    pub(super) boot: Option<String>,
    /// Where a last line begins that has no end, and how long it is, in bytes.
    pub(super) torn: Option<(usize, usize)>,
    /// Why it cannot be read to its end.
    pub(super) bad: Option<Bad>,
    /// The fold of what can be read.
    folded: Team,
    /// The fold up to the line that the roster shows.
    pub(super) at_roster: Option<Team>,
}

/// Why a journal cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Bad {
    /// The file cannot be read.
    File(String),
    /// A line is none.
    Line(usize, String),
    /// A line does not continue it.
    Fold(usize, FoldError),
}

impl Seen {
    /// Looks. Processes come first: one that is seen before the journal is read, and is not in it, began without it. The
    /// roster comes before the journal, which is never behind it.
    pub(super) fn look(dir: &Arc<TeamDir>) -> Self {
        let locked = is_locked(dir);
        let processes = processes::list();
        let roster = Roster::load(dir);
        let shown = roster.as_ref().ok().and_then(Option::as_ref).map(|roster| roster.seq);
        let journal = Journal::look(dir, shown);
        let (mut files, mut unlisted) = (Vec::new(), Vec::new());
        for folder in [None].into_iter().chain(FOLDERS.map(Some)) {
            match dir.list(folder) {
                Ok(found) => files.extend(found),
                Err(error) => unlisted.push(error),
            }
        }
        let locks = locks::list().unwrap_or_default();
        let locked = locked || is_locked(dir);
        let dir = Arc::clone(dir);
        Self { dir, locked, processes, roster, journal, files, unlisted, locks }
    }

    /// Returns the fold of the journal, if all of it can be read.
    pub(super) fn team(&self) -> Option<&Team> {
        self.journal.bad.is_none().then_some(&self.journal.folded)
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

    /// Returns what stands in a folder (none: at the top).
    pub(super) fn in_folder(&self, folder: Option<&str>) -> impl Iterator<Item = &Found> {
        self.files.iter().filter(move |found| found.at.folder() == folder)
    }

    /// Returns what stands at a path.
    pub(super) fn at(&self, path: &TeamPath) -> Option<&Found> {
        self.files.iter().find(|found| found.at == *path)
    }

    /// Returns the processes that hold a file's lock.
    pub(super) fn holders(&self, identity: (u64, u64)) -> impl Iterator<Item = u32> {
        self.locks.iter().filter(move |held| held.is_of(identity)).map(|held| held.pid)
    }

    /// Returns a process.
    pub(super) fn process(&self, pid: u32) -> Option<&Process> {
        self.processes.iter().find(|process| process.pid == pid)
    }

    /// Tells whether somebody may be at work here: what is seen once may be gone in a moment.
    pub(super) fn is_at_work(&self) -> bool {
        let held = |found: &Found| self.holders(found.identity).next().is_some();
        self.locked
            || self.in_folder(Some("transcript")).any(held)
            || self.processes.iter().any(|process| process.life_in(self.dir.root()).is_some())
    }

    /// Returns the full path of something in the team directory, for people.
    pub(super) fn path(&self, at: &TeamPath) -> PathBuf {
        self.dir.path(at)
    }
}

impl Journal {
    fn look(dir: &TeamDir, shown: Option<u64>) -> Self {
        let mut journal = Self::default();
        let bytes = match dir.read(&TeamPath::journal()) {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => return journal,
            Err(error) => {
                journal.bad = Some(Bad::File(error.to_string()));
                return journal;
            }
        };
        journal.exists = true;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        journal.torn = (whole < bytes.len()).then(|| (whole, bytes.len() - whole));
        for line in read_lines(&bytes) {
            let (number, line) = match line {
                Ok(read) => read,
                Err(bad) => {
                    journal.bad = Some(newer(bad.text).map_or(Bad::Line(bad.number, bad.why), |version| {
                        Bad::Fold(bad.number, FoldError::Newer(version))
                    }));
                    break;
                }
            };
            if let Err(why) = journal.folded.apply(&line) {
                journal.bad = Some(Bad::Fold(number, why));
                break;
            }
            journal.lines += 1;
            journal.last_at = Some(line.at);
            if let Some(daemon) = &journal.folded.daemon {
                journal.boot = Some(daemon.process.boot_id.clone());
            }
            if Some(line.seq) == shown {
                journal.at_roster = Some(journal.folded.clone());
            }
        }
        journal
    }
}

/// Returns the version of a line that says it is newer. It need not look like ours.
fn newer(line: &[u8]) -> Option<u32> {
    let line: serde_json::Value = serde_json::from_slice(line).ok()?;
    let version = u32::try_from(line.get("version")?.as_u64()?).ok()?;
    (version > teamd_shared::journal::VERSION).then_some(version)
}
