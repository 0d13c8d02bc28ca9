//! Reading an inbox: whole lines, each once, from a position on.

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::sync::Arc;

use uuid::Uuid;

use super::append::OpenInbox;
use super::lines::{Lines, WholeLine, fits};
use super::rejected::RejectedLine;
use super::{MAX_TEXT, ReadError, cannot_read, identity_of, is_blank, make, open};
use crate::message::{Message, ParseError};
use crate::name::Name;
use crate::position::Position;
use crate::team_dir::{TeamDir, TeamPath};

/// How many lines one [`Reader::read_new`] returns at most: short lines take more memory than their
/// bytes.
const MAX_LINES: usize = 4096;

/// A reader of one inbox.
///
/// It returns whole lines in the order of the file, each with the position behind it; a line whose
/// UUID it has met before is dropped. It consumes nothing: the process that consumes a message
/// records the position in the same write as the effect. Its next incarnation begins with
/// [`Reader::open`] at the last position recorded and [`Reader::seen`] for each id recorded. So a
/// reader that dies between any two system calls reads again what had no effect yet, and nothing
/// else.
///
/// A program that truncated or rewrote the inbox is noticed by the bytes before the position; then
/// reading starts at the new beginning. (What the truncation removed unread is lost; the same bytes
/// again are not noticed.)
///
/// A file that was renamed, replaced or deleted is read to its end through its descriptor, and then
/// the one at the path. A writer looks at the path after its write, so what it calls
/// sent was in the old file before the reader could see another one at the path.
///
/// The descriptor stays open, since each opening makes an event for all who watch the file. To miss
/// nothing: open, arm the watch, then read.
#[derive(Debug)]
pub struct Reader {
    dir: Arc<TeamDir>,
    at: TeamPath,
    /// The files to read, oldest first, at least one. The last stood at the path when that was last
    /// looked at. Those before it are no longer there.
    files: VecDeque<OpenInbox>,
    position: Position,
    /// Where the position was when the first file had left the path: a copy of it may have been
    /// made since.
    left_at: Option<Position>,
    /// The ids that were read; none for a reader that need not recognize duplicates.
    seen: Option<HashSet<Uuid>>,
    /// Up to where the first file has no newline behind the position.
    scanned: u64,
}

/// What one look at an inbox found.
#[derive(Debug)]
pub struct Batch {
    /// The new lines. Blank ones and repetitions are left out.
    pub lines: Vec<InboxLine>,
    /// The position behind all that was looked at, at least that of the last line.
    pub position: Position,
    /// What a foreign program did to the inbox, if reading started again at the beginning of the
    /// file for that. Fits behind "the inbox ".
    pub restarted: Option<&'static str>,
    /// Whether the last line that was looked at is a repetition: a reader that records positions
    /// moves its position behind that line.
    pub repeated: bool,
    /// Whether there may be more already: read again before waiting.
    pub more: bool,
}

/// One line of an inbox.
#[derive(Debug)]
pub struct InboxLine {
    /// Where it begins, in bytes from the start of the inbox.
    pub offset: u64,
    /// The position behind it.
    pub position: Position,
    /// The message, or why it is none: then it belongs into quarantine ([`super::quarantine`]).
    pub message: Result<Message, RejectedLine>,
}

/// The file is shorter than what was read.
pub(super) const TRUNCATED: &str = "was truncated";
/// The file is long enough, but the bytes before the position are others.
pub(super) const CHANGED: &str = "was truncated and filled again";
/// Another file is at the path, and it does not begin with what was read.
pub(super) const REPLACED: &str = "was replaced";

impl Reader {
    /// Opens an inbox, to be read from a position on. It is made if it is not there, now and
    /// whenever it is gone.
    ///
    /// # Errors
    /// [`ReadError::Dir`] if the system refuses.
    pub fn open(dir: Arc<TeamDir>, owner: &Name, from: Position) -> Result<Self, ReadError> {
        let at = TeamPath::inbox(owner);
        let files = VecDeque::new();
        let seen = Some(HashSet::new());
        let mut reader = Self {
            dir,
            at,
            files,
            position: from,
            left_at: None,
            seen,
            scanned: 0,
        };
        reader.hold()?;
        Ok(reader)
    }

    /// Makes it forget what it read: a line that its sender wrote twice is then read twice, and
    /// memory does not grow.
    #[must_use]
    pub fn without_memory(mut self) -> Self {
        self.seen = None;
        self
    }

