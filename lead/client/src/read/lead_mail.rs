//! What has come for a lead: the messages of its inbox from a place on. Nothing is consumed, and no
//! position is stored: each reader remembers how far it is.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;
use teamd_shared::message::{MAX_LINE, Message};
use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};

use crate::error::CommandError;
use crate::exit_code::ExitCode;

/// How much is read at a time, in bytes: at least one whole line.
const PIECE: usize = 2 * MAX_LINE;

/// A part of the inbox.
#[derive(Debug, Default, PartialEq)]
pub struct LeadMail {
    /// Its messages, oldest first. Lines that are none are left out.
    pub messages: Vec<PlacedMessage>,
    /// The place behind them, in bytes.
    pub end: u64,
    /// Whether there may be more.
    pub has_more: bool,
    /// Whether the inbox is shorter than the place that was asked for, so that it was read from its
    /// beginning.
    pub was_replaced: bool,
}

/// A message, and the place behind it, in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedMessage {
    /// The message.
    pub message: Message,
    /// The place.
    pub end: u64,
}

/// Returns the place behind the last whole line.
///
/// # Errors
/// [`DirError`] if the system refuses.
pub fn end(dir: &TeamDir) -> Result<u64, DirError> {
    let Some(file) = open(dir)? else {
        return Ok(0);
    };
    let look = || teamd_shared::fs::end_of_last_line(&file, file.metadata()?.len());
    look().map_err(|source| unreadable(dir, source))
}

/// Reads on from a place.
///
/// # Errors
/// [`ExitCode::Usage`] for a place at which no line begins, or if the system refuses.
pub fn since(dir: &TeamDir, place: u64) -> Result<LeadMail, CommandError> {
    let Some(file) = open(dir)? else {
        return Ok(LeadMail {
            was_replaced: place > 0,
            ..LeadMail::default()
        });
    };
    let length = file
        .metadata()
        .map_err(|source| unreadable(dir, source))?
        .len();
    let was_replaced = place > length;
    let start = if was_replaced { 0 } else { place };
    if !begins_line(&file, start).map_err(|source| unreadable(dir, source))? {
        let message = format!("no message begins at {place}");
        return Err(CommandError::new(ExitCode::Usage, message));
    }
    let lines = read_lines(&file, start).map_err(|source| unreadable(dir, source))?;
    let mut mail = LeadMail {
        end: start,
        has_more: lines.len() > PIECE / 2,
        was_replaced,
        ..LeadMail::default()
    };
    for line in lines.split_inclusive(|&byte| byte == b'\n') {
        mail.end += line.len() as u64;
        let Ok(message) = Message::parse(line.trim_ascii_end()) else {
            continue;
        };
        // A writer that saw that its line was damaged has written it once more.
        let is_double = message.id.is_some()
            && mail
                .messages
                .iter()
                .any(|other| other.message.id == message.id);
        if !is_double {
            let end = mail.end;
            mail.messages.push(PlacedMessage { message, end });
        }
    }
    Ok(mail)
}

fn open(dir: &TeamDir) -> Result<Option<File>, DirError> {
    match dir.open_file(&inbox(), OFlags::RDONLY) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

fn begins_line(file: &File, place: u64) -> io::Result<bool> {
    let Some(before) = place.checked_sub(1) else {
        return Ok(true);
    };
    let mut byte = [0];
    file.read_exact_at(&mut byte, before)?;
    Ok(byte == *b"\n")
}

/// Reads whole lines: a piece of the file, and on to the end of the first line if that is longer.
fn read_lines(file: &File, start: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let before = bytes.len();
        bytes.resize(before + PIECE, 0);
        let filled = fill(file, &mut bytes[before..], start + before as u64)?;
        bytes.truncate(before + filled);
        let last = bytes.iter().rposition(|&byte| byte == b'\n');
        if last.is_some() || filled < PIECE {
            bytes.truncate(last.map_or(0, |last| last + 1));
            return Ok(bytes);
        }
    }
}

/// Reads until the buffer is full, or the file ends.
fn fill(file: &File, buffer: &mut [u8], start: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], start + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn inbox() -> TeamPath {
    TeamPath::inbox(&Name::lead())
}

fn unreadable(dir: &TeamDir, source: io::Error) -> DirError {
    dir.cannot("read", &inbox())(source)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::testing::scratch;

    fn append(dir: &TeamDir, text: &str) {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        dir.open_file(&inbox(), flags)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    fn texts(mail: &LeadMail) -> Vec<&str> {
        let contents = mail
            .messages
            .iter()
            .map(|placed| placed.message.content.as_str());
        contents.collect()
    }

    #[test]
    fn whole_messages_are_read_from_a_place_on() {
        let (_scratch, dir) = scratch();
        assert_eq!(since(&dir, 0).unwrap(), LeadMail::default());
        append(
            &dir,
            "{\"type\":\"message\",\"from\":\"a\",\"content\":\"one\"}\nno message\n",
        );
        let first = since(&dir, 0).unwrap();
        assert_eq!(
            (texts(&first), first.end),
            (vec!["one"], end(&dir).unwrap())
        );
        append(
            &dir,
            "{\"type\":\"message\",\"from\":\"a\",\"content\":\"two\"}\n{\"torn",
        );
        let second = since(&dir, first.end).unwrap();
        assert_eq!(
            (texts(&second), second.end),
            (vec!["two"], end(&dir).unwrap())
        );
        assert!(since(&dir, second.end).unwrap().messages.is_empty());
        assert_eq!(since(&dir, 3).unwrap_err().code(), ExitCode::Usage);
        assert!(!second.was_replaced && !second.has_more);
    }

    #[test]
    fn an_inbox_that_was_truncated_is_read_from_its_beginning() {
        let (_scratch, dir) = scratch();
        append(
            &dir,
            "{\"type\":\"message\",\"from\":\"a\",\"content\":\"new\"}\n",
        );
        let mail = since(&dir, 1000).unwrap();
        assert!(mail.was_replaced);
        assert_eq!(texts(&mail), ["new"]);
    }
}
