//! The dispatcher when its files fail it: what could not be journaled is refused or tried again, and what somebody
//! deleted or replaced is put back. Nothing is decided here.

use std::collections::VecDeque;
use std::time::Instant;

use teamd_shared::control::{Refusal, RefusalCode};
use teamd_shared::fs::AppendError;

use super::dispatcher::{Batch, Dispatcher, End, RETRY};
use super::event::{Action, Event};

impl Dispatcher {
    /// Nothing of the batch holds: the state is what the journal says, every caller is told, and what the
    /// world did is tried again.
    pub(super) fn not_written(&mut self, batch: Batch, error: &AppendError) {
        tracing::error!("cannot write the journal: {error}");
        if let AppendError::Broken(error) = error {
            self.exit = Some(End::Failed(format!("the disk cannot be trusted any more: {error}")));
            return;
        }
        match self.journal.fold() {
            Ok(team) => {
                self.lead_taken.position = team.lead;
                // What is complete stands in the next line, and that was not written: it is complete all the same.
                let done = self.team.done;
                self.team = team;
                self.team.mark_done(done);
            }
            Err(error) => {
                self.exit = Some(End::Failed(error.to_string()));
                return;
            }
        }
        let refusal = Refusal::new(RefusalCode::Failed, format!("cannot write the journal: {error}"))
            .hint("nothing was changed; free space on the disk, and try again");
        for event in batch.events {
            match event {
                Event::Command(client, _) | Event::Spawn(client, ..) => {
                    self.connections.reply(client, Err(refusal.clone()));
                }
                Event::Terminate if self.live.terminations > 1 => {
                    self.exit =
                        Some(End::Failed("told to end, and the journal cannot be written".to_owned()));
                }
                // It is counted again when it is tried again.
                Event::Terminate => {
                    self.live.terminations -= 1;
                    self.backlog.push_back(Event::Terminate);
                }
                // It comes again by itself, or is known already.
                Event::Deadline | Event::Disconnected { .. } => {}
                // Who is still silent then is found so again.
                Event::Silent { .. } | Event::Hung { .. } => {}
                Event::Connected { life, state, .. } => self.backlog.push_back(Event::Said { life, state }),
                Event::Unreadable { .. } => {
                    self.lead_taken.open += 1;
                    self.backlog.push_back(event);
                }
                other => self.backlog.push_back(other),
            }
        }
        // Why a life is killed was journaled long before.
        for action in batch.actions {
            if let Action::Kill(life) = action
                && self.team.members.get(&life.name).is_some_and(|state| state.record.ending.is_some())
            {
                self.kill(&life);
            }
        }
        self.live.postpone(self.began.elapsed() + RETRY);
        self.retry_at = Some(Instant::now() + RETRY);
    }

    /// Takes out what could not be journaled. A worker may stand elsewhere by now than where it said.
    pub(super) fn take_backlog(&mut self) -> VecDeque<Event> {
        let mut backlog = std::mem::take(&mut self.backlog);
        for event in &mut backlog {
            if let Event::Said { life, state } = event {
                if let Some(alive) = self.live.of(life) {
                    state.clone_from(&alive.said);
                }
                self.say_word(&life.name);
            }
        }
        backlog
    }

    /// Puts journal and roster back where somebody deleted or replaced them.
    pub(super) fn look_after_own_files(&mut self) {
        let now = self.now();
        match self.journal.look_after(&self.dir, now.wall) {
            Ok(told) => told.into_iter().for_each(|told| tracing::warn!("{told}")),
            Err(error) => tracing::error!("journal.jsonl is not where it belongs (tried again): {error}"),
        }
        match self.roster.look_after(&self.dir, now) {
            Ok(None) => {}
            Ok(Some(told)) => {
                tracing::warn!("{told}");
                self.write_roster();
            }
            Err(error) => tracing::error!("config.json is not what was written (tried again): {error}"),
        }
    }
}
