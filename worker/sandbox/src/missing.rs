//! Protected paths that are missing. Nothing can be mounted at a path where nothing is. So a
//! missing directory is made, empty; a file that commands have made is put aside when they have
//! ended.
//!
//! Commands run at the same time, and a file that one of them has made must not be taken for the
//! user's when another begins. So the first shim notes that the file is absent, in a file of the
//! team directory that no command reaches, and each shim that comes while it runs reads that. All
//! of them hold a shared lock on the note; the last one puts the file aside and clears the note. A
//! shim that is killed leaves its note: so the next one knows that no user made the file.

use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use rustix::fs::{AtFlags, Mode, chmod, fstat, mkdirat, renameat, statat};
use rustix::io::Errno;

use super::place::{find_itself, is_dir, path_of};
use super::policy::Policy;
use super::protected::{Missing, Protected};

/// What is added to the name of a file that was put aside.
const ASIDE: &str = ".put-aside-by-teamd";

/// The files that must not be made while a command runs.
#[derive(Debug, Default)]
pub(crate) struct AbsentFiles(Vec<Absent>);

impl AbsentFiles {
    /// Makes the directories that are missing, and notes which files are.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn note(policy: &Policy) -> io::Result<Self> {
        // A bare repository has no such directory before the first commit of a tree (`logs`).
        policy
            .writable
            .iter()
            .filter(|it| it.plain)
            .try_for_each(|it| make_empty(&it.place.path))?;
        let mut absent = Vec::new();
        let protected: &[Protected] = if policy.has_mounts() {
            &policy.protected
        } else {
            &[]
        };
        for Protected { path, if_missing } in protected {
            match if_missing {
                Missing::Leave => {}
                Missing::MakeEmpty => make_empty(path)?,
                Missing::PutAside => absent.extend(Absent::note(path, &policy.notes)?),
            }
        }
        Ok(Self(absent))
    }

    /// Puts aside what commands have made. To be called when the command has ended. Returns a
    /// notice for the user for each file.
    pub(crate) fn put_aside(&self) -> Vec<String> {
        self.0.iter().filter_map(Absent::put_aside).collect()
    }
}

/// A file that was not there.
#[derive(Debug)]
struct Absent {
    /// The directory that would hold the file: another one may be at its path in the end.
    folder: OwnedFd,
    name: OsString,
    /// Holds something while the file is absent, or made by a command.
    note: File,
}

