//! Lines that came from another machine: where they stood there.
//!
//! On a machine where its owner does not live, an inbox is the outbox to that owner. Its lines are
//! appended to the inbox of the same name on the owner's machine, each with the field [`VIA`]. So
//! the inbox itself says how far the outbox was read, and nothing else is kept. Pure reading.

use std::io;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    ReadError, cannot_read, each_message, each_message_before, find, index, open, read_line_at,
};
use crate::message::Message;
use crate::name::Name;
use crate::position::{Position, TAIL};
use crate::team_dir::{TeamDir, TeamPath};

/// The field of a line that says where it came from.
pub const VIA: &str = "via";

/// A line of an inbox file on one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinePlace {
    /// Where it begins, in bytes from the start of that file.
    pub offset: u64,
    /// The id of its message, if it has one: another file at that path has another.
    pub id: Option<Uuid>,
}

/// Where a line came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Via {
    /// The machine: the name of a host, or [`HOME`].
    pub host: String,
    /// The line there.
    #[serde(flatten)]
    pub line: LinePlace,
}

/// What a host calls the machine that decides.
pub const HOME: &str = "home";

impl Via {
    /// Returns where a message came from, if that was another machine.
    pub fn of(message: &Message) -> Option<Self> {
        serde_json::from_value(message.extra.get(VIA)?.clone()).ok()
    }

    /// Puts it into a message, in the place of an earlier one: a line may pass several machines.
    pub fn put_into(&self, message: &mut Message) {
        let value = serde_json::json!({
            "host": self.host,
            "offset": self.line.offset,
            "id": self.line.id,
        });
        message.extra.insert(VIA.to_owned(), value);
    }
}

/// Returns the last line of an outbox on another machine that is in this inbox; `before`: of those
/// that begin here before that offset. None if there is none.
///
/// # Errors
/// [`ReadError`] if there is no inbox, or the system refuses.
pub fn last_via(
    dir: &TeamDir,
    owner: &Name,
    host: &str,
    before: Option<u64>,
) -> Result<Option<LinePlace>, ReadError> {
    let before = before.unwrap_or(u64::MAX);
    last_via_between(dir, owner, host, (Position::START, before))
}

/// As [`last_via`], in the part of the inbox from a position to an offset.
///
/// # Errors
/// [`ReadError`] if there is no inbox, or the system refuses.
pub fn last_via_between(
    dir: &TeamDir,
    owner: &Name,
    host: &str,
    part: (Position, u64),
) -> Result<Option<LinePlace>, ReadError> {
    let mut last = None;
    each_message_before(dir, owner, part, |_, _, message| {
        if let Some(via) = Via::of(message)
            && via.host == host
        {
            last = Some(via.line);
        }
    })?;
    Ok(last)
}

/// Returns the position in this inbox behind a line that came from an outbox on another machine;
/// none if it is not there.
///
/// # Errors
/// [`ReadError`] if there is no inbox, or the system refuses.
pub fn position_after_via(
    dir: &TeamDir,
    owner: &Name,
    host: &str,
    line: LinePlace,
) -> Result<Option<Position>, ReadError> {
    let mut position = None;
    each_message(dir, owner, Position::START, |_, end, message| {
        if Via::of(message).is_some_and(|via| via.host == host && via.line == line) {
            position = Some(end);
        }
    })?;
    Ok(position)
}

/// Returns the position behind a line of this file; none if another line, or none, is there.
///
/// # Errors
/// [`ReadError`] if there is no inbox, or the system refuses.
pub fn position_after(
    dir: &TeamDir,
    owner: &Name,
    line: LinePlace,
) -> Result<Option<Position>, ReadError> {
    let mut position = None;
    each_message(dir, owner, Position::START, |offset, end, message| {
        if offset == line.offset && message.id == line.id {
            position = Some(end);
        }
    })?;
    Ok(position)
}

/// Returns the last message that begins before an offset of this file; none if there is none.
///
/// # Errors
/// [`ReadError`] if there is no inbox, or the system refuses.
pub fn line_before(
    dir: &TeamDir,
    owner: &Name,
    offset: u64,
) -> Result<Option<LinePlace>, ReadError> {
    let mut last = None;
    each_message(dir, owner, Position::START, |begins, _, message| {
        if begins < offset {
            last = Some(LinePlace {
                offset: begins,
                id: message.id,
            });
        }
    })?;
    Ok(last)
}

/// Returns the message near the end of this inbox (in its last 4 MiB) that came from a line of an
/// outbox on another machine; none if it is not there, or has no id.
///
/// # Errors
/// [`ReadError`] if there is no inbox, or the system refuses.
pub fn message_via(
    dir: &TeamDir,
    owner: &Name,
    host: &str,
    line: LinePlace,
) -> Result<Option<Message>, ReadError> {
    let Some(id) = line.id else {
        return Ok(None);
    };
    let at = TeamPath::inbox(owner);
    let file = open(dir, &at)?;
    let found = find(&file, id).map_err(|source| cannot_read(dir, &at, source))?;
    let Some(found) = found else {
        return Ok(None);
    };
    let text = read_line_at(dir, owner, found.offset, found.len)?;
    let message = Message::parse(&text).ok();
    let came = Via {
        host: host.to_owned(),
        line,
    };
    Ok(message.filter(|message| Via::of(message) == Some(came)))
}

/// Returns the position at an offset between two lines of this file; the beginning if there is no
/// inbox, or nothing ends there.
///
/// # Errors
/// [`ReadError::Dir`] if the system refuses.
pub fn position_at(dir: &TeamDir, owner: &Name, offset: u64) -> Result<Position, ReadError> {
    let at = TeamPath::inbox(owner);
    let file = match open(dir, &at) {
        Ok(file) => file,
        Err(ReadError::NoInbox(_)) => return Ok(Position::START),
        Err(error) => return Err(error),
    };
    let tail = offset.min(TAIL as u64);
    let mut before = vec![0; index(tail)];
    match file.read_exact_at(&mut before, offset - tail) {
        Ok(()) => Ok(Position::after(offset, &before)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Position::START),
        Err(error) => Err(cannot_read(dir, &at, error)),
    }
}
