//! The end of a life: it is over when its process has ended, its life lock is free, and its cgroup, if it has one, is empty.
//! Only then it is looked at what it had not read.

use std::fs::{File, TryLockError};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use teamd_shared::inbox;
use teamd_shared::member::Emptied;
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::process::How;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::transcript;

use super::cgroup::{Group, Killed};
use super::event::{Ended, Event, Life};

/// What the journal says of the beginning of a life.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Beginning {
    /// Where the inbox stood when its conversation began.
    pub(super) at: Position,
    /// The life in which that conversation began, or was to begin.
    pub(super) conversation: u32,
}

/// How long the keepers of a life that has a cgroup have to end what they keep, before it is killed with them: they know
/// how many had to be killed, and put away what they laid out for a command.
const KEEPERS: Duration = Duration::from_secs(1);

/// Waits until nothing of a life is left, and looks at what it had not read.
///
/// The lock is tried, never waited for: somebody else's lock on the file must not hang anything.
pub(super) async fn see_off(
    dir: Arc<TeamDir>,
    life: Life,
    beginning: Beginning,
    (how, group): (How, Option<Group>),
) -> Event {
    let mut killed = Killed::default();
    wait_for_lock(&dir, &life, (group.as_ref(), &mut killed)).await;
    let empty = match &group {
        Some(group) => group.empty(&life, &mut killed).await,
        None => false,
    };
    // Whoever ended with much unread must not hold everybody else up.
    let (folder, gone) = (Arc::clone(&dir), life.clone());
    let reading = tokio::task::spawn_blocking(move || {
        (unread(&folder, &gone.name, beginning), left_by_signal(&folder, &gone))
    });
    let ((inbox, unread), by_signal) = reading.await.unwrap_or(((beginning.at, 0), false));
    let How { code, signal, ours } = how;
    let emptied = Some(match (empty, ours) {
        (true, _) => Emptied::Cgroup,
        (false, true) => Emptied::Keepers,
        (false, false) => Emptied::Lock,
    });
    // What keepers have killed comes to the one that started their worker, and to nobody else.
    let left_behind = killed.count().filter(|_| ours);
    Event::Ended { life, ended: Ended { code, signal, inbox, unread, by_signal, emptied, left_behind } }
}

/// Waits until the life lock is free: the keepers of the life have seen all their commands to the end. Those that hang, or
/// cannot keep up with what forks, are killed with it.
async fn wait_for_lock(dir: &TeamDir, life: &Life, (group, killed): (Option<&Group>, &mut Killed)) {
    let began = Instant::now();
    let mut pause = Duration::from_micros(200);
    while let Err(held) = try_life_lock(dir, &life.name) {
        if pause > Duration::from_secs(1) {
            tracing::warn!("{} has ended, but its life lock is still held: {}", life.name, held.holder());
        }
        if let Some(group) = group.filter(|_| began.elapsed() >= KEEPERS)
            && let Err(error) = group.kill(killed)
        {
            tracing::warn!("cannot kill what is in the cgroup of {}: {error}", life.name);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

/// Tells whether the last that a life wrote is that SIGTERM ends it: there may have been no daemon to hear it.
fn left_by_signal(dir: &TeamDir, life: &Life) -> bool {
    let last = transcript::last_entry(dir, &life.name).unwrap_or_else(|error| {
        tracing::warn!("cannot see what {} wrote last: {error}", life.name);
        None
    });
    last.is_some_and(|last| {
        matches!(last.event, transcript::Event::Left { incarnation, by_signal: true, .. }
            if incarnation == life.incarnation)
    })
}

/// Tells who holds the life lock of a member, if anybody does.
pub(super) fn life_lock_holder(dir: &TeamDir, name: &Name) -> Option<String> {
    try_life_lock(dir, name).err().map(|held| held.holder())
}

/// Tells whether somebody holds the life lock of a member. Who that is would cost a look at every lock of the machine.
pub(super) fn life_lock_is_held(dir: &TeamDir, name: &Name) -> bool {
    try_life_lock(dir, name).is_err()
}

/// A life lock that could not be taken.
enum Held {
    By(File),
    Unknown(String),
}

impl Held {
    /// Says who holds it, for people.
    fn holder(&self) -> String {
        match self {
            Self::By(file) => holder_in_proc_locks(file),
            Self::Unknown(why) => why.clone(),
        }
    }
}

/// Tries the life lock of a member, and gives it back at once.
fn try_life_lock(dir: &TeamDir, name: &Name) -> Result<(), Held> {
    let file = match dir.open_file(&TeamPath::transcript(name), OFlags::RDWR) {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(Held::Unknown(error.to_string())),
    };
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Held::By(file)),
        Err(TryLockError::Error(error)) => Err(Held::Unknown(format!("cannot try its lock: {error}"))),
    }
}

/// Looks the holder of a lock up in `/proc/locks` (`proc_locks(5)`), for people.
fn holder_in_proc_locks(file: &File) -> String {
    use std::os::unix::fs::MetadataExt;
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let inode = file.metadata().map(|meta| format!(":{}", meta.ino())).unwrap_or_default();
    let line = locks.lines().find(|line| line.split_whitespace().any(|field| field.ends_with(&inode)));
    match line.and_then(|line| line.split_whitespace().nth(4)) {
        Some(pid) => format!("process {pid} holds its life lock"),
        None => "its life lock is held".to_owned(),
    }
}

/// Counts what a member has not taken in, and says where its inbox stands. A conversation that never began leaves all
/// to the next one: what was sent before is nobody's mail yet.
fn unread(dir: &TeamDir, name: &Name, beginning: Beginning) -> (Position, u64) {
    let begins_at = beginning.at;
    if matches!(transcript::has_begun(dir, name, beginning.conversation), Ok(false)) {
        return (begins_at, 0);
    }
    let cursor = transcript::position(dir, name).ok().flatten().unwrap_or(begins_at);
    let cursor = if cursor.offset < begins_at.offset { begins_at } else { cursor };
    match inbox::count_lines(dir, name, cursor) {
        Ok(count) => (count.end, count.mail),
        Err(error) => {
            tracing::warn!("cannot count what {name} has not read: {error}");
            (cursor, 0)
        }
    }
}
