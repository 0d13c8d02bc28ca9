//! The log of a command or a check, which can be read while that runs: the head of the output as it
//! comes, and its tail at the end.

use std::fs::File;
use std::io::{self, Write};

/// How much of the head is kept, in bytes.
const HEAD: usize = 256 << 10;

/// How much of the tail is kept, in bytes.
const TAIL: usize = 25_000;

/// The log of one command.
#[derive(Debug)]
pub struct LiveLog {
    file: File,
    /// How much of the head still fits.
    room: usize,
    /// The last that has come since it was full, [`TAIL`] bytes at least if there were so many.
    tail: Vec<u8>,
    /// How much of that has been dropped.
    cut: usize,
    last: u8,
    /// Why it is no longer written: a full disk costs the log, and not the command.
    broken: Option<io::Error>,
}

impl LiveLog {
    /// Begins with the command.
    pub fn begin(file: File, command: &str) -> Self {
        let mut log = Self {
            file,
            room: HEAD,
            tail: Vec::new(),
            cut: 0,
            last: b'\n',
            broken: None,
        };
        log.write(format!("$ {command}\n").as_bytes());
        log
    }

    /// Takes in the next piece of output.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let (head, more) = bytes.split_at(bytes.len().min(self.room));
        self.room -= head.len();
        self.write(head);
        self.tail.extend_from_slice(more);
        if self.tail.len() > 4 * TAIL {
            self.drop_front();
        }
    }

    /// Drops what is too much of the tail, and no half character.
    fn drop_front(&mut self) {
        let mut from = self.tail.len().saturating_sub(TAIL);
        while from > 0 && self.tail.get(from).is_some_and(|byte| byte & 0xc0 == 0x80) {
            from += 1;
        }
        self.cut += from;
        drop(self.tail.drain(..from));
    }

    /// Ends with the tail of the output, and how the command has ended.
    pub(super) fn end(mut self, how: &str) {
        self.drop_front();
        if self.cut > 0 {
            self.write(format!("\n[{} bytes cut]\n", self.cut).as_bytes());
        }
        let tail = std::mem::take(&mut self.tail);
        self.write(&tail);
        let newline = if self.last == b'\n' { "" } else { "\n" };
        self.write(format!("{newline}[{how}]\n").as_bytes());
        if let Some(error) = self.broken {
            tracing::warn!("the log of a command is not whole: {error}");
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

    fn logged(pieces: &[&[u8]]) -> (String, String) {
        let scratch = tempfile::NamedTempFile::new().unwrap();
        let read = || String::from_utf8(std::fs::read(scratch.path()).unwrap()).unwrap();
        let mut log = LiveLog::begin(scratch.reopen().unwrap(), "make");
        for piece in pieces.iter() {
            log.push(piece);
        }
        let live = read();
        log.end("exit code 1");
        (live, read())
    }

    #[test]
    fn output_is_there_before_the_command_ends_as_it_was_printed() {
        let (live, all) = logged(&[b"one\r\x1b[32m\n", b"two"]);
        assert_eq!(live, "$ make\none\r\x1b[32m\ntwo");
        assert_eq!(all, "$ make\none\r\x1b[32m\ntwo\n[exit code 1]\n");
        assert_eq!(logged(&[]).1, "$ make\n[exit code 1]\n");
    }

    #[test]
    fn of_a_flood_head_and_tail_are_kept_and_none_twice() {
        let head = vec![b'h'; HEAD];
        let (live, all) = logged(&[&head, b"tail"]);
        assert_eq!(live.len(), HEAD + 7);
        assert!(
            all.ends_with("hhtail\n[exit code 1]\n") && all.len() == HEAD + 7 + 4 + 15,
            "{}",
            all.len()
        );
        let more = [
            vec![b'z'; 1 << 20],
            "\u{20ac}".repeat(TAIL / 3 + 1).into_bytes(),
        ]
        .concat();
        let (live, all) = logged(&[&head, &more]);
        assert_eq!(
            live.len(),
            HEAD + 7,
            "it does not grow while the command runs"
        );
        assert!(
            all.contains("h\n[1048577 bytes cut]\n\u{20ac}")
                || all.contains(" bytes cut]\n\u{20ac}")
        );
        assert!(all.len() < HEAD + TAIL + 100);
    }
}
