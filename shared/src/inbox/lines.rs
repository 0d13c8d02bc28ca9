//! The whole lines of an inbox behind a position, in bounded memory.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use super::{MAX_TEXT, index};
use crate::message::MAX_LINE;
use crate::position::{Position, TAIL};

/// How much one look reads at most, in bytes, so that a huge inbox blocks no process for long.
const MAX_INPUT: u64 = 4 << 20;

/// How much memory a look begins with, in bytes: mostly there is nothing new, or one message.
const FIRST: usize = 4 << 10;

/// What one look has read: up to [`TAIL`] bytes before the place where it began, and what is
/// behind that.
#[derive(Debug)]
pub(super) struct Lines<'f> {
    file: &'f File,
    bytes: Vec<u8>,
    /// Where `bytes` begin in the file.
    base: u64,
    /// Where the line that comes next begins in the file.
    next: u64,
    /// Up to where there is no newline behind that.
    scanned: u64,
    /// Whether there may be more than was read.
    pub(super) more: bool,
}

/// A whole line.
pub(super) enum WholeLine<'l> {
    /// Without its newline.
    Text(&'l [u8]),
    /// It is too long: its first [`MAX_TEXT`] bytes, and its length in bytes with the newline.
    TooLong(Vec<u8>, u64),
}

impl<'f> Lines<'f> {
    /// Reads what is behind a position; none if the bytes before it do not match it. Up to
    /// `scanned` an earlier look found no newline: if the line is too long, reading continues
    /// there.
    pub(super) fn open(
        file: &'f File,
        position: Position,
        scanned: u64,
    ) -> io::Result<Option<Self>> {
        let next = position.offset;
        if scanned >= next + MAX_LINE as u64 && scanned <= file.metadata()?.len() {
            return if fits(file, position)? {
                Self::read(file, next, scanned).map(Some)
            } else {
                Ok(None)
            };
        }
        // One read for both: the file may be truncated and filled again at any time.
        let lines = Self::read(file, next, next)?;
        let before = lines.bytes.get(..index(next - lines.base));
        let fits = next == 0 || before.is_some_and(|before| position.fits(before));
        Ok(fits.then_some(lines))
    }

    /// Reads the start of the file.
    pub(super) fn open_at_start(file: &'f File) -> io::Result<Self> {
        Self::read(file, 0, 0)
    }

    fn read(file: &'f File, next: u64, scanned: u64) -> io::Result<Self> {
        let base = scanned.saturating_sub(TAIL as u64);
        let size = scanned - base + MAX_INPUT;
        let mut bytes = Vec::with_capacity(FIRST);
        let mut reader = file;
        reader.seek(SeekFrom::Start(base))?;
        let read = reader.take(size).read_to_end(&mut bytes)?;
        Ok(Self {
            file,
            bytes,
            base,
            next,
            scanned,
            more: read as u64 == size,
        })
    }

    /// Takes the next whole line.
    pub(super) fn next(&mut self) -> io::Result<Option<WholeLine<'_>>> {
        let unseen = self
            .bytes
            .get(index(self.scanned - self.base)..)
            .unwrap_or_default();
        let Some(newline) = unseen.iter().position(|&byte| byte == b'\n') else {
            self.scanned += unseen.len() as u64;
            return Ok(None);
        };
        let begin = self.next;
        let newline = self.scanned + newline as u64;
        self.next = newline + 1;
        self.scanned = newline + 1;
        if newline - begin < MAX_LINE as u64 {
            return Ok(Some(WholeLine::Text(
                &self.bytes[index(begin - self.base)..index(newline - self.base)],
            )));
        }
        let mut head = vec![0; MAX_TEXT];
        self.file.read_exact_at(&mut head, begin)?;
        Ok(Some(WholeLine::TooLong(head, newline + 1 - begin)))
    }

    /// Returns where the line that comes next begins, in bytes from the start of the file.
    pub(super) fn offset(&self) -> u64 {
        self.next
    }

    /// Returns the position behind the line that was taken last.
    pub(super) fn position(&self) -> Position {
        Position::after(self.next, &self.bytes[..index(self.next - self.base)])
    }

    /// Returns up to where there is no newline behind the line that was taken last.
    pub(super) fn scanned(&self) -> u64 {
        self.scanned
    }
}

/// Tells whether the bytes before a position match it.
pub(super) fn fits(file: &File, position: Position) -> io::Result<bool> {
    let length = position.offset.min(TAIL as u64);
    let mut before = vec![0; index(length)];
    match file.read_exact_at(&mut before, position.offset - length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| position.offset == 0 || position.fits(&before)),
    }
}
