//! The daemon's lock, a `flock` on the team directory itself: there is no lock file to delete or to
//! go stale. And the liveness lock of a member, which the daemon tries and never waits for: a lock
//! that another process holds must not hang the daemon.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{Mode, OFlags};
use teamd_shared::locks;
use teamd_shared::mutant;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};

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

    /// Takes over the lock that the starting command took, and handed on as this process's standard
    /// input.
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

/// Tells which process holds the liveness lock of a member, if one does.
pub(crate) fn liveness_lock_holder(dir: &TeamDir, name: &Name) -> Option<String> {
    try_liveness_lock(dir, name).err().map(|held| held.holder())
}

/// Tells whether a process holds the liveness lock of a member. Which one it is would cost a look
/// at every lock of the machine.
pub(crate) fn liveness_lock_is_held(dir: &TeamDir, name: &Name) -> bool {
    try_liveness_lock(dir, name).is_err()
}

/// A liveness lock that could not be taken.
pub(crate) enum HeldLock {
    By(File),
    Unknown(String),
}

impl HeldLock {
    /// Says who holds it, for people.
    pub(crate) fn holder(&self) -> String {
        match self {
            Self::By(file) => holder_in_proc_locks(file),
            Self::Unknown(why) => why.clone(),
        }
    }
}

/// Tries the liveness lock of a member, and gives it back at once.
pub(crate) fn try_liveness_lock(dir: &TeamDir, name: &Name) -> Result<(), HeldLock> {
    let file = match dir.open_file(&TeamPath::transcript(name), OFlags::RDWR) {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(HeldLock::Unknown(error.to_string())),
    };
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(HeldLock::By(file)),
        Err(TryLockError::Error(error)) => {
            Err(HeldLock::Unknown(format!("cannot try its lock: {error}")))
        }
    }
}

/// Looks the holder of a lock up in `/proc/locks`, for people.
fn holder_in_proc_locks(file: &File) -> String {
    let identity = file.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
    let all = locks::list().unwrap_or_default();
    match all
        .iter()
        .find(|held| identity.is_some_and(|it| held.is_of(it)))
    {
        Some(held) => format!("process {} holds its liveness lock", held.pid),
        None => "its liveness lock is held".to_owned(),
    }
}
