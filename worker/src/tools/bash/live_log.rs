//! The log of a check, which can be read while a command runs: the head of the output as it comes, and its tail at the end.

use std::fs::File;
use std::io::{self, Write};

/// How much of the head is kept, in bytes.
const HEAD: usize = 256 << 10;

/// How much of the tail is kept, in bytes: at most what every [`super::Output`] keeps of it.
const TAIL: usize = 25_000;

/// The log of one command.
#[derive(Debug)]
pub(crate) struct LiveLog {
    file: File,
    /// How much of the head still fits.
    room: usize,
    /// How much has come since it was full.
    cut: usize,
    last: u8,
    /// Why it is written no more: a full disk costs the log, and not the check.
    broken: Option<io::Error>,
}

impl LiveLog {
    /// Begins with the command.
    pub(crate) fn begin(file: File, command: &str) -> Self {
        let mut log = Self { file, room: HEAD, cut: 0, last: b'\n', broken: None };
        log.write(format!("$ {command}\n").as_bytes());
        log
    }

    /// Takes in the next piece of output.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let (head, more) = bytes.split_at(bytes.len().min(self.room));
        self.room -= head.len();
        self.cut += more.len();
        self.write(head);
    }

    /// Ends with the tail of the output that is kept, and how the command has ended.
    pub(super) fn end(mut self, output: &str, how: &str) {
        let mut from = output.len().saturating_sub(self.cut.min(TAIL));
        while !output.is_char_boundary(from) {
            from += 1;
        }
        if self.cut > TAIL {
            self.write(format!("\n[{} bytes cut]\n", self.cut - TAIL).as_bytes());
        }
        self.write(&output.as_bytes()[from..]);
        let newline = if self.last == b'\n' { "" } else { "\n" };
        self.write(format!("{newline}[{how}]\n").as_bytes());
        if let Some(error) = self.broken {
            tracing::warn!("the log of a check is not whole: {error}");
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.broken.is_none() {
            self.broken = self.file.write_all(bytes).err();
        }
        self.last = bytes.last().copied().unwrap_or(self.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(pieces: &[&[u8]], output: &str) -> (String, String) {
        let scratch = tempfile::NamedTempFile::new().unwrap();
        let read = || String::from_utf8(std::fs::read(scratch.path()).unwrap()).unwrap();
        let mut log = LiveLog::begin(scratch.reopen().unwrap(), "make");
        pieces.iter().for_each(|piece| log.push(piece));
        let live = read();
        log.end(output, "exit code 1");
        (live, read())
    }

    #[test]
    fn output_is_there_before_the_command_ends() {
        let (live, all) = logged(&[b"one\n", b"two"], "one\ntwo");
        assert_eq!((live.as_str(), all.as_str()), ("$ make\none\ntwo", "$ make\none\ntwo\n[exit code 1]\n"));
        assert_eq!(logged(&[], "").1, "$ make\n[exit code 1]\n");
    }

    #[test]
    fn of_a_flood_head_and_tail_are_kept_and_none_twice() {
        let head = vec![b'h'; HEAD];
        let (live, all) = logged(&[&head, b"tail"], &format!("{}tail", "h".repeat(9)));
        assert_eq!(live.len(), HEAD + 7);
        assert!(all.ends_with("hhtail\n[exit code 1]\n") && all.len() == HEAD + 7 + 4 + 15, "{}", all.len());
        let output = format!("{}\u{20ac}{}\n", "x".repeat(9), "z".repeat(TAIL - 2));
        let (_, all) = logged(&[&head, &vec![b'z'; 1 << 20]], &output);
        assert!(all.contains(&format!("h\n[{} bytes cut]\nzzz", (1 << 20) - TAIL)), "no half character");
    }
}
