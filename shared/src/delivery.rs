//! What becomes of a message that was appended to the inbox of a teammate: the sender looks at the
//! roster again.
//!
//! A worker that runs after the append reads the message. If the worker ended meanwhile, the
//! position at its end tells whether the next incarnation reads it.

use std::fmt::{self, Display};

use crate::config::{Roster, RosterMember};
use crate::inbox::Appended;
use crate::member::Exit;
use crate::process::{Identity, boot_id};
use crate::team_dir::TeamDir;
use crate::transcript;

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// Its receiver is running, or has consumed it.
    Sent,
    /// Its receiver had ended before: the next incarnation reads it.
    Waits,
    /// It may not be read.
    Unknown(Doubt),
}

/// Why a message may not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// The receiver was forgotten meanwhile: the message lies in the archive.
    Forgotten,
    /// The receiver ended after the append: only an incarnation that resumes the conversation reads
    /// it.
    LeftToResume,
    /// Likewise, and there is a next incarnation already.
    SpawnedAgain,
    /// The process of the receiver is gone, and its end is not recorded yet.
    EndNotRecorded,
    /// The files that would tell could not be read.
    Unseen(String),
}

impl Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forgotten => f.write_str("it was forgotten while the message was sent"),
            Self::LeftToResume => {
                f.write_str("it ended while the message was sent, and only a resume reads it")
            }
            Self::SpawnedAgain => {
                f.write_str("it was spawned again while the message was sent, and may not read it")
            }
            Self::EndNotRecorded => f.write_str(
                "it ended, and its end is not recorded yet: whether it has read the message is not known",
            ),
            Self::Unseen(why) => write!(f, "whether it reads the message cannot be seen: {why}"),
        }
    }
}

impl Delivery {
    /// Returns what becomes of a message. `to` is its receiver as the roster showed it before the
    /// append, `now` the roster after it.
    pub fn of(dir: &TeamDir, to: &RosterMember, appended: Appended, now: &Roster) -> Self {
        Self::find(dir, to, appended, now)
            .unwrap_or_else(|error| Self::Unknown(Doubt::Unseen(error)))
    }

    fn find(
        dir: &TeamDir,
        to: &RosterMember,
        appended: Appended,
        now: &Roster,
    ) -> Result<Self, String> {
        let Some(member) = now.member(&to.name) else {
            return Ok(Self::Unknown(Doubt::Forgotten));
        };
        let end = appended.offset + appended.len;
        // A fresh incarnation begins where the inbox stood when the last one ended.
        let ended_behind =
            |exit: &Option<Exit>| exit.as_ref().is_some_and(|exit| exit.inbox.offset >= end);
        if member.spawned_seq != to.spawned_seq {
            match (&member.last_exit, &member.exit) {
                (None, None) => return Ok(Self::Unknown(Doubt::Forgotten)),
                (last, now) if ended_behind(last) || ended_behind(now) => {
                    return Ok(Self::Unknown(Doubt::SpawnedAgain));
                }
                _ => {}
            }
        }
        // The transcript of a member on a host is a copy, with positions of the inbox there.
        let consumed = match member.host {
            Some(_) => member.host_read,
            None => transcript::position(dir, &to.name)
                .map_err(|error| error.to_string())?
                .map(|position| position.offset),
        };
        if consumed.is_some_and(|offset| offset >= end) {
            return Ok(Self::Sent);
        }
        if member.status.is_ended() {
            let is_left = ended_behind(&member.exit);
            return Ok(if is_left {
                Self::Unknown(Doubt::LeftToResume)
            } else {
                Self::Waits
            });
        }
        if member.host.is_some() {
            return Ok(Self::Sent);
        }
        let is_gone = match (&now.daemon, member.pid, member.start_ticks) {
            // No daemon is recorded, so no boot either: a process of the present boot is looked
            // for.
            (None, Some(pid), Some(start_ticks)) => boot_id()
                .and_then(|boot_id| {
                    Identity {
                        pid,
                        start_ticks,
                        boot_id,
                    }
                    .runs()
                })
                .map(|runs| !runs),
            _ => now.process_is_gone(member),
        };
        let is_gone = is_gone.map_err(|error| error.to_string())?;
        Ok(if is_gone {
            Self::Unknown(Doubt::EndNotRecorded)
        } else {
            Self::Sent
        })
    }
}
