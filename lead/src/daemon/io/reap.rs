//! Waits until an incarnation has ended: its process has exited, its liveness lock is free, and its cgroup, if it has one, is
//! empty. Only then the daemon looks at what the incarnation had not read.

use std::fs::{File, TryLockError};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use teamd_shared::inbox::{self, ReadError};
use teamd_shared::member::Emptied;
use teamd_shared::mutant;
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::process::How;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};
use teamd_shared::transcript;

use crate::daemon::core::event::{Ended, Event, Incarnation};
use crate::daemon::io::cgroup::{Emptiness, Group};

/// What the journal says of the beginning of an incarnation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Beginning {
    /// Where the inbox stood when its conversation began.
    pub(crate) at: Position,
    /// The incarnation in which that conversation began, or was to begin.
    pub(crate) conversation: u32,
}

/// How long the shims of an incarnation with a cgroup may take to end their commands, before the daemon kills them too: a shim
/// also puts away what it laid out for a command.
const SHIM_GRACE: Duration = Duration::from_secs(3);

/// The first and the longest pause before the daemon tries again what it could not do.
const PAUSES: (Duration, Duration) = (Duration::from_micros(200), Duration::from_secs(2));

/// What an incarnation left in its files.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Left {
    /// Where its inbox stands.
    inbox: Position,
    /// How many messages it had not consumed.
    unread: u64,
    /// Whether its last entry says that SIGTERM ended it.
    by_signal: bool,
}

/// Waits until nothing of an incarnation is left, and looks at what it had not read. Returns whether its transcript says that
/// SIGTERM ended it, and its end.
///
/// The daemon tries the lock and never waits for it: a lock that another process holds on the file must not hang the daemon.
pub(crate) async fn wait_until_empty(
    dir: Arc<TeamDir>,
    incarnation: Incarnation,
    beginning: Beginning,
    (how, group): (How, Option<Group>),
) -> (bool, Event) {
    wait_for_lock(&dir, &incarnation, group.as_ref()).await;
    let emptiness = match &group {
        Some(group) => group.empty(&incarnation).await,
        None => Emptiness::Gone,
    };
    let (folder, ended) = (Arc::clone(&dir), incarnation.clone());
    let Left { inbox, unread, by_signal } =
        look(&incarnation, move || left(&folder, &ended, beginning)).await;
    let How { code, signal, ours } = how;
    // Orphans of an adopted worker may have become children of another process.
    let emptied = match emptiness {
        Emptiness::Empty => Some(Emptied::Cgroup),
        Emptiness::Gone => ours.then_some(Emptied::Tree),
        Emptiness::Unknown => None,
    };
    let ended = Ended { code, signal, inbox, unread, emptied, unworkable: None };
    (by_signal, Event::Ended { incarnation, ended })
}

