//! Waits for changes at the top of the team directory, where no runtime may run.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::watch::{POLL_EVERY, lacks_events};

/// The longest wait, in case a change is missed.
const TICK: Duration = Duration::from_secs(1);
/// How much is read at once, in bytes: many events.
const PIECE: usize = 4 << 10;

/// A watch of the files at the top of the team directory.
pub(super) struct TopChanges {
    /// The events; none where there are none, or the user has no inotify instance left.
    queue: Option<OwnedFd>,
}

impl TopChanges {
    /// Watches from now on. A caller that reads after this misses nothing.
    pub(super) fn of(dir: &TeamDir) -> Self {
        let queue = if lacks_events(dir.root()) {
            None
        } else {
            watch(dir)
                .inspect_err(|error| tracing::debug!("cannot watch the team directory: {error}"))
                .ok()
        };
        Self { queue }
    }

    /// Returns when a file was replaced, or a process closed one that it had open for writing (as a
    /// daemon that ends does with its journal). It may return earlier, and does after `most`.
    pub(super) fn wait(&self, most: Duration) {
        let longest = if self.queue.is_some() {
            TICK
        } else {
            POLL_EVERY
        };
        let time = Timespec::try_from(most.min(longest)).ok();
        let mut polled: Vec<PollFd<'_>> = self
            .queue
            .iter()
            .map(|queue| PollFd::new(queue, PollFlags::IN))
            .collect();
        match poll(&mut polled, time.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => tracing::debug!("cannot wait for the team directory: {errno}"),
        }
        if let Some(queue) = &self.queue {
            drain(queue);
        }
    }
}

fn watch(dir: &TeamDir) -> io::Result<OwnedFd> {
    let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    let changes = WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE;
    inotify::add_watch(&queue, dir.root(), changes)?;
    Ok(queue)
}

/// Takes the events that are there: the caller looks at all that matters anyway.
fn drain(queue: &OwnedFd) {
    let mut piece = [MaybeUninit::uninit(); PIECE];
    let mut events = Reader::new(queue, &mut piece);
    while events.next().is_ok() {}
}
