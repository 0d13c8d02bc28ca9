//! The log of a command in the background: a file of the temporary directory, which the command can
//! read. A command has no descriptor of anything in the team directory, so the log is copied there
//! when the command has ended.
//!
//! What the command prints comes through a pipe, so the file is bounded while it grows: its head
//! stays, and of the rest at least the last [`SIDE`] bytes.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use teamd_shared::background;

use super::PIECE;
use super::terminal::Terminal;

/// How much of the head, and of the tail, of a log is kept, in bytes: a multiple of [`PIECE`].
const SIDE: u64 = 1 << 20;

/// How large the file becomes while the command runs, in bytes.
const MOST: u64 = 4 * SIDE;

/// How many lines a model is shown of it, and how many bytes are looked at for them.
const LAST_LINES: usize = 20;
const LAST_BYTES: usize = 2 << 10;

/// The log of one command while it runs.
#[derive(Debug)]
pub(super) struct GrowingLog {
    file: File,
    /// Where the tail begins: behind the head, and the line that tells how much is cut.
    tail: u64,
    /// How many bytes are cut between the two.
    cut: u64,
    /// Why it is no longer written: a full disk costs the log, and not the command.
    broken: Option<io::Error>,
}

impl GrowingLog {
    /// Makes the file, and says in the file for the copy where that is. It stays open: a tool can
    /// put something else at its path.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn make(path: &Path, incarnation: u32, kept: &mut File) -> io::Result<Self> {
        let mut options = File::options();
        let file = options
            .read(true)
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        // Also true if the worker is killed: then the output is gone with the temporary directory.
        kept.write_all(background::note(incarnation, path).as_bytes())?;
        Ok(Self {
            file,
            tail: SIDE,
            cut: 0,
            broken: None,
        })
    }

    /// Takes in what the command has printed.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.broken.is_none() {
            self.broken = self.append(bytes).err();
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        let length = self.file.metadata()?.len();
        if length > MOST {
            self.cut_middle(length)
        } else {
            Ok(())
        }
    }

    /// Cuts out what is between the head and the last [`SIDE`] bytes.
    fn cut_middle(&mut self, length: u64) -> io::Result<()> {
        let mut last = vec![0; usize::try_from(SIDE).unwrap_or(0)];
        // The command can cut the file as well.
        let read = self.file.read_at(&mut last, length - SIDE)?;
        self.cut += (length - SIDE).saturating_sub(self.tail);
        self.file.set_len(SIDE)?;
        let marker = marker(self.cut);
        self.tail = SIDE + marker.len() as u64;
        self.file
            .write_all(&[marker.as_bytes(), &last[..read]].concat())
    }

    /// Returns the last lines, as a terminal shows them, each led by a newline and quoted; empty if
    /// there are none, or they cannot be read.
    pub(super) fn last_lines(&self) -> String {
        let read = self.file.metadata().and_then(|metadata| {
            let mut bytes = vec![0; LAST_BYTES];
            let from = metadata.len().saturating_sub(LAST_BYTES as u64);
            let read = self.file.read_at(&mut bytes, from)?;
            bytes.truncate(read);
            Ok(bytes)
        });
        let Ok(bytes) = read else {
            return String::new();
        };
        let mut terminal = Terminal::default();
        let mut shown = terminal.push(&bytes);
        shown.extend(terminal.finish());
        let text = String::from_utf8_lossy(&shown);
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let last = lines.len().saturating_sub(LAST_LINES);
        let quoted: String = lines[last..]
            .iter()
            .map(|line| format!("\n> {line}"))
            .collect();
        if quoted.is_empty() {
            return String::new();
        }
        format!("; it ends with:{quoted}")
    }

    /// Copies head and tail to where they outlive the incarnation.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn keep(self, kept: &mut File) -> io::Result<()> {
        if let Some(error) = self.broken {
            tracing::warn!("the log of a command in the background is not whole: {error}");
        }
        let length = self.file.metadata()?.len();
        kept.set_len(0)?;
        copy(&self.file, 0, kept)?;
        // A file without a cut has its tail right behind the head.
        let from = length.saturating_sub(SIDE).max(self.tail);
        let cut = self.cut + (from - self.tail);
        if cut > 0 {
            kept.write_all(marker(cut).as_bytes())?;
        }
        copy(&self.file, from, kept)
    }
}

fn marker(cut: u64) -> String {
    format!("\n[{cut} bytes cut]\n")
}

/// Copies what follows, at most [`SIDE`] bytes.
fn copy(log: &File, from: u64, kept: &mut File) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut copied = 0;
    while copied < SIDE {
        let read = log.read_at(&mut piece, from + copied)?;
        if read == 0 {
            break;
        }
        kept.write_all(&piece[..read])?;
        copied += read as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what is in the file while the command runs, and what is kept of it.
    fn logged(bytes: &[u8], size: usize) -> (Vec<u8>, Vec<u8>) {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("log");
        let kept = scratch.path().join("kept");
        let mut file = File::create(&kept).unwrap();
        let mut log = GrowingLog::make(&path, 1, &mut file).unwrap();
        for piece in bytes.chunks(size) {
            log.push(piece);
            assert!(
                path.metadata().unwrap().len() <= MOST,
                "it is bounded at any time"
            );
        }
        let live = std::fs::read(&path).unwrap();
        // `kept` is opened to append where a worker makes it.
        let mut file = File::options().append(true).open(&kept).unwrap();
        log.keep(&mut file).unwrap();
        (live, std::fs::read(&kept).unwrap())
    }

    #[test]
    fn a_short_log_is_kept_as_it_is() {
        assert_eq!(
            logged(b"one\rtwo\n", 3),
            (b"one\rtwo\n".to_vec(), b"one\rtwo\n".to_vec())
        );
        let two = vec![b'x'; 2 * usize::try_from(SIDE).unwrap()];
        assert_eq!(logged(&two, PIECE), (two.clone(), two));
    }

    #[test]
    fn of_a_flood_head_and_tail_are_kept_while_it_comes_and_after_it() {
        for (length, size) in [
            (3 * SIDE + 5, PIECE),
            (20 * SIDE + 7, PIECE),
            (9 * SIDE, 4099),
        ] {
            let flood: Vec<u8> = (0..length / 8)
                .flat_map(|number| format!("{number:7}\n").into_bytes())
                .collect();
            let (live, kept) = logged(&flood, size);
            let side = usize::try_from(SIDE).unwrap();
            let cut = format!("\n[{} bytes cut]\n", flood.len() - 2 * side);
            let expected = [&flood[..side], cut.as_bytes(), &flood[flood.len() - side..]].concat();
            assert!(kept == expected, "{length} {size}: {} bytes", kept.len());
            assert!(
                live.starts_with(&flood[..side]) && live.ends_with(&flood[flood.len() - side..])
            );
        }
    }
}
