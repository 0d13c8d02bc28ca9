//! The dispatcher's part in the end of a life, from the end of its process to the event that says so. How the life ended, and
//! what follows, is not decided here.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use teamd_shared::member::{Emptied, Ending, Member, Restart};
use teamd_shared::process::How;

use super::core::event::{Event, Life};
use super::dispatcher::Dispatcher;
use super::io::reap::{Beginning, see_off};
use super::named::unworkable;

/// How long those have to end that were killed, before they are looked for again: at first and at last.
const STRAY_PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_secs(2));
/// How long after the end of a process its connection may still hold what it said last.
const LAST_WORDS: Duration = Duration::from_secs(1);

impl Dispatcher {
    /// A process has ended: a leaf waits until nothing of its life is left.
    pub(super) fn process_gone(&mut self, life: Life) {
        let how = self.supervisor.reap(&life);
        self.gone_at.insert(life.clone(), Instant::now());
        // What it said last may still be in its connection, SIGTERM's farewell for one: the end of that comes first.
        if self.connections.has(&life) {
            self.departed.insert(life, how);
        } else {
            self.see_off(life, how);
        }
    }

    /// Sees off those whose connection does not end, though their process has for some time.
    pub(super) fn see_off_departed(&mut self) {
        let just_gone = |life: &Life| self.gone_at.get(life).is_some_and(|at| at.elapsed() < LAST_WORDS);
        let (stay, go) =
            std::mem::take(&mut self.departed).into_iter().partition(|(life, _)| just_gone(life));
        self.departed = stay;
        let go: HashMap<Life, How> = go;
        for (life, how) in go {
            self.connections.forget(&life);
            self.see_off(life, how);
        }
    }

    /// Takes the end of a life in, unless something that a tool of it started has come to this process: a worker
    /// and its keeper can be killed together. That is ended first. What was here before this life ended is not its
    /// own: nobody else's end waits for a process that cannot be killed.
    pub(super) fn life_over(&mut self, mut event: Event) -> Option<Event> {
        let alone = self.gone_at.len() <= 1;
        let Event::Ended { life, ended } = &mut event else { return Some(event) };
        let gone_at = *self.gone_at.entry(life.clone()).or_insert_with(Instant::now);
        // Those of a life can be seen, by the end of another one, before its own end is.
        let why = match self.supervisor.end_strays(gone_at.checked_sub(LAST_WORDS).unwrap_or(gone_at)) {
            Ok(found) => {
                // Of several lives that end at once nobody can tell whose they were.
                let killed = found.killed.filter(|&killed| alone || killed == 0);
                ended.left_behind = ended.left_behind.zip(killed).map(|(before, more)| before + more);
                if !found.told_apart && ended.emptied == Some(Emptied::Keepers) {
                    ended.emptied = Some(Emptied::Lock);
                }
                if found.left.is_empty() {
                    self.gone_at.remove(life);
                    return Some(event);
                }
                format!("the processes {:?} that it may have started cannot be killed", found.left)
            }
            Err(error) => format!("what it has left cannot be seen: {error}"),
        };
        let since = gone_at.elapsed();
        if since > Duration::from_secs(1) {
            tracing::warn!("{} has ended, but {why}", life.name);
        }
        let pause = (since / 8).clamp(STRAY_PAUSES.0, STRAY_PAUSES.1);
        let ends = self.ends.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            if ends.send(event).is_err() {
                tracing::debug!("the daemon ended before a life was seen off");
            }
        });
        None
    }

    /// Reports the end of a life once its lock is free.
    pub(super) fn see_off(&mut self, life: Life, how: How) {
        self.gone_at.entry(life.clone()).or_insert_with(Instant::now);
        self.batcher.live.gone(&life);
        let member = self.batcher.team.members.get(&life.name).map(|state| &state.record);
        let beginning = member.map(|it| Beginning { at: it.begins_at, conversation: it.conversation });
        let beginning = beginning.unwrap_or_default();
        let next_works_in =
            member.filter(|it| self.may_begin_again(it)).map(|it| PathBuf::from(&it.workspace));
        let (dir, ends) = (Arc::clone(&self.dir), self.ends.clone());
        let (group, lock_tells) = (self.supervisor.leave(&life), self.supervisor.lock_tells(&life));
        tokio::spawn(async move {
            let mut ended = see_off(dir, life, beginning, (how, group)).await;
            if let Event::Ended { ended, .. } = &mut ended
                && !lock_tells
            {
                ended.emptied = ended.emptied.filter(|it| *it == Emptied::Cgroup);
            }
            if let (Event::Ended { life, ended }, Some(workspace)) = (&mut ended, next_works_in) {
                ended.unworkable = unworkable(life.name.clone(), workspace).await;
            }
            if ends.send(ended).is_err() {
                tracing::debug!("the daemon ended before a life was seen off");
            }
        });
    }

    /// Tells whether a member may be started again that ends now: else nobody need know where it would work.
    fn may_begin_again(&self, member: &Member) -> bool {
        member.restart == Restart::OnFailure
            && matches!(member.ending, None | Some(Ending::Hung))
            && self.batcher.team.shutdown_of(&member.name).is_none()
    }
}