/// Waits until the liveness lock is free: then each shim of the incarnation has ended its command. Where there is a cgroup, the
/// daemon kills the shims that hang, or that cannot keep up with a command that forks.
async fn wait_for_lock(dir: &TeamDir, incarnation: &Incarnation, group: Option<&Group>) {
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
        if let Some(group) = group.filter(|_| began.elapsed() >= SHIM_GRACE)
            && let Err(error) = group.kill()
        {
            tracing::warn!("cannot kill what is in the cgroup of {}: {error}", incarnation.name);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Looks at what an incarnation left in its files, until that can be read: the record of an end is final, and the next
/// incarnation relies on it.
async fn look<F>(incarnation: &Incarnation, left: F) -> Left
where
    F: Fn() -> Result<Left, ReadError> + Clone + Send + 'static,
{
    let mut pause = PAUSES.0;
    loop {
        // Much unread must not hold other events up.
        let why = match tokio::task::spawn_blocking(left.clone()).await {
            Ok(Ok(left)) => return left,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        if pause > Duration::from_secs(1) {
            tracing::warn!("{} has ended, but what it had not read cannot be seen: {why}", incarnation.name);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Looks at what an incarnation left in its files. A file that is missing says that there is nothing.
fn left(dir: &TeamDir, incarnation: &Incarnation, beginning: Beginning) -> Result<Left, ReadError> {
    let (inbox, unread) = unread(dir, &incarnation.name, beginning)?;
    Ok(Left { inbox, unread, by_signal: left_by_signal(dir, incarnation)? })
}

/// Tells whether the last entry of an incarnation says that SIGTERM ended it: there may have been no daemon to tell.
fn left_by_signal(dir: &TeamDir, incarnation: &Incarnation) -> Result<bool, DirError> {
    let last = transcript::last_entry(dir, &incarnation.name)?;
    Ok(last.is_some_and(|last| {
        matches!(last.event, transcript::Event::Left { incarnation: number, by_signal: true, .. }
            if number == incarnation.number)
    }))
}

/// Tells which process holds the liveness lock of a member, if one does.
pub(crate) fn liveness_lock_holder(dir: &TeamDir, name: &Name) -> Option<String> {
    try_liveness_lock(dir, name).err().map(|held| held.holder())
}

/// Tells whether a process holds the liveness lock of a member. Which one it is would cost a look at every lock of the machine.
pub(crate) fn liveness_lock_is_held(dir: &TeamDir, name: &Name) -> bool {
    try_liveness_lock(dir, name).is_err()
}

/// A liveness lock that could not be taken.
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

/// Tries the liveness lock of a member, and gives it back at once.
fn try_liveness_lock(dir: &TeamDir, name: &Name) -> Result<(), Held> {
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
        Some(pid) => format!("process {pid} holds its liveness lock"),
        None => "its liveness lock is held".to_owned(),
    }
}

/// Counts what a member has not consumed, and tells where its inbox stands. A conversation that never began leaves all
/// to the next one: what was sent before belongs to no conversation yet.
fn unread(dir: &TeamDir, name: &Name, beginning: Beginning) -> Result<(Position, u64), ReadError> {
    let begins_at = beginning.at;
    if !transcript::has_begun(dir, name, beginning.conversation)? {
        return Ok((begins_at, 0));
    }
    let read = transcript::position(dir, name)?.unwrap_or(begins_at);
    let count = || {
        // If its inbox was cut, it has read from the start again; else an earlier conversation had read that far.
        let earlier = read.offset < begins_at.offset && inbox::fits(dir, name, begins_at)?;
        inbox::count_lines(dir, name, if earlier { begins_at } else { read })
    };
    match count() {
        Ok(count) => Ok((count.end, count.mail)),
        Err(ReadError::NoInbox(_)) => Ok((read, 0)),
        // Something else stands in its place: trying again does not help, and there is no mail in it.
        Err(ReadError::Dir(error)) if error.io_kind().is_none() => {
            tracing::warn!("what {name} has not read is not known: {error}");
            Ok((read, 0))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use teamd_shared::message::{Body, Message};
    use teamd_shared::transcript::{Entry, Event as Happened};

    use super::*;

    struct Scratch {
        _scratch: tempfile::TempDir,
        dir: Arc<TeamDir>,
        alice: Name,
    }

    impl Scratch {
        /// An inbox with this text.
        fn with(inbox: &str) -> Self {
            let scratch = tempfile::tempdir().unwrap();
            let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
            let scratch = Self { _scratch: scratch, dir, alice: Name::new("alice").unwrap() };
            scratch.put(&TeamPath::inbox(&scratch.alice), inbox);
            scratch
        }

        fn put(&self, at: &TeamPath, text: &str) {
            teamd_shared::fs::replace(&self.dir, at, text.as_bytes()).unwrap();
        }

        /// The incarnation has begun, has read its inbox up to here, and was ended by SIGTERM.
        fn has_read(&self, inbox: Position) {
            let life = Happened::Incarnation { incarnation: 1, conversation: 1, prompt: None };
            let left = Happened::Left { reason: "SIGTERM".to_owned(), incarnation: 1, by_signal: true };
            let line = |event| {
                serde_json::to_string(&Entry { at: 1.0, inbox, pending_notices: Vec::new(), event }).unwrap()
            };
            self.put(&TeamPath::transcript(&self.alice), &format!("{}\n{}\n", line(life), line(left)));
        }

        fn life(&self) -> Incarnation {
            Incarnation { name: self.alice.clone(), number: 1 }
        }
    }

    fn mail(text: &str) -> String {
        let message = Message::new(uuid::Uuid::new_v4(), "lead", "alice", 1.0, Body::Message)
            .with_content(text.to_owned());
        String::from_utf8(message.to_line().unwrap()).unwrap()
    }

    fn behind(text: &str) -> Position {
        Position::after(text.len() as u64, text.as_bytes())
    }

    #[test]
    fn an_end_is_not_told_before_it_can_be_seen_what_was_not_read() {
        let (read, unread) = (mail("read"), mail("unread"));
        let inbox = format!("{read}{unread}");
        let team = Scratch::with(&inbox);
        team.has_read(behind(&read));
        let beginning = Beginning { at: Position::START, conversation: 1 };
        let (dir, life, looks) = (Arc::clone(&team.dir), team.life(), Arc::new(AtomicU32::new(0)));
        // No descriptor is left for a moment.
        let looking = move || {
            if looks.fetch_add(1, Ordering::Relaxed) < 3 {
                let source = rustix::io::Errno::MFILE.into();
                return Err(DirError::Io { verb: "open", path: "inbox".into(), source }.into());
            }
            left(&dir, &life, beginning)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let left = runtime.block_on(look(&team.life(), looking));
        assert_eq!(left, Left { inbox: behind(&inbox), unread: 1, by_signal: true });
    }

    #[test]
    fn what_cannot_be_read_is_no_answer_and_what_is_missing_is_one() {
        let read = mail("read");
        let team = Scratch::with(&read);
        let beginning = Beginning { at: Position::START, conversation: 1 };
        let look = || left(&team.dir, &team.life(), beginning);
        let nothing = Left { inbox: Position::START, unread: 0, by_signal: false };
        assert_eq!(look().unwrap(), nothing, "no transcript");
        team.has_read(behind(&read));
        let path = |at: TeamPath| team.dir.path(&at);
        let inbox = path(TeamPath::inbox(&team.alice));
        std::fs::remove_file(&inbox).unwrap();
        let gone = Left { inbox: behind(&read), unread: 0, by_signal: true };
        assert_eq!(look().unwrap(), gone, "no inbox");
        std::fs::create_dir(&inbox).unwrap();
        assert_eq!(look().unwrap(), gone, "something else");
        let transcript = path(TeamPath::transcript(&team.alice));
        std::fs::remove_file(&transcript).unwrap();
        std::fs::create_dir(&transcript).unwrap();
        assert!(look().is_err(), "no file");
    }

    #[test]
    fn the_farewell_of_an_earlier_incarnation_does_not_count() {
        let team = Scratch::with("");
        team.has_read(Position::START);
        let beginning = Beginning { at: Position::START, conversation: 1 };
        let of = |incarnation| {
            left(&team.dir, &Incarnation { number: incarnation, ..team.life() }, beginning).unwrap()
        };
        assert!(of(1).by_signal);
        assert!(!of(2).by_signal, "it died before it could write anything");
    }

    #[test]
    fn of_an_inbox_that_was_cut_only_what_came_since_counts() {
        let before = [mail("before"), mail("before")].concat();
        let (read, unread) = (mail("read"), mail("unread"));
        let team = Scratch::with(&format!("{read}{unread}"));
        team.has_read(behind(&read));
        let beginning = Beginning { at: behind(&before), conversation: 1 };
        assert_eq!(left(&team.dir, &team.life(), beginning).unwrap().unread, 1);
        // As long as the beginning stands there, nothing before it was its mail.
        team.put(&TeamPath::inbox(&team.alice), &format!("{before}{unread}"));
        let uncut = left(&team.dir, &team.life(), beginning).unwrap();
        assert_eq!((uncut.inbox, uncut.unread), (behind(&format!("{before}{unread}")), 1));
    }
}