    /// Notes that a message was consumed before (by this conversation, before it was resumed).
    pub fn seen(&mut self, id: Uuid) {
        if let Some(seen) = &mut self.seen {
            seen.insert(id);
        }
    }

    /// Returns the position behind all that was read.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Tells whether the file at the path is the one that was read, and ends where reading did: then
    /// nothing is new. For a reader of many inboxes, it takes one system call.
    pub fn is_at_end(&self) -> bool {
        let last = self.files.front().filter(|_| self.files.len() == 1);
        let Some(last) = last else {
            return false;
        };
        let stamp = self.dir.stamp(&self.at).ok().flatten();
        stamp.is_some_and(|stamp| stamp.is_of(last.identity, self.position.offset))
    }

    /// Reads what is new: whole lines, at most about 4 MiB. It never waits.
    ///
    /// # Errors
    /// [`ReadError::Dir`] if the system refuses. The position is then as before, or behind lines
    /// that the next call returns.
    pub fn read_new(&mut self) -> Result<Batch, ReadError> {
        self.follow_path()?;
        let mut replaced = false;
        loop {
            let before = self.position;
            let read = self.read_lines(replaced);
            let mut batch = read.map_err(|source| cannot_read(&self.dir, &self.at, source))?;
            let is_last = self.files.len() == 1;
            if is_last || batch.more || batch.restarted.is_some() || batch.position != before {
                if !is_last {
                    self.left_at.get_or_insert(before);
                    batch.more = true;
                }
                return Ok(batch);
            }
            // The first file is read to its end.
            self.files.pop_front();
            self.scanned = 0;
            replaced = true;
        }
    }

    /// Opens the file at the path, if that is another one. [`Reader::read_new`] does so first.
    ///
    /// # Errors
    /// [`ReadError::Dir`] if the system refuses.
    pub fn follow_path(&mut self) -> Result<(), ReadError> {
        let there = self.dir.identity(&self.at)?;
        if there.is_some() && there == self.files.back().map(|last| last.identity) {
            Ok(())
        } else {
            self.hold()
        }
    }

    /// Opens the file at the path. A new one is opened at once: it may be appended to and renamed
    /// in the next moment.
    fn hold(&mut self) -> Result<(), ReadError> {
        let file = match open(&self.dir, &self.at) {
            Err(ReadError::NoInbox(_)) => make(&self.dir, &self.at)?,
            opened => opened?,
        };
        let identity = identity_of(&file).map_err(|e| cannot_read(&self.dir, &self.at, e))?;
        self.files.push_back(OpenInbox { file, identity });
        Ok(())
    }

    /// Reads the first file; `replaced`: for the first time.
    fn read_lines(&mut self, replaced: bool) -> io::Result<Batch> {
        let file = &self.files[0].file;
        let mut batch = Batch {
            lines: Vec::new(),
            position: self.position,
            restarted: None,
            repeated: false,
            more: false,
        };
        let mut opened = Lines::open(file, self.position, self.scanned)?;
        let left_at = self.left_at.take_if(|_| replaced);
        if opened.is_none()
            && let Some(left_at) = left_at
        {
            // It is a copy of the previous file, made before the last lines of that were written.
            opened = Lines::open(file, left_at, 0)?;
            if opened.is_some() {
                // The position goes back: the caller has to record it.
                batch.position = left_at;
                batch.repeated = true;
            }
        }
        let mut lines = match opened {
            Some(lines) => lines,
            None => {
                let restarted = if replaced {
                    REPLACED
                } else if file.metadata()?.len() < self.position.offset {
                    TRUNCATED
                } else {
                    CHANGED
                };
                batch.restarted = Some(restarted);
                batch.position = Position::START;
                Lines::open_at_start(file)?
            }
        };
        take_lines(&mut lines, &mut self.seen, &mut batch)?;
        self.scanned = lines.scanned();
        self.position = batch.position;
        Ok(batch)
    }
}

