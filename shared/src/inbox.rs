//! The inboxes: append-only files of messages, one a line. Any process appends, and no process
//! locks.
//!
//! **Who writes**: every process of the team, and any other program
//! (`echo … >> inbox/alice.jsonl`), each line with one `write` to a descriptor in append mode.
//! **Who reads**: the owner's worker (for `lead` also the daemon), each with a [`Position`] of its
//! own, which it records together with the effect of what it read; people, who consume nothing.
//! **When a writer dies** in its one `write`, a torn tail stays behind; the next writer of ours
//! sees it when it looks back ([`Appender`]), the reader puts it into quarantine. **When a reader
//! dies**, its next incarnation begins at the position that it recorded last ([`Reader`]).
//!
//! This module never locks an inbox (a stopped holder would block every writer), never truncates
//! one, and never moves one.

mod append;
mod lines;
mod read;
mod rejected;
mod unread;
mod via;

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use rustix::fs::OFlags;
use uuid::Uuid;

use crate::fs::end_of_last_line;
use crate::message::{MAX_LINE, Message};
use crate::mutant;
use crate::name::Name;
use crate::position::{Position, TAIL};
use crate::team_dir::{DirError, TeamDir, TeamPath};

pub use append::{AppendError, Appended, Appender, append, find_appended, sync};
pub use read::{Batch, Count, InboxLine, Reader, count_lines};
use read::{each_message, each_message_before};
pub use rejected::{Rejected, RejectedLine, quarantine};
pub use unread::{MAX_RETURNED, NOTHING_UNREAD, Unread, UnreadMail, look_at_unread};
pub use via::{
    HOME, LinePlace, VIA, Via, last_via, last_via_between, line_before, message_via,
    position_after, position_after_via, position_at,
};

/// How much of a line that is no message is kept as text, in bytes.
pub const MAX_TEXT: usize = 1024;

/// What a message must outlive before it counts as sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A loss of power: each message is synced.
    #[default]
    Disk,
    /// Its process: the kernel writes it back when it likes.
    Process,
}

/// Why an inbox could not be read. Fits behind "error: ".
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no such inbox: its owner was never spawned, or was forgotten.
    #[error("there is no inbox at {}", .0.display())]
    NoInbox(PathBuf),
    /// There is no whole line at that place.
    #[error("there is no line of {len} bytes at offset {offset} of {}", .path.display())]
    NotALine {
        /// The inbox.
        path: PathBuf,
        /// Where the line should begin, in bytes.
        offset: u64,
        /// How long it should be, in bytes.
        len: u64,
    },
    /// The system refused.
    #[error(transparent)]
    Dir(#[from] DirError),
}

/// Makes an inbox for its owner; one that is there stays as it is.
///
/// It is synced with its folder: a message that was synced must not lose its file. One that is
/// there may have been made by a process that was killed before it synced.
///
/// # Errors
/// [`DirError`] if the system refuses, or something else than a file is there.
pub fn create(dir: &TeamDir, owner: &Name) -> Result<(), DirError> {
    make(dir, &TeamPath::inbox(owner)).map(drop)
}

/// As [`create`], for one of several inboxes: the caller syncs their folder ([`sync_folder`])
/// before any other process learns of their owners.
///
/// # Errors
/// As [`create`].
pub fn create_unsynced(dir: &TeamDir, owner: &Name) -> Result<(), DirError> {
    open_or_make(dir, &TeamPath::inbox(owner)).map(drop)
}

/// Syncs the folder of the inboxes.
///
/// # Errors
/// [`DirError`] if the system refuses.
pub fn sync_folder(dir: &TeamDir) -> Result<(), DirError> {
    dir.sync_folder(TeamPath::inbox(&Name::lead()).folder())
}

fn open_or_make(dir: &TeamDir, at: &TeamPath) -> Result<File, DirError> {
    dir.open_file(at, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE)
}

fn make(dir: &TeamDir, at: &TeamPath) -> Result<File, DirError> {
    let file = open_or_make(dir, at)?;
    if !mutant::is_on("folder-not-synced") {
        dir.sync_folder(at.folder())?;
    }
    Ok(file)
}

/// Returns whose inbox a file of the folder `inbox` is; none for the other files there.
pub fn owner_of(file_name: &str) -> Option<Name> {
    Name::of_inbox(file_name.strip_suffix(".jsonl")?).ok()
}

/// Reads the line that a worker names over its connection, without its newline.
///
/// # Errors
/// [`ReadError::NotALine`] unless exactly one whole line is there, of at most [`MAX_LINE`]
/// bytes.
pub fn read_line_at(
    dir: &TeamDir,
    owner: &Name,
    offset: u64,
    len: u64,
) -> Result<Vec<u8>, ReadError> {
    let at = TeamPath::inbox(owner);
    let file = open(dir, &at)?;
    let no_line = || ReadError::NotALine {
        path: dir.path(&at),
        offset,
        len,
    };
    let size = usize::try_from(len)
        .ok()
        .filter(|size| (1..=MAX_LINE).contains(size))
        .ok_or_else(no_line)?;
    // The byte before the line is read with it: it must be the newline of the line before.
    let before = usize::from(offset > 0);
    let mut bytes = vec![0; before + size];
    match file.read_exact_at(&mut bytes, offset - before as u64) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(no_line()),
        other => other.map_err(|source| cannot_read(dir, &at, source))?,
    }
    let newlines = bytes.iter().filter(|&&byte| byte == b'\n').count();
    if newlines != before + 1 || (before == 1 && bytes[0] != b'\n') || bytes.pop() != Some(b'\n') {
        return Err(no_line());
    }
    bytes.drain(..before);
    Ok(bytes)
}

