//! What stands in the place of a protected file that is not there, while a command runs: only what exists can be kept
//! from being made.
//!
//! It is an empty directory, since no program adds one to a repository or takes it for settings. Each keeper that needs
//! it holds a lock for reading, and the last one removes it: to remove it earlier would take it from under the sandboxes
//! of the others. What a killed keeper left, the next removes.
//!
//! The lock is on a file in the team directory, of the kind that only a writer can hold alone (`F_OFD_SETLK`): a command
//! can open that file for reading, and so at most keep the directory from being removed. Nothing here waits for it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, mkdirat, openat2, statat, unlinkat};
use rustix::io::Errno;

/// How often the lock is tried: a keeper holds it alone only while it removes an empty directory.
const TRIES: u32 = 200;

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
pub(crate) struct Absent {
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
    lock: File,
}

impl Placeholder {
    /// Holds a place where nothing is, or another keeper's placeholder; none where something else is. `lock` is a file
    /// that no command may write.
    ///
    /// # Errors
    /// The system's error, or that a keeper holds the lock that does not go on.
    #[expect(
        clippy::disallowed_methods,
        reason = "to wait for the lock in the kernel would be to wait for ever"
    )]
    pub(crate) fn hold(path: &Path, lock: &Path) -> io::Result<Option<Self>> {
        let stands = || path.symlink_metadata().map(|found| found.is_dir());
        if matches!(stands(), Ok(false)) {
            return Ok(None);
        }
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let held =
            Self { path: path.to_owned(), lock: options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(lock)? };
        let mut tries = 0;
        while !held.try_lock(libc::F_RDLCK)? {
            tries += 1;
            if tries > TRIES {
                let why = format!("{} is held by a keeper that does not go on", lock.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        Ok(stands()?.then_some(held))
    }

    fn try_lock(&self, kind: libc::c_int) -> io::Result<bool> {
        let [l_type, l_whence] = [kind, libc::SEEK_SET].map(|value| i16::try_from(value).unwrap_or(0));
        let whole = libc::flock { l_type, l_whence, l_start: 0, l_len: 0, l_pid: 0 };
        match fcntl(&self.lock, FcntlArg::F_OFD_SETLK(&whole)) {
            Ok(_) => Ok(true),
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Drop for Placeholder {
    fn drop(&mut self) {
        // Given up first: of two that end together, one is then the last.
        let alone = self.try_lock(libc::F_UNLCK).and_then(|_| self.try_lock(libc::F_WRLCK));
        // Only an empty directory can be removed like this.
        if alone.is_ok_and(|alone| alone)
            && let Err(error) = std::fs::remove_dir(&self.path)
            && error.kind() != io::ErrorKind::NotFound
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
        let (path, lock) = (scratch.path().join("team.toml"), scratch.path().join("lock"));
        let first = Placeholder::hold(&path, &lock).unwrap().unwrap();
        let second = Placeholder::hold(&path, &lock).unwrap().unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
        drop(File::create(&path).unwrap());
        assert!(Placeholder::hold(&path, &lock).unwrap().is_none());
        assert!(path.exists());
    }

    #[test]
    fn a_lock_of_a_command_holds_nobody_up() {
        let scratch = tempfile::tempdir().unwrap();
        let (path, lock) = (scratch.path().join("team.toml"), scratch.path().join("lock"));
        let first = Placeholder::hold(&path, &lock).unwrap().unwrap();
        // What a command can open, it can open for reading only.
        for held in [File::open(&lock).unwrap(), File::open(&path).unwrap()] {
            held.lock().unwrap();
            std::mem::forget(held);
        }
        drop(Placeholder::hold(&path, &lock).unwrap().unwrap());
        assert!(path.exists());
        drop(first);
        assert!(!path.exists());
    }
}
