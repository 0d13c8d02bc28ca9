//! Wake-ups of the leases of a worker: a token was taken or came back, or the pool has changed.
//!
//! A wake-up says only that a lease should look. All leases of a worker share one inotify instance,
//! of which the system grants a user few. Where none is left, leases look again and again.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// How long further events gather after one.
const PACE: Duration = Duration::from_millis(1);

/// How long the instance stays open after the last command: the kernel needs some milliseconds to
/// close one whose watches have just ended, and a next command often follows at once.
const LINGERS: Duration = Duration::from_secs(2);

/// How often leases look where no instance is left.
const POLL: Duration = Duration::from_millis(50);

/// How many bytes of events are read at once. What they say is not looked at.
const EVENTS: usize = 4096;

/// What wakes the leases of a worker.
#[derive(Debug)]
pub(crate) struct Wakes {
    /// None: leases are woken by time.
    instance: Option<OwnedFd>,
    woken: watch::Receiver<()>,
    reader: JoinHandle<()>,
    pool: Mutex<PoolWatch>,
}

/// The watch of the pool: it lasts as long as a command runs, so that an idle worker sleeps.
#[derive(Debug, Default)]
struct PoolWatch {
    number: Option<i32>,
    followers: usize,
}

/// A watch of the FIFO of a command. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct FifoWatched {
    wakes: Arc<Wakes>,
    number: Option<i32>,
}

/// That a lease follows the pool. Dropped, it no longer does.
#[derive(Debug)]
pub(crate) struct PoolFollowed {
    wakes: Arc<Wakes>,
}

impl Wakes {
    /// Begins to listen, or to wake by time if no inotify instance is left. Must be called within
    /// the runtime.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn new() -> io::Result<Self> {
        match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(instance) => Self::by_events(instance),
            Err(Errno::MFILE) => {
                tracing::info!("no inotify instance is left: the shares of commands are polled");
                Ok(Self::by_time())
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn by_events(instance: OwnedFd) -> io::Result<Self> {
        // It is read as a pipe is.
        let events = pipe::Receiver::from_owned_fd_unchecked(instance.try_clone()?)?;
        let (wake, woken) = watch::channel(());
        let reader = tokio::spawn(async move {
            if let Err(error) = read(events, &wake).await {
                tracing::error!("the shares of commands stay as they are: {error}");
            }
        });
        Ok(Self {
            instance: Some(instance),
            woken,
            reader,
            pool: Mutex::default(),
        })
    }

    /// Wakes by time.
    pub(crate) fn by_time() -> Self {
        let (wake, woken) = watch::channel(());
        let reader = tokio::spawn(async move {
            loop {
                sleep(POLL).await;
                wake.send_replace(());
            }
        });
        Self {
            instance: None,
            woken,
            reader,
            pool: Mutex::default(),
        }
    }

    /// Returns what changes at each wake-up from now on.
    pub(crate) fn follow(&self) -> watch::Receiver<()> {
        self.woken.clone()
    }

    /// Wakes when a FIFO is read or written.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn watch_fifo(self: &Arc<Self>, fifo: &impl AsFd) -> io::Result<FifoWatched> {
        let number = self.watch(fifo, WatchFlags::ACCESS | WatchFlags::MODIFY)?;
        Ok(FifoWatched {
            wakes: Arc::clone(self),
            number,
        })
    }

    /// Wakes when the pool has changed.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn follow_pool(self: &Arc<Self>, pool: &impl AsFd) -> io::Result<PoolFollowed> {
        let mut watched = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.followers == 0 {
            watched.number = self.watch(pool, WatchFlags::ATTRIB | WatchFlags::CLOSE_WRITE)?;
        }
        watched.followers += 1;
        Ok(PoolFollowed {
            wakes: Arc::clone(self),
        })
    }

    fn watch(&self, file: &impl AsFd, what: WatchFlags) -> io::Result<Option<i32>> {
        let Some(instance) = &self.instance else {
            return Ok(None);
        };
        // By its descriptor: a command may have moved or replaced what is at its path.
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        Ok(Some(inotify::add_watch(instance, path, what)?))
    }

    fn end(&self, number: Option<i32>) {
        let (Some(instance), Some(number)) = (&self.instance, number) else {
            return;
        };
        // The kernel has ended it if its file is gone.
        match inotify::remove_watch(instance, number) {
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => tracing::debug!("cannot end a watch: {errno}"),
        }
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Drop for FifoWatched {
    fn drop(&mut self) {
        self.wakes.end(self.number);
    }
}

impl Drop for PoolFollowed {
    fn drop(&mut self) {
        let mut watched = self
            .wakes
            .pool
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        watched.followers -= 1;
        if watched.followers > 0 {
            return;
        }
        self.wakes.end(watched.number);
        if let Ok(runtime) = Handle::try_current() {
            let kept = Arc::clone(&self.wakes);
            runtime.spawn(async move {
                sleep(LINGERS).await;
                drop(kept);
            });
        }
    }
}

async fn read(mut events: pipe::Receiver, wake: &watch::Sender<()>) -> io::Result<()> {
    let mut bytes = [0; EVENTS];
    loop {
        if events.read(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        wake.send_replace(());
        // A command that takes and returns without an end costs the worker no more than this.
        sleep(PACE).await;
    }
}