/// How far [`holds`] looks back, in bytes.
const LOOK_BACK: u64 = 4 << 20;

/// Tells whether a message with this id can be read near the end of an inbox (in its last 4 MiB):
/// for a writer that repeats a line and would rather not write it twice. A reader drops the
/// duplicate in any case.
///
/// # Errors
/// [`ReadError`] if there is no inbox, or the system refuses.
pub fn holds(dir: &TeamDir, owner: &Name, id: Uuid) -> Result<bool, ReadError> {
    let at = TeamPath::inbox(owner);
    let file = open(dir, &at)?;
    let place = find(&file, id).map_err(|source| cannot_read(dir, &at, source))?;
    Ok(place.is_some())
}

/// Looks for the place of the message with this id, near the end of an inbox.
fn find(file: &File, id: Uuid) -> io::Result<Option<Appended>> {
    let length = file.metadata()?.len();
    let mut offset = length - length.min(LOOK_BACK);
    let mut bytes = vec![0; index(length - offset)];
    file.read_exact_at(&mut bytes, offset)?;
    let text = id.to_string();
    let names = |line: &[u8]| {
        line.windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    // A line that is torn, or glued to a torn one, reached no reader, although it contains the id.
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let len = line.len() as u64;
        if line.strip_suffix(b"\n").is_some_and(|line| {
            names(line) && Message::parse(line).is_ok_and(|message| message.id == Some(id))
        }) {
            return Ok(Some(Appended { offset, len }));
        }
        offset += len;
    }
    Ok(None)
}

/// Tells whether a position is still valid in an inbox: the file was not truncated or replaced
/// since.
///
/// # Errors
/// [`ReadError::NoInbox`] if it is not there; [`ReadError::Dir`] if the system refuses.
pub fn fits(dir: &TeamDir, owner: &Name, position: Position) -> Result<bool, ReadError> {
    let at = TeamPath::inbox(owner);
    lines::fits(&open(dir, &at)?, position).map_err(|source| cannot_read(dir, &at, source))
}

/// The end of an inbox, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct Last {
    /// The last lines as they are in the file, oldest first, without newlines. Of a line over
    /// [`MAX_LINE`] only the first [`MAX_TEXT`] bytes.
    pub lines: Vec<Vec<u8>>,
    /// The position behind them, from which a [`Reader`] can follow.
    pub position: Position,
}

/// Reads the last `count` lines that are not blank, from the end backwards.
///
/// # Errors
/// [`ReadError`] if there is no inbox, or the system refuses.
pub fn last_lines(dir: &TeamDir, owner: &Name, count: usize) -> Result<Last, ReadError> {
    let at = TeamPath::inbox(owner);
    let file = open(dir, &at)?;
    last_lines_of(&file, count).map_err(|source| cannot_read(dir, &at, source))
}

fn last_lines_of(file: &File, count: usize) -> io::Result<Last> {
    let mut end = end_of_last_line(file, file.metadata()?.len())?;
    let tail = end.min(TAIL as u64);
    let mut before = vec![0; index(tail)];
    file.read_exact_at(&mut before, end - tail)?;
    let position = Position::after(end, &before);
    let mut lines = Vec::new();
    while end > 0 && lines.len() < count {
        let start = end_of_last_line(file, end - 1)?;
        let line = read_cut(file, start, end)?;
        if !is_blank(&line) {
            lines.push(line);
        }
        end = start;
    }
    lines.reverse();
    Ok(Last { lines, position })
}

/// Reads the line between two offsets, without its newline; a line that is too long is cut.
fn read_cut(file: &File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let length = index(end - 1 - start);
    let mut line = vec![0; if length < MAX_LINE { length } else { MAX_TEXT }];
    file.read_exact_at(&mut line, start)?;
    Ok(line)
}

/// Opens an inbox for reading. A reader keeps the descriptor: opening makes events for all who
/// watch.
fn open(dir: &TeamDir, at: &TeamPath) -> Result<File, ReadError> {
    dir.open_file(at, OFlags::RDONLY).map_err(|error| {
        if error.is_not_found() {
            ReadError::NoInbox(dir.path(at))
        } else {
            ReadError::Dir(error)
        }
    })
}

fn cannot_read(dir: &TeamDir, at: &TeamPath, source: io::Error) -> ReadError {
    ReadError::Dir(dir.cannot("read", at)(source))
}

/// Returns device and inode of an open file.
fn identity_of(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|it| (it.dev(), it.ino()))
}

/// A look-back leaves an empty line, and so does `echo >>`: they say nothing.
fn is_blank(line: &[u8]) -> bool {
    line.trim_ascii().is_empty()
}

/// Makes an index of an offset that is known to fit into memory.
fn index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
