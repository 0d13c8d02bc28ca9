//! Mail between two machines: an outbox is read on one, and appended to the inbox on the other.
//!
//! **Who writes** the inbox: the intake of the machine where its owner lives, beside all others who
//! append there. **Who reads** the outbox: the reader of the machine where it is. **When either
//! dies**, or the link breaks, nothing is lost: the inbox says how far its outbox was taken
//! ([`inbox::last_via`]), and reading goes on there. A line that was appended and not synced is gone
//! with its mark, so it comes again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use teamd_shared::id::id_of_text;
use teamd_shared::inbox::{
    self, AppendError, Appender, LinePlace, ReadError, Reader, RejectedLine, Via, last_via,
    position_after,
};
use teamd_shared::link::MailLine;
use teamd_shared::message::{MAX_LINE, Message, ParseError};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};
use uuid::Uuid;

/// What a line may grow by in the inbox of another machine, in bytes: by its `via`, an id, and a
/// newline.
const ROOM_FOR_VIA: usize = 512;

/// Reads one outbox in its order.
#[derive(Debug)]
pub(crate) struct OutboxReader {
    owner: Name,
    reader: Reader,
    /// What was read and not handed out yet.
    ahead: VecDeque<OutboxLine>,
    /// Whether the file may have more than was read.
    pub(crate) has_more: bool,
}

/// A line of an outbox.
#[derive(Debug, Clone)]
pub(crate) struct OutboxLine {
    pub(crate) mail: MailLine,
    /// The end of the line, in bytes from the start of the file.
    pub(crate) end: u64,
}

impl OutboxReader {
    /// Opens an outbox behind the line that was taken last. If another line is there, or none, the
    /// outbox is another file by now: then all of it is read, and the intake knows what it has.
    pub(crate) fn open(
        dir: &Arc<TeamDir>,
        owner: &Name,
        taken: Option<LinePlace>,
    ) -> Result<Self, ReadError> {
        make_inbox(dir, owner)?;
        let from = match taken {
            Some(line) => position_after(dir, owner, line)?.unwrap_or_default(),
            None => Position::START,
        };
        let reader = Reader::open(Arc::clone(dir), owner, from)?.without_memory();
        Ok(Self {
            owner: owner.clone(),
            reader,
            ahead: VecDeque::new(),
            has_more: true,
        })
    }

    /// Returns where what was not handed out yet begins, in bytes.
    pub(crate) fn offset(&self) -> u64 {
        let next = self.ahead.front().map(|line| line.mail.line.offset);
        next.unwrap_or_else(|| self.reader.position().offset)
    }

    /// Records that the outbox may have grown, unless it can be seen that it has not.
    pub(crate) fn look(&mut self) {
        self.has_more |= !self.reader.is_at_end();
    }

    /// Hands out the next line; none if there is none now. Lines that are no messages go into
    /// quarantine here: their owner's machine never sees them.
    pub(crate) fn next(
        &mut self,
        dir: &TeamDir,
        now: f64,
    ) -> Result<Option<OutboxLine>, ReadError> {
        while self.ahead.is_empty() && self.has_more {
            self.read_ahead(dir, now)?;
        }
        Ok(self.ahead.pop_front())
    }

    /// Tells whether there may be something to hand out.
    pub(crate) fn may_have_more(&self) -> bool {
        self.has_more || !self.ahead.is_empty()
    }

    fn read_ahead(&mut self, dir: &TeamDir, now: f64) -> Result<(), ReadError> {
        let batch = self.reader.read_new()?;
        self.has_more = batch.more;
        if let Some(why) = batch.restarted {
            let owner = &self.owner;
            tracing::warn!("the outbox to {owner} {why}; it is read from its beginning");
        }
        for line in batch.lines {
            match line.message {
                Ok(message) => {
                    let mail = MailLine::of(self.owner.clone(), line.offset, &message);
                    if mail.text.len() > MAX_LINE - ROOM_FOR_VIA {
                        let bad = too_long(&mail);
                        self.quarantine(dir, &bad, now);
                        continue;
                    }
                    let end = line.position.offset;
                    self.ahead.push_back(OutboxLine { mail, end });
                }
                Err(bad) => self.quarantine(dir, &bad, now),
            }
        }
        Ok(())
    }
}