/// Fills a batch.
fn take_lines(
    lines: &mut Lines<'_>,
    seen: &mut Option<HashSet<Uuid>>,
    batch: &mut Batch,
) -> io::Result<()> {
    while batch.lines.len() < MAX_LINES {
        let offset = lines.offset();
        let message = match lines.next() {
            Ok(Some(line)) => read_line(offset, &line),
            Ok(None) => {
                batch.more = lines.more;
                return Ok(());
            }
            // Lines that are noted as seen must reach the caller: the next call will meet the
            // error.
            Err(error) if batch.lines.is_empty() => return Err(error),
            Err(_) => break,
        };
        batch.position = lines.position();
        let Some(message) = message else { continue };
        let id = message.as_ref().ok().and_then(|message| message.id);
        batch.repeated = id.is_some_and(|id| seen.as_mut().is_some_and(|seen| !seen.insert(id)));
        if !batch.repeated {
            batch.lines.push(InboxLine {
                offset,
                position: batch.position,
                message,
            });
        }
    }
    batch.more = true;
    Ok(())
}

/// Reads one line; none if it is blank.
fn read_line(offset: u64, line: &WholeLine<'_>) -> Option<Result<Message, RejectedLine>> {
    let (text, read) = match line {
        WholeLine::Text(line) if is_blank(line) => return None,
        WholeLine::Text(line) => (cut_text(line), Message::parse(line)),
        WholeLine::TooLong(head, length) => {
            (cut_text(head) + "…", Err(ParseError::TooLong(*length)))
        }
    };
    Some(read.map_err(|why| RejectedLine {
        line: text,
        offset,
        reason: why.to_string(),
    }))
}

/// Makes text of the first [`MAX_TEXT`] bytes.
fn cut_text(line: &[u8]) -> String {
    if line.len() <= MAX_TEXT {
        return String::from_utf8_lossy(line).into_owned();
    }
    let text = String::from_utf8_lossy(&line[..MAX_TEXT]);
    // The cut may have gone through a character.
    format!("{}…", text.trim_end_matches(char::REPLACEMENT_CHARACTER))
}

/// What is behind a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// How many messages start a turn. Messages of the protocol itself are not counted.
    pub mail: u64,
    /// The position behind the last whole line.
    pub end: Position,
}

/// Counts the lines behind a position, or all lines if the file was truncated or replaced since.
///
/// It reads what it counts and no more, in bounded memory.
///
/// # Errors
/// [`ReadError::NoInbox`] if it is not there; [`ReadError::Dir`] if the system refuses.
pub fn count_lines(dir: &TeamDir, owner: &Name, from: Position) -> Result<Count, ReadError> {
    let mut mail = 0;
    let end = each_message(dir, owner, from, |_, _, message| {
        mail += u64::from(message.starts_a_turn(owner));
    })?;
    Ok(Count { mail, end })
}

/// Calls a function for each message behind a position, with the offset where its line begins and
/// the position behind it; for all of them if the file was truncated or replaced since. Returns the
/// position behind the last whole line.
///
/// # Errors
/// As [`count_lines`].
pub(super) fn each_message(
    dir: &TeamDir,
    owner: &Name,
    from: Position,
    visit: impl FnMut(u64, Position, &Message),
) -> Result<Position, ReadError> {
    each_message_before(dir, owner, (from, u64::MAX), visit)
}

/// As [`each_message`], for those that begin before an offset.
pub(super) fn each_message_before(
    dir: &TeamDir,
    owner: &Name,
    (from, before): (Position, u64),
    mut visit: impl FnMut(u64, Position, &Message),
) -> Result<Position, ReadError> {
    let at = TeamPath::inbox(owner);
    let file = open(dir, &at)?;
    visit_messages(&file, (from, before), &mut visit)
        .map_err(|source| cannot_read(dir, &at, source))
}

fn visit_messages(
    file: &File,
    (from, before): (Position, u64),
    visit: &mut impl FnMut(u64, Position, &Message),
) -> io::Result<Position> {
    let mut end = if fits(file, from)? {
        from
    } else {
        Position::START
    };
    let mut scanned = 0;
    // A file that is truncated meanwhile has no more lines.
    while let Some(mut lines) = Lines::open(file, end, scanned)? {
        loop {
            let offset = lines.offset();
            if offset >= before {
                return Ok(end);
            }
            let Some(line) = lines.next()? else { break };
            let read = read_line(offset, &line);
            end = lines.position();
            if let Some(Ok(message)) = read {
                visit(offset, end, &message);
            }
        }
        scanned = lines.scanned();
        if !lines.more {
            break;
        }
    }
    Ok(end)
}
