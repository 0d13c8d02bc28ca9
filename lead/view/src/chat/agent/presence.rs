//! The sign that a person talks to the lead agent at a terminal: a shared `flock` on `run/chat`.
//! The worker of the lead agent looks whether such a lock is held. The file is empty, and nothing
//! is lost with it.

use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;

use rustix::fs::OFlags;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};

/// The lock, held until this is dropped.
pub(in crate::chat) struct Presence<'d> {
    dir: &'d TeamDir,
    held: Option<File>,
}

impl<'d> Presence<'d> {
    /// Does not take the lock yet.
    pub(in crate::chat) fn new(dir: &'d TeamDir) -> Self {
        Self { dir, held: None }
    }

    /// Takes the lock, also where the file was deleted since: `run/` may be at any time. The worker
    /// holds the lock for a moment while it looks; the next call takes it then, within a second.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub(in crate::chat) fn show(&mut self) -> Result<(), DirError> {
        let at = TeamPath::chat();
        let refused = |source| DirError::Io {
            verb: "lock",
            path: self.dir.path(&at),
            source,
        };
        if let Some(held) = &self.held {
            let metadata = held.metadata().map_err(refused)?;
            if self.dir.identity(&at)? == Some((metadata.dev(), metadata.ino())) {
                return Ok(());
            }
        }
        self.held = None;
        let file = self.dir.open_file(&at, OFlags::RDWR | OFlags::CREATE)?;
        match file.try_lock_shared() {
            Ok(()) => self.held = Some(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(source)) => return Err(refused(source)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn it_is_seen_as_long_as_a_chat_is_open_and_after_the_file_was_deleted() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let seen = || {
            let file = dir.open_file(&TeamPath::chat(), OFlags::RDWR).unwrap();
            matches!(file.try_lock(), Err(TryLockError::WouldBlock))
        };
        let mut one = Presence::new(&dir);
        let mut other = Presence::new(&dir);
        one.show().unwrap();
        other.show().unwrap();
        drop(one);
        assert!(seen(), "the other chat is still open");
        dir.remove(&TeamPath::chat()).unwrap();
        other.show().unwrap();
        assert!(seen());
        drop(other);
        // What another test starts has all descriptors of this process for a moment.
        let deadline = Instant::now() + Duration::from_secs(30);
        while seen() {
            assert!(
                Instant::now() < deadline,
                "it is seen although no chat is open"
            );
            std::thread::yield_now();
        }
    }
}
