//! Append, then look back.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Seek};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::OFlags;
use uuid::Uuid;

use super::{Durability, find};
use crate::fs::{ShortWrite, write_once};
use crate::message::{Message, TooLarge};
use crate::mutant;
use crate::name::Name;
use crate::team_dir::{DirError, TeamDir, TeamPath};

/// How often a line is written before the appender gives up. Two writes are normal (a torn tail); a
/// third is needed only if another program replaces the inbox at the same moment, again.
const TRIES: usize = 8;

/// Where a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Where it begins, in bytes from the start of the inbox.
    pub offset: u64,
    /// How long it is, newline included, in bytes.
    pub len: u64,
}

/// Why a message was not appended, or is not known to last. Fits behind "error: ".
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Nothing was written: the line would be too long.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Nothing was written: without an id a reader could not drop a line that was written twice.
    #[error("the message has no id")]
    NoId,
    /// There is no such inbox: its owner was never spawned, or was forgotten.
    #[error("there is no inbox at {}", .0.display())]
    NoInbox(PathBuf),
    /// Nothing that a reader would take for a message was written, and nothing more will be: the
    /// rest, appended later, could land behind another writer's line.
    #[error("only {written} of {size} bytes of the message could be appended to {}: {source}", .path.display())]
    Short {
        /// The inbox.
        path: PathBuf,
        /// Bytes that are there: a torn tail, which the next writer sets right.
        written: usize,
        /// Bytes that should be there.
        size: usize,
        /// Why.
        source: io::Error,
    },
    /// The line was written, but it could not be read back: mostly it will be read.
    #[error("the message was appended to {}, but whether it is whole cannot be seen: {source}", .path.display())]
    Unseen {
        /// The inbox.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The message is in the inbox and will be read, but a loss of power may undo it.
    #[error("cannot sync {}: {source}", .path.display())]
    Unsynced {
        /// The inbox.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The system refused.
    #[error(transparent)]
    Dir(#[from] DirError),
}

impl AppendError {
    pub(super) fn short(short: ShortWrite, path: PathBuf, size: usize) -> Self {
        Self::Short {
            path,
            written: short.written,
            size,
            source: short.source,
        }
    }

    /// Returns what the user can do about it. Fits behind "hint: ".
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::TooLarge(_) => {
                Some("write the text to a file in the workspace, and send its path")
            }
            Self::Short { .. } => {
                Some("free some space on the disk (or raise the quota), then send it again")
            }
            Self::Unseen { .. } => {
                Some("look whether it is there (`teamctl inbox`) before you send it again")
            }
            Self::Unsynced { .. } => Some(
                "it is there and will be read: do not send it again, and look at the disk (`dmesg`)",
            ),
            Self::NoId | Self::NoInbox(_) | Self::Dir(_) => None,
        }
    }
}

/// Appends one message to an inbox, as [`Appender::append`], which is faster for many.
///
/// # Errors
/// As [`Appender::append`].
pub fn append(
    dir: &TeamDir,
    owner: &Name,
    message: &Message,
    durability: Durability,
) -> Result<Appended, AppendError> {
    Appender::new(owner).append(dir, message, durability)
}

/// Makes all that was appended to an inbox with [`Durability::Process`] survive a loss of power:
/// for a writer that appends several messages and syncs once.
///
/// # Errors
/// [`AppendError::NoInbox`], [`AppendError::Dir`] or [`AppendError::Unsynced`].
pub fn sync(dir: &TeamDir, owner: &Name) -> Result<(), AppendError> {
    let mut appender = Appender::new(owner);
    appender.open = Some(appender.open(dir)?);
    appender.sync(dir)
}

/// Returns the place of a message with this id that may have been appended before, by a process
/// that was killed or did not learn the outcome, and syncs it there; none if it cannot be read near
/// the end of the inbox (in its last 4 MiB).
///
/// # Errors
/// [`AppendError::NoInbox`], [`AppendError::Dir`], or [`AppendError::Unsynced`]: then it is there,
/// and no copy is needed.
pub fn find_appended(
    dir: &TeamDir,
    owner: &Name,
    id: Uuid,
    durability: Durability,
) -> Result<Option<Appended>, AppendError> {
    let mut appender = Appender::new(owner);
    let inbox = appender.open(dir)?;
    let place = find(&inbox.file, id).map_err(dir.cannot("read", &appender.at))?;
    appender.open = Some(inbox);
    if place.is_some() && durability == Durability::Disk {
        appender.sync(dir)?;
    }
    Ok(place)
}

/// A writer of one inbox, which keeps it open between messages.
///
/// The steps, and what holds when the writer dies behind each of them:
/// 1. *open* (append mode, regular files only): nothing has happened.
/// 2. *write*, once: the line is there as a whole, or a torn tail is (a kill can stop a write
///    half-way). The reader sees whole lines only, so a torn tail is nothing until a process
///    appends to it.
/// 3. *look back*, at the byte before our line: if it is no newline, our line is glued to a torn
///    tail, or to the first piece of a writer that needs several; and at the path: if it names
///    another file, our line is where no reader looks. Then the same bytes are appended again, at
///    the path, led by a newline, so that a tail becomes a line of its own. A writer that dies
///    before this lost its message, and never reported that it was sent. If the first line can be
///    read after all, the id makes the second a repetition.
/// 4. *sync*: before it, a loss of power (no kill) can undo the line.
///
/// No step waits for another process: a stopped or slow writer, or reader, blocks no other process.
#[derive(Debug)]
pub struct Appender {
    at: TeamPath,
    pub(super) open: Option<OpenInbox>,
}

/// An open inbox.
#[derive(Debug)]
pub(super) struct OpenInbox {
    pub(super) file: File,
    pub(super) identity: (u64, u64),
}

