//! The modes of a team directory, put back where another process of the user has changed them.
//!
//! Where there are no namespaces, a command of a teammate can change the mode of each file that its
//! user owns: it could open the team directory to other accounts, or close it to the daemon. The
//! daemon holds a descriptor of the directory, so no mode keeps it out.

use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, chmodat, fstat, openat};
use rustix::io::Errno;

use super::{DIR_MODE, DirError, FILE_MODE, FOLDERS, FileKind, TeamDir, TeamPath};

/// The bits of a mode that `chmod` sets.
const ALL_BITS: u32 = 0o7777;

impl TeamDir {
    /// Gives the directory, its folders and the files in them the modes that they were made with.
    /// Returns what had another mode, with that mode: `inbox (0777)`. Files in the folders are not
    /// returned: another program can have made one with its own mode.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn restore_modes(&self) -> Result<Vec<String>, DirError> {
        let mut restored = Vec::new();
        let folders = FOLDERS.map(TeamPath::top);
        for at in [None].into_iter().chain(folders.iter().map(Some)) {
            let name = at.map_or(".", TeamPath::file_name);
            restored.extend(
                self.restore_mode(at)?
                    .map(|had| format!("{name} ({had:04o})")),
            );
        }
        for folder in [None].into_iter().chain(FOLDERS.map(Some)) {
            for file in self
                .list(folder)?
                .into_iter()
                .filter(|file| file.kind == FileKind::File)
            {
                let had = self
                    .restore_mode(Some(&file.at))
                    .map(|had| if folder.is_none() { had } else { None })?;
                restored.extend(had.map(|had| format!("{} ({had:04o})", file.at)));
            }
        }
        Ok(restored)
    }

    /// Gives the directory itself (none), a folder or a file the mode that it was made with.
    /// Returns the mode that it had, if that was another one. What is not there, or something else,
    /// is left alone.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    fn restore_mode(&self, at: Option<&TeamPath>) -> Result<Option<u32>, DirError> {
        self.change_mode(at, |_, made_with| made_with)
    }

    /// Removes the access of other users to the directory itself (none), a folder or a file. What
    /// is read-only stays so.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn close_to_others(&self, at: Option<&TeamPath>) -> Result<(), DirError> {
        self.change_mode(at, |mode, made_with| mode & made_with)
            .map(drop)
    }

    /// Sets a mode that is computed from the present mode and the one that such a file is made
    /// with. Returns the earlier mode if it was another one.
    fn change_mode(
        &self,
        at: Option<&TeamPath>,
        wanted: impl Fn(u32, u32) -> u32,
    ) -> Result<Option<u32>, DirError> {
        let change = || {
            // No link is followed: the file is only held open, and its mode is set through the
            // kernel's name for the descriptor.
            let held = match at {
                None => None,
                Some(at) => {
                    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    Some(openat(
                        self.try_open_folder(at.folder)?,
                        at.file_name(),
                        flags,
                        Mode::empty(),
                    )?)
                }
            };
            // In a directory without permissions not even `.` is found, so its descriptor is used.
            let held = held.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
            let mode = fstat(held)?.st_mode;
            let made_with = match FileType::from_raw_mode(mode) {
                FileType::Directory => DIR_MODE,
                FileType::RegularFile => FILE_MODE,
                _ => return Ok(None),
            };
            let wanted = wanted(mode & ALL_BITS, made_with);
            if mode & ALL_BITS == wanted {
                return Ok(None);
            }
            let itself = format!("/proc/self/fd/{}", held.as_raw_fd());
            chmodat(CWD, itself, Mode::from_raw_mode(wanted), AtFlags::empty())?;
            Ok(Some(mode & ALL_BITS))
        };
        match change() {
            Err(Errno::NOENT) => Ok(None),
            other => other.map_err(|errno| {
                let at = at.cloned().unwrap_or_else(|| TeamPath::top("."));
                self.explain("change the mode of", &at, errno)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::tests::scratch;
    use super::*;

    #[test]
    fn modes_are_put_back_and_said() {
        let (_scratch, dir) = scratch();
        assert_eq!(dir.restore_modes().unwrap(), [""; 0]);
        let at = |path: &str| dir.root().join(path);
        drop(std::fs::File::create(at("inbox/alice.jsonl")).unwrap());
        let set = |path: &str, mode| {
            std::fs::set_permissions(at(path), PermissionsExt::from_mode(mode)).unwrap();
        };
        set("inbox/alice.jsonl", 0o666);
        set("inbox", 0o000);
        set("", 0o000);
        assert_eq!(dir.restore_modes().unwrap(), [". (0000)", "inbox (0000)"]);
        for (path, mode) in [
            ("", DIR_MODE),
            ("inbox", DIR_MODE),
            ("inbox/alice.jsonl", FILE_MODE),
        ] {
            assert_eq!(
                at(path).metadata().unwrap().permissions().mode() & ALL_BITS,
                mode,
                "{path}"
            );
        }
    }
}
