//! Paths that must not lead elsewhere by a link that another program has made: a path is opened
//! without following any link, or each link is shown before it is followed.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2, unlinkat};
use rustix::io::Errno;

/// Opens an absolute path if there is no link on the way to it; `O_CLOEXEC` is always added.
///
/// # Errors
/// `ELOOP` for a link on the way (`openat2(2)`), else the system's error.
pub fn open_itself(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(CWD, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// As [`open_itself`], for a path below a directory.
///
/// # Errors
/// `ELOOP` for a link on the way, `EXDEV` for a path that leads out of the directory, else the
/// system's error.
pub fn open_below(folder: impl AsFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(
        folder,
        path,
        flags | OFlags::CLOEXEC,
        Mode::empty(),
        resolve,
    )
}

/// Makes a directory and those above it, below a directory where others write: a link or a file on
/// the way is removed.
///
/// # Errors
/// `EINVAL` for a path that is not plain, else the system's error.
pub fn make_below(folder: impl AsFd, path: &Path, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut reached = openat(folder, ".", flags, Mode::empty())?;
    for part in path.components() {
        let Component::Normal(name) = part else {
            return Err(Errno::INVAL);
        };
        let mut made = mkdirat(&reached, name, mode);
        let mut opened = openat(&reached, name, flags, Mode::empty());
        if matches!(opened, Err(Errno::LOOP | Errno::NOTDIR)) {
            unlinkat(&reached, name, AtFlags::empty())?;
            made = mkdirat(&reached, name, mode);
            opened = openat(&reached, name, flags, Mode::empty());
        }
        if !matches!(made, Err(Errno::EXIST)) {
            made?;
        }
        reached = opened?;
    }
    Ok(reached)
}

/// How many links are followed for one path: as many as the kernel follows (`path_resolution(7)`).
const MAX_LINKS: u32 = 40;

/// Returns where an absolute path leads, whether something is there or not. Each link is shown to
/// `met` before it is followed.
///
/// # Errors
/// The error of `met`, else the system's error: `ELOOP` for more than 40 links.
pub fn follow<E: From<io::Error>>(
    path: &Path,
    mut met: impl FnMut(&Path) -> Result<(), E>,
) -> Result<PathBuf, E> {
    let mut ahead: VecDeque<OsString> = path.components().map(of_component).collect();
    let mut reached = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            reached.pop();
            continue;
        }
        // An absolute name replaces the path in `join`.
        let next = reached.join(&name);
        let is_link = match next.symlink_metadata() {
            Ok(metadata) => metadata.is_symlink(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error.into()),
        };
        if !is_link {
            reached = next;
            continue;
        }
        met(&next)?;
        links += 1;
        if links > MAX_LINKS {
            return Err(io::Error::from(Errno::LOOP).into());
        }
        let target = std::fs::read_link(&next)?;
        for part in target
            .components()
            .rev()
            .filter(|part| *part != Component::CurDir)
        {
            ahead.push_front(of_component(part));
        }
    }
    Ok(reached)
}

fn of_component(part: Component<'_>) -> OsString {
    part.as_os_str().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_is_shown_before_it_is_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("real/sub")).unwrap();
        for (target, link) in [
            ("real/../link2", "link"),
            ("real", "link2"),
            ("circle", "circle"),
        ] {
            std::os::unix::fs::symlink(target, root.join(link)).unwrap();
        }
        let mut met = Vec::new();
        let followed = |path: &str, met: &mut Vec<PathBuf>| {
            follow(&root.join(path), |link| {
                met.push(link.to_owned());
                Ok::<_, io::Error>(())
            })
        };
        assert_eq!(
            followed("link/sub/../missing/x", &mut met).unwrap(),
            root.join("real/missing/x")
        );
        assert_eq!(met, [root.join("link"), root.join("link2")]);
        assert!(followed("circle", &mut met).is_err());
        let refused = follow(&root.join("link"), |_| Err(io::Error::other("no")));
        assert_eq!(refused.unwrap_err().to_string(), "no");
    }

    #[test]
    fn nothing_is_opened_by_way_of_a_link() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("real/sub")).unwrap();
        std::os::unix::fs::symlink("real", root.join("link")).unwrap();
        let opened = |path: &str| open_itself(&root.join(path), OFlags::PATH).map(drop);
        assert_eq!(opened("real/sub"), Ok(()));
        assert_eq!(
            (opened("link"), opened("link/sub")),
            (Err(Errno::LOOP), Err(Errno::LOOP))
        );
        assert_eq!(opened("missing"), Err(Errno::NOENT));
    }

    #[test]
    fn what_is_made_below_a_directory_lies_there_whatever_link_stands_on_the_way() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("own/a")).unwrap();
        std::fs::create_dir(root.join("other")).unwrap();
        std::os::unix::fs::symlink("../other", root.join("own/link")).unwrap();
        std::os::unix::fs::symlink(root.join("other/new"), root.join("own/a/dangling")).unwrap();
        let own = open_itself(&root.join("own"), OFlags::PATH).unwrap();
        assert_eq!(
            open_below(&own, Path::new("link"), OFlags::PATH).unwrap_err(),
            Errno::LOOP
        );
        assert_eq!(
            open_below(&own, Path::new("../other"), OFlags::PATH).unwrap_err(),
            Errno::XDEV
        );
        for path in ["a/b/c", "link/x", "a/dangling/y"] {
            make_below(&own, Path::new(path), Mode::RWXU).unwrap();
            make_below(&own, Path::new(path), Mode::RWXU).unwrap();
            assert!(
                open_below(&own, Path::new(path), OFlags::DIRECTORY).is_ok(),
                "{path}"
            );
        }
        assert_eq!(
            make_below(&own, Path::new("../x"), Mode::RWXU).unwrap_err(),
            Errno::INVAL
        );
        assert_eq!(std::fs::read_dir(root.join("other")).unwrap().count(), 0);
    }
}
