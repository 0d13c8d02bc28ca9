//! Replacing a file. It is never changed in place: a new one takes its name by a rename, so that
//! readers see the old content or the new one.
//!
//! The new file keeps the mode, and (for root) the owner. It is another inode, so other hard links
//! keep the old content. A link is followed: the file that it names is replaced, the link stays.
//! Nothing is synced: after a power loss the old content may be back.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{
    Access, AtFlags, Gid, Mode, OFlags, Stat, Uid, accessat, fchmod, fchown, fstat, openat,
    renameat, unlinkat,
};
use rustix::io::Errno;

use super::{FileUse, ResolvedPath, Workspace, cannot, must_be_file};

impl Workspace {
    /// Puts a new file into a place.
    pub(in crate::tools) fn replace(
        &self,
        path: &str,
        place: &ResolvedPath,
        content: &[u8],
    ) -> Result<(), String> {
        let ResolvedPath { parent, name, stat } = place;
        if let Some(old) = stat {
            must_be_file(path, old)?;
            // A rename asks only for the directory: a file that may not be written must stay.
            accessat(parent, name, Access::WRITE_OK, AtFlags::EACCESS)
                .map_err(cannot("write", path))?;
        }
        let temporary = self.temporary.as_str();
        let file = make(parent, temporary).map_err(cannot("write", path))?;
        let written = fill(file, content, stat.as_ref())
            .map_err(cannot("write", path))
            .and_then(|()| {
                renameat(parent, temporary, parent, name).map_err(cannot("replace", path))
            });
        if written.is_err()
            && let Err(errno) = unlinkat(parent, temporary, AtFlags::empty())
        {
            tracing::warn!("cannot remove {temporary} beside {path}: {errno}");
        }
        written
    }

    /// Removes what a worker has left that was killed while it wrote this file.
    pub(in crate::tools) fn clear_up(&self, path: &str) -> Result<(), String> {
        let place = self.find(path, FileUse::Change)?;
        remove_leftover(&place.parent, &self.temporary).map_err(cannot("clear up beside", path))
    }
}

fn remove_leftover(parent: &OwnedFd, temporary: &str) -> rustix::io::Result<()> {
    match unlinkat(parent, temporary, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Makes the new file under its temporary name, in the place of what a killed worker may have left.
fn make(parent: &OwnedFd, temporary: &str) -> rustix::io::Result<OwnedFd> {
    remove_leftover(parent, temporary)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, temporary, flags, Mode::from_raw_mode(0o666))
}

/// Writes the new file, and gives it the owner and mode of the old one.
fn fill(file: OwnedFd, content: &[u8], old: Option<&Stat>) -> io::Result<()> {
    let mut file = File::from(file);
    file.write_all(content)?;
    let Some(old) = old else { return Ok(()) };
    let new = fstat(&file)?;
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid) {
        // Only root may give files away. For others the file becomes their own, as with any editor.
        match fchown(
            &file,
            Some(Uid::from_raw(old.st_uid)),
            Some(Gid::from_raw(old.st_gid)),
        ) {
            Ok(()) | Err(Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    // Not the set-user-id bits: a write takes them away as well.
    Ok(fchmod(&file, Mode::from_raw_mode(old.st_mode & 0o777))?)
}
