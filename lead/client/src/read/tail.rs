//! The lines of a file that grows, as `tail -F` has them: whole lines, and the next file when it
//! was replaced. It changes nothing, and stores no position.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::OFlags;
use serde_json::{Value, json};
use teamd_shared::fs::end_of_last_line;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};

/// How much is read at a time, in bytes.
const CHUNK: usize = 256 << 10;
/// A line that is longer is shown in pieces of this length, in bytes: a result can have five images
/// of 5 MiB each.
const LONGEST: usize = 32 << 20;

/// A reader of the lines of one file.
pub struct Tail<'d> {
    dir: &'d TeamDir,
    at: TeamPath,
    open: Option<OpenFile>,
}

/// The position of a reader: another one can continue there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    identity: (u64, u64),
    offset: u64,
}

impl Mark {
    /// Returns how many bytes are before it.
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// Returns the number of the file.
    pub const fn file(self) -> u64 {
        self.identity.1
    }
}

struct OpenFile {
    file: File,
    identity: (u64, u64),
    /// Where the next line begins, in bytes.
    offset: u64,
}

impl<'d> Tail<'d> {
    /// Makes a reader of a file, which may not be there yet.
    pub fn new(dir: &'d TeamDir, at: TeamPath) -> Self {
        Self {
            dir,
            at,
            open: None,
        }
    }

    /// Opens the file as it is, to be read from its last `count` lines on, or from its start.
    /// Returns whether it is there. Lines for which `counts` is false are not counted.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn begin(
        &mut self,
        count: Option<usize>,
        counts: fn(&[u8]) -> bool,
    ) -> Result<bool, DirError> {
        self.reopen()?;
        let Some(open) = &mut self.open else {
            return Ok(false);
        };
        if let Some(count) = count {
            let start = open
                .file
                .metadata()
                .and_then(|metadata| start_of_last(&open.file, metadata.len(), count, counts));
            open.offset = start.map_err(|source| unreadable(self.dir, &self.at, source))?;
        }
        Ok(true)
    }

    /// Opens the file as it is, to be read from the position of another reader; another file is
    /// read from its start.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn resume(&mut self, mark: Option<Mark>) -> Result<(), DirError> {
        self.reopen()?;
        if let Some(open) = &mut self.open
            && let Some(mark) = mark
            && open.identity == mark.identity
        {
            open.offset = mark.offset;
        }
        Ok(())
    }

    /// Reads the last `count` lines before a place in the open file, without newlines,
    /// each with its own place. Lines for which `counts` is false are not counted.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn read_before(
        &self,
        offset: u64,
        count: usize,
        counts: fn(&[u8]) -> bool,
    ) -> Result<Vec<(Mark, Vec<u8>)>, DirError> {
        let Some(OpenFile { file, identity, .. }) = &self.open else {
            return Ok(Vec::new());
        };
        let read = || {
            let start = start_of_last(file, offset, count, counts)?;
            let mut bytes = vec![0; usize::try_from(offset.saturating_sub(start)).unwrap_or(0)];
            file.read_exact_at(&mut bytes, start)?;
            bytes.pop();
            let lines = bytes
                .split(|&byte| byte == b'\n')
                .map(<[u8]>::to_vec)
                .collect();
            Ok(placed(
                Mark {
                    identity: *identity,
                    offset,
                },
                lines,
            ))
        };
        read().map_err(|source| unreadable(self.dir, &self.at, source))
    }

    /// Reads as [`Tail::read_all`], each line with its place.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn read_placed(&mut self) -> Result<Vec<(Mark, Vec<u8>)>, DirError> {
        let mut all = Vec::new();
        loop {
            let lines = self.read()?;
            match if !lines.is_empty() { self.mark() } else { None } {
                Some(end) => all.extend(placed(end, lines)),
                None => return Ok(all),
            }
        }
    }

    /// Reads the whole line that begins at a place of a file, without its newline; none if there is
    /// none, or if another file is open.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn line_at(&self, file: u64, offset: u64) -> Result<Option<Vec<u8>>, DirError> {
        let Some(open) = self.open.as_ref().filter(|open| open.identity.1 == file) else {
            return Ok(None);
        };
        line_at(&open.file, offset).map_err(|source| unreadable(self.dir, &self.at, source))
    }

    /// Returns the position; none if there is no file.
    pub fn mark(&self) -> Option<Mark> {
        self.open.as_ref().map(|open| Mark {
            identity: open.identity,
            offset: open.offset,
        })
    }

    /// Reads the next whole lines, without newlines, some at a time; nothing if there are no
    /// further ones now.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn read(&mut self) -> Result<Vec<Vec<u8>>, DirError> {
        loop {
            if let Some(open) = &mut self.open {
                let lines = open
                    .read()
                    .map_err(|source| unreadable(self.dir, &self.at, source))?;
                if !lines.is_empty() {
                    return Ok(lines);
                }
            }
            // Only when all of the old file is read: what was written before the change comes
            // first.
            let there = self.dir.identity(&self.at)?;
            if there.is_none() || there == self.open.as_ref().map(|open| open.identity) {
                return Ok(Vec::new());
            }
            self.reopen()?;
        }
    }

    /// Reads what follows the last whole line, such as a line that is being written.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn rest(&self) -> Result<Vec<u8>, DirError> {
        let Some(open) = &self.open else {
            return Ok(Vec::new());
        };
        let mut bytes = vec![0; LONGEST];
        let read = open.file.read_at(&mut bytes, open.offset);
        bytes.truncate(read.map_err(|source| unreadable(self.dir, &self.at, source))?);
        Ok(bytes)
    }

    /// Reads all further whole lines that there are now.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn read_all(&mut self) -> Result<Vec<Vec<u8>>, DirError> {
        let mut all = Vec::new();
        loop {
            let lines = self.read()?;
            if lines.is_empty() {
                return Ok(all);
            }
            all.extend(lines);
        }
    }

    fn reopen(&mut self) -> Result<(), DirError> {
        self.open = match self.dir.open_file(&self.at, OFlags::RDONLY) {
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
            Ok(file) => {
                let metadata = file
                    .metadata()
                    .map_err(|source| unreadable(self.dir, &self.at, source))?;
                Some(OpenFile {
                    file,
                    identity: (metadata.dev(), metadata.ino()),
                    offset: 0,
                })
            }
        };
        Ok(())
    }
}

