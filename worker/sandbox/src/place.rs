//! A place on the machine: a path without links, and the directory that stood there when the
//! incarnation began. Teammates move directories and make links, so a call is refused where
//! something else has taken such a path since.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, OFlags, Stat, fstat, readlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use teamd_shared::place;

/// A path without links, and what the kernel knows the directory there by.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Place {
    /// The path.
    pub path: PathBuf,
    /// Device and inode; none for a file, and for what is looked up before each call.
    inode: Option<(u64, u64)>,
}

impl Place {
    /// Looks up what is at a path without links.
    ///
    /// # Errors
    /// The system's error: `ELOOP` for a link on the way.
    pub(crate) fn learn(path: &Path) -> io::Result<Self> {
        let (_, stat) = open_itself(path)?;
        Ok(Self {
            path: path.to_owned(),
            inode: is_dir(&stat).then_some((stat.st_dev, stat.st_ino)),
        })
    }

    /// Makes a place that is looked up for this call alone.
    pub(crate) fn of_this_call(path: PathBuf) -> Self {
        Self { path, inode: None }
    }

    /// Tells whether a file that was opened can be the one that was learned.
    pub(crate) fn can_be(&self, stat: &Stat) -> bool {
        self.inode
            .is_none_or(|inode| inode == (stat.st_dev, stat.st_ino))
    }

    /// Checks that nothing else is at its path, or at the one where it is mounted. It may be gone.
    ///
    /// # Errors
    /// A text for the model.
    pub(crate) fn check(&self, at: &Path) -> Result<(), String> {
        if self.inode.is_none() {
            return Ok(());
        }
        let why = match open_itself(at) {
            Ok((_, stat)) if self.can_be(&stat) => return Ok(()),
            Err(Errno::NOENT) => return Ok(()),
            Ok(_) => "another directory has taken its place".to_owned(),
            Err(Errno::LOOP) => "a link has taken its place".to_owned(),
            Err(errno) => errno.to_string(),
        };
        Err(format!(
            "not run: {} may be written, but is not what it was when this teammate began ({why}): put it back, or \
             shut the teammate down and spawn it again",
            self.path.display()
        ))
    }
}

/// Opens what is at a path without links, for neither reading nor writing.
pub(super) fn open_itself(path: &Path) -> rustix::io::Result<(OwnedFd, Stat)> {
    let fd = place::open_itself(path, OFlags::PATH)?;
    let stat = fstat(&fd)?;
    Ok((fd, stat))
}

/// As [`open_itself`]; none if nothing is there, or a link is on the way, since a tool may have
/// made it.
///
/// # Errors
/// The system's error: what cannot be looked at may be there all the same.
pub(super) fn find_itself(path: &Path) -> rustix::io::Result<Option<(OwnedFd, Stat)>> {
    match open_itself(path) {
        Err(errno) if is_absent(errno) => Ok(None),
        other => other.map(Some),
    }
}

/// Tells whether a path that cannot be opened leads to nothing, or by way of a link.
pub(super) fn is_absent(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
}

/// Returns the target of the link at a path, as it is written; none if there is no link, or another
/// one is on the way to it.
///
/// # Errors
/// The system's error.
pub(super) fn find_link(path: &Path) -> rustix::io::Result<Option<CString>> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(None);
    };
    let Some((folder, _)) = find_itself(above)? else {
        return Ok(None);
    };
    match readlinkat(&folder, name, Vec::new()) {
        Ok(target) => Ok(Some(target)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::INVAL) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Tells whether each part of an absolute path is a name: it is then the path of what is opened
/// without links.
pub(super) fn is_plain(path: &Path) -> bool {
    path.is_absolute()
        && path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

/// Returns the path without links of what is there. Mostly it is that itself, and one look shows
/// that.
pub(super) fn real_path(path: &Path) -> io::Result<PathBuf> {
    if is_plain(path) && place::open_itself(path, OFlags::PATH).is_ok() {
        return Ok(path.to_owned());
    }
    path.canonicalize()
}

pub(super) fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Returns a path by which the kernel finds what a descriptor refers to, even if something else is
/// at its own path by now.
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
        let place = Place::learn(&path).unwrap();
        assert_eq!(place.check(&path), Ok(()));
        fs::rename(root.join("a"), root.join("c")).unwrap();
        assert_eq!(place.check(&path), Ok(()), "it is gone");
        std::os::unix::fs::symlink("c", root.join("a")).unwrap();
        assert!(
            place
                .check(&path)
                .unwrap_err()
                .contains("a link has taken its place")
        );
        assert!(Place::learn(&path).is_err());
        fs::remove_file(root.join("a")).unwrap();
        fs::create_dir_all(&path).unwrap();
        assert!(
            place
                .check(&path)
                .unwrap_err()
                .contains("another directory")
        );
        assert_eq!(Place::of_this_call(path.clone()).check(&path), Ok(()));
    }
}
