//! The worker's own inbox: what has arrived and is not taken in. What a message is to its reader says
//! [`Message::relevance`].
//!
//! Fetched lines wait here, in order, until the session takes them into the transcript: the cursor moves then
//! and not before. This module decides nothing, and writes nothing but the quarantine of its inbox.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use teamd_shared::clock;
use teamd_shared::inbox::{self, InboxLine, ReadError, Reader, RejectedLine};
use teamd_shared::message::{Body, LEAD, Message, Relevance, USER};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::watch::{Watch, WatchError};
use uuid::Uuid;

use crate::core::state::Mail;

/// How many lines wait in memory at most, give or take a look; the rest waits in the file.
const MAX_WAITING: usize = 4096;
/// Likewise, in bytes.
const MAX_WAITING_BYTES: u64 = 4 << 20;
/// How many lines are taken in at once: in between, what happens elsewhere is served.
const MAX_TAKEN: usize = 64;
/// Likewise, in bytes: an entry of the transcript stays of a size that can be written and read.
const MAX_TAKEN_BYTES: u64 = 1 << 20;

/// How often a watch is armed again on an inbox that is deleted each time.
const TRIES: usize = 8;

/// How the inbox is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waking {
    /// By events of the file system.
    Events,
    /// On a timer.
    Poll,
    /// Not at all: the daemon rings.
    Ring,
}

/// The inbox of this member.
#[derive(Debug)]
pub(crate) struct Mailbox {
    dir: Arc<TeamDir>,
    name: Name,
    reader: Reader,
    watch: Option<Watch>,
    waiting: VecDeque<Item>,
    /// Whether more may stand in the file already.
    rest: bool,
    /// Whether the last look failed: one line in the log is enough.
    failing: bool,
}

#[derive(Debug)]
enum Item {
    Line(Box<InboxLine>),
    /// Nothing but repetitions, up to this position: else they would count as unread for ever.
    Repeated(Position),
    Restarted(String),
}

/// What is taken in with one entry of the transcript.
#[derive(Debug)]
pub(crate) enum Taken {
    /// Messages.
    Messages {
        /// The messages.
        messages: Vec<Message>,
        /// The position behind them.
        behind: Position,
    },
    /// A line that is no message.
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
    /// Opens the inbox at the cursor, arms the watch, and only then looks for the first time.
    ///
    /// An inbox that was deleted is made again: senders find none otherwise.
    pub(crate) fn open(
        dir: Arc<TeamDir>,
        name: &Name,
        cursor: Position,
        seen: Vec<Uuid>,
        waking: Waking,
    ) -> Result<Self, ReadError> {
        let mut reader = Reader::open(Arc::clone(&dir), name, cursor)?;
        seen.into_iter().for_each(|id| reader.seen(id));
        let watch = arm(&dir, name, waking);
        let (name, waiting) = (name.clone(), VecDeque::new());
        let mut mailbox = Self { dir, name, reader, watch, waiting, rest: false, failing: false };
        mailbox.fetch();
        Ok(mailbox)
    }

    /// Tells whether the daemon must ring.
    pub(crate) fn wants_ring(&self) -> bool {
        self.watch.is_none()
    }

    /// Waits until there may be something new. Dropping the future loses nothing.
    pub(crate) async fn changed(&self) {
        match &self.watch {
            Some(watch) => watch.changed().await,
            None => pending().await,
        }
    }

