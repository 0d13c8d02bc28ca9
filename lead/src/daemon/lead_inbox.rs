//! The lead's inbox, as the daemon reads it: named lines, and lines that are no messages.
//!
//! A line that no worker's connection names answers nothing and opens nothing, whatever it says. So all
//! that is read in order is read for the quarantine.

use std::sync::Arc;

use teamd_shared::inbox::{self, ReadError, Reader};
use teamd_shared::journal::RejectedLine;
use teamd_shared::message::Message;
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::team_dir::TeamDir;

use super::event::Event;

/// The daemon's reader of `inbox/lead.jsonl`.
#[derive(Debug)]
pub(super) struct LeadInbox {
    dir: Arc<TeamDir>,
    reader: Reader,
}

impl LeadInbox {
    /// Opens the inbox (and makes it, in a new team) at the position that the journal holds.
    pub(super) fn open(dir: Arc<TeamDir>, from: Position) -> Result<Self, ReadError> {
        inbox::create(&dir, &Name::lead())?;
        let reader = Reader::open(Arc::clone(&dir), &Name::lead(), from)?;
        Ok(Self { dir, reader })
    }

    /// Returns how far it is read.
    pub(super) fn position(&self) -> Position {
        self.reader.position()
    }

    /// Reads what is new; an event for each piece that holds lines which are no messages.
    pub(super) fn read(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let batch = match self.reader.read_new() {
                Ok(batch) => batch,
                Err(ReadError::NoInbox(path)) => {
                    tracing::warn!("{} was deleted: it is made again", path.display());
                    if let Err(error) = inbox::create(&self.dir, &Name::lead()) {
                        tracing::error!("cannot make the lead's inbox again: {error}");
                    }
                    return events;
                }
                Err(error) => {
                    tracing::error!("cannot read the lead's inbox: {error}");
                    return events;
                }
            };
            if let Some(why) = batch.restarted {
                tracing::warn!("the lead's inbox {why}; reading goes on at its beginning");
            }
            let position = batch.position;
            let rejected = batch.lines.into_iter().filter_map(|line| {
                let rejection = line.message.err()?;
                Some(RejectedLine {
                    offset: line.offset,
                    reason: rejection.reason.to_string(),
                    line: rejection.text,
                })
            });
            let rejected: Vec<_> = rejected.collect();
            if !rejected.is_empty() {
                events.push(Event::Unreadable { position, rejected });
            }
            if !batch.more {
                return events;
            }
        }
    }

    /// Reads the line that a worker's connection names.
    pub(super) fn named(&self, offset: u64, len: u64) -> Result<Box<Message>, String> {
        let line = inbox::read_line_at(&self.dir, &Name::lead(), offset, len).map_err(|e| e.to_string())?;
        Message::parse(&line).map(Box::new).map_err(|e| e.to_string())
    }
}
