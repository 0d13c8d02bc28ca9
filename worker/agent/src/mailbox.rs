//! The worker's own inbox: what has arrived and is not consumed. [`Message::relevance`] decides
//! what a message means to its reader.
//!
//! Fetched lines wait here, in order, until the session records them in the transcript. Only then
//! the position moves. This module decides nothing, and writes nothing but the quarantine of its
//! inbox.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use teamd_shared::clock;
use teamd_shared::inbox::{self, InboxLine, ReadError, Reader, RejectedLine};
use teamd_shared::message::{Message, Relevance, USER};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::watch::{Watch, WatchError};
use uuid::Uuid;

use teamd_worker_core::state::{Arrived, Closings};

/// About how many lines may wait in memory; the rest waits in the file.
const MAX_WAITING: usize = 4096;
/// Likewise, in bytes.
const MAX_WAITING_BYTES: u64 = 4 << 20;
/// How many lines are consumed at once. Other events are served in between.
const MAX_TAKEN: usize = 64;
/// Likewise, in bytes. It limits the size of an entry of the transcript.
const MAX_TAKEN_BYTES: u64 = 1 << 20;

/// How the inbox is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waking {
    /// By events of the file system.
    Events,
    /// On a timer.
    Poll,
    /// Not at all: the daemon wakes the worker.
    ByDaemon,
}

/// The inbox of this member.
#[derive(Debug)]
pub(crate) struct Mailbox {
    dir: Arc<TeamDir>,
    name: Name,
    reader: Reader,
    watch: Option<Watch>,
    /// What was fetched and is not consumed, each with its length in bytes.
    waiting: VecDeque<(Consumed, u64)>,
    /// What the fetched messages report of the gate.
    closings: Closings,
    /// Whether the file may already contain more.
    rest: bool,
    /// Whether the last look failed: one line in the log is enough.
    failing: bool,
}

/// What is consumed with one entry of the transcript.
#[derive(Debug)]
pub(crate) enum Consumed {
    /// Messages.
    Messages {
        /// The messages; none if only lines that are not for this member come before the position:
        /// else they would count as unread for ever.
        messages: Vec<Message>,
        /// The position behind them.
        behind: Position,
    },
    /// A line that is not a message.
    Rejected {
        /// Where it begins.
        offset: u64,
        /// What is wrong with it.
        rejection: RejectedLine,
        /// The position behind it.
        behind: Position,
    },
    /// A foreign program truncated or replaced the inbox.
    Restarted {
        /// What was noticed.
        reason: String,
    },
}

impl Mailbox {
    /// Opens the inbox at the position, arms the watch, and only then looks for the first time.
    ///
    /// An inbox that was deleted is made again: senders find none otherwise.
    pub(crate) fn open(
        dir: Arc<TeamDir>,
        name: &Name,
        position: Position,
        seen: Vec<Uuid>,
        waking: Waking,
    ) -> Result<Self, ReadError> {
        let mut reader = Reader::open(Arc::clone(&dir), name, position)?;
        for id in seen {
            reader.seen(id);
        }
        let watch = arm(&dir, name, waking);
        let name = name.clone();
        let waiting = VecDeque::new();
        let closings = Closings::default();
        let mut mailbox = Self {
            dir,
            name,
            reader,
            watch,
            waiting,
            closings,
            rest: false,
            failing: false,
        };
        mailbox.fetch();
        Ok(mailbox)
    }

    /// Tells whether the daemon must wake this worker.
    pub(crate) fn needs_waking(&self) -> bool {
        self.watch.is_none()
    }

    /// Waits until there may be something new. Dropping the future loses nothing.
    pub(crate) async fn changed(&self) {
        match &self.watch {
            Some(watch) => watch.changed().await,
            None => pending().await,
        }
    }

