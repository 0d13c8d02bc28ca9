//! A file that is not there, and must not be when commands have ended: nothing can stand in for it meanwhile.
//!
//! Commands run side by side, and what one has made must not be taken for the user's when another begins. So the first
//! keeper notes that the file is absent, in a file of the team directory that no command reaches, and all who come while
//! it runs read that. Each holds a shared lock on the note; the last one removes the file, and clears the note. A killed
//! keeper leaves its note: so the next one knows whose the file is.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use rustix::fs::{AtFlags, fstat, statat, unlinkat};
use rustix::io::Errno;

use super::placeholder::{in_own_folder, open_folder};

/// A file that was not there. Removed when the last one who knows that is dropped.
#[derive(Debug)]
pub(crate) struct Absent(Note);

/// What is known of a file. To drop it does nothing.
#[derive(Debug)]
struct Note {
    /// The directory that would hold the file: another one may be at its path in the end.
    folder: OwnedFd,
    name: OsString,
    /// Not empty: the file is absent, or made by a command.
    note: File,
}

impl Absent {
    /// Notes that a file is not there, or learns it from who runs already; none if it is the user's, or if nothing is
    /// there that could hold it. Follows no link. `notes`: a directory that no command reaches.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn note(path: &Path, notes: &Path) -> io::Result<Option<Self>> {
        let Some(mut noted) = Note::open(path, notes)? else { return Ok(None) };
        loop {
            // Who is alone decides.
            match noted.note.try_lock() {
                Ok(()) if noted.is_absent()? => {}
                Ok(()) if noted.is_there()? => return Ok(None),
                Ok(()) => noted.note.write_all(b"absent\n")?,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // Only keepers lock it, and alone only as long as it takes to look, or to remove one file.
            noted.note.lock_shared()?;
            if noted.is_absent()? {
                return Ok(Some(Self(noted)));
            }
            // The last of the others has just cleared it.
            noted.note.unlock()?;
        }
    }
}

impl Note {
    fn open(path: &Path, notes: &Path) -> io::Result<Option<Self>> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        let folder = match open_folder(above) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            other => other?,
        };
        let stat = fstat(&folder)?;
        let note = notes.join(format!("absent-{:x}-{:x}-{}", stat.st_dev, stat.st_ino, name.display()));
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let note = options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(note)?;
        Ok(Some(Self { folder, name: name.to_owned(), note }))
    }

    fn is_absent(&mut self) -> io::Result<bool> {
        self.note.rewind()?;
        Ok(self.note.read(&mut [0])? > 0)
    }

    fn is_there(&self) -> io::Result<bool> {
        match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    fn remove(&self) {
        match in_own_folder(&self.folder, || unlinkat(&self.folder, &self.name, AtFlags::empty())) {
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

impl Drop for Absent {
    fn drop(&mut self) {
        // The shared lock is given up first: of two that end together, one is then the last.
        if self.0.note.try_lock().is_err() {
            return;
        }
        self.0.remove();
        if let Err(error) = self.0.note.set_len(0) {
            tracing::warn!("cannot clear the note about {}: {error}", self.0.name.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn scratch() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let scratch = tempfile::tempdir().unwrap();
        let at = scratch.path().canonicalize().unwrap();
        for folder in [".git", "run"] {
            std::fs::create_dir(at.join(folder)).unwrap();
        }
        let file = at.join(".git/commondir");
        (scratch, file, at.join("run"))
    }

    fn make(file: &Path) {
        File::create(file).unwrap().write_all(b"elsewhere\n").unwrap();
    }

    #[test]
    fn what_was_there_before_is_the_users_and_stays() {
        let (_scratch, file, notes) = scratch();
        make(&file);
        assert!(Absent::note(&file, &notes).unwrap().is_none());
        assert!(file.exists());
        assert!(Absent::note(Path::new("/nowhere/.git/commondir"), &notes).unwrap().is_none());
    }

    #[test]
    fn what_is_made_while_commands_run_is_removed_by_the_last_one_however_they_came() {
        let (_scratch, file, notes) = scratch();
        let first = Absent::note(&file, &notes).unwrap().unwrap();
        make(&file);
        let second = Absent::note(&file, &notes).unwrap().unwrap();
        drop(first);
        drop(second);
        assert!(!file.exists());
        // The user's, from now on.
        make(&file);
        assert!(Absent::note(&file, &notes).unwrap().is_none() && file.exists());
    }

    #[test]
    fn what_the_command_of_a_killed_keeper_made_is_removed_by_the_next() {
        let (_scratch, file, notes) = scratch();
        let killed = Absent::note(&file, &notes).unwrap().unwrap();
        make(&file);
        std::mem::forget(killed);
        // The kernel has closed what the killed one had: here its lock is still held.
        let next = Absent::note(&file, &notes).unwrap().unwrap();
        next.0.remove();
        assert!(!file.exists());
    }

    #[test]
    fn a_directory_that_a_command_has_closed_is_opened_to_remove_it() {
        let (_scratch, file, notes) = scratch();
        let noted = Absent::note(&file, &notes).unwrap().unwrap();
        make(&file);
        rustix::fs::chmod(file.parent().unwrap(), 0o555.into()).unwrap();
        drop(noted);
        assert!(!file.exists());
    }
}
