//! The temporary directory of a life: only its user enters it, and it is gone when the life ends.
//!
//! It stands at a path that the next life of the same teammate knows: what a killed one left is removed then.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, chmod, openat, renameat, unlinkat};
use rustix::io::Errno;

/// How many names are tried, if what an earlier life has left cannot be removed.
const TRIES: u32 = 16;

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
        let parent = parent.canonicalize()?;
        let names = (1..TRIES).map(|number| format!("{id}-{number}"));
        let mut failed = None;
        for name in std::iter::once(id.to_owned()).chain(names) {
            let path = parent.join(name);
            match remove(&path).and_then(|()| make(&path)) {
                Ok(()) => return Ok(Self { path }),
                Err(error) => {
                    tracing::warn!("another name is taken, {} cannot be removed: {error}", path.display());
                    failed = Some(error);
                }
            }
        }
        Err(failed.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into()))
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

/// Removes a directory with all that lies in it. Follows no link; a directory that cannot be searched is unlocked first.
///
/// What lies deeper than a tool should have gone is moved up before it is removed: so that takes two descriptors and no
/// recursion, however deep it is.
fn remove(path: &Path) -> io::Result<()> {
    let top = match enter(CWD, path.as_os_str()) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let mut moved = 0_u64;
    loop {
        let names = list(&top)?;
        if names.is_empty() {
            return fs::remove_dir(path);
        }
        for name in names {
            if unlink(&top, &name)? {
                continue;
            }
            let folder = enter(&top, &name)?;
            for inner in list(&folder)? {
                if !unlink(&folder, &inner)? {
                    drop(enter(&folder, &inner)?);
                    move_up(&folder, &inner, &top, &mut moved)?;
                }
            }
            unlinkat(&top, &name, AtFlags::REMOVEDIR)?;
        }
    }
}

/// Opens a directory that can be searched then.
fn enter(above: impl AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = openat(&above, name, flags | OFlags::PATH, Mode::empty())?;
    // The descriptor itself has no mode that could be set.
    chmod(format!("/proc/self/fd/{}", held.as_raw_fd()), Mode::RWXU)?;
    openat(&held, ".", flags | OFlags::RDONLY, Mode::empty())
}

fn list(folder: &OwnedFd) -> rustix::io::Result<Vec<OsString>> {
    let entries = Dir::read_from(folder)?
        .map(|entry| entry.map(|entry| OsString::from_vec(entry.file_name().to_bytes().to_vec())));
    entries.filter(|name| !matches!(name, Ok(name) if name == "." || name == "..")).collect()
}

/// Removes a name; false if a directory is there that is not empty.
fn unlink(folder: &OwnedFd, name: &OsStr) -> rustix::io::Result<bool> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(Errno::NOENT) => return Ok(true),
        other => return other.map(|()| true),
    }
    match unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        other => other.map(|()| true),
    }
}

/// Gives a directory a name in another one that is free, or that of an empty directory.
fn move_up(from: &OwnedFd, name: &OsStr, to: &OwnedFd, moved: &mut u64) -> rustix::io::Result<()> {
    loop {
        *moved += 1;
        match renameat(from, name, to, format!("moved-{moved}")) {
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            other => return other,
        }
    }
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
    fn what_is_deeper_than_descriptors_reach_is_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let held = TempDir::create(scratch.path(), "a").unwrap();
        let mut folder = enter(CWD, held.path().as_os_str()).unwrap();
        for depth in 0..3000 {
            rustix::fs::mkdirat(&folder, "d", Mode::RWXU).unwrap();
            folder = enter(&folder, "d".as_ref()).unwrap();
            if depth % 500 == 0 {
                rustix::fs::mkdirat(&folder, "moved-1", Mode::RWXU).unwrap();
                rustix::fs::symlinkat("/", &folder, "link").unwrap();
            }
        }
        let path = held.path().to_owned();
        drop(held);
        assert!(!path.exists());
    }

    #[test]
    fn where_something_cannot_be_removed_another_name_is_taken() {
        let scratch = tempfile::tempdir().unwrap();
        let above = scratch.path().join(format!("teamd-{}", geteuid()));
        make(&above).unwrap();
        drop(fs::File::create(above.join("a")).unwrap());
        let held = TempDir::create(scratch.path(), "a").unwrap();
        assert_eq!(held.path().file_name().unwrap(), "a-1");
    }

    #[test]
    fn what_others_could_enter_is_not_used() {
        let scratch = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), scratch.path().join(format!("teamd-{}", geteuid()))).unwrap();
        assert!(TempDir::create(scratch.path(), "a").is_err());
    }
}
