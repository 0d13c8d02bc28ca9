//! The effects of journaled lines, and the last line of the journal.

use teamd_shared::journal::{Record, TeamEvent, TeamRecord};

use super::Dispatcher;
use super::batch::DecisionBatch;
use crate::core::io::{Io, IoFailed};

impl Dispatcher {
    /// Does the effects of new lines, and if `again` those that failed.
    pub(super) fn complete(&mut self, again: bool, io: &mut dyn Io) {
        if again {
            self.retry_at = None;
        }
        if let Err(IoFailed) = io.complete(&self.team, again) {
            self.try_again_later(io.now());
        }
    }

    /// Does and syncs all effects.
    pub(crate) fn finish_effects(&mut self, io: &mut dyn Io) {
        match io.finish_effects() {
            Ok(seq) => self.mark_done(seq),
            Err(IoFailed) => self.try_again_later(io.now()),
        }
    }

    /// Tells whether some effects are not known to be on the disk yet.
    pub(crate) fn has_unfinished_effects(&self) -> bool {
        self.team.done < self.team.seq
    }

    /// Records that the effects of all lines up to this one are on the disk. The next line of the
    /// journal says so.
    pub(crate) fn mark_done(&mut self, seq: u64) {
        self.team.mark_done(seq);
    }

    /// Closes the journal once the daemon is stopping and no teammate is left. The last line says
    /// that nothing is left to be done, so what has failed is tried again before it.
    pub(super) fn close_if_all_are_gone(&mut self, io: &mut dyn Io) {
        let all_are_gone = self
            .team
            .members
            .values()
            .all(|state| state.record.phase.is_ended());
        if !self.team.stopping || !all_are_gone {
            return;
        }
        if self.retry_at.is_some() {
            self.complete(true, io);
        }
        self.finish_effects(io);
        let record = TeamRecord::of(TeamEvent::Stopped, self.team.team_name.clone(), None);
        let mut batch = DecisionBatch::default();
        self.apply(Record::Team(Box::new(record)), io.now(), &mut batch);
        match io.append(&batch.lines) {
            Ok(()) => self.journal_closed(),
            Err(error) => self.not_written(batch, error, io),
        }
    }
}