fn line_at(file: &File, offset: u64) -> io::Result<Option<Vec<u8>>> {
    if offset >= file.metadata()?.len() {
        return Ok(None);
    }
    if let Some(before) = offset.checked_sub(1) {
        let mut byte = [0];
        let read = file.read_at(&mut byte, before)?;
        if read == 0 || byte != *b"\n" {
            return Ok(None);
        }
    }
    let mut line = Vec::new();
    while line.len() < LONGEST {
        let searched = line.len();
        line.resize(searched + CHUNK, 0);
        let read = file.read_at(&mut line[searched..], offset + searched as u64)?;
        line.truncate(searched + read);
        let end = line[searched..].iter().position(|&byte| byte == b'\n');
        if let Some(end) = end {
            line.truncate(searched + end);
            return Ok(Some(line));
        }
        if read == 0 {
            break;
        }
    }
    Ok(None)
}

fn unreadable(dir: &TeamDir, at: &TeamPath, source: io::Error) -> DirError {
    DirError::Io {
        verb: "read",
        path: dir.path(at),
        source,
    }
}

impl OpenFile {
    fn read(&mut self) -> io::Result<Vec<Vec<u8>>> {
        if self.file.metadata()?.len() < self.offset {
            // A program truncated it: what is there now is new.
            self.offset = 0;
        }
        let mut bytes = Vec::new();
        loop {
            let kept = bytes.len();
            bytes.resize(kept + CHUNK, 0);
            let read = self
                .file
                .read_at(&mut bytes[kept..], self.offset + kept as u64)?;
            bytes.truncate(kept + read);
            if let Some(newline) = bytes.iter().rposition(|&byte| byte == b'\n') {
                self.offset += newline as u64 + 1;
                return Ok(bytes[..newline]
                    .split(|&byte| byte == b'\n')
                    .map(<[u8]>::to_vec)
                    .collect());
            }
            if bytes.len() >= LONGEST {
                self.offset += bytes.len() as u64;
                return Ok(vec![bytes]);
            }
            if read == 0 {
                return Ok(Vec::new());
            }
        }
    }
}

/// Finds the places of lines that end at one.
fn placed(end: Mark, lines: Vec<Vec<u8>>) -> Vec<(Mark, Vec<u8>)> {
    let length: u64 = lines.iter().map(|line| line.len() as u64 + 1).sum();
    let mut offset = end.offset.saturating_sub(length);
    lines
        .into_iter()
        .map(|line| {
            let at = Mark { offset, ..end };
            offset += line.len() as u64 + 1;
            (at, line)
        })
        .collect()
}

/// Finds where the last `count` lines begin that end before a place.
fn start_of_last(
    file: &File,
    before: u64,
    count: usize,
    counts: fn(&[u8]) -> bool,
) -> io::Result<u64> {
    let mut start = end_of_last_line(file, before)?;
    let mut counted = 0;
    while start > 0 && counted < count {
        let end = start - 1;
        start = end_of_last_line(file, end)?;
        // The beginning of a line decides whether it counts.
        let mut line = vec![0; usize::try_from(end - start).unwrap_or(CHUNK).min(CHUNK)];
        let read = file.read_at(&mut line, start)?;
        counted += usize::from(counts(&line[..read]));
    }
    Ok(start)
}

