//! What stands in the place of a protected file that is not there, while a command runs: only what exists can be kept
//! from being made.
//!
//! It is an empty directory, since no program adds one to a repository or takes it for settings. Each keeper that needs
//! it holds a shared `flock` on it, and the last one removes it: to remove it earlier would take it from under the
//! sandboxes of the others. What a killed keeper left, the next removes.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags, flock, mkdirat, open, openat2, statat, unlinkat,
};
use rustix::io::Errno;

/// Makes a directory that is missing in another, and may stay there: what it keeps from being made is what lies in it.
/// Follows no link: a tool could have made it. Where this user may not, a tool may not either.
///
/// # Errors
/// The system's error.
pub(super) fn make_empty(path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let made = open_folder(above).and_then(|above| mkdirat(above, name, Mode::from_raw_mode(0o777)));
    match made {
        Err(
            Errno::EXIST
            | Errno::NOENT
            | Errno::NOTDIR
            | Errno::LOOP
            | Errno::ACCESS
            | Errno::PERM
            | Errno::ROFS,
        ) => Ok(()),
        other => Ok(other?),
    }
}

/// A file that is not there, and must not be when the command has ended. Removed when it is dropped.
#[derive(Debug)]
pub(super) struct Absent {
    /// The directory that would hold it: another one may be at its path in the end.
    folder: OwnedFd,
    name: OsString,
}

impl Absent {
    /// Notes that a file is not there; none if it is, or nothing that could hold it. Follows no link.
    pub(super) fn note(path: &Path) -> Option<Self> {
        let folder = open_folder(path.parent()?).ok()?;
        let name = path.file_name()?.to_owned();
        let is_there = statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW);
        (is_there.err() == Some(Errno::NOENT)).then_some(Self { folder, name })
    }
}

impl Drop for Absent {
    fn drop(&mut self) {
        match unlinkat(&self.folder, &self.name, AtFlags::empty()) {
            Ok(()) => tracing::warn!(
                "a command made {}, which programs of the user believe: removed",
                self.name.display()
            ),
            // A directory of that name is believed by nobody.
            Err(Errno::NOENT | Errno::ISDIR) => {}
            Err(errno) => tracing::warn!("cannot remove {}: {errno}", self.name.display()),
        }
    }
}

fn open_folder(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

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
    fn an_empty_directory_is_made_where_only_it_is_missing_and_never_through_a_link() {
        let scratch = tempfile::tempdir().unwrap();
        let scratch = scratch.path().canonicalize().unwrap();
        let hooks = scratch.join(".git/hooks");
        make_empty(&hooks).unwrap();
        assert!(!scratch.join(".git").exists());
        std::fs::create_dir(scratch.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", scratch.join(".git")).unwrap();
        make_empty(&hooks).unwrap();
        assert!(!hooks.exists());
        std::fs::remove_file(scratch.join(".git")).unwrap();
        std::fs::create_dir(scratch.join(".git")).unwrap();
        make_empty(&hooks).unwrap();
        make_empty(&hooks).unwrap();
        assert!(hooks.is_dir());
    }

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
