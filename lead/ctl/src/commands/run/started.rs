//! What a run is to end: what it has started, and what an earlier run had started that was killed.
//! The lock of the file lets one run at a time do so.
//!
//! **Who writes** `run/run`: the run that holds its `flock`. **When the file is lost**, the next
//! run leaves the team running.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::Read;
use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::read::roster;
use teamd_shared::config::Roster;
use teamd_shared::name::Name;
use teamd_shared::process::Identity;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};

/// The contents of the file.
#[derive(Debug, Serialize, Deserialize)]
struct RunRecord {
    /// The daemon at the beginning of the run.
    daemon: Option<Identity>,
    /// Whether the run has started it.
    is_own: bool,
    /// The members that ran before.
    before: BTreeSet<Name>,
}

/// What is to be ended after a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ToEnd {
    pub(super) members: Vec<Name>,
    /// Whether the daemon also ends.
    pub(super) daemon: bool,
    /// The members that ran before and stay.
    pub(super) stay: Vec<Name>,
}

/// The lock, held until this is dropped.
#[derive(Debug)]
pub(super) struct RunLock {
    file: File,
    record: Option<RunRecord>,
}

impl RunLock {
    /// Takes the lock.
    ///
    /// # Errors
    /// [`ExitCode::Conflict`] if another run holds it.
    pub(super) fn lock(dir: &TeamDir) -> Result<Self, CommandError> {
        let at = TeamPath::run();
        let refused = |source| DirError::Io {
            verb: "lock",
            path: dir.path(&at),
            source,
        };
        let mut file = dir.open_file(&at, OFlags::RDWR | OFlags::CREATE)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(CommandError::new(
                    ExitCode::Conflict,
                    "another `teamctl run` is running for this team",
                )
                .hint(
                    "wait until it has ended, or end it with Ctrl-C; `teamctl task add` gives it more to do",
                ));
            }
            Err(TryLockError::Error(source)) => return Err(refused(source).into()),
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(refused)?;
        Ok(Self {
            file,
            record: serde_json::from_str(&text).ok(),
        })
    }

    /// Records what runs before the run starts a member; `is_new`: the run has started
    /// the daemon.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn begin(&mut self, roster: &Roster, is_new: bool) -> Result<(), CommandError> {
        let daemon = roster.daemon.as_ref().map(|daemon| daemon.process.clone());
        let mut before = roster::running_names(roster);
        let earlier = self
            .record
            .take()
            .filter(|earlier| is_new || earlier.daemon == daemon);
        if let Some(earlier) = &earlier {
            before.retain(|name| earlier.before.contains(name));
        }
        let is_own = is_new || earlier.is_some_and(|earlier| earlier.is_own);
        self.write(Some(RunRecord {
            daemon,
            is_own,
            before,
        }))
    }

    /// Records that the run has started a member.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn member(&mut self, name: &Name) -> Result<(), CommandError> {
        let Some(mut record) = self.record.take() else {
            return Ok(());
        };
        record.before.remove(name);
        self.write(Some(record))
    }

    /// Returns what is to be ended.
    pub(super) fn to_end(&self, roster: &Roster) -> ToEnd {
        let (stay, members): (Vec<Name>, Vec<Name>) =
            roster::running_names(roster).into_iter().partition(|name| {
                self.record
                    .as_ref()
                    .is_some_and(|record| record.before.contains(name))
            });
        let is_own = self.record.as_ref().is_some_and(|record| record.is_own);
        ToEnd {
            members,
            daemon: is_own && stay.is_empty(),
            stay,
        }
    }

    /// Records that nothing is left to be ended.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn ended(&mut self) -> Result<(), CommandError> {
        self.write(None)
    }

    fn write(&mut self, record: Option<RunRecord>) -> Result<(), CommandError> {
        let text = record
            .as_ref()
            .map_or(Ok(Vec::new()), serde_json::to_vec)
            .map_err(std::io::Error::from);
        let written = text.and_then(|text| {
            self.file.set_len(0)?;
            self.file.write_all_at(&text, 0)
        });
        self.record = record;
        written.map_err(|error| CommandError::refused("cannot write run/run", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use teamd_client::testing::{member, team};

    #[test]
    fn a_run_ends_what_it_has_started_and_what_a_killed_run_had() {
        let (_scratch, dir) = team(&json!([member("ana", "idle")]));
        let with = |names: &[&str]| {
            let members: Vec<_> = names.iter().map(|name| member(name, "idle")).collect();
            serde_json::from_value::<Roster>(
                json!({"version": 1, "seq": 1, "team_name": "t", "daemon": null, "members": members}),
            )
            .unwrap()
        };
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|name| Name::new(name).unwrap())
                .collect::<Vec<_>>()
        };
        let told = |members, daemon, stay| ToEnd {
            members: names(members),
            daemon,
            stay: names(stay),
        };
        let mut run = RunLock::lock(&dir).unwrap();
        assert_eq!(RunLock::lock(&dir).unwrap_err().code(), ExitCode::Conflict);
        // It has started the daemon, which has adopted ana.
        run.begin(&with(&["ana"]), true).unwrap();
        let end = |run: &RunLock| run.to_end(&with(&["ana", "bob"]));
        assert_eq!(end(&run), told(&["bob"], false, &["ana"]));
        run.member(&names(&["ana"])[0]).unwrap();
        assert_eq!(end(&run), told(&["ana", "bob"], true, &[]));
        // It is killed: the next run continues with the same daemon.
        let lock = || loop {
            // What another test starts has all descriptors of this process for a moment.
            if let Ok(run) = RunLock::lock(&dir) {
                return run;
            }
        };
        drop(run);
        let mut run = lock();
        run.begin(&with(&["ana", "bob"]), false).unwrap();
        assert_eq!(end(&run), told(&["ana", "bob"], true, &[]));
        run.ended().unwrap();
        drop(run);
        let mut run = lock();
        run.begin(&with(&["ana", "bob"]), false).unwrap();
        assert_eq!(end(&run), told(&[], false, &["ana", "bob"]));
    }
}
