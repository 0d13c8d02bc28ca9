//! What follows from a line of the journal outside of it: inbox lines, quarantine, files into the archive.
//!
//! Everything here can be done again: the ids of the lines stand in the journal, a quarantined line is known
//! by its offset, and a file that was moved is not there any more.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use teamd_shared::mutant;

use teamd_shared::inbox::{self, AppendError, Durability, Rejected};
use teamd_shared::journal::{Line, MemberEvent, Record, Team};
use teamd_shared::message::Message;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, MEMBER_FOLDERS, TeamDir, TeamPath};

use crate::daemon::core::completion::Completion;
use crate::daemon::core::notices::{archived, message};
use crate::daemon::io::fan_out::FanOut;

/// How far the effects have come. The lines of a batch are appended before a worker or command is told of it, and synced when
/// all are told: until then the journal does not count them as done, so a loss of power undoes nothing.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    completion: Completion,
    /// The inboxes that have grown since they were synced.
    unsynced: BTreeSet<Name>,
    /// Whether files may have been moved into the archive since its folders were synced.
    moved: bool,
    /// The notices of ends that are not written yet.
    pub(crate) fan_out: FanOut,
}

/// Inboxes to be synced, and folders where files were moved, and what is complete then.
#[derive(Debug)]
pub(crate) struct Sync {
    names: Vec<Name>,
    moved: bool,
    /// The last line of the journal up to which all effects are there.
    up_to: u64,
}

/// So many inboxes are synced at once; what is more is left to another thread.
const FEW: usize = 4;

