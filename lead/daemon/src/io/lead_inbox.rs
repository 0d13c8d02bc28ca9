//! The lead's inbox, as the daemon reads it: submitted lines, and lines that are no messages.
//!
//! A line that no worker submits answers nothing and opens nothing, whatever it says. So the daemon
//! reads the inbox in order for the quarantine and the hooks alone.

use std::sync::Arc;

use teamd_shared::inbox::{self, ReadError, Reader};
use teamd_shared::message::{Body, Message};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::team_dir::TeamDir;

use crate::core::event::Event;

/// The daemon's reader of `inbox/lead.jsonl`.
#[derive(Debug)]
pub(crate) struct LeadInbox {
    dir: Arc<TeamDir>,
    reader: Reader,
    has_more: bool,
    /// The news of pieces of work that have ended, for the hooks.
    pub(crate) ended_work: Vec<Message>,
}

impl LeadInbox {
    /// Opens the inbox (and makes it, in a new team) at the position that the journal holds.
    pub(crate) fn open(dir: Arc<TeamDir>, from: Position) -> Result<Self, ReadError> {
        inbox::create(&dir, &Name::lead())?;
        // It acts on no message, so it need not know a doubled one.
        let reader = Reader::open(Arc::clone(&dir), &Name::lead(), from)?.without_memory();
        Ok(Self {
            dir,
            reader,
            has_more: false,
            ended_work: Vec::new(),
        })
    }

    /// Tells whether there may be more to read.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Reads a piece of what is new: a flood of lines must not keep other events waiting.
    pub(crate) fn read(&mut self) -> Event {
        self.has_more = false;
        let batch = match self.reader.read_new() {
            Ok(batch) => batch,
            Err(error) => {
                tracing::error!("cannot read the lead's inbox: {error}");
                let position = self.reader.position();
                return Event::LeadRead {
                    position,
                    rejected: Vec::new(),
                };
            }
        };
        if let Some(why) = batch.restarted {
            tracing::warn!("the lead's inbox {why}; reading continues at its beginning");
        }
        let mut rejected = Vec::new();
        for line in batch.lines {
            match line.message {
                Ok(message) if matches!(message.body, Body::IdleNotification { .. }) => {
                    self.ended_work.push(message);
                }
                Ok(_) => {}
                Err(line) => rejected.push(line),
            }
        }
        self.has_more = batch.more;
        Event::LeadRead {
            position: batch.position,
            rejected,
        }
    }

    /// Reads the line that a worker submits.
    pub(crate) fn submitted(&self, offset: u64, len: u64) -> Result<Box<Message>, String> {
        let line = inbox::read_line_at(&self.dir, &Name::lead(), offset, len)
            .map_err(|e| e.to_string())?;
        Message::parse(&line)
            .map(Box::new)
            .map_err(|e| e.to_string())
    }
}
