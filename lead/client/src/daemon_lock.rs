//! The lock that a daemon holds on its team directory, as clients see it.

use std::fs::File;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use teamd_shared::config::Roster;
use teamd_shared::team_dir::TeamDir;

/// Tells whether a daemon holds the lock of a team directory; also true where that cannot be seen
/// (the kernel has no room for a lock, say): a daemon is gone only if that was seen.
///
/// The lock is released at once. A daemon that starts just then tries again, and a running one is
/// not disturbed.
pub fn is_locked(dir: &TeamDir) -> bool {
    if flock(dir, FlockOperation::NonBlockingLockShared).is_err() {
        return true;
    }
    if let Err(errno) = flock(dir, FlockOperation::Unlock) {
        tracing::debug!("cannot release the lock of the team directory: {errno}");
    }
    false
}

/// Holds the lock of the team directory, unless a daemon does or it cannot be tried: none starts
/// until this is dropped.
pub fn hold_off_daemon(dir: &TeamDir) -> Option<File> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let folder = File::from(rustix::fs::openat(dir, ".", flags, Mode::empty()).ok()?);
    folder.try_lock_shared().ok().map(|()| folder)
}

/// Tells whether the last daemon of a team directory ended in order, and none runs since.
pub(crate) fn has_stopped(dir: &TeamDir) -> bool {
    !is_locked(dir) && matches!(Roster::load(dir), Ok(Some(Roster { daemon: None, .. })))
}
