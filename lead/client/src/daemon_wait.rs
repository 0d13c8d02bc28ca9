//! Waits until the next attempt to reach the daemon can succeed, without trying on a timer.

use std::future::{Future, pending};
use std::pin::Pin;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::retry_on_intr;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::thread::in_thread;
use teamd_shared::watch::Changes;

use crate::daemon_lock::is_locked;
use crate::read::wake::FolderWatch;

/// The longest wait, in case a change is missed.
const TICK: Duration = Duration::from_secs(1);

/// Paces attempts to reach a daemon: the second one is made at once, each further one after a
/// daemon has begun to listen, or has released its lock.
#[derive(Default)]
pub(crate) struct Attempts {
    changes: Option<DaemonChanges>,
}

/// The changes after which another attempt is worth it.
struct DaemonChanges {
    /// The folder of the socket.
    folder: FolderWatch,
    /// The release of the lock by the daemon that held it when that was looked at; none if none did.
    release: Option<Release>,
}

type Release = Pin<Box<dyn Future<Output = ()>>>;

impl Attempts {
    /// Returns when the next attempt can be made.
    pub(crate) async fn next(&mut self, dir: &TeamDir) {
        let Some(changes) = &mut self.changes else {
            // What changes from now on wakes, so the attempt that follows misses nothing.
            self.changes = Some(DaemonChanges {
                folder: FolderWatch::of(dir, &TeamPath::socket(), false),
                release: release_of_lock(dir),
            });
            return;
        };
        tokio::select! {
            () = until_listening(&mut changes.folder) => {}
            () = until_released(&mut changes.release) => changes.release = None,
            () = tokio::time::sleep(TICK) => {}
        }
        // Another daemon may hold the lock by now. One thread waits for it, however long that is:
        // also after these attempts have succeeded, until that daemon ends.
        if changes.release.is_none() {
            changes.release = release_of_lock(dir);
        }
    }
}

/// Waits until a daemon may have begun to listen: its socket has changed, or the file that it writes
/// behind that. Other files of the folder change with each piece of a model's answer.
async fn until_listening(folder: &mut FolderWatch) {
    let written = [TeamPath::socket(), TeamPath::pid()];
    loop {
        folder.changed().await;
        match folder.take() {
            Changes::Anything => return,
            Changes::Files(names) => {
                if written.iter().any(|file| names.contains(file.file_name())) {
                    return;
                }
            }
        }
    }
}

async fn until_released(release: &mut Option<Release>) {
    match release {
        Some(release) => release.await,
        None => pending().await,
    }
}

/// Waits in a thread until the lock is free that a daemon holds now; none if none does, or that
/// cannot be seen.
fn release_of_lock(dir: &TeamDir) -> Option<Release> {
    if !is_locked(dir) {
        return None;
    }
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(dir, ".", flags, Mode::empty()).ok()?;
    let released = in_thread(move || {
        // The end of the thread closes the folder, and so gives the lock back at once.
        retry_on_intr(|| flock(&folder, FlockOperation::LockShared))?;
        Ok(())
    });
    Some(Box::pin(async {
        if let Err(error) = released.await {
            tracing::debug!("cannot wait for the lock of the daemon: {error}");
            pending().await
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Instant;

    use teamd_shared::control::Listener;
    use teamd_shared::name::Name;

    use super::*;
    use crate::testing::{runtime, scratch};

    #[test]
    fn an_attempt_is_made_at_once_and_then_after_each_change() {
        let (_scratch, dir) = scratch();
        let lock = File::open(dir.root()).unwrap();
        lock.lock().unwrap();
        runtime().block_on(async {
            let mut attempts = Attempts::default();
            attempts.next(&dir).await;
            let began = Instant::now();
            let listener = Listener::bind(&dir).unwrap();
            attempts.next(&dir).await;
            drop(lock);
            attempts.next(&dir).await;
            assert!(began.elapsed() < TICK, "neither waited for the tick");
            drop(listener);
        });
    }

    #[test]
    fn an_answer_that_a_model_gives_meanwhile_wakes_no_attempt() {
        let (_scratch, dir) = scratch();
        runtime().block_on(async {
            let mut attempts = Attempts::default();
            attempts.next(&dir).await;
            let live = dir.path(&TeamPath::live(&Name::lead()));
            std::fs::create_dir_all(live.parent().unwrap()).unwrap();
            attempts.next(&dir).await;
            File::create(&live).unwrap();
            let began = Instant::now();
            attempts.next(&dir).await;
            assert!(began.elapsed() >= TICK, "a live answer woke it");
            let began = Instant::now();
            let listener = Listener::bind(&dir).unwrap();
            attempts.next(&dir).await;
            assert!(began.elapsed() < TICK, "the socket did not wake it");
            drop(listener);
        });
    }

    #[test]
    fn a_lock_that_is_free_wakes_no_attempt() {
        let (_scratch, dir) = scratch();
        runtime().block_on(async {
            let mut attempts = Attempts::default();
            attempts.next(&dir).await;
            let began = Instant::now();
            attempts.next(&dir).await;
            assert!(began.elapsed() >= TICK);
        });
    }
}