/// Returns a line of JSON as it is in the file; one that is not JSON under a key of its own.
pub fn as_it_stands(line: &[u8]) -> Value {
    serde_json::from_slice(line).unwrap_or_else(
        |error| json!({"malformed": {"line": String::from_utf8_lossy(line), "reason": error.to_string()}}),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn scratch() -> (tempfile::TempDir, TeamDir, TeamPath) {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        (scratch, dir, TeamPath::log("alice"))
    }

    fn append(dir: &TeamDir, at: &TeamPath, bytes: &[u8]) {
        let flags = OFlags::CREATE | OFlags::APPEND | OFlags::WRONLY;
        dir.open_file(at, flags).unwrap().write_all(bytes).unwrap();
    }

    fn read(tail: &mut Tail<'_>) -> String {
        let lines = tail
            .read()
            .unwrap()
            .into_iter()
            .map(|line| String::from_utf8(line).unwrap());
        lines.collect::<Vec<_>>().join("|")
    }

    const ALL: fn(&[u8]) -> bool = |_| true;

    #[test]
    fn a_file_is_followed_from_before_it_is_there() {
        let (_scratch, dir, at) = scratch();
        let mut tail = Tail::new(&dir, at.clone());
        assert!(!tail.begin(None, ALL).unwrap());
        assert_eq!(read(&mut tail), "");
        append(&dir, &at, b"one\ntw");
        assert_eq!(read(&mut tail), "one", "whole lines only");
        append(&dir, &at, b"o\n\nthree\n");
        assert_eq!(read(&mut tail), "two||three");
        assert_eq!(read(&mut tail), "");
    }

    #[test]
    fn a_truncated_and_a_replaced_file_are_read_from_their_start() {
        let (_scratch, dir, at) = scratch();
        append(&dir, &at, b"one\ntwo\n");
        let mut tail = Tail::new(&dir, at.clone());
        assert!(tail.begin(Some(1), ALL).unwrap());
        assert_eq!(read(&mut tail), "two");
        dir.open_file(&at, OFlags::WRONLY | OFlags::TRUNC).unwrap();
        append(&dir, &at, b"new\n");
        assert_eq!(read(&mut tail), "new");
        append(&dir, &at, b"last of the old\n");
        teamd_shared::fs::replace(&dir, &at, b"replaced\n").unwrap();
        assert_eq!(read(&mut tail), "last of the old");
        assert_eq!(read(&mut tail), "replaced");
        dir.remove(&at).unwrap();
        assert_eq!(read(&mut tail), "");
        append(&dir, &at, b"again\n");
        assert_eq!(read(&mut tail), "again");
    }

    #[test]
    fn another_reader_goes_on_where_one_stood() {
        let (_scratch, dir, at) = scratch();
        let go_on = |mark| {
            let mut tail = Tail::new(&dir, at.clone());
            tail.resume(mark).unwrap();
            (read(&mut tail), tail.mark())
        };
        assert_eq!(go_on(None), (String::new(), None));
        append(&dir, &at, b"one\ntwo\n");
        let (lines, mark) = go_on(None);
        assert_eq!(lines, "one|two");
        append(&dir, &at, b"three\n");
        assert_eq!(go_on(mark).0, "three");
        teamd_shared::fs::replace(&dir, &at, b"replaced\n").unwrap();
        assert_eq!(go_on(mark).0, "replaced");
    }

    #[test]
    fn the_last_lines_are_counted_without_blank_ones() {
        let (_scratch, dir, at) = scratch();
        append(&dir, &at, b"one\n\ntwo\n\n\nthree\ntorn");
        let not_blank: fn(&[u8]) -> bool = |line| !line.is_empty();
        for (count, lines) in [
            (0, ""),
            (1, "three"),
            (2, "two|||three"),
            (9, "one||two|||three"),
        ] {
            let mut tail = Tail::new(&dir, at.clone());
            tail.begin(Some(count), not_blank).unwrap();
            assert_eq!(read(&mut tail), lines);
        }
    }

    #[test]
    fn the_line_at_a_place_is_read_and_nothing_that_begins_within_one() {
        let (_scratch, dir, at) = scratch();
        let long = vec![b'x'; CHUNK + 7];
        append(&dir, &at, &[b"one\n", &long[..], b"\ntorn"].concat());
        let mut tail = Tail::new(&dir, at.clone());
        assert_eq!(tail.line_at(1, 0).unwrap(), None, "no file is open");
        tail.begin(None, ALL).unwrap();
        let file = tail.mark().unwrap().file();
        let torn = (CHUNK + 12) as u64;
        let line_at = |offset| tail.line_at(file, offset).unwrap();
        assert_eq!(line_at(0), Some(b"one".to_vec()));
        assert_eq!(line_at(4), Some(long));
        for place in [2, torn, torn + 99, u64::MAX] {
            assert_eq!(line_at(place), None, "{place}");
        }
        assert_eq!(tail.line_at(file + 1, 0).unwrap(), None, "another file");
    }

    #[test]
    fn lines_longer_than_a_chunk_stay_whole() {
        let (_scratch, dir, at) = scratch();
        let long = vec![b'x'; CHUNK * 2 + 7];
        append(&dir, &at, &[&long[..], b"\nend\n"].concat());
        let mut tail = Tail::new(&dir, at);
        tail.begin(None, ALL).unwrap();
        assert_eq!(tail.read().unwrap(), [long, b"end".to_vec()]);
    }
}
