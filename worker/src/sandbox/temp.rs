//! The temporary directory of a life: only its user enters it, and it is gone when the life ends.
//!
//! It stands at a path that the next life of the same teammate knows: what a killed one left is removed then.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

/// A temporary directory. Removed when it is dropped.
#[derive(Debug)]
pub(crate) struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// Makes the directory anew, below `above`; `id` tells the teammate from all others on this machine. Whoever calls
    /// holds the life lock.
    ///
    /// # Errors
    /// The system's error, or that somebody else has put something at its place.
    pub(crate) fn create(above: &Path, id: &str) -> io::Result<Self> {
        let parent = above.join(format!("teamd-{}", geteuid()));
        make(&parent)?;
        // It may have been there before: whose is it?
        let found = parent.symlink_metadata()?;
        if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & 0o077 != 0 {
            let why = format!("{} is no directory for this user alone", parent.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let path = parent.canonicalize()?.join(id);
        remove(&path)?;
        make(&path)?;
        Ok(Self { path })
    }

    /// Returns its path, absolute and without links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

fn make(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Follows no link. A tool may have made a directory that cannot be searched: its mode is mended first.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            unlock(path)?;
            fs::remove_dir_all(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn unlock(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            unlock(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn it_is_for_its_user_alone_empty_and_gone_at_the_end() {
        let scratch = tempfile::tempdir().unwrap();
        let first = TempDir::create(scratch.path(), "a").unwrap();
        let path = first.path().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        fs::create_dir(path.join("locked")).unwrap();
        fs::create_dir(path.join("locked/inner")).unwrap();
        fs::set_permissions(path.join("locked"), PermissionsExt::from_mode(0o000)).unwrap();
        std::mem::forget(first);
        let next = TempDir::create(scratch.path(), "a").unwrap();
        assert_eq!((next.path(), fs::read_dir(&path).unwrap().count()), (path.as_path(), 0));
        drop(next);
        assert!(!path.exists());
    }

    #[test]
    fn what_others_could_enter_is_not_used() {
        let scratch = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), scratch.path().join(format!("teamd-{}", geteuid()))).unwrap();
        assert!(TempDir::create(scratch.path(), "a").is_err());
    }
}
