//! What stands in the place of a protected file that is not there, while a command runs: only what exists can be kept
//! from being made.
//!
//! It is an empty directory, since no program adds one to a repository or takes it for settings. Each keeper that needs
//! it holds a shared `flock` on it, and the last one removes it: to remove it earlier would take it from under the
//! sandboxes of the others, of this team or another one. What a killed keeper left, the next one takes over and removes.
//!
//! A command that can read it can lock it, too. While a keeper holds it, only as the keepers do, and so it stays for
//! longer; afterwards alone, and so the next keeper puts another directory in its place.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags, chmod, flock, fstat, mkdirat, openat2,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::known::path_of;

/// How often the lock is tried: a keeper holds it alone only while it removes an empty directory.
const TRIES: u32 = 200;

/// Makes a directory that is missing in another, and may stay there: what it keeps from being made is what lies in it.
/// Follows no link: a tool could have made it.
///
/// # Errors
/// The system's error.
pub(super) fn make_empty(path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let above = match open_folder(above) {
        // There is nothing that could hold it.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        other => other?,
    };
    match in_own_folder(&above, || mkdirat(&above, name, Mode::from_raw_mode(0o777))) {
        // Where this user may not, a tool may not either.
        Err(Errno::EXIST | Errno::ACCESS | Errno::PERM | Errno::ROFS) => Ok(()),
        other => Ok(other?),
    }
}

/// Opens a directory to make and to remove something in it.
pub(super) fn open_folder(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

/// Changes what is in a directory, if need be after its owner is let write there: a tool may have taken that away, and
/// could give it back.
pub(super) fn in_own_folder(
    folder: &OwnedFd,
    change: impl Fn() -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    match change() {
        Err(Errno::ACCESS) => {
            let mode = Mode::from_raw_mode(fstat(folder)?.st_mode) | Mode::RWXU;
            // By `/proc`: such a descriptor stands for a path, and changes nothing by itself.
            chmod(path_of(folder), mode)?;
            change()
        }
        other => other,
    }
}

/// A place that is held. Given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Placeholder {
    path: PathBuf,
    folder: OwnedFd,
}

impl Placeholder {
    /// Holds a place where nothing is, or another keeper's placeholder; none where a file is: that can be mounted, and
    /// none where this user may not make it, as a command may not either.
    ///
    /// # Errors
    /// The system's error, or that a link is there: nothing keeps it from being replaced.
    #[expect(
        clippy::disallowed_methods,
        reason = "to wait for the lock in the kernel would be to wait for ever"
    )]
    pub(crate) fn hold(path: &Path) -> io::Result<Option<Self>> {
        for _ in 0..TRIES {
            let folder = match open_directory(path) {
                Err(Errno::NOENT) => match make(path) {
                    Err(Errno::EXIST) | Ok(()) => continue,
                    Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => return Ok(None),
                    Err(errno) => return Err(errno.into()),
                },
                Err(Errno::NOTDIR) => return Ok(None),
                Err(Errno::LOOP) => return Err(is_a_link(path)),
                other => other?,
            };
            match flock(&folder, FlockOperation::NonBlockingLockShared) {
                // It is held if it has not been removed meanwhile.
                Ok(()) if is_at(&folder, path) => return Ok(Some(Self { path: path.to_owned(), folder })),
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(1)),
                Err(errno) => return Err(errno.into()),
            }
        }
        Self::replace(path).map(Some)
    }

    /// Puts a directory that is held already in the place of one that somebody has locked alone, and does not give up: no
    /// keeper has that one, since none could share the lock.
    fn replace(path: &Path) -> io::Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}", uuid::Uuid::new_v4().simple()));
        let folder = mkdirat(CWD, &name, Mode::RWXU).and_then(|()| open_directory(Path::new(&name)))?;
        flock(&folder, FlockOperation::NonBlockingLockShared)?;
        match renameat(CWD, &name, CWD, path) {
            Ok(()) => Ok(Self { path: path.to_owned(), folder }),
            Err(errno) => {
                unlinkat(CWD, &name, AtFlags::REMOVEDIR)?;
                Err(errno.into())
            }
        }
    }
}

fn make(path: &Path) -> rustix::io::Result<()> {
    let make = || mkdirat(CWD, path, Mode::RWXU);
    path.parent().map_or_else(make, |above| in_own_folder(&open_folder(above)?, make))
}

fn is_a_link(path: &Path) -> io::Error {
    io::Error::other(format!(
        "{} is a symbolic link, or lies behind one, and a command could replace it: put the file itself there",
        path.display()
    ))
}

fn open_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

fn is_at(folder: &OwnedFd, path: &Path) -> bool {
    let (held, found) = (fstat(folder), statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW));
    held.is_ok_and(|held| found.is_ok_and(|found| (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino)))
}

impl Drop for Placeholder {
    fn drop(&mut self) {
        // It is given up first: of two that end together, one is then the last.
        let last = flock(&self.folder, FlockOperation::NonBlockingLockExclusive).is_ok();
        if last && is_at(&self.folder, &self.path) {
            // Only an empty directory can be removed like this. Where it cannot be, it stays, and the next one takes it over.
            let remove = || unlinkat(CWD, &self.path, AtFlags::REMOVEDIR);
            let _stays = match self.path.parent().map(open_folder) {
                Some(Ok(above)) => in_own_folder(&above, remove),
                _ => remove(),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

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

    fn place() -> (tempfile::TempDir, PathBuf) {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().canonicalize().unwrap().join("team.toml");
        (scratch, path)
    }

    #[test]
    fn the_last_one_removes_it_and_nobody_what_others_have_made() {
        let (_scratch, path) = place();
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

    #[test]
    fn what_a_killed_keeper_left_is_taken_over() {
        let (_scratch, path) = place();
        std::fs::create_dir(&path).unwrap();
        drop(Placeholder::hold(&path).unwrap().unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn a_link_is_refused_with_what_to_do() {
        let (scratch, path) = place();
        std::os::unix::fs::symlink(scratch.path().join("elsewhere"), &path).unwrap();
        let refused = Placeholder::hold(&path).unwrap_err().to_string();
        assert!(refused.contains("put the file itself there"), "{refused}");
    }

    #[test]
    fn a_command_that_locks_it_keeps_no_keeper_from_its_work() {
        let (_scratch, path) = place();
        let first = Placeholder::hold(&path).unwrap().unwrap();
        // While alice's command runs, one that may only read locks what it sees; afterwards, alone.
        let command = File::open(&path).unwrap();
        command.try_lock_shared().unwrap();
        drop(first);
        assert!(path.exists(), "it stays as long as the command wants");
        command.try_lock().unwrap();
        let next = Placeholder::hold(&path).unwrap().unwrap();
        let beside = Placeholder::hold(&path).unwrap().unwrap();
        drop(next);
        assert!(path.exists());
        drop(beside);
        assert!(!path.exists());
        let left: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn while_it_is_held_nobody_locks_it_alone() {
        let (_scratch, path) = place();
        let first = Placeholder::hold(&path).unwrap().unwrap();
        let command = File::open(&path).unwrap();
        assert!(command.try_lock().is_err());
        command.try_lock_shared().unwrap();
        drop(Placeholder::hold(&path).unwrap().unwrap());
        // What another test starts has all descriptors of this process for a moment: to close it is not enough.
        command.unlock().unwrap();
        drop(first);
        assert!(!path.exists());
    }
}
