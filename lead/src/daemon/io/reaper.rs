//! The end of an incarnation, from the end of its process to the event that says so. How it ended, and what follows, is not
//! decided here.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use teamd_shared::member::Emptied;
use teamd_shared::process::How;
use teamd_shared::team_dir::TeamDir;
use tokio::sync::{mpsc, oneshot};

use super::cgroup::Group;
use super::reap::{Beginning, wait_until_empty};
use super::workers::Supervisor;
use crate::daemon::core::event::{Event, Incarnation};
use crate::daemon::workspace::unworkable;

/// The first and the longest pause before the daemon looks again for orphans that it has killed.
const ORPHAN_PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_secs(2));
/// How long after the end of a process its connection may still hold what it said last.
const LAST_FRAMES: Duration = Duration::from_secs(1);

/// The incarnations whose process has ended, and of which something may be left.
#[derive(Debug)]
pub(crate) struct Reaper {
    dir: Arc<TeamDir>,
    /// Where the tasks that wait until nothing is left report to.
    ends: mpsc::UnboundedSender<Event>,
    /// When the process of each ended.
    exited_at: HashMap<Incarnation, Instant>,
}

/// What must be known of an incarnation whose process has ended, to wait until nothing of it is left.
pub(crate) struct ExitContext {
    /// How its process ended.
    pub(crate) how: How,
    /// How its conversation began.
    pub(crate) beginning: Beginning,
    /// Ends when its connection has: what it said last comes first, SIGTERM's farewell for one.
    pub(crate) closed: Option<oneshot::Receiver<()>>,
    /// Its cgroup, if it has one.
    pub(crate) group: Option<Group>,
    /// Whether its liveness lock tells anything.
    pub(crate) lock_tells: bool,
    /// Where its next incarnation would work, if it may be started again.
    pub(crate) next_works_in: Option<PathBuf>,
}

impl Reaper {
    pub(crate) fn new(dir: Arc<TeamDir>, ends: mpsc::UnboundedSender<Event>) -> Self {
        Self { dir, ends, exited_at: HashMap::new() }
    }

    /// Returns one that ends just now.
    pub(crate) fn one_that_ends(&self) -> Option<&Incarnation> {
        self.exited_at.keys().next()
    }

    /// Reports the end of an incarnation once nothing of it is left.
    pub(crate) fn wait(&mut self, incarnation: Incarnation, context: ExitContext) {
        self.exited_at.insert(incarnation.clone(), Instant::now());
        let (dir, ends) = (Arc::clone(&self.dir), self.ends.clone());
        tokio::spawn(async move {
            let ExitContext { how, beginning, closed, group, lock_tells, next_works_in } = context;
            if let Some(closed) = closed
                && tokio::time::timeout(LAST_FRAMES, closed).await.is_err()
            {
                tracing::warn!("{} has ended, but its connection has not", incarnation.name);
            }
            let name = incarnation.name.clone();
            let (by_signal, mut event) =
                wait_until_empty(dir, incarnation.clone(), beginning, (how, group)).await;
            if by_signal {
                // There may have been no daemon to tell. What follows from that comes before the end.
                report(&ends, Event::Leaving { incarnation });
            }
            if let Event::Ended { ended, .. } = &mut event {
                if !lock_tells {
                    ended.emptied = ended.emptied.filter(|it| *it == Emptied::Cgroup);
                }
                if let Some(workspace) = next_works_in {
                    ended.unworkable = unworkable(name, workspace).await;
                }
            }
            report(&ends, event);
        });
    }

    /// Ends the orphans of an incarnation (its worker and a shim may have been killed together), and returns its end if none
    /// remains; else the end is reported again later. An orphan that appeared before this incarnation ended is not its own: no
    /// other end waits for a process that cannot be killed.
    pub(crate) fn on_empty(&mut self, mut event: Event, workers: &mut Supervisor) -> Option<Event> {
        let Event::Ended { incarnation, ended } = &mut event else { return Some(event) };
        let exited_at = *self.exited_at.entry(incarnation.clone()).or_insert_with(Instant::now);
        // The end of another incarnation may have shown them before its own end was seen.
        let why = match workers.end_orphans(exited_at.checked_sub(LAST_FRAMES).unwrap_or(exited_at)) {
            Ok(found) => {
                if !found.complete {
                    ended.emptied = ended.emptied.filter(|it| *it == Emptied::Cgroup);
                }
                if found.remaining.is_empty() {
                    self.exited_at.remove(incarnation);
                    return Some(event);
                }
                format!("the processes {:?} that it may have started cannot be killed", found.remaining)
            }
            Err(error) => format!("what it has left cannot be seen: {error}"),
        };
        let since = exited_at.elapsed();
        if since > Duration::from_secs(1) {
            tracing::warn!("{} has ended, but {why}", incarnation.name);
        }
        let pause = (since / 8).clamp(ORPHAN_PAUSES.0, ORPHAN_PAUSES.1);
        let ends = self.ends.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            report(&ends, event);
        });
        None
    }
}

fn report(ends: &mpsc::UnboundedSender<Event>, event: Event) {
    if ends.send(event).is_err() {
        tracing::debug!("the daemon ended before an incarnation was seen to be gone");
    }
}
