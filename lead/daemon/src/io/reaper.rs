//! The end of an incarnation, from the end of its process to the event that says so: its liveness
//! lock is free, and its cgroup, if it has one, is empty. Only then the daemon looks at what the
//! incarnation had not read. How it ended, and what follows, is not decided here.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use teamd_shared::inbox::{self, ReadError, Unread};
use teamd_shared::member::{Emptied, Member};
use teamd_shared::mutant;
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::process::How;
use teamd_shared::team_dir::{DirError, TeamDir};
use teamd_shared::transcript;
use tokio::sync::{mpsc, oneshot};

use super::cgroup::{CgroupHandle, Emptiness};
use super::connections::Connections;
use super::lock::try_liveness_lock;
use super::workers::Supervisor;
use crate::core::event::{Ended, Event};
use crate::core::incarnation::Incarnation;
use crate::workspace::unworkable;

/// The first and the longest pause before the daemon looks again for orphans that it has killed.
const ORPHAN_PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_secs(2));
/// How long after the end of a process its connection may still hold what it said last.
const LAST_FRAMES: Duration = Duration::from_secs(1);
/// How long the shims of an incarnation with a cgroup may take to end their commands, before the
/// daemon kills them too: a shim also puts away what it laid out for a command.
const SHIM_GRACE: Duration = Duration::from_secs(3);

/// The first and the longest pause before the daemon tries again what it could not do.
const PAUSES: (Duration, Duration) = (Duration::from_micros(200), Duration::from_secs(2));

/// The incarnations whose process has ended, and of which something may be left.
#[derive(Debug)]
pub(crate) struct Reaper {
    dir: Arc<TeamDir>,
    /// Where the tasks that wait until nothing is left report to.
    ends: mpsc::UnboundedSender<Event>,
    /// When the process of each ended.
    exited_at: HashMap<Incarnation, Instant>,
}

/// What the journal says of the beginning of an incarnation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Beginning {
    /// Where the inbox stood when its conversation began.
    pub(crate) at: Position,
    /// The incarnation in which that conversation began, or was to begin.
    pub(crate) conversation: u32,
    /// Up to where mail has come back to its senders before.
    pub(crate) returned_up_to: Option<Position>,
}

impl Beginning {
    pub(crate) fn of(member: &Member, returned_up_to: Option<Position>) -> Self {
        Self {
            at: member.begins_at,
            conversation: member.conversation,
            returned_up_to,
        }
    }
}

/// What is known of an incarnation whose process has ended.
pub(crate) struct ExitContext {
    /// How its process ended.
    pub(crate) how: How,
    /// How its conversation began.
    pub(crate) beginning: Beginning,
    /// Where its next incarnation would work, if it may be started again.
    pub(crate) next_works_in: Option<PathBuf>,
}

/// What tells when nothing of an incarnation is left.
pub(crate) struct Remains {
    /// Ends when its connection has: what it said last comes first, SIGTERM's farewell for one.
    pub(crate) closed: Option<oneshot::Receiver<()>>,
    /// Its cgroup, if it has one.
    pub(crate) group: Option<CgroupHandle>,
    /// Whether its liveness lock tells anything.
    pub(crate) lock_tells: bool,
}

/// What an incarnation left in its files.
#[derive(Debug, Clone, PartialEq)]
struct Left {
    /// What it had not consumed.
    unread: Unread,
    /// Whether its last entry says that SIGTERM ended it.
    by_signal: bool,
}

impl Reaper {
    pub(crate) fn new(dir: Arc<TeamDir>, ends: mpsc::UnboundedSender<Event>) -> Self {
        Self {
            dir,
            ends,
            exited_at: HashMap::new(),
        }
    }

    /// Returns one that ends just now.
    pub(crate) fn one_that_ends(&self) -> Option<&Incarnation> {
        self.exited_at.keys().next()
    }

    /// Reports the end of an incarnation once nothing of it is left: takes over what there is of it.
    pub(crate) fn process_exited(
        &mut self,
        incarnation: Incarnation,
        context: ExitContext,
        connections: &mut Connections,
        supervisor: &mut Supervisor,
    ) {
        let remains = Remains {
            closed: connections.closed(&incarnation),
            group: supervisor.leave(&incarnation),
            lock_tells: supervisor.lock_tells(&incarnation),
        };
        self.wait(incarnation, context, remains);
    }

