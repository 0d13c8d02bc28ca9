//! The logs of commands in the background.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::PIECE;

/// How much of the head, and of the tail, of a log is kept, in bytes: a multiple of [`PIECE`].
const MAX_SIDE: u64 = 1 << 20;

/// How a log begins while its command runs; the path of the output follows.
const RUNS: &[u8] = b"[it runs: its output is in ";

/// The longest path that the kernel takes, in bytes.
const MAX_PATH: usize = 4096;

/// Says that nothing follows in a log, if it says that its command runs.
pub(super) fn close(mut log: File) -> io::Result<()> {
    let mut head = vec![0; 2 * MAX_PATH];
    let length = log.read_at(&mut head, 0)?;
    let says_that_it_runs = head[..length]
        .strip_suffix(b"]\n")
        .is_some_and(|line| line.starts_with(RUNS) && !line.contains(&b'\n'));
    if says_that_it_runs {
        writeln!(log, "[its worker was killed before it ended: its output is not kept]")?;
    }
    Ok(())
}

/// The output of a command in the background. The command has a file of the temporary directory, which it can read; the
/// team directory is nothing that a command has a descriptor of.
#[derive(Debug)]
pub(super) struct Log {
    /// Open: a tool can put something else at its path.
    pub(super) output: File,
    /// In the team directory, for people, when the command has ended.
    kept: File,
}

impl Log {
    /// Makes the file that the command writes to, and says in the other one where that is.
    pub(super) fn make(path: &Path, mut kept: File) -> io::Result<Self> {
        let mut options = File::options();
        let output = options.read(true).append(true).create_new(true).mode(0o600).open(path)?;
        let line = [RUNS, format!("{}]\n", path.display()).as_bytes()].concat();
        kept.write_all(&line)?;
        Ok(Self { output, kept })
    }

    /// Writes head and tail of the output where they outlive the life: the command decides how long the rest is.
    pub(super) fn keep(mut self) -> io::Result<()> {
        let length = self.output.metadata()?.len();
        self.kept.set_len(0)?;
        let tail = length.saturating_sub(MAX_SIDE).max(MAX_SIDE);
        self.copy(0)?;
        if tail > MAX_SIDE {
            writeln!(self.kept, "\n[{} bytes cut]", tail - MAX_SIDE)?;
        }
        self.copy(tail)
    }

    /// Copies what stands from here on, at most [`MAX_SIDE`] bytes. By position: the command shares the offset.
    fn copy(&mut self, from: u64) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        let mut copied = 0;
        while copied < MAX_SIDE {
            let read = self.output.read_at(&mut piece, from + copied)?;
            if read == 0 {
                break;
            }
            self.kept.write_all(&piece[..read])?;
            copied += read as u64;
        }
        Ok(())
    }
}