impl OutboxReader {
    fn quarantine(&self, dir: &TeamDir, bad: &RejectedLine, now: f64) {
        if let Err(error) = inbox::quarantine(dir, &self.owner, bad, now) {
            tracing::warn!("cannot put a line of an outbox into quarantine: {error}");
        }
    }
}

/// Returns what becomes of a line that would be too long in the inbox of the other machine.
fn too_long(mail: &MailLine) -> RejectedLine {
    tracing::warn!(
        "a line for {} is too long for another machine, and is put into quarantine",
        mail.owner
    );
    RejectedLine {
        line: mail.text.chars().take(inbox::MAX_TEXT).collect(),
        offset: mail.line.offset,
        reason: format!(
            "it has {} bytes, and the most for another machine is {}",
            mail.text.len(),
            MAX_LINE - ROOM_FOR_VIA
        ),
    }
}

/// Appends what comes from the outboxes of one other machine.
#[derive(Debug)]
pub(crate) struct MailIntake {
    /// What that machine is called here.
    source: String,
    inboxes: HashMap<Name, OpenIntake>,
}

/// One inbox.
#[derive(Debug)]
struct OpenIntake {
    appender: Appender,
    /// The last line of the outbox that is in it.
    last: Option<LinePlace>,
}

/// Why a line could not be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IntakeError {
    /// The inbox cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The inbox cannot be written.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The line is no message.
    #[error("a line for {owner} is no message: {why}")]
    NoMessage {
        /// Whose inbox it is for.
        owner: Name,
        /// Why it is none.
        why: ParseError,
    },
}

impl MailIntake {
    /// Makes the intake of what comes from a machine.
    pub(crate) fn new(source: &str) -> Self {
        Self {
            source: source.to_owned(),
            inboxes: HashMap::new(),
        }
    }

    /// Returns the last line of the outbox that is in an inbox.
    pub(crate) fn taken(
        &mut self,
        dir: &TeamDir,
        owner: &Name,
    ) -> Result<Option<LinePlace>, ReadError> {
        Ok(self.open(dir, owner)?.last)
    }

    /// Appends a line, unless it is there already. Returns the message as it was appended.
    pub(crate) fn take(
        &mut self,
        dir: &TeamDir,
        mail: &MailLine,
    ) -> Result<Option<Message>, IntakeError> {
        let mut message =
            Message::parse(mail.text.as_bytes()).map_err(|why| IntakeError::NoMessage {
                owner: mail.owner.clone(),
                why,
            })?;
        let via = Via {
            host: self.source.clone(),
            line: mail.line,
        };
        via.put_into(&mut message);
        // A line of another program may have no id. Without one it could come twice.
        let id = *message
            .id
            .get_or_insert_with(|| of_line_without_id(&self.source, mail));
        let open = self.open(dir, &mail.owner)?;
        let is_read_again = open
            .last
            .is_some_and(|last| last.offset >= mail.line.offset);
        if is_read_again && inbox::holds(dir, &mail.owner, id)? {
            return Ok(None);
        }
        open.appender
            .append(dir, &message, inbox::Durability::Process)?;
        open.last = Some(mail.line);
        Ok(Some(message))
    }

    /// Forgets an inbox that is in the archive now.
    pub(crate) fn forget(&mut self, owner: &Name) {
        self.inboxes.remove(owner);
    }

    fn open(&mut self, dir: &TeamDir, owner: &Name) -> Result<&mut OpenIntake, ReadError> {
        match self.inboxes.entry(owner.clone()) {
            std::collections::hash_map::Entry::Occupied(known) => Ok(known.into_mut()),
            std::collections::hash_map::Entry::Vacant(place) => {
                make_inbox(dir, owner)?;
                let last = last_via(dir, owner, &self.source, None)?;
                Ok(place.insert(OpenIntake {
                    appender: Appender::new(owner),
                    last,
                }))
            }
        }
    }
}

/// Makes an inbox. One that is there costs no sync: what is appended here is not synced either, and
/// comes again if it is lost.
fn make_inbox(dir: &TeamDir, owner: &Name) -> Result<(), DirError> {
    if dir.identity(&TeamPath::inbox(owner))?.is_none() {
        inbox::create(dir, owner)?;
    }
    Ok(())
}

/// Returns the id of a line that has none: always the same for the same line.
fn of_line_without_id(source: &str, mail: &MailLine) -> Uuid {
    let what = format!(
        "via {source} {} {} {}",
        mail.owner, mail.line.offset, mail.text
    );
    id_of_text(&what)
}
