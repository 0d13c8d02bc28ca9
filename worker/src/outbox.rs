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

/// How a message is sent: [`Outbox::send`] or [`Outbox::send_once`].
pub(crate) type Sending = fn(&Outbox, &Name, &Message) -> Result<Appended, AppendError>;

/// Returns what a model is told of a line that was not written, or may not last: with what to do about it.
pub(crate) fn explained(error: &AppendError) -> String {
    match error.hint() {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    }
}

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
        let line = inbox::append(&self.dir, owner, message, self.durability)?;
        #[cfg(test)]
        crate::sim::syncs_an_inbox(&self.dir, owner)?;
        Ok(line)
    }

    /// As [`Outbox::send`], of a message that an attempt before, of this life or an earlier one, may have written: no copy is
    /// written then, and it lasts where it stands.
    pub(crate) fn send_once(&self, owner: &Name, message: &Message) -> Result<Appended, AppendError> {
        match self.find(owner, message.id.ok_or(AppendError::NoId)?)? {
            Some(line) => Ok(line),
            None => self.send(owner, message),
        }
    }

    /// Returns where a message stands that was written before; it lasts then.
    fn find(&self, owner: &Name, id: Uuid) -> Result<Option<Appended>, AppendError> {
        let line = inbox::find_appended(&self.dir, owner, id, self.durability)?;
        #[cfg(test)]
        if line.is_some() {
            crate::sim::syncs_an_inbox(&self.dir, owner)?;
        }
        Ok(line)
    }

    /// Tells whether an inbox holds a message that an earlier life of this member may have written there; it lasts then.
    ///
    /// # Errors
    /// What the model is told if that cannot be seen, or done.
    pub(crate) fn has_sent(&self, owner: &Name, id: Uuid) -> Result<bool, String> {
        match self.find(owner, id) {
            Ok(line) => Ok(line.is_some()),
            Err(AppendError::NoInbox(_)) => Ok(false),
            // It is there: whoever is told so does not send it again.
            Err(error @ AppendError::Unsynced { .. }) => Err(explained(&error)),
            Err(error) => Err(format!(
                "whether the message is in the inbox of {owner}, from before the worker was restarted, cannot be \
                 seen: {error}"
            )),
        }
    }

    /// Tells the lead what follows from an entry of the transcript. What cannot be written now is owed.
    ///
    /// The lead agent tells itself nothing.
    pub(crate) fn notify(&mut self, notice: Owed) {
        self.tell_or_owe(notice, Self::send);
    }

    /// As [`Outbox::notify`], of what an earlier life may have told.
    pub(crate) fn notify_once(&mut self, notice: Owed) {
        self.tell_or_owe(notice, Self::send_once);
    }

    fn tell_or_owe(&mut self, notice: Owed, send: Sending) {
        if self.from == Name::lead() {
            return;
        }
        // What is owed already comes first.
        if self.owed.is_empty() {
            let Err(error) = self.tell(&notice, send) else { return };
            tracing::error!("the lead could not be told, and will be: {error}");
        }
        self.owed.push_back(notice);
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
            // It may stand there, and not be known to last: a copy at each attempt would fill the inbox.
            self.tell(notice, Self::send_once)?;
            self.owed.pop_front();
        }
        Ok(())
    }

    fn tell(&self, notice: &Owed, send: Sending) -> Result<(), AppendError> {
        match notice {
            Owed::Idle { idle_reason, content, message_id } => {
                self.idle(*idle_reason, content, *message_id, send)
            }
            Owed::Rejected { offset, reason, message_id } => {
                let message = self.message(*message_id, LEAD, Body::Message);
                send(self, &Name::lead(), &message.with_content(self.about(*offset, reason)))
            }
        }
        .map(drop)
    }

    fn idle(
        &self,
        idle_reason: IdleReason,
        content: &str,
        id: Uuid,
        send: Sending,
    ) -> Result<Appended, AppendError> {
        let body = Body::IdleNotification { idle_reason, summary: summary_of(content) };
        let message = self.message(id, LEAD, body);
        match send(self, &Name::lead(), &message.clone().with_content(content)) {
            Err(AppendError::TooLarge(_)) => {
                let cut = format!("{}…\n(cut: all of it is in the transcript)", head(content, CUT));
                send(self, &Name::lead(), &message.with_content(cut))
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
