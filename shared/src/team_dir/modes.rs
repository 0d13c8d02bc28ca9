//! The modes of a team directory, put back where another process of the user has changed them.
//!
//! Where there are no namespaces, a command of a teammate can change the mode of each file that its user owns: it could
//! open the team directory to other accounts, or close it to the daemon. The daemon holds a descriptor of the directory,
//! so no mode keeps it out.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, chmodat, fchmod, fstat, openat, statat};

use super::{DIR_MODE, DirError, FILE_MODE, FOLDERS, TeamDir, TeamPath};

/// The bits of a mode that `chmod` sets.
const ALL_BITS: u32 = 0o7777;

impl TeamDir {
    /// Gives the directory, its folders and the files in them the modes that they were made with. Returns what had another
    /// mode, with that mode: `inbox (0777)`. Files in the folders are not returned: another program can have made one with
    /// its own mode.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn restore_modes(&self) -> Result<Vec<String>, DirError> {
        let mut restored = Vec::new();
        let explain = |at: &str, errno| self.explain("change the mode of", &TeamPath::top(at), errno);
        // By the descriptor: in a directory that is closed, not even `.` is found.
        let own = fstat(&self.fd).map_err(|errno| explain(".", errno))?.st_mode & ALL_BITS;
        if own != DIR_MODE {
            fchmod(&self.fd, Mode::from_raw_mode(DIR_MODE)).map_err(|errno| explain(".", errno))?;
            restored.push(format!(". ({own:04o})"));
        }
        for folder in FOLDERS {
            self.restore_mode(self.fd.as_fd(), folder, &mut restored)
                .map_err(|errno| explain(folder, errno))?;
        }
        for folder in [None].into_iter().chain(FOLDERS.map(Some)) {
            let opened = match folder {
                Some(folder) => self.open_folder(folder)?,
                None => self.fd.try_clone().map_err(|error| DirError::Io {
                    verb: "open",
                    path: self.root.clone(),
                    source: error,
                })?,
            };
            for found in self.list(folder)? {
                if found.mode & ALL_BITS != FILE_MODE && found.kind == super::FileKind::File {
                    let file = found.at.file_name();
                    let mut of_file = Vec::new();
                    self.restore_mode(opened.as_fd(), file, &mut of_file)
                        .map_err(|errno| explain(file, errno))?;
                    restored.extend(of_file.into_iter().filter(|_| folder.is_none()));
                }
            }
        }
        Ok(restored)
    }

    /// Follows no link: what is opened is only held, and its mode is set by the kernel's name of that.
    fn restore_mode(
        &self,
        above: BorrowedFd<'_>,
        name: &str,
        restored: &mut Vec<String>,
    ) -> rustix::io::Result<()> {
        let stat = match statat(above, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            other => other?,
        };
        let wanted = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => DIR_MODE,
            FileType::RegularFile => FILE_MODE,
            _ => return Ok(()),
        };
        if stat.st_mode & ALL_BITS == wanted {
            return Ok(());
        }
        let held = openat(above, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let itself = format!("/proc/self/fd/{}", held.as_raw_fd());
        chmodat(CWD, itself, Mode::from_raw_mode(wanted), AtFlags::empty())?;
        restored.push(format!("{name} ({:04o})", stat.st_mode & ALL_BITS));
        Ok(())
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
        for (path, mode) in [("", DIR_MODE), ("inbox", DIR_MODE), ("inbox/alice.jsonl", FILE_MODE)] {
            assert_eq!(at(path).metadata().unwrap().permissions().mode() & ALL_BITS, mode, "{path}");
        }
    }
}
