//! What a reader left unread: how much, and the mail that comes back to its senders. Pure reading.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{ReadError, each_message, fits};
use crate::message::{MAX_RETURNED_TEXT, Message};
use crate::name::Name;
use crate::position::Position;
use crate::team_dir::TeamDir;

/// How many messages come back to their senders when their reader ends.
pub const MAX_RETURNED: usize = 100;

/// A message that its receiver had not read, and whose sender may be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadMail {
    /// Its id.
    pub id: Uuid,
    /// Who sent it: `user`, `lead` or a teammate.
    pub from: String,
    /// Its first characters.
    pub text: String,
}

/// What is behind a position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unread {
    /// How many messages start a turn, as [`super::count_lines`] counts them.
    pub count: u64,
    /// The position behind the last whole line.
    pub end: Position,
    /// The first [`MAX_RETURNED`] messages that can come back.
    pub mail: Vec<UnreadMail>,
    /// How many more of them there are.
    pub more: u64,
}

/// Nothing.
pub static NOTHING_UNREAD: Unread = Unread {
    count: 0,
    end: Position::START,
    mail: Vec::new(),
    more: 0,
};

/// Looks at what is behind a position. `returned`: up to there, mail has come back before.
///
/// # Errors
/// [`ReadError::NoInbox`] if it is not there; [`ReadError::Dir`] if the system refuses.
pub fn look_at_unread(
    dir: &TeamDir,
    owner: &Name,
    from: Position,
    returned: Option<Position>,
) -> Result<Unread, ReadError> {
    // Offsets say nothing about a file that was truncated since.
    let returned = match returned {
        Some(position) if fits(dir, owner, position)? => position.offset,
        Some(_) | None => 0,
    };
    let mut unread = Unread::default();
    let mut ids = HashSet::new();
    unread.end = each_message(dir, owner, from, |offset, _, message| {
        unread.count += u64::from(message.starts_a_turn(owner));
        if offset < returned {
            return;
        }
        let Some(id) = message.id.filter(|_| message.can_come_back(owner)) else {
            return;
        };
        // A sender may have written its line twice.
        if !ids.insert(id) {
            return;
        }
        if unread.mail.len() == MAX_RETURNED {
            unread.more += 1;
            return;
        }
        unread.mail.push(mail(id, message));
    })?;
    Ok(unread)
}

fn mail(id: Uuid, message: &Message) -> UnreadMail {
    UnreadMail {
        id,
        from: message.from.clone(),
        text: message.content.chars().take(MAX_RETURNED_TEXT).collect(),
    }
}
