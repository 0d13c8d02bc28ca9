//! The log of a command in the background: a file of the temporary directory, which the command can read. A command has no
//! descriptor of anything in the team directory, so the log is copied there when the command has ended.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::PIECE;

/// How much of the head, and of the tail, of a log is kept, in bytes: a multiple of [`PIECE`].
const MAX_SIDE: u64 = 1 << 20;

/// Makes the file that a command writes to, and says in the file for the copy where that is. It stays open: a tool can put
/// something else at its path.
pub(super) fn make(path: &Path, kept: &mut File) -> io::Result<File> {
    let mut options = File::options();
    let log = options.read(true).append(true).create_new(true).mode(0o600).open(path)?;
    // Also true if the worker is killed: then the output is gone with the temporary directory.
    writeln!(kept, "[until it has ended, its output is in {}]", path.display())?;
    Ok(log)
}

/// Copies head and tail of a log to where they outlive the incarnation: the command decides how long the rest is.
pub(super) fn keep(log: &File, kept: &mut File) -> io::Result<()> {
    let length = log.metadata()?.len();
    kept.set_len(0)?;
    let tail = length.saturating_sub(MAX_SIDE).max(MAX_SIDE);
    copy(log, 0, kept)?;
    if tail > MAX_SIDE {
        writeln!(kept, "\n[{} bytes cut]", tail - MAX_SIDE)?;
    }
    copy(log, tail, kept)
}

/// Copies what stands from here on, at most [`MAX_SIDE`] bytes. By position: the command shares the offset.
fn copy(log: &File, from: u64, kept: &mut File) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut copied = 0;
    while copied < MAX_SIDE {
        let read = log.read_at(&mut piece, from + copied)?;
        if read == 0 {
            break;
        }
        kept.write_all(&piece[..read])?;
        copied += read as u64;
    }
    Ok(())
}