    /// Hears no more: the incarnation ends.
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
                    let restarted = batch.restarted.map(|why| Item::Restarted(format!("the inbox {why}")));
                    self.waiting.extend(restarted);
                    self.waiting.extend(batch.lines.into_iter().map(|line| Item::Line(Box::new(line))));
                    self.waiting.extend(batch.repeated.then_some(Item::Repeated(batch.position)));
                    self.rest = batch.more;
                }
                Err(error) => {
                    self.rest = false;
                    self.complain(&error);
                }
            }
            if !self.rest {
                return;
            }
        }
    }

    /// Sees that what stands at the path is watched, before it is read: whatever takes its place from then on wakes. Where
    /// that cannot be done, the daemon rings, which watches the folder.
    fn listen(&mut self) {
        for _ in 0..TRIES {
            let why: Box<dyn std::error::Error> = match self.watch.as_mut().map(Watch::rearm_if_needed) {
                None | Some(Ok(_)) => return,
                // The reader makes it again.
                Some(Err(WatchError::Missing(_))) => match self.reader.follow_path() {
                    Ok(()) => continue,
                    Err(error) => error.into(),
                },
                Some(Err(error)) => error.into(),
            };
            tracing::warn!("{why}: the daemon is asked to ring");
            break;
        }
        self.watch = None;
    }

    fn waiting_bytes(&self) -> u64 {
        let mut lines = self.waiting.iter().filter_map(|item| match item {
            Item::Line(line) => Some(line),
            Item::Repeated(_) | Item::Restarted(_) => None,
        });
        let first = lines.next().map_or(0, |line| line.offset);
        lines.next_back().map_or(0, |last| last.position.offset.saturating_sub(first))
    }

    /// Tells what has arrived and is not taken in.
    pub(crate) fn mail(&self) -> Mail {
        let mail = |item: &Item| match item {
            Item::Line(line) => match line.message.as_ref().map(|message| message.relevance(&self.name)) {
                Ok(Relevance::Work) => Mail::Work,
                Ok(Relevance::Soon) => Mail::Soon,
                // The cursor has to move behind it.
                Ok(Relevance::News | Relevance::None) | Err(_) => Mail::News,
            },
            Item::Repeated(_) | Item::Restarted(_) => Mail::News,
        };
        self.waiting.iter().map(mail).max().unwrap_or(Mail::None)
    }

    /// Tells whether something of the person has arrived and is not taken in.
    pub(crate) fn holds_message_of_person(&self) -> bool {
        let of_person = |message: &Message| message.from == USER && message.starts_a_turn(&self.name);
        self.waiting
            .iter()
            .any(|item| matches!(item, Item::Line(line) if line.message.as_ref().is_ok_and(of_person)))
    }

    /// Tells whether a request for a plan has arrived and is not taken in.
    pub(crate) fn holds_request_for_plan(&self) -> bool {
        let asks = |message: &Message| message.from == LEAD && message.body == Body::PlanRequest;
        self.waiting
            .iter()
            .any(|item| matches!(item, Item::Line(line) if line.message.as_ref().is_ok_and(asks)))
    }

    /// Tells whether more has arrived than was fetched.
    pub(crate) fn has_unseen(&self) -> bool {
        self.rest
    }

    /// Tells whether more has arrived than was taken, or even fetched.
    pub(crate) fn has_rest(&self) -> bool {
        self.rest || !self.waiting.is_empty()
    }

    /// Takes a piece of what was fetched, an item for each entry of the transcript.
    pub(crate) fn take(&mut self) -> Vec<Taken> {
        let mut taken = Vec::new();
        let (mut count, mut bytes) = (0, 0);
        while count < MAX_TAKEN && bytes < MAX_TAKEN_BYTES {
            let Some(item) = self.waiting.pop_front() else { break };
            if let Item::Line(line) = &item {
                bytes += line.position.offset.saturating_sub(line.offset);
            }
            count += 1;
            let InboxLine { offset, position: behind, message } = match item {
                Item::Line(line) if self.passes_over(&line) => {
                    pass(&mut taken, line.position);
                    continue;
                }
                Item::Line(line) => *line,
                Item::Repeated(behind) => {
                    pass(&mut taken, behind);
                    continue;
                }
                Item::Restarted(reason) => {
                    taken.push(Taken::Restarted { reason });
                    continue;
                }
            };
            match (message, taken.last_mut()) {
                (Err(rejection), _) => taken.push(Taken::Rejected { offset, rejection, behind }),
                (Ok(message), Some(Taken::Messages { messages, behind: end })) => {
                    messages.push(message);
                    *end = behind;
                }
                (Ok(message), _) => taken.push(Taken::Messages { messages: vec![message], behind }),
            }
        }
        taken
    }

    /// Tells whether a line is not for this member: the daemon looks after what is no message in the inbox of the lead.
    fn passes_over(&self, line: &InboxLine) -> bool {
        match &line.message {
            Ok(message) => message.relevance(&self.name) == Relevance::None,
            Err(_) => self.name == Name::lead(),
        }
    }

    /// Puts a line that is no message into quarantine; a second time changes nothing. Returns what is to be said of it: why
    /// it is none, and where it is kept.
    pub(crate) fn reject(&self, rejection: &RejectedLine) -> String {
        let reason = &rejection.reason;
        match inbox::quarantine(&self.dir, &self.name, rejection, clock::wall()) {
            Ok(_) => format!("{reason}; it is kept in {}", TeamPath::rejected(&self.name)),
            Err(error) => {
                tracing::error!("a line that is no message could not be kept: {error}");
                format!("{reason}; it stands in the inbox alone ({error})")
            }
        }
    }

    fn complain(&mut self, error: &dyn std::error::Error) {
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!("{error}; looking again on a slow timer");
        }
    }
}

/// Takes note that there is nothing to take in up to a position.
fn pass(taken: &mut Vec<Taken>, behind: Position) {
    match taken.last_mut() {
        Some(Taken::Messages { behind: end, .. }) => *end = behind,
        _ => taken.push(Taken::Messages { messages: Vec::new(), behind }),
    }
}

/// Arms the watch; without one the daemon rings.
fn arm(dir: &TeamDir, name: &Name, waking: Waking) -> Option<Watch> {
    let poll = match waking {
        Waking::Ring => return None,
        Waking::Poll => true,
        Waking::Events => false,
    };
    match Watch::file(&dir.path(&TeamPath::inbox(name)), poll) {
        Ok(watch) => {
            if watch.polls() {
                tracing::info!("the inbox is looked at on a timer: there are no events here");
            }
            Some(watch)
        }
        Err(error @ WatchError::Exhausted(_)) => {
            tracing::info!("{error}: the daemon is asked to ring");
            None
        }
        Err(error) => {
            tracing::warn!("{error}: the daemon is asked to ring");
            None
        }
    }
}

#[cfg(test)]
mod tests;