impl Appender {
    /// Makes a writer of an inbox, which is opened at the first message.
    pub fn new(owner: &Name) -> Self {
        Self {
            at: TeamPath::inbox(owner),
            open: None,
        }
    }

    /// Appends one message and returns where its line is, for good.
    ///
    /// # Errors
    /// [`AppendError`]. No reader sees the message then, except that it will be read after
    /// [`AppendError::Unsynced`], and may be after [`AppendError::Unseen`].
    pub fn append(
        &mut self,
        dir: &TeamDir,
        message: &Message,
        durability: Durability,
    ) -> Result<Appended, AppendError> {
        let line = line_of(message)?;
        let offset = self.append_lines(dir, &line, false)?;
        if durability == Durability::Disk && !mutant::is_on("send-not-synced") {
            self.sync(dir)?;
        }
        Ok(Appended {
            offset,
            len: line.len() as u64,
        })
    }

    /// Appends several messages, one behind the other, with one write and without a sync.
    ///
    /// # Errors
    /// As [`Appender::append`]; none of the messages is appended then, as far as none would be.
    pub fn append_all(&mut self, dir: &TeamDir, messages: &[Message]) -> Result<(), AppendError> {
        let mut lines = Vec::new();
        for message in messages {
            lines.extend(line_of(message)?);
        }
        if lines.is_empty() {
            return Ok(());
        }
        // Behind a torn tail the first line would be glued to it, written again, and read behind
        // the others. (The same happens if another writer leaves a torn tail at this very moment.)
        let torn = messages.len() > 1 && !self.ends_with_newline(dir)?;
        self.append_lines(dir, &lines, torn).map(drop)
    }

    /// Tells whether the inbox, as it is now, ends with a whole line.
    fn ends_with_newline(&mut self, dir: &TeamDir) -> Result<bool, AppendError> {
        let inbox = self.take_open(dir)?;
        let end = inbox.file.metadata().map(|meta| meta.len());
        let whole = end.and_then(|end| inbox.is_behind_newline(end));
        let whole = whole.map_err(dir.cannot("look at the end of", &self.at))?;
        self.open = Some(inbox);
        Ok(whole)
    }

    /// Writes a line (or several) until it is behind a newline in the file that the path names,
    /// at the second attempt (the first, if a torn tail is known to be there) led by a newline;
    /// returns its offset.
    fn append_lines(&mut self, dir: &TeamDir, line: &[u8], torn: bool) -> Result<u64, AppendError> {
        let mut bytes = Cow::Borrowed(line);
        for attempt in 0..TRIES {
            if torn && attempt == 0 || attempt == 1 {
                bytes = Cow::Owned([b"\n", line].concat());
            }
            if let Some(offset) = self.attempt(dir, &bytes, line.len())? {
                return Ok(offset);
            }
        }
        let source = io::Error::other("another program replaces the inbox again and again");
        Err(AppendError::Unseen {
            path: dir.path(&self.at),
            source,
        })
    }

    /// Writes once, and looks back; returns the offset of the line (the last `length` bytes), if it
    /// is intact.
    pub(super) fn attempt(
        &mut self,
        dir: &TeamDir,
        bytes: &[u8],
        length: usize,
    ) -> Result<Option<u64>, AppendError> {
        // If anything below fails, the next message begins with a fresh descriptor.
        let inbox = self.take_open(dir)?;
        write_once(&inbox.file, bytes)
            .map_err(|short| AppendError::short(short, dir.path(&self.at), bytes.len()))?;
        let unseen = |source| AppendError::Unseen {
            path: dir.path(&self.at),
            source,
        };
        let offset = inbox.written_to().map_err(unseen)? - length as u64;
        let behind_newline = inbox.is_behind_newline(offset).map_err(unseen)?;
        let there = dir
            .identity(&self.at)
            .map_err(|error| unseen(io::Error::other(error)))?;
        if there != Some(inbox.identity) {
            return Ok(None);
        }
        self.open = Some(inbox);
        let looks_back = !mutant::is_on("no-look-back");
        Ok((behind_newline || !looks_back).then_some(offset))
    }

    fn take_open(&mut self, dir: &TeamDir) -> Result<OpenInbox, AppendError> {
        self.open.take().map_or_else(|| self.open(dir), Ok)
    }

    fn open(&self, dir: &TeamDir) -> Result<OpenInbox, AppendError> {
        let (file, stat) = dir
            .open_and_look(&self.at, OFlags::RDWR | OFlags::APPEND)
            .map_err(|error| {
                if error.is_not_found() {
                    AppendError::NoInbox(dir.path(&self.at))
                } else {
                    error.into()
                }
            })?;
        Ok(OpenInbox {
            file,
            identity: (stat.st_dev, stat.st_ino),
        })
    }

    fn sync(&self, dir: &TeamDir) -> Result<(), AppendError> {
        let Some(inbox) = &self.open else {
            return Ok(());
        };
        inbox
            .file
            .sync_data()
            .map_err(|source| AppendError::Unsynced {
                path: dir.path(&self.at),
                source,
            })
    }
}

fn line_of(message: &Message) -> Result<Vec<u8>, AppendError> {
    if message.id.is_none() {
        return Err(AppendError::NoId);
    }
    Ok(message.to_line()?)
}

impl OpenInbox {
    /// Returns where what was written last ends: in append mode the write itself moves the position
    /// there, whatever other processes write.
    fn written_to(&self) -> io::Result<u64> {
        (&self.file).stream_position()
    }

    fn is_behind_newline(&self, offset: u64) -> io::Result<bool> {
        let mut before = [0];
        Ok(offset == 0 || (self.file.read_at(&mut before, offset - 1)? == 1 && before == *b"\n"))
    }
}
