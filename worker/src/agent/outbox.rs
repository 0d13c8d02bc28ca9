//! What the worker writes into other inboxes, under its own name.
//!
//! Ids are chosen by the caller, before the line is written: a line that is written again carries the same.

use std::collections::VecDeque;
use std::sync::Arc;

use teamd_shared::clock;
use teamd_shared::inbox::{self, AppendError, Appended, Durability};
use teamd_shared::message::{Body, LEAD, Message, summary_of};
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use uuid::Uuid;

use crate::core::replay::PendingNotice;

/// How much of an answer that does not fit into a message is sent, in bytes.
const CUT: usize = 64 << 10;

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
    /// The notices that could not be written yet, oldest first.
    waiting: VecDeque<PendingNotice>,
}

impl Outbox {
    /// Makes the writer of this member.
    pub(crate) fn new(dir: Arc<TeamDir>, from: Name, durability: Durability) -> Self {
        Self { dir, from, durability, waiting: VecDeque::new() }
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

    /// Writes a message into an inbox. `repeated`: an earlier attempt, of this incarnation or another, may have written it.
    /// Then no copy is written, and it lasts where it stands.
    pub(crate) fn send(
        &self,
        owner: &Name,
        message: &Message,
        repeated: bool,
    ) -> Result<Appended, AppendError> {
        if repeated && let Some(line) = self.find(owner, message.id.ok_or(AppendError::NoId)?)? {
            return Ok(line);
        }
        #[cfg(test)]
        let message = &crate::sim::writes_a_line(&self.dir, owner, message)?;
        let line = inbox::append(&self.dir, owner, message, self.durability)?;
        #[cfg(test)]
        crate::sim::syncs_an_inbox(&self.dir, owner)?;
        Ok(line)
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

    /// Tells whether an inbox holds a message that an earlier incarnation may have written there; it lasts then.
    ///
    /// # Errors
    /// What the model is told if that cannot be seen, or done.
    pub(crate) fn has_sent(&self, owner: &Name, id: Uuid) -> Result<bool, String> {
        match self.find(owner, id) {
            Ok(line) => Ok(line.is_some()),
            Err(AppendError::NoInbox(_)) => Ok(false),
            // It is there, and the model that is told so does not send it again.
            Err(error @ AppendError::Unsynced { .. }) => Err(explained(&error)),
            Err(error) => Err(format!(
                "whether the message is in the inbox of {owner}, from before the worker was restarted, cannot be \
                 seen: {error}"
            )),
        }
    }

    /// Sends a notice that follows from an entry of the transcript to the lead, or keeps it until it can be written. The lead
    /// agent sends itself none. `repeated`: an earlier incarnation may have written it.
    pub(crate) fn notify(&mut self, notice: PendingNotice, repeated: bool) {
        if self.from == Name::lead() {
            return;
        }
        // What waits already comes first.
        if self.waiting.is_empty() {
            let Err(error) = self.try_notify(&notice, repeated) else { return };
            tracing::error!("a notice to the lead cannot be written yet: {error}");
        }
        self.waiting.push_back(notice);
    }

    /// Returns the ids of the notices that could not be written yet.
    pub(crate) fn pending(&self) -> Vec<Uuid> {
        self.waiting.iter().map(PendingNotice::id).collect()
    }

    /// Writes the notices that wait, in order.
    ///
    /// # Errors
    /// [`AppendError`] of the first one that cannot be written; it and all that follow still wait.
    pub(crate) fn flush(&mut self) -> Result<(), AppendError> {
        while let Some(notice) = self.waiting.front() {
            // It may be there, and not known to last. A copy at each attempt would fill the inbox.
            self.try_notify(notice, true)?;
            self.waiting.pop_front();
        }
        Ok(())
    }

    fn try_notify(&self, notice: &PendingNotice, repeated: bool) -> Result<(), AppendError> {
        let (body, content) = match notice {
            PendingNotice::Idle { idle_reason, content, .. } => (
                Body::IdleNotification { idle_reason: *idle_reason, summary: summary_of(content) },
                content.clone(),
            ),
            PendingNotice::Rejected { offset, reason, .. } => (Body::Message, self.about(*offset, reason)),
        };
        let message = self.message(notice.id(), LEAD, body);
        match self.send(&Name::lead(), &message.clone().with_content(content.as_str()), repeated) {
            Err(AppendError::TooLarge(_)) => {
                let cut = format!("{}…\n(cut: all of it is in the transcript)", head(&content, CUT));
                self.send(&Name::lead(), &message.with_content(cut), repeated)
            }
            other => other,
        }
        .map(drop)
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
