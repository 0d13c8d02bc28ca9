//! Directories of a repository: made where a guard needs one that is missing, and changed although a tool has closed them.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, chmod, fstat, mkdirat, openat2};
use rustix::io::Errno;

use super::known::path_of;

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
}
