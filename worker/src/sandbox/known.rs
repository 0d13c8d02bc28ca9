//! What stood at a path when a life began. What may be written is named by paths, and tools move directories and make
//! links: a call is refused where another directory has taken such a path since.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags, Stat, fstat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use teamd_shared::place;

/// A directory, by its path and by what the kernel knows it by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    path: PathBuf,
    dev: u64,
    ino: u64,
}

impl Known {
    /// Learns what a path without links leads to; none if that is no directory.
    ///
    /// # Errors
    /// The system's error, also for a link on the way.
    pub(crate) fn learn(path: &Path) -> io::Result<Option<Self>> {
        let (_, stat) = open_itself(path)?;
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        Ok(is_dir.then(|| Self { path: path.to_owned(), dev: stat.st_dev, ino: stat.st_ino }))
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Tells whether it is what somebody has opened.
    pub(crate) fn is(&self, stat: &Stat) -> bool {
        (self.dev, self.ino) == (stat.st_dev, stat.st_ino)
    }

    /// Makes sure that nothing else stands at its path, or at the one where it is mounted. That it is gone is no error.
    ///
    /// # Errors
    /// What the model is told.
    pub(crate) fn check(&self, at: &Path) -> Result<(), String> {
        let why = match open_itself(at) {
            Ok((_, stat)) if self.is(&stat) => return Ok(()),
            Err(Errno::NOENT) => return Ok(()),
            Ok(_) => "another directory has taken its place".to_owned(),
            Err(Errno::LOOP) => "a link has taken its place".to_owned(),
            Err(errno) => errno.to_string(),
        };
        Err(format!(
            "not run: {} may be written, but is not what it was when this teammate began ({why}): put it back, or have \
             the teammate shut down and spawned anew",
            self.path.display()
        ))
    }
}

/// Opens what stands at a path without links, but neither reads nor writes it.
pub(super) fn open_itself(path: &Path) -> rustix::io::Result<(OwnedFd, Stat)> {
    let fd = place::open_itself(path, OFlags::PATH)?;
    let stat = fstat(&fd)?;
    Ok((fd, stat))
}

/// Tells whether it is a file.
pub(super) fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Returns a path by which the kernel finds what a descriptor stands for, whatever stands at its own path by now.
pub(super) fn path_of(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn another_directory_and_a_link_are_told_from_what_was_there() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let path = root.join("a/b");
        fs::create_dir_all(&path).unwrap();
        let known = Known::learn(&path).unwrap().unwrap();
        assert_eq!(known.check(&path), Ok(()));
        fs::rename(root.join("a"), root.join("c")).unwrap();
        assert_eq!(known.check(&path), Ok(()));
        std::os::unix::fs::symlink("c", root.join("a")).unwrap();
        assert!(known.check(&path).unwrap_err().contains("a link has taken its place"));
        assert!(Known::learn(&path).is_err());
        fs::remove_file(root.join("a")).unwrap();
        fs::create_dir_all(&path).unwrap();
        assert!(known.check(&path).unwrap_err().contains("another directory"));
    }
}
