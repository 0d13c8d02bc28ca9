//! The journal's file: loading it, and appending batches of lines.

use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::fs::OFlags;
use teamd_shared::fs::{AppendLog, AppendLogError, replace_synced};
use teamd_shared::journal::reader::{self, JournalError, Since, load};
use teamd_shared::journal::{Line, Record, Team, TeamEvent, VERSION, read_lines};
use teamd_shared::message::to_json_line;
use teamd_shared::mutant;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};

use crate::core::io::NotWritten;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;

/// The journal, open for its only writer.
#[derive(Debug)]
pub(crate) struct Journal {
    log: AppendLog,
}

impl Journal {
    /// Opens the journal, sets a torn last line aside, and folds the rest. Returns the length of
    /// the torn line too, in bytes.
    pub(crate) fn open(dir: &TeamDir) -> Result<(Self, Team, Option<usize>), JournalError> {
        // Before any repair: a journal that is not understood is left as it is, with its torn tail.
        let team = read(dir)?;
        let opened = AppendLog::open(dir, &TeamPath::journal(), &TeamPath::journal_torn())?;
        Ok((
            Self { log: opened.log },
            team,
            opened.torn.map(|tail| tail.len()),
        ))
    }

    /// Examines whether the path still names this file, and whether the daemon's lines are still in
    /// it. If another process has changed that, the file at the path is moved aside, and the
    /// same lines are written there again; a snapshot instead, if the lines are lost. Returns what
    /// to tell.
    ///
    /// # Errors
    /// [`JournalError`] if the system refuses; the journal is then where no program can read
    /// it.
    pub(crate) fn look_after(
        &mut self,
        dir: &TeamDir,
        team: &Team,
        wall: f64,
    ) -> Result<Option<String>, JournalError> {
        let at = TeamPath::journal();
        let ours = self.log.file().metadata()?;
        let present = dir.identity(&at)?;
        let whole = self.log.is_whole()?;
        let named = present == Some((ours.dev(), ours.ino()));
        if named && whole {
            return Ok(None);
        }
        let lines = if whole {
            self.log.read_all()?
        } else if let Some(line) = snapshot_line(team, wall)? {
            line
        } else {
            // A decision has no line yet. The next look writes the snapshot.
            return Ok(None);
        };
        let back = if whole {
            "ours is back"
        } else {
            "it begins with a snapshot of the daemon's state; its earlier lines are lost"
        };
        let notice = if present.is_none() {
            replace_synced(dir, &at, &lines)?;
            format!("journal.jsonl was deleted: it is written again, {back}")
        } else {
            // In one step: a kill in between must not leave the path without a journal.
            let aside = at.with_suffix(&format!(".replaced-{wall:.3}"));
            replace_synced(dir, &aside, &lines)?;
            dir.exchange(&aside, &at)?;
            let what = if named {
                "cut or overwritten"
            } else {
                "replaced"
            };
            format!("journal.jsonl was {what}: the file that was there is kept as {aside}, {back}")
        };
        self.log = AppendLog::open(dir, &at, &TeamPath::journal_torn())?.log;
        // That the path names it must outlive a loss of power, too.
        dir.sync_folder(at.folder())?;
        Ok(Some(notice))
    }

    /// Finds out what the journal says after an append that failed: nothing of it, or that is not
    /// known.
    pub(crate) fn after_failure(&mut self, error: &AppendLogError) -> NotWritten {
        tracing::error!("cannot write the journal: {error}");
        let journal = match error {
            AppendLogError::Broken(error) => {
                Err(format!("the disk can no longer be trusted: {error}"))
            }
            AppendLogError::Write(_) => match self.log.is_whole() {
                Ok(false) => Err("another process has cut or overwritten journal.jsonl".to_owned()),
                _ => {
                    let bytes = self.log.read_all().map_err(JournalError::from);
                    bytes
                        .and_then(|bytes| fold(&bytes))
                        .map(Box::new)
                        .map_err(|error| error.to_string())
                }
            },
        };
        NotWritten {
            why: error.to_string(),
            journal,
        }
    }

