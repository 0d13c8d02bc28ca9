//! A file that is not there, and must not be when commands have ended: nothing can stand in for it meanwhile.
//!
//! Commands run side by side, and what one has made must not be taken for the user's when another begins. So the first
//! keeper notes that the file is absent, in a file of the team directory that no command reaches, and all who come while
//! it runs read that. Each holds a shared lock on the note; the last one puts the file aside, and clears the note. A killed
//! keeper leaves its note: so the next one, in the same boot, knows whose the file is.

use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use rustix::fs::{AtFlags, RenameFlags, fstat, renameat_with, statat};
use rustix::io::Errno;
use teamd_shared::process::boot_id;

use super::folders::{in_own_folder, open_folder};

/// What is added to the name of a file that was put aside.
const ASIDE: &str = ".put-aside-by-teamd";

/// A file that was not there. Put aside when the last one who knows that is dropped.
#[derive(Debug)]
pub(crate) struct Absent(Option<Note>);

/// What is known of a file. To drop it does nothing.
#[derive(Debug)]
struct Note {
    /// The directory that would hold the file: another one may be at its path in the end.
    folder: OwnedFd,
    name: OsString,
    /// Holds the id of this boot: the file is absent, or made by a command.
    note: File,
    boot_id: String,
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
                Ok(()) => noted.write()?,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // Only keepers lock it, and alone only as long as it takes to look, or to remove one file.
            noted.note.lock_shared()?;
            if noted.is_absent()? {
                return Ok(Some(Self(Some(noted))));
            }
            // The last of the others has just cleared it.
            noted.note.unlock()?;
        }
    }

    /// Ends it. Returns what the user is to be told, if something is.
    pub(crate) fn give_up(&mut self) -> Option<String> {
        let mut noted = self.0.take()?;
        // The shared lock is given up first: of two that end together, one is then the last.
        noted.note.try_lock().ok()?;
        match noted.put_aside() {
            Ok(told) => {
                // What is made from now on is the user's. Who cannot clear it leaves it as a killed one would.
                let cleared = noted.clear().map_err(|error| format!("cannot clear a note: {error}"));
                told.or(cleared.err())
            }
            Err(told) => Some(told),
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
        Ok(Some(Self { folder, name: name.to_owned(), note, boot_id: boot_id()? }))
    }

    fn is_absent(&mut self) -> io::Result<bool> {
        let mut text = String::new();
        self.note.rewind()?;
        self.note.read_to_string(&mut text)?;
        Ok(text == self.boot_id)
    }

    fn write(&mut self) -> io::Result<()> {
        self.clear()?;
        self.note.write_all(self.boot_id.as_bytes())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.note.set_len(0)?;
        self.note.rewind()
    }

    fn is_there(&self) -> io::Result<bool> {
        match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Gives the file another name, by which nobody believes it. Returns what is to be told.
    ///
    /// # Errors
    /// That too, if it still has its name.
    fn put_aside(&self) -> Result<Option<String>, String> {
        if matches!(self.is_there(), Ok(false)) {
            return Ok(None);
        }
        let mut aside = self.name.clone();
        aside.push(ASIDE);
        let rename = |to: &OsStr, flags| {
            in_own_folder(&self.folder, || renameat_with(&self.folder, &self.name, &self.folder, to, flags))
        };
        let mut renamed = rename(&aside, RenameFlags::NOREPLACE);
        // Some file systems know no flags (NFS, 9p). Nothing has this name.
        if matches!(renamed, Err(Errno::EXIST | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)) {
            aside.push(format!("-{}", uuid::Uuid::new_v4().simple()));
            renamed = rename(&aside, RenameFlags::empty());
        }
        let (name, aside) = (self.name.display(), aside.display());
        match renamed {
            Ok(()) => Ok(Some(format!(
                "{name} was made while this command ran, and `git` would take its settings and hooks from where it says: it is {aside} now"
            ))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(format!(
                "{name} was made while this command ran, and cannot be put aside ({errno}): `git` takes its settings and hooks from where it says"
            )),
        }
    }
}

impl Drop for Absent {
    fn drop(&mut self) {
        drop(self.give_up());
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
    fn what_is_made_while_commands_run_is_put_aside_by_the_last_one_however_they_came() {
        let (_scratch, file, notes) = scratch();
        let mut first = Absent::note(&file, &notes).unwrap().unwrap();
        make(&file);
        let mut second = Absent::note(&file, &notes).unwrap().unwrap();
        assert_eq!(first.give_up(), None);
        assert!(file.exists());
        assert!(second.give_up().unwrap().contains("commondir.put-aside-by-teamd now"));
        assert!(!file.exists() && file.with_file_name("commondir.put-aside-by-teamd").exists());
        // The user's, from now on.
        make(&file);
        assert!(Absent::note(&file, &notes).unwrap().is_none() && file.exists());
        drop((first, second));
        assert!(file.exists(), "nobody ends twice");
    }

    /// A keeper that is killed: all it had is closed, and nothing else happens.
    fn kill(mut killed: Absent) {
        // What another test starts has all descriptors of this process for a moment: to close it is not enough.
        killed.0.take().unwrap().note.unlock().unwrap();
    }

    #[test]
    fn what_the_command_of_a_killed_keeper_made_is_put_aside_by_the_next() {
        let (_scratch, file, notes) = scratch();
        kill(Absent::note(&file, &notes).unwrap().unwrap());
        make(&file);
        drop(Absent::note(&file, &notes).unwrap().unwrap());
        assert!(!file.exists());
    }

    #[test]
    fn what_stands_where_it_is_put_does_not_keep_it() {
        let (_scratch, file, notes) = scratch();
        let mut noted = Absent::note(&file, &notes).unwrap().unwrap();
        std::fs::create_dir_all(file.with_file_name("commondir.put-aside-by-teamd/x")).unwrap();
        make(&file);
        assert!(noted.give_up().unwrap().contains("commondir.put-aside-by-teamd-"));
        assert!(!file.exists());
    }

    #[test]
    fn what_an_earlier_boot_knew_counts_for_nothing() {
        let (_scratch, file, notes) = scratch();
        kill(Absent::note(&file, &notes).unwrap().unwrap());
        for note in std::fs::read_dir(&notes).unwrap() {
            let note = note.unwrap().path();
            File::create(note).unwrap().write_all(b"another boot").unwrap();
        }
        make(&file);
        assert!(Absent::note(&file, &notes).unwrap().is_none());
        assert!(file.exists());
    }

    #[test]
    fn a_directory_that_a_command_has_closed_is_opened_to_put_it_aside() {
        let (_scratch, file, notes) = scratch();
        let noted = Absent::note(&file, &notes).unwrap().unwrap();
        make(&file);
        rustix::fs::chmod(file.parent().unwrap(), 0o555.into()).unwrap();
        drop(noted);
        assert!(!file.exists());
    }
}
