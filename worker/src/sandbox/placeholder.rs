//! What stands in the place of a protected file that is not there, while a command runs: only what exists can be kept
//! from being made.
//!
//! It is an empty directory, since no program adds one to a repository or takes it for settings. Each keeper that needs
//! it holds a shared `flock` on it, and the last one removes it: to remove it earlier would take it from under the
//! sandboxes of the others. What a killed keeper left, the next removes.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;

/// A place that is held. Given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Placeholder {
    path: PathBuf,
    folder: File,
}

impl Placeholder {
    /// Holds a place where nothing is, or another keeper's placeholder; none where something else is.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn hold(path: &Path) -> io::Result<Option<Self>> {
        loop {
            match std::fs::DirBuilder::new().mode(0o700).create(path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let folder = match open(path, flags, Mode::empty()) {
                Ok(folder) => File::from(folder),
                Err(Errno::NOENT) => continue,
                Err(Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            };
            flock(folder.as_fd(), FlockOperation::LockShared)?;
            let held = Self { path: path.to_owned(), folder };
            // Another keeper may have removed it in between.
            if held.stands() {
                return Ok(Some(held));
            }
        }
    }

    /// Tells whether the path still leads to this directory.
    fn stands(&self) -> bool {
        let here = self.folder.metadata().map(|found| (found.dev(), found.ino()));
        let there = self.path.symlink_metadata().map(|found| (found.dev(), found.ino()));
        matches!((here, there), (Ok(here), Ok(there)) if here == there)
    }
}

impl Drop for Placeholder {
    fn drop(&mut self) {
        let alone = flock(self.folder.as_fd(), FlockOperation::NonBlockingLockExclusive).is_ok();
        // Only an empty directory can be removed like this.
        if alone
            && self.stands()
            && let Err(error) = std::fs::remove_dir(&self.path)
        {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_removes_it_and_nobody_what_others_have_made() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("team.toml");
        let first = Placeholder::hold(&path).unwrap().unwrap();
        let second = Placeholder::hold(&path).unwrap().unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
        drop(File::create(&path).unwrap());
        assert!(Placeholder::hold(&path).unwrap().is_none());
        assert!(path.exists());
    }
}
