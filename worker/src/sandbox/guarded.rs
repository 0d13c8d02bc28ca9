//! Looking, from inside of the mounts of a command, whether what is protected cannot be written. Other commands work in the
//! same directories while the mounts are made, and can close, open, move and remove what is in them.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, StatVfsMountFlags, StatxAttributes, StatxFlags, fstatvfs, statx};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::known::{is_file, open_itself};
use super::policy::{Guard, Policy, Protected};

/// Makes sure of it.
///
/// # Errors
/// What the model is told.
pub(super) fn check(policy: &Policy) -> Result<(), String> {
    let refused = |path: &Path, why: String| {
        let path = path.display();
        format!("not run: {path} cannot be kept as it is: {why}; try again, or look at its directory")
    };
    for protected in &policy.protected {
        check_one(protected).map_err(|why| refused(&protected.path, why))?;
    }
    policy.pinned.iter().try_for_each(|path| check_pinned(path).map_err(|why| refused(path, why)))
}

/// What is mounted on itself is neither renamed nor replaced.
fn check_pinned(path: &Path) -> Result<(), String> {
    let (found, _) = match open_itself(path) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        other => other.map_err(|errno| errno.to_string())?,
    };
    let known =
        statx(&found, "", AtFlags::EMPTY_PATH, StatxFlags::empty()).map_err(|errno| errno.to_string())?;
    // A kernel that does not say so (before Linux 5.8) is believed to have done what it was told.
    let is_kept = !known.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT)
        || known.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    if is_kept { Ok(()) } else { Err("it could be moved away".to_owned()) }
}

fn check_one(Protected { path, guard }: &Protected) -> Result<(), String> {
    match open_itself(path) {
        Ok((_, stat)) if *guard == Guard::IfFile && !is_file(&stat) => Ok(()),
        Ok((found, _)) if is_read_only(&found)? => Ok(()),
        Ok(_) => Err("something else has taken its place".to_owned()),
        Err(Errno::NOENT | Errno::NOTDIR) if *guard == Guard::MadeEmpty => check_unmakeable(path),
        // What a link stands for lies elsewhere, or is not protected by this path.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
        Err(errno) => Err(errno.to_string()),
    }
}

/// What is missing must be something that the command cannot make.
fn check_unmakeable(path: &Path) -> Result<(), String> {
    let Some(above) = path.parent() else { return Ok(()) };
    match open_itself(above) {
        Ok((found, stat)) if stat.st_uid != geteuid().as_raw() || is_read_only(&found)? => Ok(()),
        Ok(_) => Err("it could be made".to_owned()),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
        Err(errno) => Err(errno.to_string()),
    }
}

fn is_read_only(found: &OwnedFd) -> Result<bool, String> {
    let status = fstatvfs(found).map_err(|errno| errno.to_string())?;
    Ok(status.f_flag.contains(StatVfsMountFlags::RDONLY))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(path: &Path, guard: Guard) -> Result<(), String> {
        check_one(&Protected { path: path.to_owned(), guard })
    }

    #[test]
    fn what_is_no_mount_can_be_moved() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        assert_eq!(check_pinned(&root), Err("it could be moved away".to_owned()));
        assert_eq!((check_pinned(&root.join("missing")), check_pinned(Path::new("/proc"))), (Ok(()), Ok(())));
    }

    #[test]
    fn what_can_be_written_is_found_and_what_can_be_made_where_it_must_not() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        std::fs::create_dir(root.join(".git")).unwrap();
        drop(std::fs::File::create(root.join("file")).unwrap());
        assert!(told(&root.join("file"), Guard::IfThere).unwrap_err().contains("something else"));
        assert!(told(&root.join("file"), Guard::IfFile).is_err());
        assert_eq!(told(&root.join(".git"), Guard::IfFile), Ok(()));
        for guard in [Guard::IfThere, Guard::NeverMade] {
            assert_eq!(told(&root.join("missing"), guard), Ok(()));
        }
        let must_stand = |path| told(&root.join(path), Guard::MadeEmpty);
        assert_eq!(must_stand("missing"), Err("it could be made".to_owned()));
        assert_eq!(must_stand("missing/missing"), Ok(()));
    }
}