impl Progress {
    /// Does the effects that are due, oldest first: of the lines that were not tried yet, and `again` what failed, or what an
    /// earlier daemon may have done.
    ///
    /// An inbox that cannot be written delays only its own later lines.
    ///
    /// # Errors
    /// The first line whose effects failed, and why.
    pub(crate) fn go_on(
        &mut self,
        dir: &TeamDir,
        team: &Team,
        again: bool,
    ) -> Result<(), (u64, EffectError)> {
        if again {
            self.fan_out.try_again();
        }
        let mut failed = None;
        for (line, may_be_there) in self.completion.due(team, again) {
            let done = self.effects(dir, line, may_be_there);
            self.completion.tried(line, done.is_ok());
            if let Err(error) = done {
                failed.get_or_insert((line.seq, error));
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Tells a few members which teammates have ended.
    ///
    /// # Errors
    /// As [`FanOut::tell`].
    pub(crate) fn tell_ended(&mut self, dir: &TeamDir, most: usize) -> Result<(), EffectError> {
        self.fan_out.tell(dir, most, &mut self.unsynced)
    }

    /// Makes what is there outlive a loss of power, and returns up to which line all effects are complete.
    ///
    /// # Errors
    /// [`EffectError`] for the first folder or inbox that cannot be synced. The next call goes on with it.
    pub(crate) fn settle(
        &mut self,
        dir: &TeamDir,
        team: &Team,
        durability: Durability,
    ) -> Result<u64, EffectError> {
        let sync = self.take_unsynced(team);
        if durability == Durability::Disk && !mutant::is_on("done-before-it-lasts") {
            sync.run(dir).map_err(|(left, error)| {
                self.not_synced(left);
                error
            })?;
        }
        Ok(sync.up_to)
    }

    /// Tells whether so many inboxes have grown that others would wait for them to be synced.
    pub(crate) fn has_much_to_sync(&self) -> bool {
        self.unsynced.len() > FEW
    }

    /// Hands over what is to be synced, to be synced elsewhere.
    pub(crate) fn take_unsynced(&mut self, team: &Team) -> Sync {
        let there = self.completion.up_to(team);
        let up_to = self.fan_out.first().map_or(there, |first| there.min(first - 1));
        let names = std::mem::take(&mut self.unsynced).into_iter().collect();
        Sync { names, moved: std::mem::take(&mut self.moved), up_to }
    }

    /// Takes back what could not be synced. Whether the folders were is not known.
    pub(crate) fn not_synced(&mut self, left: Vec<Name>) {
        self.unsynced.extend(left);
        self.moved = true;
    }

    /// Does what follows from a line. `again` looks first whether an inbox line is there already.
    fn effects(&mut self, dir: &TeamDir, line: &Line, again: bool) -> Result<(), EffectError> {
        match &line.record {
            Record::Team(record) => {
                for bad in &record.rejected {
                    let (offset, line_text, reason) = (bad.offset, bad.line.clone(), bad.reason.clone());
                    let bad = Rejected { line: line_text, offset, reason, at: line.at };
                    inbox::quarantine(dir, &Name::lead(), &bad)?;
                }
            }
            Record::Member(record) if record.event == MemberEvent::Forgotten => {
                // An earlier daemon may have moved them, and not synced that.
                self.moved = true;
                archive(dir, &record.member.name, line.seq)?;
            }
            Record::Member(_) | Record::Request(_) | Record::Snapshot(_) => {}
        }
        let is_end = matches!(&line.record, Record::Member(it) if it.event == MemberEvent::Exited);
        let mut failed = None;
        for tell in line.record.tell() {
            let to = tell.to.clone();
            if is_end && to != Name::lead() {
                // What was taken in once is told in its turn, whatever becomes of the line.
                if self.completion.is_new(line) {
                    self.fan_out.add(line, tell, again);
                }
                continue;
            }
            let Some(message) = message(line, tell) else { continue };
            if self.completion.stuck.contains(&to) {
                failed.get_or_insert(EffectError::Waits(to));
                continue;
            }
            if let Err(error) = self.tell(dir, &to, &message, (line.seq, again)) {
                self.completion.stuck.insert(to);
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn tell(
        &mut self,
        dir: &TeamDir,
        to: &Name,
        message: &Message,
        (seq, again): (u64, bool),
    ) -> Result<(), EffectError> {
        let known = |id| again && inbox::holds(dir, to, id).unwrap_or(false);
        if message.id.is_some_and(known) {
            self.unsynced.insert(to.clone());
            return Ok(());
        }
        match inbox::append(dir, to, message, Durability::Process) {
            Ok(_) => drop(self.unsynced.insert(to.clone())),
            // Its owner was forgotten.
            Err(AppendError::NoInbox(_)) => tracing::info!("{to} has no inbox: not told"),
            // It was checked before it was recorded; a line that never fits must not be tried for ever.
            Err(AppendError::TooLarge(why)) => tracing::error!("{to} is not told of line {seq}: {why}"),
            Err(why) => return Err(EffectError::Append { to: to.clone(), why }),
        }
        Ok(())
    }
}

impl Sync {
    /// Returns the owners of the inboxes that it syncs.
    pub(crate) fn names(&self) -> &[Name] {
        &self.names
    }

    /// Syncs the folders, and then the inboxes.
    ///
    /// # Errors
    /// What is left, and why the first of it cannot be synced.
    fn run(&self, dir: &TeamDir) -> Result<(), (Vec<Name>, EffectError)> {
        // The archive comes first: a file must not be lost from both folders.
        let archive = std::iter::once("archive").chain(MEMBER_FOLDERS).filter(|_| self.moved);
        for folder in archive {
            dir.sync_folder(Some(folder)).map_err(|error| (self.names.clone(), error.into()))?;
        }
        for (at, to) in self.names.iter().enumerate() {
            match inbox::sync(dir, to) {
                Ok(()) | Err(AppendError::NoInbox(_)) => {}
                Err(why) => {
                    return Err((self.names[at..].to_vec(), EffectError::Append { to: to.clone(), why }));
                }
            }
        }
        Ok(())
    }

    /// Syncs all, and says what came of it.
    pub(crate) fn report(self, dir: &TeamDir) -> Synced {
        let outcome = self.run(dir).map_err(|(left, error)| (left, error.to_string()));
        Synced { up_to: self.up_to, outcome }
    }
}

/// What came of a [`Sync`].
#[derive(Debug)]
pub(crate) struct Synced {
    /// The line up to which all is complete, if it went well.
    pub(crate) up_to: u64,
    /// Else what is left, and why.
    pub(crate) outcome: Result<(), (Vec<Name>, String)>,
}

/// Why an effect is not complete yet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EffectError {
    #[error("cannot append to the inbox of {to}: {why}")]
    Append { to: Name, why: AppendError },
    #[error("an earlier line for {0} comes first")]
    Waits(Name),
    #[error(transparent)]
    Dir(#[from] DirError),
}

fn archive(dir: &TeamDir, name: &Name, seq: u64) -> Result<(), DirError> {
    for file in TeamPath::of_member(name) {
        // What is in the archive already is never written over: a stub that was made since stays where it is.
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
