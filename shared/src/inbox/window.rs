//! A file seen through a window that moves from line to line, in bounded memory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::{MAX_TEXT, index};
use crate::message::MAX_LINE;
use crate::position::{Position, TAIL};

/// How much is read at a time, in bytes.
pub(super) const CHUNK: usize = 64 << 10;

/// How much is read at first, in bytes: mostly there is nothing new, or one message.
const FIRST: usize = 4 << 10;

/// The window. It holds [`TAIL`] bytes before the line that comes next (the fingerprint of a position needs
/// them), that line as far as it was read, and what was read behind it.
#[derive(Debug)]
pub(super) struct Window<'f> {
    file: &'f File,
    bytes: Vec<u8>,
    /// Where `bytes` begin in the file.
    base: u64,
    /// Where the line that comes next begins in the file.
    line: u64,
    /// How many of `bytes` are known to hold no newline that was not taken.
    scanned: usize,
    /// The first bytes of the line that comes next, if it is too long: the rest is not kept.
    long: Option<Vec<u8>>,
    /// How much may still be read, in bytes.
    budget: u64,
    /// How much is asked for next, in bytes.
    ask: usize,
}

/// The part of a line that is too long, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Long {
    /// Its first bytes, at most [`MAX_TEXT`].
    pub(super) head: Vec<u8>,
    /// How far there is no newline, in bytes from the start of the file.
    pub(super) scanned: u64,
}

/// What the window shows next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A whole line: these bytes of the window, without the newline.
    Line(Range<usize>),
    /// A whole line that is too long: its first bytes, and its length in bytes with the newline.
    Long(Vec<u8>, u64),
    /// There is no further whole line.
    End,
    /// There may be one, but the budget is used up.
    Later,
}

impl<'f> Window<'f> {
    /// Opens a window at a position, to read at most about `budget` bytes.
    pub(super) fn open(file: &'f File, position: Position, budget: u64) -> io::Result<Self> {
        let line = position.offset;
        let base = line - line.min(TAIL as u64);
        let scanned = index(line - base);
        let mut window =
            Self { file, bytes: Vec::new(), base, line, scanned, long: None, budget, ask: FIRST };
        window.fill()?;
        Ok(window)
    }

    /// Tells whether the bytes before a position, at which the window was just opened, are those that it
    /// remembers.
    pub(super) fn fits(&self, position: Position) -> bool {
        let before = self.bytes.get(..self.start());
        position.offset == 0 || before.is_some_and(|before| position.fits(before))
    }

    /// Goes on in the middle of a line that is too long. If the file has become too short for that, the
    /// line is looked at from its start again.
    pub(super) fn resume(&mut self, long: Long) -> io::Result<()> {
        let mut before = [0; TAIL];
        let base = long.scanned - TAIL as u64;
        if self.file.read_at(&mut before, base)? == TAIL {
            (self.base, self.bytes, self.scanned, self.long) = (base, before.to_vec(), TAIL, Some(long.head));
        }
        Ok(())
    }

    /// Returns what is known of a line that is too long and not yet whole.
    pub(super) fn suspend(self) -> Option<Long> {
        let scanned = self.base + self.scanned as u64;
        self.long.map(|head| Long { head, scanned })
    }

    /// Moves behind the next line.
    pub(super) fn next(&mut self) -> io::Result<Next> {
        loop {
            if let Some(newline) = self.bytes[self.scanned..].iter().position(|&byte| byte == b'\n') {
                return Ok(self.take(self.scanned + newline));
            }
            self.scanned = self.bytes.len();
            if self.long.is_none() && self.bytes.len() - self.start() >= MAX_LINE {
                self.long = Some(self.bytes[self.start()..][..MAX_TEXT].to_vec());
            }
            if self.budget == 0 {
                return Ok(Next::Later);
            }
            if !self.fill()? {
                return Ok(Next::End);
            }
        }
    }

    /// Takes the line whose newline stands at an index of the window.
    fn take(&mut self, newline: usize) -> Next {
        let begin = self.line;
        self.line = self.base + newline as u64 + 1;
        self.scanned = newline + 1;
        match self.long.take() {
            Some(head) => Next::Long(head, self.line - begin),
            None => {
                let range = index(begin - self.base)..newline;
                if range.len() < MAX_LINE {
                    return Next::Line(range);
                }
                Next::Long(self.bytes[range][..MAX_TEXT].to_vec(), self.line - begin)
            }
        }
    }

    /// Returns bytes of the window.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// Returns where the line that comes next begins, in bytes from the start of the file.
    pub(super) fn offset(&self) -> u64 {
        self.line
    }

    /// Returns the position behind the line that was taken last.
    pub(super) fn position(&self) -> Position {
        // While a long line is passed over, the bytes before it are gone; but then none was taken.
        Position::after(self.line, &self.bytes[..self.start()])
    }

    /// Where the line that comes next begins in the window. Not for a line that is too long.
    fn start(&self) -> usize {
        index(self.line - self.base)
    }

    /// Reads some bytes more; false at the end of the file.
    fn fill(&mut self) -> io::Result<bool> {
        let needed = if self.long.is_some() { self.bytes.len() } else { self.start().min(self.bytes.len()) };
        let gone = needed.saturating_sub(TAIL);
        self.bytes.drain(..gone);
        self.base += gone as u64;
        self.scanned -= gone.min(self.scanned);
        let kept = self.bytes.len();
        self.bytes.resize(kept + self.ask, 0);
        let read = self.file.read_at(&mut self.bytes[kept..], self.base + kept as u64)?;
        self.bytes.truncate(kept + read);
        // A read that came up short was the last but one: memory for a large one would be touched for nothing.
        self.ask = if read < self.ask { FIRST } else { CHUNK };
        self.budget = self.budget.saturating_sub(read as u64);
        Ok(read > 0)
    }
}
