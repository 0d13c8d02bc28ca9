//! The temporary directory of a life: only its user enters it, and it is gone when the life ends.
//!
//! Its name cannot be guessed, so that nobody keeps a worker from starting by taking it first; but it begins so that the
//! next life of the same teammate knows what a killed one left, and removes it.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use uuid::Uuid;

/// A temporary directory. Removed when it is dropped.
#[derive(Debug)]
pub(crate) struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// Makes the directory, below `above`, and removes what earlier lives have left there; `id` tells the teammate from
    /// all others on this machine. Whoever calls holds the life lock.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn create(above: &Path, id: &str) -> io::Result<Self> {
        let above = above.canonicalize()?;
        let begin = format!("teamd-{}-{id}-", geteuid());
        remove_leftovers(&above, &begin);
        loop {
            let path = above.join(format!("{begin}{}", Uuid::new_v4().simple()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other.map(|()| Self { path }),
            }
        }
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

/// Removes the directories of this user that are called like this and a random number. What cannot be removed is in
/// nobody's way.
fn remove_leftovers(above: &Path, begin: &str) {
    // A directory that cannot be listed may still be written.
    for entry in fs::read_dir(above).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name();
        let random = name.to_str().and_then(|name| name.strip_prefix(begin));
        // Another name may begin like this one.
        let is_ours = random.is_some_and(|rest| rest.len() == 32 && Uuid::try_parse(rest).is_ok());
        let found = entry.path().symlink_metadata().ok().filter(|_| is_ours);
        if !found.is_some_and(|found| found.is_dir() && found.uid() == geteuid().as_raw()) {
            continue;
        }
        if let Err(error) = remove(&entry.path()) {
            tracing::warn!("cannot remove {}: {error}", entry.path().display());
        }
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
    use std::fs::File;
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
        let other = TempDir::create(scratch.path(), "a-b").unwrap();
        let next = TempDir::create(scratch.path(), "a").unwrap();
        assert!(
            !path.exists() && other.path().exists() && fs::read_dir(next.path()).unwrap().next().is_none()
        );
        let path = next.path().to_owned();
        drop(next);
        assert!(!path.exists());
    }

    #[test]
    fn nobody_takes_its_name_first() {
        let scratch = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        File::create(elsewhere.path().join("file")).unwrap();
        let (user, number) = (geteuid(), Uuid::new_v4().simple());
        for name in [format!("teamd-{user}"), format!("teamd-{user}-a-"), format!("teamd-{user}-a-{number}")]
        {
            symlink(elsewhere.path(), scratch.path().join(name)).unwrap();
        }
        let made = TempDir::create(scratch.path(), "a").unwrap();
        assert!(made.path().symlink_metadata().unwrap().is_dir());
        assert!(elsewhere.path().join("file").exists());
    }
}
