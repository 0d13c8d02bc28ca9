//! Removes what commands have left, which this process does not trust.

use std::io;
use std::path::Path;

use rustix::fs::OFlags;
use teamd_shared::place::open_itself;

/// Removes a directory such as a checkout. No link is followed, and none may be on the way to it.
/// What its owner has closed is opened.
pub fn remove(root: &Path) -> io::Result<()> {
    open_itself(root, OFlags::PATH | OFlags::DIRECTORY)?;
    let Err(error) = std::fs::remove_dir_all(root) else {
        return Ok(());
    };
    if error.kind() != io::ErrorKind::PermissionDenied {
        return Err(error);
    }
    open_all(root)?;
    std::fs::remove_dir_all(root)
}

fn open_all(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))?;
    for entry in folder.read_dir()? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_all(&entry.path())?;
        }
    }
    Ok(())
}
