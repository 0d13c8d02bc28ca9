//! What follows from a line of the journal outside of it: inbox lines, quarantine, files into the archive.
//!
//! Everything here can be done again: the ids of the lines stand in the journal, a quarantined line is known
//! by its offset, and a file that was moved is not there any more.

use std::collections::BTreeSet;

use teamd_shared::inbox::{self, AppendError, Durability, Rejected};
use teamd_shared::journal::{Line, MemberEvent, Record, Team};
use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, TeamDir};

use super::effects::{archived, files_of, messages};

/// How far the effects have come. The lines of a batch are appended before anybody is told of it, and synced when
/// everybody was: until then the journal does not count them as done, so a loss of power undoes nothing.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The last line of the journal up to which all effects are there.
    up_to: u64,
    /// The last line whose effects were tried.
    tried: u64,
    /// The inboxes that have grown since they were synced.
    unsynced: BTreeSet<Name>,
}

impl Progress {
    /// Does the effects that are not there yet, oldest first. `again` looks whether an earlier daemon did.
    ///
    /// What cannot be written to one inbox holds up nothing but what is owed to the same inbox after it.
    ///
    /// # Errors
    /// The first line whose effects failed, and why. The next call tries them again.
    pub(super) fn go_on(
        &mut self,
        dir: &TeamDir,
        team: &Team,
        again: bool,
    ) -> Result<(), (u64, EffectError)> {
        let (begun, tried) = (self.up_to, self.tried);
        let mut failed = None;
        let mut stuck = BTreeSet::new();
        for line in team.undone.iter().filter(|line| line.seq > begun) {
            let again = again || line.seq <= tried;
            match effects(dir, line, again, (&mut self.unsynced, &mut stuck)) {
                Ok(()) if failed.is_none() => self.up_to = line.seq,
                Ok(()) => {}
                Err(error) => drop(failed.get_or_insert((line.seq, error))),
            }
            self.tried = self.tried.max(line.seq);
        }
        failed.map_or(Ok(()), Err)
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
    #[error("what is owed to {0} before comes first")]
    Waits(Name),
    #[error(transparent)]
    Dir(#[from] DirError),
}

/// Does what follows from a line. `again` looks first whether an inbox line is there already.
fn effects(
    dir: &TeamDir,
    line: &Line,
    again: bool,
    (unsynced, stuck): (&mut BTreeSet<Name>, &mut BTreeSet<Name>),
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
    let mut failed = None;
    for (to, message) in messages(line) {
        if stuck.contains(&to) {
            failed.get_or_insert(EffectError::Waits(to));
            continue;
        }
        let known = |id| again && inbox::holds(dir, &to, id).unwrap_or(false);
        if message.id.is_some_and(known) {
            unsynced.insert(to);
            continue;
        }
        match inbox::append(dir, &to, &message, Durability::Process) {
            Ok(_) => drop(unsynced.insert(to)),
            // Its owner was forgotten: there is nobody to tell.
            Err(AppendError::NoInbox(_)) => tracing::info!("{to} has no inbox: not told"),
            // It was checked before it was recorded; a line that never fits must not be tried for ever.
            Err(AppendError::TooLarge(why)) => {
                tracing::error!("{to} is not told of line {}: {why}", line.seq)
            }
            Err(why) => {
                stuck.insert(to.clone());
                failed.get_or_insert(EffectError::Append { to, why });
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

fn archive(dir: &TeamDir, name: &Name, seq: u64) -> Result<(), DirError> {
    for file in files_of(name) {
        // What is in the archive already is never written over: a stub that somebody made since stays where it is.
        if dir.identity(&archived(&file, seq))?.is_some() {
            continue;
        }
        match dir.rename(&file, &archived(&file, seq)) {
            Err(error) if error.is_not_found() => {}
            other => other?,
        }
    }
    Ok(())
}
