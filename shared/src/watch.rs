//! Wake-ups when a file grows. A wake-up carries no message: the reader that is woken looks.
//!
//! The order that loses nothing: open the file, arm the watch, then read; after a wake-up call
//! [`Watch::rearm_if_needed`], then read. A wake-up that is lost nevertheless (an overflow, a bug
//! of the system) only costs time, if the caller also looks every [`SLOW_TICK`].
//!
//! A watch of one file dies when the file is renamed over or removed, so it is armed again on the
//! path. Reading never wakes: events of that kind would make a reader wake itself forever.

mod poll;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

use poll::Poll;

pub use poll::lacks_events;

/// How often a reader looks without being woken. The reader keeps the timer.
pub const SLOW_TICK: Duration = Duration::from_secs(10);

/// How often files are looked at where the file system makes no events.
pub const POLL_EVERY: Duration = Duration::from_millis(250);

/// With more changed files, the whole folder counts as changed: a list that no task takes must not
/// grow.
const MAX_FILES: usize = 1024;

/// Why a file or folder cannot be watched. Fits behind "error: ".
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The user has no inotify instance (Linux grants 128), watch, descriptor or thread left. The
    /// caller asks the daemon to wake it, or polls.
    #[error("cannot watch {}: no inotify instance or watch is left for this user", .0.display())]
    Exhausted(PathBuf),
    /// Nothing is there.
    #[error("cannot watch {}: it does not exist", .0.display())]
    Missing(PathBuf),
    /// The system refused.
    #[error("cannot watch {}: {source}", .path.display())]
    Refused {
        /// What was to be watched.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// What has changed in a folder since this was last asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changes {
    /// The files of these names.
    Files(BTreeSet<String>),
    /// Any file: there were too many changes to list, or events were lost.
    Anything,
}

impl Default for Changes {
    fn default() -> Self {
        Self::Files(BTreeSet::new())
    }
}

/// A watch of one file, or of the files of one folder (not of its subfolders), or of their names
/// alone.
///
/// It belongs to one reader. It takes an inotify instance and a thread, or, where it polls, nothing
/// but the time in [`Watch::changed`].
#[derive(Debug)]
pub struct Watch {
    target: WatchTarget,
    signal: Arc<Signal>,
    source: WakeSource,
}

#[derive(Debug)]
enum WakeSource {
    Events(RecommendedWatcher),
    Poll(Mutex<Poll>),
}

/// What is watched.
#[derive(Debug, Clone)]
struct WatchTarget {
    path: PathBuf,
    folder: bool,
    /// Whether only names count, and not what is written.
    names: bool,
    /// Whether closing a file that was open for writing counts.
    closes: bool,
}

/// Where the watcher's thread puts events. Its size is bounded.
#[derive(Debug, Default)]
struct Signal {
    wake: Notify,
    pending: Mutex<PendingChanges>,
}

#[derive(Debug, Default)]
struct PendingChanges {
    /// Whether the watch may be dead: the path may name another file now.
    stale: bool,
    changes: Changes,
}

impl Watch {
    /// Watches one file. With `force_poll`, or on a file system without events, it looks on a
    /// timer.
    ///
    /// # Errors
    /// [`WatchError`], above all [`WatchError::Exhausted`].
    pub fn file(path: &Path, force_poll: bool) -> Result<Self, WatchError> {
        Self::arm(
            WatchTarget {
                path: path.to_owned(),
                folder: false,
                names: false,
                closes: false,
            },
            force_poll,
        )
    }

    /// Watches which files are in a folder: those that appear, vanish, are replaced, or were
    /// opened for writing. What is written into a file that stays open makes no wake-up.
    ///
    /// # Errors
    /// As [`Watch::file`], and [`WatchError::Refused`] on a file system without events.
    pub fn names(path: &Path) -> Result<Self, WatchError> {
        let target = WatchTarget {
            path: path.to_owned(),
            folder: true,
            names: true,
            closes: true,
        };
        if lacks_events(path) {
            return Err(target.refused(io::ErrorKind::Unsupported.into()));
        }
        Self::arm(target, false)
    }