    /// Appends a batch with one write and one sync: each line is a whole decision, since a kill may
    /// cut the batch between any two of them. What another process has appended is set aside
    /// before: no daemon could begin with it.
    pub(crate) fn append(&mut self, dir: &TeamDir, lines: &[Line]) -> Result<(), AppendLogError> {
        let foreign =
            self.log
                .set_foreign_aside(dir, &TeamPath::journal(), &TeamPath::journal_torn());
        if let Some(foreign) =
            foreign.map_err(|error| AppendLogError::Write(io::Error::other(error)))?
        {
            let length = foreign.len();
            tracing::warn!(
                "another process has written into journal.jsonl: {length} bytes were set aside in journal.torn"
            );
        }
        let bytes = text_of(lines).map_err(|error| AppendLogError::Write(error.into()))?;
        self.log.append(&bytes)?;
        if mutant::is_on("journal-not-synced") {
            return Ok(());
        }
        self.log.sync().or_else(|error| {
            if mutant::is_on("journal-sync-refused") {
                Ok(())
            } else {
                Err(error)
            }
        })
    }
}

/// Returns lines as the file contains them.
fn text_of(lines: &[Line]) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for line in lines {
        bytes.extend(to_json_line(&serde_json::to_value(line)?));
        bytes.push(b'\n');
    }
    Ok(bytes)
}

/// Returns a journal that begins with this state; none while a derived record still needs its line.
fn snapshot_line(team: &Team, at: f64) -> io::Result<Option<Vec<u8>>> {
    let Some(record) = team.snapshot() else {
        return Ok(None);
    };
    let line = Line {
        seq: team.seq,
        at,
        version: Some(VERSION),
        done: team.done,
        lead: None,
        record,
    };
    Ok(Some(text_of(&[line])?))
}

/// Refuses a copy that is made of hard links (`cp -al`): it has its files in common with the team
/// that it is a copy of, and whatever was done here would be done there.
///
/// # Errors
/// [`ExitCode::Failed`] for such a copy, or if the journal cannot be examined.
pub(crate) fn refuse_linked_copy(dir: &TeamDir) -> Result<(), CommandError> {
    let at = TeamPath::journal();
    let links = match dir.open_file(&at, OFlags::RDONLY) {
        Ok(file) => file
            .metadata()
            .map_err(|source| DirError::Io {
                verb: "look at",
                path: dir.path(&at),
                source,
            })?
            .nlink(),
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if links < 2 {
        return Ok(());
    }
    let bytes = dir.read(&at)?;
    // This holds for a stopped team too: its last start tells. A line that cannot be read is
    // refused in a moment.
    let started = read_lines(&bytes)
        .filter_map(Result::ok)
        .filter_map(|(_, line)| match line.record {
            Record::Team(team) if team.event == TeamEvent::Started => team.daemon,
            _ => None,
        });
    if !started
        .last()
        .is_some_and(|daemon| daemon.is_of_another(dir))
    {
        return Ok(());
    }
    let root = dir.root().display();
    let what = format!(
        "{root} is a copy of another team directory, and shares its files with it (hard links)"
    );
    Err(CommandError::new(ExitCode::Failed, what).hint(format!(
        "make a copy of its own: `cp -a {root} {root}.own && rm -r {root} && mv {root}.own {root}`, then start again"
    )))
}

/// Folds the journal; an empty team if there is none. Nothing is repaired.
pub(crate) fn read(dir: &TeamDir) -> Result<Team, JournalError> {
    load(dir, Since::Snapshot, |_, _| {})
}

/// Folds the whole lines of a journal.
///
/// # Errors
/// [`JournalError`] for the first line that cannot be read, or does not continue the lines before.
pub(crate) fn fold(bytes: &[u8]) -> Result<Team, JournalError> {
    reader::fold(bytes, |_, _| {})
}