    /// Stops watching the inbox: the incarnation ends.
    pub(crate) fn close(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.disarm();
        }
    }

    /// Fetches what is new, without taking it in.
    pub(crate) fn fetch(&mut self) {
        self.listen();
        while self.waiting.len() < MAX_WAITING && self.waiting_bytes() < MAX_WAITING_BYTES {
            match self.reader.read_new() {
                Ok(batch) => {
                    self.failing = false;
                    if let Some(why) = batch.restarted {
                        let reason = format!("the inbox {why}");
                        self.waiting.push_back((Consumed::Restarted { reason }, 0));
                    }
                    let lines = batch
                        .lines
                        .into_iter()
                        .map(|line| self.read(line))
                        .collect::<Vec<_>>();
                    self.waiting.extend(lines);
                    if batch.repeated {
                        self.waiting.push_back((nothing(batch.position), 0));
                    }
                    self.rest = batch.more;
                }
                Err(error) => {
                    self.rest = false;
                    if !std::mem::replace(&mut self.failing, true) {
                        tracing::warn!("{error}; looking again on a slow timer");
                    }
                }
            }
            if !self.rest {
                return;
            }
        }
    }

    /// Makes sure that the file at the path is watched before it is read: whatever takes its place
    /// from then on wakes. Where that cannot be done, the daemon, which watches the folder, wakes
    /// the worker.
    fn listen(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        let mut armed = watch.rearm_if_needed();
        if let Err(WatchError::Missing(_)) = armed {
            // The reader makes it again, or says why it cannot.
            drop(self.reader.follow_path());
            armed = watch.rearm_if_needed();
        }
        if let Err(error) = armed {
            tracing::warn!("{error}: the daemon is asked to wake this worker");
            self.watch = None;
        }
    }

    fn waiting_bytes(&self) -> u64 {
        self.waiting.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Returns what a line means to this member, and its length. The daemon looks after what is no
    /// message in the inbox of the lead.
    fn read(
        &mut self,
        InboxLine {
            offset,
            position: behind,
            message,
        }: InboxLine,
    ) -> (Consumed, u64) {
        if let Some(seq) = message.as_ref().ok().and_then(Message::gate_closed) {
            self.closings = Closings {
                count: self.closings.count + 1,
                seq: self.closings.seq.max(seq),
            };
        }
        let taken = match message {
            Ok(message) if message.relevance(&self.name) != Relevance::None => Consumed::Messages {
                messages: vec![message],
                behind,
            },
            Err(rejection) if self.name != Name::lead() => Consumed::Rejected {
                offset,
                rejection,
                behind,
            },
            Ok(_) | Err(_) => nothing(behind),
        };
        (taken, behind.offset.saturating_sub(offset))
    }

    /// Tells what has arrived and is not consumed.
    pub(crate) fn arrived(&self) -> Arrived {
        let mut arrived = Arrived {
            rest: self.rest,
            closings: self.closings,
            ..Arrived::default()
        };
        for (taken, _) in &self.waiting {
            // The position has to move behind it, whatever it is.
            arrived.mail = arrived.mail.max(Relevance::News);
            let Consumed::Messages { messages, .. } = taken else {
                continue;
            };
            for message in messages {
                arrived.mail = arrived.mail.max(message.relevance(&self.name));
                arrived.of_person |= message.from == USER && message.starts_a_turn(&self.name);
            }
        }
        arrived
    }

    /// Tells whether more has arrived than was taken, or even fetched.
    pub(crate) fn has_rest(&self) -> bool {
        self.rest || !self.waiting.is_empty()
    }

    /// Takes a piece of what was fetched, an item for each entry of the transcript.
    pub(crate) fn take(&mut self) -> Vec<Consumed> {
        let mut all = Vec::new();
        let mut count = 0;
        let mut bytes = 0;
        while count < MAX_TAKEN && bytes < MAX_TAKEN_BYTES {
            let Some((taken, length)) = self.waiting.pop_front() else {
                break;
            };
            count += 1;
            bytes += length;
            match (taken, all.last_mut()) {
                (
                    Consumed::Messages {
                        messages: more,
                        behind: end,
                    },
                    Some(Consumed::Messages { messages, behind }),
                ) => {
                    messages.extend(more);
                    *behind = end;
                }
                (taken, _) => all.push(taken),
            }
        }
        all
    }

    /// Puts a line that is not a message into quarantine; a second time changes nothing. Returns
    /// the notice about it: why it is not a message, and where it is kept.
    pub(crate) fn reject(&self, rejection: &RejectedLine) -> String {
        let reason = &rejection.reason;
        match inbox::quarantine(&self.dir, &self.name, rejection, clock::wall()) {
            Ok(_) => format!("{reason}; it is kept in {}", TeamPath::rejected(&self.name)),
            Err(error) => {
                tracing::error!("a line that is not a message could not be kept: {error}");
                format!("{reason}; it is only in the inbox ({error})")
            }
        }
    }
}

/// Nothing must be consumed up to a position.
fn nothing(behind: Position) -> Consumed {
    Consumed::Messages {
        messages: Vec::new(),
        behind,
    }
}

/// Arms the watch; without one the daemon wakes the worker.
fn arm(dir: &TeamDir, name: &Name, waking: Waking) -> Option<Watch> {
    if waking == Waking::ByDaemon {
        return None;
    }
    match Watch::file(&dir.path(&TeamPath::inbox(name)), waking == Waking::Poll) {
        Ok(watch) => {
            if watch.polls() {
                tracing::info!("the inbox is checked on a timer, because there are no events here");
            }
            Some(watch)
        }
        Err(error) => {
            tracing::warn!("{error}: the daemon is asked to wake this worker");
            None
        }
    }
}

#[cfg(test)]
mod tests;
