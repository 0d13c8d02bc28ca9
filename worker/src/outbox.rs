//! What the worker writes into other inboxes, under its own name.
//!
//! Ids are chosen by the caller, before the line is written: a line that is written again carries the same.

use std::collections::VecDeque;
use std::sync::Arc;

use teamd_shared::clock;
use teamd_shared::inbox::{self, AppendError, Appended, Durability};
use teamd_shared::message::{Body, IdleReason, LEAD, Message, summary_of};
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use uuid::Uuid;

use crate::replay::Owed;

/// How much of an answer that does not fit into a message is sent, in bytes.
const CUT: usize = 64 << 10;

/// The writer.
#[derive(Debug)]
pub(crate) struct Outbox {
    dir: Arc<TeamDir>,
    from: Name,
    durability: Durability,
    /// What the lead is still to be told, oldest first: it could not be written.
    owed: VecDeque<Owed>,
}

impl Outbox {
    /// Makes the writer of this member.
    pub(crate) fn new(dir: Arc<TeamDir>, from: Name, durability: Durability) -> Self {
        Self { dir, from, durability, owed: VecDeque::new() }
    }

    /// Returns the team directory.
    pub(crate) fn dir(&self) -> &TeamDir {
        &self.dir
    }

    /// Returns who writes.
    pub(crate) fn from(&self) -> &Name {
        &self.from
    }

    /// Makes a message of this member; `to` is what stands in it (what is for `user`, the lead's inbox holds).
    pub(crate) fn message(&self, id: Uuid, to: &str, body: Body) -> Message {
        Message::new(id, self.from.as_str(), to, clock::wall(), body)
    }

    /// Writes a message into an inbox.
    pub(crate) fn send(&self, owner: &Name, message: &Message) -> Result<Appended, AppendError> {
        #[cfg(test)]
        let message = &crate::sim::writes_a_line(&self.dir, owner, message)?;
        inbox::append(&self.dir, owner, message, self.durability)
    }

    /// Writes a message to the lead.
    pub(crate) fn to_lead(&self, id: Uuid, body: Body) -> Result<Appended, AppendError> {
        self.send(&Name::lead(), &self.message(id, LEAD, body))
    }

    /// Tells the lead what follows from an entry of the transcript. What cannot be written now is owed.
    ///
    /// The lead agent tells itself nothing.
    pub(crate) fn notify(&mut self, notice: Owed) {
        if self.from == Name::lead() {
            return;
        }
        self.owed.push_back(notice);
        if self.owed.len() == 1
            && let Err(error) = self.pay()
        {
            tracing::error!("the lead could not be told, and will be: {error}");
        }
    }

    /// Returns the ids of the notices that the lead could not be told yet.
    pub(crate) fn owes(&self) -> Vec<Uuid> {
        self.owed.iter().map(Owed::id).collect()
    }

    /// Tells the lead what is owed, in order.
    ///
    /// # Errors
    /// [`AppendError`] of the first line that cannot be written; it and all that follow are still owed.
    pub(crate) fn pay(&mut self) -> Result<(), AppendError> {
        while let Some(notice) = self.owed.front() {
            self.tell(notice)?;
            self.owed.pop_front();
        }
        Ok(())
    }

    fn tell(&self, notice: &Owed) -> Result<(), AppendError> {
        match notice {
            Owed::Idle { idle_reason, content, message_id } => self.idle(*idle_reason, content, *message_id),
            Owed::Rejected { offset, reason, message_id } => {
                let message = self.message(*message_id, LEAD, Body::Message);
                self.send(&Name::lead(), &message.with_content(self.about(*offset, reason)))
            }
        }
        .map(drop)
    }

    /// As [`Outbox::notify`], unless the lead's inbox holds the notice already.
    pub(crate) fn notify_once(&mut self, notice: Owed) {
        // An inbox that cannot be read holds nothing: a second line with the same id is dropped by its reader.
        if !inbox::holds(&self.dir, &Name::lead(), notice.id()).unwrap_or(false) {
            self.notify(notice);
        }
    }

    fn idle(&self, idle_reason: IdleReason, content: &str, id: Uuid) -> Result<Appended, AppendError> {
        let body = Body::IdleNotification { idle_reason, summary: summary_of(content) };
        let message = self.message(id, LEAD, body);
        match self.send(&Name::lead(), &message.clone().with_content(content)) {
            Err(AppendError::TooLarge(_)) => {
                let cut = format!("{}…\n(cut: all of it is in the transcript)", head(content, CUT));
                self.send(&Name::lead(), &message.with_content(cut))
            }
            other => other,
        }
    }

    fn about(&self, offset: u64, reason: &str) -> String {
        let inbox = TeamPath::inbox(&self.from);
        format!("a line of {inbox} (at offset {offset}) is no message: {reason}")
    }
}

/// Returns the first bytes of a text, whole characters only.
fn head(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests;
