//! What stands at a path that was recorded without links, for whoever must not be led elsewhere by one that was made
//! since: it is opened without following any.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

/// Opens what stands at an absolute path, if no link stands on the way to it; `O_CLOEXEC` is always added.
///
/// # Errors
/// `ELOOP` for a link on the way (`openat2(2)`), else the system's error.
pub fn open_itself(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(CWD, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn nothing_is_opened_by_way_of_a_link() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("real/sub")).unwrap();
        std::os::unix::fs::symlink("real", root.join("link")).unwrap();
        let opened = |path: &str| open_itself(&root.join(path), OFlags::PATH).map(drop);
        assert_eq!(opened("real/sub"), Ok(()));
        assert_eq!((opened("link"), opened("link/sub")), (Err(Errno::LOOP), Err(Errno::LOOP)));
        assert_eq!(opened("missing"), Err(Errno::NOENT));
    }
}
