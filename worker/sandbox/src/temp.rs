//! The temporary directory of an incarnation: only its user enters it, and it is gone when the
//! incarnation ends.
//!
//! Its name cannot be guessed, so that no other program keeps a worker from starting by taking it
//! first; but it begins so that the next incarnation of the same teammate knows what a killed one
//! left, and removes it.
//!
//! Commands decide how much lies in it, so its removal has an end: the worker answers nothing
//! meanwhile, and a teammate that has approved its shutdown must be gone in time.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, chmod, openat, renameat, unlinkat};
use rustix::io::Errno;
use uuid::Uuid;

/// How long a removal may take: less than the grace period that is the default. The rest is left to
/// the next incarnation.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many names are looked at between two looks at the time.
const AT_ONCE: usize = 1024;

/// A temporary directory. Removed when it is dropped.
#[derive(Debug)]
pub(crate) struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// Makes the directory, below `above`, and removes what earlier incarnations have left there;
    /// `id` tells the teammate from all others on this machine. The caller holds the liveness lock.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn create(above: &Path, id: &str) -> io::Result<Self> {
        let above = above.canonicalize()?;
        let begin = format!("teamd-{}-{id}-", geteuid());
        remove_leftovers(&above, &begin);
        let path = above.join(format!("{begin}{}", Uuid::new_v4().simple()));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path })
    }

    /// Returns its path, absolute and without links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        remove_or_say(&self.path, Instant::now() + PATIENCE);
    }
}

/// Removes the directories of this user that are called like this and a random number. What cannot
/// be removed is in the way of no worker.
fn remove_leftovers(above: &Path, begin: &str) {
    let until = Instant::now() + PATIENCE;
    // A directory that cannot be listed may still be written.
    for entry in fs::read_dir(above)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
    {
        let name = entry.file_name();
        let random = name.to_str().and_then(|name| name.strip_prefix(begin));
        // Another name may begin like this one.
        let is_ours = random.is_some_and(|rest| rest.len() == 32 && Uuid::try_parse(rest).is_ok());
        // Only then is it looked at: there can be thousands beside it.
        if is_ours
            && entry
                .path()
                .symlink_metadata()
                .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == geteuid().as_raw())
        {
            remove_or_say(&entry.path(), until);
        }
    }
}

fn remove_or_say(path: &Path, until: Instant) {
    if let Err(error) = remove(path, until) {
        tracing::warn!("cannot remove {}: {error}", path.display());
    }
}

/// Removes a directory with all that lies in it. Follows no link; a directory that cannot be
/// searched is unlocked first.
///
/// What lies deeper than a tool should have gone is moved up, and removed in the next round: so
/// that takes two descriptors and no recursion, however deep it is.
///
/// # Errors
/// The system's error, or that it is not done at the end of this time: what is left can be removed
/// later.
fn remove(path: &Path, until: Instant) -> io::Result<()> {
    let top = match enter(CWD, path.as_os_str()) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    loop {
        let names = list(&top, until)?;
        if names.is_empty() {
            return fs::remove_dir(path);
        }
        for name in names {
            if unlink(&top, &name)? {
                continue;
            }
            let folder = enter(&top, &name)?;
            for inner in list(&folder, until)? {
                if !unlink(&folder, &inner)? {
                    // A directory that its owner may not write cannot be moved.
                    drop(enter(&folder, &inner)?);
                    renameat(&folder, &inner, &top, Uuid::new_v4().to_string())?;
                }
            }
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

/// Returns the first names in a directory, if there is time left.
fn list(folder: &OwnedFd, until: Instant) -> io::Result<Vec<OsString>> {
    if Instant::now() >= until {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "it takes too long; the next incarnation continues with it",
        ));
    }
    let entries = Dir::read_from(folder)?
        .map(|entry| entry.map(|entry| OsString::from_vec(entry.file_name().to_bytes().to_vec())));
    let inside = entries.filter(|name| !matches!(name, Ok(name) if name == "." || name == ".."));
    Ok(inside.take(AT_ONCE).collect::<Result<_, _>>()?)
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
            !path.exists()
                && other.path().exists()
                && fs::read_dir(next.path()).unwrap().next().is_none()
        );
        let path = next.path().to_owned();
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
        remove(&path, Instant::now() + Duration::from_secs(120)).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn what_takes_too_long_to_remove_is_left_to_the_next_incarnation() {
        let scratch = tempfile::tempdir().unwrap();
        let held = TempDir::create(scratch.path(), "a").unwrap();
        let path = held.path().to_owned();
        std::mem::forget(held);
        for folder in 0..3 {
            fs::create_dir(path.join(folder.to_string())).unwrap();
            for file in 0..AT_ONCE + 1 {
                File::create(path.join(format!("{folder}/{file}"))).unwrap();
            }
        }
        let error = remove(&path, Instant::now()).unwrap_err();
        assert!(
            error.kind() == io::ErrorKind::TimedOut && path.exists(),
            "{error}"
        );
        drop(TempDir::create(scratch.path(), "a").unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn no_other_program_takes_its_name_first() {
        let scratch = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        File::create(elsewhere.path().join("file")).unwrap();
        let user = geteuid();
        let number = Uuid::new_v4().simple();
        for name in [
            format!("teamd-{user}"),
            format!("teamd-{user}-a-"),
            format!("teamd-{user}-a-{number}"),
        ] {
            symlink(elsewhere.path(), scratch.path().join(name)).unwrap();
        }
        let made = TempDir::create(scratch.path(), "a").unwrap();
        assert!(made.path().symlink_metadata().unwrap().is_dir());
        assert!(elsewhere.path().join("file").exists());
    }
}