    /// Watches the files of a folder. With `force_poll`, or on a file system without events, it
    /// looks on a timer.
    ///
    /// # Errors
    /// As [`Watch::file`].
    pub fn folder(path: &Path, force_poll: bool) -> Result<Self, WatchError> {
        Self::arm(
            WatchTarget {
                path: path.to_owned(),
                folder: true,
                names: false,
                closes: false,
            },
            force_poll,
        )
    }

    /// As [`Watch::folder`], and also wakes when a file that was open for writing is closed, for
    /// example by a process that ends. With a timer that is not noticed.
    ///
    /// # Errors
    /// As [`Watch::file`].
    pub fn folder_and_ends(path: &Path, force_poll: bool) -> Result<Self, WatchError> {
        Self::arm(
            WatchTarget {
                path: path.to_owned(),
                folder: true,
                names: false,
                closes: true,
            },
            force_poll,
        )
    }

    fn arm(target: WatchTarget, force_poll: bool) -> Result<Self, WatchError> {
        let signal = Arc::new(Signal::default());
        let source = if force_poll || lacks_events(&target.path) {
            std::fs::symlink_metadata(&target.path).map_err(|source| target.refused(source))?;
            WakeSource::Poll(Mutex::new(Poll::start(&target)))
        } else {
            WakeSource::Events(target.watcher(&signal)?)
        };
        Ok(Self {
            target,
            signal,
            source,
        })
    }

    /// Tells whether it looks on a timer, which the user should know.
    pub fn polls(&self) -> bool {
        matches!(self.source, WakeSource::Poll(_))
    }

    /// Waits until something has changed since the last return, or since the watch was armed.
    ///
    /// It may return although nothing has changed. Dropping the future loses nothing.
    pub async fn changed(&self) {
        match &self.source {
            WakeSource::Events(_) => self.signal.wake.notified().await,
            WakeSource::Poll(poll) => loop {
                let due = lock(poll).due();
                tokio::time::sleep_until(due).await;
                let changed = lock(poll).look(&self.target);
                if !changed.is_empty() {
                    return self.signal.add(false, Some(changed));
                }
            },
        }
    }

    /// Takes what has changed in the folder since this was last asked.
    pub fn take(&self) -> Changes {
        std::mem::take(&mut lock(&self.signal.pending).changes)
    }

    /// Stops watching for good, in a process that is about to end.
    ///
    /// The kernel removes a watch only when no process can be using it, which takes milliseconds. A
    /// process that removes its watch shortly before ends sooner (measured: 1 ms instead of 10
    /// ms).
    pub fn disarm(&mut self) {
        if let WakeSource::Events(watcher) = &mut self.source {
            // A watch that is dead already needs no removal.
            drop(watcher.unwatch(&self.target.path));
        }
    }

    /// Arms the watch on the path again if what it watched may have been moved, removed or
    /// replaced. Returns whether it did; then the caller must read, since nothing was watched for a
    /// moment.
    ///
    /// # Errors
    /// [`WatchError`]; nothing is watched then, and the next call tries again.
    pub fn rearm_if_needed(&mut self) -> Result<bool, WatchError> {
        let WakeSource::Events(watcher) = &mut self.source else {
            return Ok(false);
        };
        if !std::mem::take(&mut lock(&self.signal.pending).stale) {
            return Ok(false);
        }
        // It fails if the watch is dead already: that is why we are here.
        drop(watcher.unwatch(&self.target.path));
        self.target
            .watch(watcher)
            .inspect_err(|_| lock(&self.signal.pending).stale = true)?;
        Ok(true)
    }
}

