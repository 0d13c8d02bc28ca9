//! The actual content of a team directory, for checks that everything is as it should be. Only
//! folders are opened, no link is followed, and nothing is made.

use rustix::fs::{AtFlags, Dir, FileType};

use super::{DirError, TeamDir, TeamPath};

/// A file, folder or anything else in a team directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where.
    pub at: TeamPath,
    /// What it is.
    pub kind: FileKind,
    /// The permission bits of its mode.
    pub mode: u32,
    /// The user id that owns it.
    pub owner: u32,
    /// Device and inode.
    pub identity: (u64, u64),
}

/// What something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Folder,
    /// A symbolic link.
    Link,
    /// A socket.
    Socket,
    /// A pipe, a device: nothing that belongs here.
    Other,
}

impl TeamDir {
    /// Tells whether this can be a team directory: it has a journal, or nothing that does not
    /// belong into one.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn looks_like_one(&self) -> Result<bool, DirError> {
        let entries = self.list(None)?;
        Ok(entries.iter().any(|it| it.at == TeamPath::journal())
            || entries.iter().all(|it| {
                let name = it.at.file_name();
                super::FOLDERS.contains(&name) || name == "config.json" || name == ".gitignore"
            }))
    }

    /// Lists the top of the team directory (none), or one of [`super::FOLDERS`], in the order of
    /// the names. A folder that is not there is empty. Entries that vanish meanwhile, or whose
    /// names are no text, are left out.
    ///
    /// # Errors
    /// [`DirError`] if the folder is a link, or the system refuses.
    pub fn list(&self, folder: Option<&'static str>) -> Result<Vec<Found>, DirError> {
        let explain = |errno| self.explain("list", &TeamPath::top(folder.unwrap_or(".")), errno);
        let opened = match self.try_open_folder(folder) {
            Err(rustix::io::Errno::NOENT) => return Ok(Vec::new()),
            other => other.map_err(explain)?,
        };
        let mut entries = Vec::new();
        for entry in Dir::read_from(&opened).map_err(explain)? {
            let entry = entry.map_err(explain)?;
            let Ok(file) = entry.file_name().to_str() else {
                continue;
            };
            if file == "." || file == ".." {
                continue;
            }
            let stat = match rustix::fs::statat(&opened, file, AtFlags::SYMLINK_NOFOLLOW) {
                Err(rustix::io::Errno::NOENT) => continue,
                other => other.map_err(explain)?,
            };
            entries.push(Found {
                at: TeamPath {
                    folder,
                    file: file.to_owned(),
                },
                kind: FileKind::of(FileType::from_raw_mode(stat.st_mode)),
                mode: stat.st_mode & 0o7777,
                owner: stat.st_uid,
                identity: (stat.st_dev, stat.st_ino),
            });
        }
        entries.sort_by(|one, other| one.at.file.cmp(&other.at.file));
        Ok(entries)
    }
}

impl FileKind {
    fn of(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Folder,
            FileType::Symlink => Self::Link,
            FileType::Socket => Self::Socket,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_there_is_told_and_nothing_is_followed_or_made() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        std::fs::remove_dir(dir.root().join("run")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.root().join("inbox/alice.jsonl")).unwrap();
        crate::fs::replace(&dir, &TeamPath::top("x"), b"abc").unwrap();
        assert_eq!(dir.list(Some("run")).unwrap(), []);
        assert!(!dir.root().join("run").exists());
        let inbox = dir.list(Some("inbox")).unwrap();
        assert_eq!(
            inbox.iter().map(|found| found.kind).collect::<Vec<_>>(),
            [FileKind::Link]
        );
        let top = dir.list(None).unwrap();
        let named = |name: &str| top.iter().find(|found| found.at.file == name).unwrap();
        assert_eq!((named("x").kind, named("x").mode), (FileKind::File, 0o600));
        assert_eq!(named("log").kind, FileKind::Folder);
    }
}
