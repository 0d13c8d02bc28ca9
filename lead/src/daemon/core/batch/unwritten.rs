//! What could not be written: commands are refused, and what happened in the world is tried again.

use teamd_shared::control::{Refusal, RefusalCode};
use teamd_shared::journal::Team;

use super::{Batch, Batcher, End, Marks, RETRY, Step};
use crate::daemon::core::event::{Action, Event, Now};

impl Batcher {
    /// Nothing of the batch that was to be written holds: the state is `journal`, what the journal says, every caller is
    /// told `why`, and what the world did is tried again. If nobody knows what the journal says, the daemon ends.
    pub(crate) fn not_written(&mut self, why: &str, journal: Result<Team, String>, now: Now) {
        let Some(batch) = self.writing.take() else { return };
        let why = format!("cannot write the journal: {why}");
        match journal {
            _ if batch.marks == Some(Marks::Start) => self.end = Some(End::Failed(why)),
            Err(unknown) => self.end = Some(End::Failed(unknown)),
            Ok(team) => {
                self.lead_taken.position = team.lead;
                // What is complete stands in the next line, and that was not written: it is complete all the same.
                let done = self.team.done;
                self.team = team;
                self.team.mark_done(done);
                self.take_back(batch, why, now);
            }
        }
    }

    fn take_back(&mut self, batch: Batch, why: String, now: Now) {
        let refusal = Refusal::new(RefusalCode::Failed, why)
            .hint("nothing was changed; free space on the disk, and try again");
        for event in batch.events {
            match event {
                Event::Command(client, _) | Event::Spawn(client, ..) => {
                    self.steps.push_back(Step::Reply(client, Err(refusal.clone())));
                }
                Event::Terminate if self.terminations() > 1 => {
                    self.end = Some(End::Failed("told to end, and the journal cannot be written".to_owned()));
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
                Event::Connected { life, state, .. } => self.keep(Event::Said { life, state }),
                Event::Unreadable { .. } => {
                    self.lead_taken.open += 1;
                    self.keep(event);
                }
                other => self.keep(other),
            }
        }
        // Why a life is killed was journaled long before.
        for action in batch.actions {
            if let Action::Kill(life) = action
                && self.team.members.get(&life.name).is_some_and(|state| state.record.ending.is_some())
            {
                self.kill(life);
            }
        }
        // What workers have said holds nevertheless.
        self.steps.push_back(Step::Show(batch.touched));
        // Not later for what fails meanwhile: commands that come in a loop would put it off for ever.
        let until = *self.retry_at.get_or_insert(now.monotonic + RETRY);
        self.live.postpone(until);
        self.unpark();
    }

    /// Returns how often the daemon was told to end, also where that could not be journaled yet.
    fn terminations(&self) -> usize {
        let waiting = self.backlog.iter().filter(|event| matches!(event, Event::Terminate)).count();
        waiting + self.live.terminations as usize
    }

    /// Keeps what happened in the world until it can be journaled. Of what a life says again and again the last counts: a disk
    /// may be full for long.
    fn keep(&mut self, event: Event) {
        let repeats = |earlier: &&mut Event| match (&event, &**earlier) {
            (Event::Said { life, .. }, Event::Said { life: before, .. })
            | (Event::Pong { life, .. }, Event::Pong { life: before, .. }) => life == before,
            _ => false,
        };
        match self.backlog.iter_mut().find(repeats) {
            Some(earlier) => *earlier = event,
            None => self.backlog.push_back(event),
        }
    }

    /// Something failed that is to be tried again in a while.
    pub(crate) fn try_again_later(&mut self, now: Now) {
        self.retry_at.get_or_insert(now.monotonic + RETRY);
        self.unpark();
    }

    /// Tells whether something that failed has not been tried again yet.
    pub(crate) fn waits_to_try_again(&self) -> bool {
        self.retry_at.is_some() || !self.backlog.is_empty()
    }

    /// Tells whether something has failed just now.
    pub(crate) fn has_just_failed(&self, now: Now) -> bool {
        self.retry_at.is_some_and(|at| at > now.monotonic)
    }

    /// Tries again what failed, if it is time for that, before anything that came later.
    pub(super) fn take_up_backlog(&mut self, now: Now) {
        if self.retry_at.is_none_or(|at| at > now.monotonic) {
            return self.hold_back();
        }
        self.retry_at = None;
        let mut again = std::mem::take(&mut self.backlog);
        for event in &mut again {
            if let Event::Said { life, state } = event {
                // It may stand elsewhere by now than where it said.
                if let Some(alive) = self.live.of(life) {
                    state.clone_from(&alive.said);
                }
                self.say_word(&life.name);
            }
        }
        again.append(&mut self.events);
        self.events = again;
        self.steps.push_back(Step::Complete { again: true });
        // The line of the end is nobody's event.
        self.close_if_all_are_gone();
    }

    /// Lets those events wait that must not be decided before what could not be journaled.
    fn hold_back(&mut self) {
        for event in std::mem::take(&mut self.events) {
            let waits = self.backlog.iter().any(|earlier| follows(&event, earlier));
            if waits { self.backlog.push_back(event) } else { self.events.push_back(event) }
        }
    }
}

/// Tells whether an event must not overtake an earlier one: how a life ended says what was heard of it before, and whether
/// it, or one that could not be run, is started again depends on whether the team is told to stop; the position in the lead's
/// inbox passes what was read before.
fn follows(event: &Event, earlier: &Event) -> bool {
    match event {
        Event::Unreadable { .. } => matches!(earlier, Event::Unreadable { .. }),
        Event::Ended { life, .. } | Event::Started { life, process: Err(_), .. } => {
            earlier.life() == Some(life) || matches!(earlier, Event::Terminate)
        }
        _ => false,
    }
}