impl Absent {
    /// Notes that a file is absent, or learns that from the other shims; none if the file is the
    /// user's, or if its directory is missing. Follows no link.
    fn note(path: &Path, notes: &Path) -> io::Result<Option<Self>> {
        let Some((folder, name)) = open_above(path)? else {
            return Ok(None);
        };
        let stat = fstat(&folder)?;
        let note = notes.join(format!(
            "absent-{:x}-{:x}-{}",
            stat.st_dev,
            stat.st_ino,
            name.display()
        ));
        let mut options = File::options();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let note = options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(note)?;
        let absent = Self { folder, name, note };
        loop {
            // The shim that has the note to itself decides.
            match absent.note.try_lock() {
                Ok(()) if absent.is_noted()? => {}
                Ok(()) if absent.is_there()? => return Ok(None),
                Ok(()) => absent.note.set_len(1)?,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // Only shims lock it, and alone only as long as it takes to look, or to rename one
            // file.
            absent.note.lock_shared()?;
            if absent.is_noted()? {
                return Ok(Some(absent));
            }
            // The last of the others has just cleared it.
            absent.note.unlock()?;
        }
    }

    fn is_noted(&self) -> io::Result<bool> {
        Ok(self.note.metadata()?.len() > 0)
    }

    fn is_there(&self) -> io::Result<bool> {
        match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Puts the file aside if this is the last shim that knows it to be absent. Returns a notice
    /// for the user.
    fn put_aside(&self) -> Option<String> {
        // The shared lock is given up first: of two shims that end together, one is then the last.
        self.note.try_lock().ok()?;
        match self.rename() {
            Ok(notice) => {
                // What is made from now on is the user's. A note that cannot be cleared stays as
                // that of a killed shim.
                let cleared = self
                    .note
                    .set_len(0)
                    .map_err(|error| format!("cannot clear a note: {error}"));
                notice.or(cleared.err())
            }
            Err(errno) => Some(format!(
                "{} was made while this command ran, and cannot be put aside ({errno}): `git` takes settings or hooks from it",
                self.name.display()
            )),
        }
    }

    fn rename_to(&self, name: &OsStr) -> rustix::io::Result<()> {
        in_own_folder(&self.folder, || {
            renameat(&self.folder, &self.name, &self.folder, name)
        })
    }

    /// Gives the file another name, by which `git` does not find it. Returns a notice for the user
    /// if it was there.
    fn rename(&self) -> rustix::io::Result<Option<String>> {
        let mut aside = self.name.clone();
        aside.push(ASIDE);
        let mut renamed = self.rename_to(&aside);
        // A command has made a directory, here or there. Nothing has the next name.
        if matches!(
            renamed,
            Err(Errno::ISDIR | Errno::NOTDIR | Errno::EXIST | Errno::NOTEMPTY)
        ) {
            aside.push(format!("-{}", uuid::Uuid::new_v4().simple()));
            renamed = self.rename_to(&aside);
        }
        match renamed {
            Ok(()) => Ok(Some(format!(
                "{} was made while this command ran, and `git` would take settings or hooks from it: it is {} now",
                self.name.display(),
                aside.display()
            ))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

/// Makes a directory that is missing in another. Follows no link: a tool could have made it.
fn make_empty(path: &Path) -> io::Result<()> {
    let Some((above, name)) = open_above(path)? else {
        return Ok(());
    };
    match in_own_folder(&above, || {
        mkdirat(&above, &name, Mode::from_raw_mode(0o777))
    }) {
        // Where this user may not, a tool may not either.
        Err(Errno::EXIST | Errno::ACCESS | Errno::PERM | Errno::ROFS) => Ok(()),
        other => Ok(other?),
    }
}

/// Opens the directory that holds a path, or would; none if nothing is there that could hold it.
fn open_above(path: &Path) -> io::Result<Option<(OwnedFd, OsString)>> {
    let Some(above) = path.parent() else {
        return Ok(None);
    };
    let Some(name) = path.file_name() else {
        return Ok(None);
    };
    match find_itself(above)? {
        Some((folder, stat)) if is_dir(&stat) => Ok(Some((folder, name.to_owned()))),
        _ => Ok(None),
    }
}

/// Changes what is in a directory, after the owner's right to write is restored if need be: a tool
/// may have taken it away.
fn in_own_folder(
    folder: &OwnedFd,
    change: impl Fn() -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    match change() {
        Err(Errno::ACCESS) => {
            let mode = Mode::from_raw_mode(fstat(folder)?.st_mode) | Mode::RWXU;
            // By `/proc`: a mode cannot be set by such a descriptor itself.
            chmod(path_of(folder), mode)?;
            change()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
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
        File::create(file)
            .unwrap()
            .write_all(b"elsewhere\n")
            .unwrap();
    }

    #[test]
    fn what_was_there_before_is_the_users_and_stays() {
        let (_scratch, file, notes) = scratch();
        make(&file);
        assert!(Absent::note(&file, &notes).unwrap().is_none());
        assert!(file.exists());
        assert!(
            Absent::note(Path::new("/nowhere/.git/commondir"), &notes)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn what_is_made_while_commands_run_is_put_aside_by_the_last_one_however_they_came() {
        let (_scratch, file, notes) = scratch();
        let first = Absent::note(&file, &notes).unwrap().unwrap();
        make(&file);
        let second = Absent::note(&file, &notes).unwrap().unwrap();
        assert_eq!(first.put_aside(), None);
        drop(first);
        assert!(file.exists());
        assert!(
            second
                .put_aside()
                .unwrap()
                .contains("commondir.put-aside-by-teamd now")
        );
        assert!(!file.exists() && file.with_file_name("commondir.put-aside-by-teamd").exists());
        drop(second);
        // The user's, from now on.
        make(&file);
        assert!(Absent::note(&file, &notes).unwrap().is_none() && file.exists());
    }

    /// A shim that is killed: all it had is closed, and nothing else happens.
    fn kill(killed: Absent) {
        // What another test starts has all descriptors of this process for a moment: to close it is
        // not enough.
        killed.note.unlock().unwrap();
    }

    #[test]
    fn what_the_command_of_a_killed_shim_made_is_put_aside_by_the_next() {
        let (_scratch, file, notes) = scratch();
        kill(Absent::note(&file, &notes).unwrap().unwrap());
        make(&file);
        assert!(
            Absent::note(&file, &notes)
                .unwrap()
                .unwrap()
                .put_aside()
                .is_some()
        );
        assert!(!file.exists());
    }

    #[test]
    fn what_stands_where_it_is_put_does_not_keep_it() {
        let (_scratch, file, notes) = scratch();
        let noted = Absent::note(&file, &notes).unwrap().unwrap();
        std::fs::create_dir_all(file.with_file_name("commondir.put-aside-by-teamd/x")).unwrap();
        make(&file);
        assert!(
            noted
                .put_aside()
                .unwrap()
                .contains("commondir.put-aside-by-teamd-")
        );
        assert!(!file.exists());
    }

    #[test]
    fn a_directory_that_a_command_has_closed_is_opened_to_put_it_aside() {
        let (_scratch, file, notes) = scratch();
        let noted = Absent::note(&file, &notes).unwrap().unwrap();
        make(&file);
        chmod(file.parent().unwrap(), 0o555.into()).unwrap();
        noted.put_aside();
        assert!(!file.exists());
    }

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
}
