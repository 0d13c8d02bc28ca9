//! Repairs of the files while no daemon runs, under the daemon's lock and by its own code: what a start would do first. No
//! teammate is adopted, ended or told anything.

use std::sync::Arc;

use teamd_shared::clock;
use teamd_shared::config::Roster;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use super::core::event::Incarnation;
use super::core::live::Live;
use super::io::journal::{self, Journal};
use super::io::lock::TeamLock;
use super::io::roster_file::{OnDisk, REPLACED, RosterFile, UNREADABLE};
use crate::error::CommandError;
use crate::exit_code::ExitCode;
use crate::upkeep::AtRest;

/// A team directory without a daemon, and its lock.
struct Resting {
    dir: Arc<TeamDir>,
    _lock: TeamLock,
}

/// Takes the lock; none if a daemon holds it.
///
/// # Errors
/// [`ExitCode::Failed`] if the system refuses.
pub(crate) fn at_rest(dir: &Arc<TeamDir>) -> Result<Option<Box<dyn AtRest>>, CommandError> {
    let lock = TeamLock::try_take(dir).map_err(|error| {
        CommandError::new(ExitCode::Failed, format!("cannot lock the team directory: {error}"))
    })?;
    Ok(lock.map(|lock| Box::new(Resting { dir: Arc::clone(dir), _lock: lock }) as Box<dyn AtRest>))
}

impl AtRest for Resting {
    fn cut_journal(&self) -> Result<String, CommandError> {
        let (_, _, torn) = Journal::open(&self.dir)?;
        Ok(match torn {
            Some(length) => format!(
                "journal.jsonl: its torn last line ({length} bytes) was kept in {}, and cut off",
                TeamPath::journal_torn()
            ),
            None => "journal.jsonl: its last line is whole".to_owned(),
        })
    }

    fn rebuild_roster(&self) -> Result<String, CommandError> {
        let team = journal::read(&self.dir)?;
        let (before, why) = match RosterFile::find(&self.dir)? {
            OnDisk::Roster(roster) => (roster, Some(REPLACED)),
            OnDisk::Nothing => (Roster::default(), None),
            OnDisk::Unreadable => (Roster::default(), Some(UNREADABLE)),
        };
        let mut live = Live::default();
        let mut file = RosterFile::of(before.sandbox.clone().unwrap_or_default());
        for (name, state) in &team.members {
            let incarnation = Incarnation::of(&state.record);
            if let Some((doing, usage)) = RosterFile::last_said(&before, &incarnation)
                && !state.record.phase.is_ended()
            {
                live.recall(&incarnation, doing, usage);
            }
            file.show((&team, &live), name, None);
        }
        let kept = match why {
            Some(why) => {
                let aside = file.write_and_keep(&self.dir, &team, (why, clock::wall()))?;
                format!("; the old one was kept as {aside}")
            }
            None => {
                file.touch();
                file.flush(&self.dir, &team)?;
                String::new()
            }
        };
        Ok(format!("config.json: written from the journal, as of line {}{kept}", team.seq))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_old_roster_stands_in_its_place_until_the_new_one_does() {
        for (old, kept) in [(r#"{"version":1,"members":[]}"#, REPLACED), ("{", UNREADABLE)] {
            let scratch = tempfile::tempdir().unwrap();
            let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
            let config = dir.path(&TeamPath::config());
            teamd_shared::fs::replace(&dir, &TeamPath::config(), old.as_bytes()).unwrap();
            // A roster cannot be written in place of the old one.
            let in_the_way = dir.path(&TeamPath::config().with_suffix(".new"));
            std::fs::create_dir(&in_the_way).unwrap();
            let said = at_rest(&dir).unwrap().unwrap().rebuild_roster().unwrap();
            let written: Roster = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
            assert_eq!((written.seq, written.members.len()), (0, 0));
            let aside = said.rsplit(' ').next().unwrap();
            assert!(aside.starts_with(&format!("config.json.{kept}-")), "{said}");
            assert_eq!(std::fs::read_to_string(dir.root().join(aside)).unwrap(), old);
        }
    }

    #[test]
    fn beside_a_daemon_nothing_is_touched() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
        let daemon = TeamLock::try_take(&dir).unwrap().unwrap();
        assert!(at_rest(&dir).unwrap().is_none());
        // A process that another test starts holds all descriptors for a moment, so closing this one is not enough.
        daemon.into_file().unlock().unwrap();
        let resting = at_rest(&dir).unwrap().unwrap();
        assert!(TeamLock::try_take(&dir).unwrap().is_none(), "no daemon starts meanwhile");
        drop(resting);
        let deadline = Instant::now() + Duration::from_secs(30);
        while TeamLock::try_take(&dir).unwrap().is_none() {
            assert!(Instant::now() < deadline, "the lock is not released");
            std::thread::yield_now();
        }
    }
}