    /// Reports the end of an incarnation once nothing of it is left.
    pub(super) fn wait(
        &mut self,
        incarnation: Incarnation,
        context: ExitContext,
        remains: Remains,
    ) {
        self.exited_at.insert(incarnation.clone(), Instant::now());
        tokio::spawn(report_end(
            Arc::clone(&self.dir),
            incarnation,
            context,
            remains,
            self.ends.clone(),
        ));
    }

    /// Ends the orphans of an incarnation (its worker and a shim may have been killed together),
    /// and returns its end if none remains; else the end is reported again later. An orphan that
    /// appeared before this incarnation ended is not its own: no other end waits for a process that
    /// cannot be killed.
    pub(crate) fn on_empty(&mut self, mut event: Event, workers: &mut Supervisor) -> Option<Event> {
        let Event::Ended { incarnation, ended } = &mut event else {
            return Some(event);
        };
        let exited_at = *self
            .exited_at
            .entry(incarnation.clone())
            .or_insert_with(Instant::now);
        // The end of another incarnation may have shown them before its own end was seen.
        let why = match workers.end_orphans(exited_at.checked_sub(LAST_FRAMES).unwrap_or(exited_at))
        {
            Ok(found) => {
                if !found.complete {
                    ended.emptied = ended.emptied.filter(|it| *it == Emptied::Cgroup);
                }
                if found.remaining.is_empty() {
                    self.exited_at.remove(incarnation);
                    return Some(event);
                }
                format!(
                    "the processes {:?} that it may have started cannot be killed",
                    found.remaining
                )
            }
            Err(error) => format!("the processes that it has left cannot be listed: {error}"),
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

/// Waits until nothing of an incarnation is left, looks at what it had not read, and reports its
/// end.
async fn report_end(
    dir: Arc<TeamDir>,
    incarnation: Incarnation,
    context: ExitContext,
    remains: Remains,
    ends: mpsc::UnboundedSender<Event>,
) {
    let ExitContext {
        how: How { code, signal, ours },
        beginning,
        next_works_in,
    } = context;
    let Remains {
        closed,
        group,
        lock_tells,
    } = remains;
    if let Some(closed) = closed
        && tokio::time::timeout(LAST_FRAMES, closed).await.is_err()
    {
        tracing::warn!("{} has ended, but its connection has not", incarnation.name);
    }
    wait_for_lock(&dir, &incarnation, group.as_ref()).await;
    let emptied = match &group {
        Some(group) => group.empty(incarnation.name.as_str()).await,
        None => Emptiness::Gone,
    };
    let emptied = match emptied {
        Emptiness::Empty => Some(Emptied::Cgroup),
        // Orphans of an adopted worker may have become children of another process.
        Emptiness::Gone => (ours && lock_tells).then_some(Emptied::Tree),
        Emptiness::Unknown => None,
    };
    let folder = Arc::clone(&dir);
    let ended = incarnation.clone();
    let Left { unread, by_signal } =
        look(&incarnation, move || left(&folder, &ended, beginning)).await;
    if by_signal {
        // There may have been no daemon to tell. What follows from that comes before the end.
        report(
            &ends,
            Event::Leaving {
                incarnation: incarnation.clone(),
            },
        );
    }
    let unworkable = match next_works_in {
        Some(workspace) => unworkable(incarnation.name.clone(), workspace).await,
        None => None,
    };
    let ended = Ended {
        code,
        signal,
        inbox: unread.end,
        unread: unread.count,
        mail: Some(unread.mail),
        more_mail: unread.more,
        emptied,
        unworkable,
    };
    report(&ends, Event::Ended { incarnation, ended });
}

/// Waits until the liveness lock is free: then each shim of the incarnation has ended its command.
/// Where there is a cgroup, the daemon kills the shims that hang, or that cannot keep up with a
/// command that forks.
async fn wait_for_lock(dir: &TeamDir, incarnation: &Incarnation, group: Option<&CgroupHandle>) {
    let began = Instant::now();
    let mut pause = PAUSES.0;
    while let Err(held) = try_liveness_lock(dir, &incarnation.name) {
        if mutant::is_on("ended-before-the-lock") {
            break;
        }
        if pause > Duration::from_secs(1) {
            tracing::warn!(
                "{} has ended, but its liveness lock is still held: {}",
                incarnation.name,
                held.holder()
            );
        }
        if began.elapsed() >= SHIM_GRACE
            && let Some(group) = group
            && let Err(error) = group.kill()
        {
            tracing::warn!(
                "cannot kill what is in the cgroup of {}: {error}",
                incarnation.name
            );
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Looks at what an incarnation left in its files, until that can be read: the record of an end is
/// final, and the next incarnation relies on it.
async fn look<F>(incarnation: &Incarnation, left: F) -> Left
where
    F: Fn() -> Result<Left, ReadError> + Clone + Send + 'static,
{
    let mut pause = PAUSES.0;
    loop {
        // Much unread must not hold other events up.
        let looked = tokio::task::spawn_blocking(left.clone()).await;
        let why = match looked.unwrap_or_else(|error| resume_unwind(error.into_panic())) {
            Ok(left) => return left,
            Err(error) => error,
        };
        if pause > Duration::from_secs(1) {
            tracing::warn!(
                "{} has ended, but its unread mail cannot be counted: {why}",
                incarnation.name
            );
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Looks at what an incarnation left in its files. A file that is missing says that there is
/// nothing.
fn left(dir: &TeamDir, incarnation: &Incarnation, beginning: Beginning) -> Result<Left, ReadError> {
    Ok(Left {
        unread: unread(dir, &incarnation.name, beginning)?,
        by_signal: left_by_signal(dir, incarnation)?,
    })
}

/// Tells whether the last entry of an incarnation says that SIGTERM ended it: there may have been
/// no daemon to tell.
fn left_by_signal(dir: &TeamDir, incarnation: &Incarnation) -> Result<bool, DirError> {
    let last = transcript::last_entry(dir, &incarnation.name)?;
    Ok(last.is_some_and(|last| {
        matches!(last.event, transcript::Event::Left { incarnation: number, by_signal: true, .. }
            if number == incarnation.number)
    }))
}

/// Looks at what a member has not read. A position before the beginning means that the inbox was
/// cut and is read from its start again, or that an earlier conversation had read that far.
fn unread_from(
    dir: &TeamDir,
    name: &Name,
    read: Position,
    beginning: Beginning,
) -> Result<Unread, ReadError> {
    let begins_at = beginning.at;
    let earlier = read.offset < begins_at.offset && inbox::fits(dir, name, begins_at)?;
    let from = if earlier { begins_at } else { read };
    let mut unread = inbox::look_at_unread(dir, name, from, beginning.returned_up_to)?;
    if !unread.mail.is_empty() {
        let ids: BTreeSet<_> = unread.mail.iter().map(|mail| mail.id).collect();
        let consumed = transcript::consumed_of(dir, name, &ids)?;
        unread.mail.retain(|mail| !consumed.contains(&mail.id));
    }
    Ok(unread)
}

/// Looks at what a member has not consumed. A conversation that never began leaves all to the next
/// one: what was sent before belongs to no conversation yet.
fn unread(dir: &TeamDir, name: &Name, beginning: Beginning) -> Result<Unread, ReadError> {
    let nothing_behind = |end| Unread {
        end,
        ..Unread::default()
    };
    if !transcript::has_begun(dir, name, beginning.conversation)? {
        return Ok(nothing_behind(beginning.at));
    }
    let read = transcript::position(dir, name)?.unwrap_or(beginning.at);
    match unread_from(dir, name, read, beginning) {
        Ok(unread) => Ok(unread),
        Err(ReadError::NoInbox(_)) => Ok(nothing_behind(read)),
        // Something else is in its place: trying again does not help, and there is no mail in
        // it.
        Err(ReadError::Dir(error)) if error.io_kind().is_none() => {
            tracing::warn!("the unread mail of {name} cannot be counted: {error}");
            Ok(nothing_behind(read))
        }
        Err(error) => Err(error),
    }
}
