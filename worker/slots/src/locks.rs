//! Locks of single bytes that belong to an open file (`F_OFD_SETLK`): the kernel frees them when the
//! last process that has it open ends, however that happens.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

/// Opens a file whose bytes are locked, to look alone; makes it if it is missing. Its folder is
/// there.
///
/// # Errors
/// The system's error.
pub(crate) fn look_at(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options
        .read(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_CREAT);
    let look = options.open(path)?;
    if !look.metadata()?.is_file() {
        return Err(io::Error::other(format!(
            "{} is no regular file",
            path.display()
        )));
    }
    Ok(look)
}

/// Opens the same file once more, for locks of its own.
///
/// # Errors
/// The system's error.
pub(crate) fn open_again(look: &File) -> io::Result<File> {
    // By its descriptor: at its path there may be another file by now, or none.
    File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/self/fd/{}", look.as_raw_fd()))
}

/// Describes a lock of some bytes; `length` 0: of all from there on.
pub(crate) fn range(kind: i32, byte: i64, length: i64) -> io::Result<libc::flock> {
    Ok(libc::flock {
        l_type: kind.try_into().map_err(io::Error::other)?,
        l_whence: libc::SEEK_SET.try_into().map_err(io::Error::other)?,
        l_start: byte,
        l_len: length,
        // Must be 0 for locks of an open file.
        l_pid: 0,
    })
}

/// Locks or unlocks a byte; tells whether that was possible.
pub(crate) fn lock(file: &File, kind: i32, byte: i64) -> io::Result<bool> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&range(kind, byte, 1)?)) {
        Ok(_) => Ok(true),
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Tells whether another open file has locked a byte.
pub(crate) fn is_locked(file: &File, byte: i64) -> io::Result<bool> {
    let mut asked = range(libc::F_WRLCK, byte, 1)?;
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut asked))?;
    Ok(i32::from(asked.l_type) != libc::F_UNLCK)
}

/// How many locks are listed at most: leases and commands lock single bytes, and no user has so many.
/// Another program of the user may lock what it likes, and must cost no worker more than that.
const MOST_LOCKS: usize = 4096;

/// Lists the locks that other open files have in a part of the file, by the first byte of each in
/// that part.
pub(crate) fn locked(file: &File, from: i64, length: i64) -> io::Result<Vec<i64>> {
    let mut found = Vec::new();
    let mut parts = vec![(from, from + length)];
    while let Some((from, to)) = parts.pop() {
        if from >= to {
            continue;
        }
        // The kernel names any of them, and not the first one.
        let mut asked = range(libc::F_WRLCK, from, to - from)?;
        fcntl(file, FcntlArg::F_OFD_GETLK(&mut asked))?;
        if i32::from(asked.l_type) == libc::F_UNLCK {
            continue;
        }
        let begin = asked.l_start.max(from);
        let end = match asked.l_len {
            // To the end of any file.
            0 => to,
            length => asked.l_start.saturating_add(length).min(to),
        };
        found.push(begin);
        if found.len() == MOST_LOCKS {
            break;
        }
        parts.push((from, begin));
        parts.push((end.max(begin + 1), to));
    }
    found.sort_unstable();
    Ok(found)
}
