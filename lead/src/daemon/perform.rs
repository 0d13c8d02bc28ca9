//! What follows from a line of the journal outside of it: inbox lines, quarantine, files into the archive.
//!
//! Everything here can be done again: the ids of the lines stand in the journal, a quarantined line is known
//! by its offset, and a file that was moved is not there any more.

use std::collections::BTreeSet;

use teamd_shared::inbox::{self, AppendError, Durability, Rejected};
use teamd_shared::journal::{Line, MemberEvent, Record, Team};
use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};

use super::effects::messages;

/// How far the effects have come. The lines of a batch are appended before anybody is told of it, and synced when
/// everybody was: until then the journal does not count them as done, so a loss of power undoes nothing.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The last line of the journal whose effects are there.
    up_to: u64,
    /// The inboxes that have grown since they were synced.
    unsynced: BTreeSet<Name>,
}

impl Progress {
    /// Does the effects that are not there yet, oldest first. `again` looks whether an earlier daemon did.
    ///
    /// # Errors
    /// The line whose effects failed, and why. The next call goes on with it.
    pub(super) fn go_on(
        &mut self,
        dir: &TeamDir,
        team: &Team,
        again: bool,
    ) -> Result<(), (u64, EffectError)> {
        let begun = self.up_to;
        for line in team.undone.iter().filter(|line| line.seq > begun) {
            effects(dir, line, again, &mut self.unsynced).map_err(|error| (line.seq, error))?;
            self.up_to = line.seq;
        }
        Ok(())
    }

    /// Makes what is there outlive a loss of power, and returns up to which line all effects are complete.
    ///
    /// # Errors
    /// [`EffectError::Append`] for the first inbox that cannot be synced. The next call goes on with it.
    pub(super) fn settle(
        &mut self,
        dir: &TeamDir,
        team: &Team,
        durability: Durability,
    ) -> Result<u64, EffectError> {
        while let Some(to) = self.unsynced.first() {
            match if durability == Durability::Disk { inbox::sync(dir, to) } else { Ok(()) } {
                Ok(()) | Err(AppendError::NoInbox(_)) => {}
                Err(why) => return Err(EffectError::Append { to: to.clone(), why }),
            }
            self.unsynced.pop_first();
        }
        let waits = team.undone.iter().any(|line| line.seq > self.up_to);
        Ok(if waits { self.up_to } else { team.seq })
    }
}

/// Why an effect is not complete yet.
#[derive(Debug, thiserror::Error)]
pub(super) enum EffectError {
    #[error("cannot append to the inbox of {to}: {why}")]
    Append { to: Name, why: AppendError },
    #[error(transparent)]
    Dir(#[from] DirError),
}

/// Does what follows from a line. `again` looks first whether an inbox line is there already.
fn effects(
    dir: &TeamDir,
    line: &Line,
    again: bool,
    unsynced: &mut BTreeSet<Name>,
) -> Result<(), EffectError> {
    match &line.record {
        Record::Team(record) => {
            for bad in &record.rejected {
                let (offset, line_text, reason) = (bad.offset, bad.line.clone(), bad.reason.clone());
                inbox::quarantine(
                    dir,
                    &Name::lead(),
                    &Rejected { line: line_text, offset, reason, at: line.at },
                )?;
            }
        }
        Record::Member(record) if record.event == MemberEvent::Forgotten => {
            archive(dir, &record.member.name, line.seq)?;
        }
        Record::Member(_) | Record::Request(_) => {}
    }
    for (to, message) in messages(line) {
        let known = |id| again && inbox::holds(dir, &to, id).unwrap_or(false);
        if message.id.is_some_and(known) {
            unsynced.insert(to);
            continue;
        }
        match inbox::append(dir, &to, &message, Durability::Process) {
            Ok(_) => drop(unsynced.insert(to)),
            // Its owner was forgotten: there is nobody to tell.
            Err(AppendError::NoInbox(_)) => tracing::info!("{to} has no inbox: not told"),
            Err(why) => return Err(EffectError::Append { to, why }),
        }
    }
    Ok(())
}

fn files_of(name: &Name) -> [TeamPath; 5] {
    [
        TeamPath::inbox(name),
        TeamPath::rejected(name),
        TeamPath::transcript(name),
        TeamPath::transcript_torn(name),
        TeamPath::log(name.as_str()),
    ]
}

fn archived(file: &TeamPath, seq: u64) -> TeamPath {
    let folder = file.relative().parent().map(|folder| folder.display().to_string()).unwrap_or_default();
    TeamPath::archive(&format!("{seq}.{folder}.{}", file.file_name()))
}

/// Returns the names that the files of a member have in the archive, if it is forgotten with this `seq`.
pub(super) fn archive_names(name: &Name, seq: u64) -> Vec<String> {
    files_of(name).iter().map(|file| archived(file, seq).to_string()).collect()
}

fn archive(dir: &TeamDir, name: &Name, seq: u64) -> Result<(), DirError> {
    for file in files_of(name) {
        match dir.rename(&file, &archived(&file, seq)) {
            Err(error) if error.is_not_found() => {}
            other => other?,
        }
    }
    Ok(())
}