/// A lock that is held for a few instructions, none of which can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WatchTarget {
    fn watcher(&self, signal: &Arc<Signal>) -> Result<RecommendedWatcher, WatchError> {
        // notify 8 ignores that its thread could not be started, and panics at the next call. A
        // thread that can be started now is no proof, but as good as one.
        std::thread::Builder::new()
            .spawn(|| {})
            .map(|thread| thread.join())
            .map_err(|_| WatchError::Exhausted(self.path.clone()))
            .map(drop)?;
        let target = self.clone();
        let signal = Arc::clone(signal);
        let mut watcher = notify::recommended_watcher(move |event| target.take(event, &signal))
            .map_err(|error| self.cannot_watch(error))?;
        self.watch(&mut watcher)?;
        Ok(watcher)
    }

    fn watch(&self, watcher: &mut RecommendedWatcher) -> Result<(), WatchError> {
        watcher
            .watch(&self.path, RecursiveMode::NonRecursive)
            .map_err(|error| self.cannot_watch(error))
    }

    fn cannot_watch(&self, error: notify::Error) -> WatchError {
        match error.kind {
            notify::ErrorKind::MaxFilesWatch => WatchError::Exhausted(self.path.clone()),
            notify::ErrorKind::PathNotFound => WatchError::Missing(self.path.clone()),
            notify::ErrorKind::Io(source) => self.refused(source),
            _ => self.refused(io::Error::other(error)),
        }
    }

    fn refused(&self, source: io::Error) -> WatchError {
        use nix::errno::Errno::{EMFILE, ENFILE, ENOSPC};
        let path = self.path.clone();
        match source.raw_os_error() {
            Some(code) if [EMFILE as i32, ENFILE as i32, ENOSPC as i32].contains(&code) => {
                WatchError::Exhausted(path)
            }
            _ if source.kind() == io::ErrorKind::NotFound => WatchError::Missing(path),
            _ => WatchError::Refused { path, source },
        }
    }

    /// Handles one event, in the thread of the watcher.
    fn take(&self, event: notify::Result<Event>, signal: &Signal) {
        let Ok(event) = event else {
            return signal.lost();
        };
        if event.need_rescan() {
            return signal.lost();
        }
        let itself = event.paths.contains(&self.path);
        let (wakes, stale) = match event.kind {
            // A program that opened a file to write has closed it. (One that appends line by line
            // keeps it open.)
            EventKind::Access(AccessKind::Close(AccessMode::Write)) if self.closes => (true, false),
            // Reading makes these events: a reader that woke for them would wake itself.
            EventKind::Access(_) => (false, false),
            EventKind::Modify(ModifyKind::Data(_)) if self.names => (false, false),
            // While a file is open, this is the only event when another one is renamed over it: its
            // link count falls.
            EventKind::Modify(ModifyKind::Metadata(_)) => (itself || self.names, itself),
            EventKind::Modify(ModifyKind::Name(_)) | EventKind::Remove(_) => (true, itself),
            EventKind::Any | EventKind::Create(_) | EventKind::Modify(_) | EventKind::Other => {
                (true, false)
            }
        };
        if wakes {
            let whole = self.folder && itself;
            signal.add(
                stale,
                (!whole).then(|| {
                    event
                        .paths
                        .iter()
                        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
                        .collect()
                }),
            );
        }
    }
}

impl Signal {
    /// Records changed files; none means that anything may have changed.
    fn add(&self, stale: bool, files: Option<BTreeSet<String>>) {
        let mut pending = lock(&self.pending);
        pending.stale |= stale;
        match (&mut pending.changes, files) {
            (Changes::Files(known), Some(files)) if known.len() + files.len() <= MAX_FILES => {
                known.extend(files)
            }
            (changes, _) => *changes = Changes::Anything,
        }
        drop(pending);
        self.wake.notify_one();
    }

    /// Records that events were lost.
    fn lost(&self) {
        self.add(true, None);
    }
}

#[cfg(test)]
mod tests;
