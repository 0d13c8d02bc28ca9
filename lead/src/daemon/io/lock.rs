//! The daemon's lock: a `flock` on the team directory itself. There is no lock file to delete or to go stale.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags};
use teamd_shared::mutant;
use teamd_shared::team_dir::TeamDir;

/// The lock of a team directory, held until it is dropped (or the process ends).
#[derive(Debug)]
pub(crate) struct TeamLock(File);

impl TeamLock {
    /// Takes the lock, if it is free.
    pub(crate) fn try_take(dir: &TeamDir) -> io::Result<Option<Self>> {
        // A description of its own: a clone of `dir` would share its lock with every other clone.
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(dir, ".", flags, Mode::empty())?);
        Self::try_lock(file)
    }

    /// Takes over the lock that the starting command took, and handed on as this process's standard input.
    pub(crate) fn inherited() -> io::Result<Option<Self>> {
        let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let null = File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        // The same open file description: this succeeds for the holder alone.
        Self::try_lock(file)
    }

    fn try_lock(file: File) -> io::Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) if mutant::is_on("second-daemon") => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Returns a descriptor to hand on.
    pub(crate) fn into_file(self) -> File {
        self.0
    }
}
