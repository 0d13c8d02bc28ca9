//! What the worker writes into other inboxes, under its own name.
//!
//! The caller chooses the ids before a line is written, so that a line that is written again has
//! the same id.

use std::sync::Arc;

use teamd_shared::clock;
use teamd_shared::config::Roster;
use teamd_shared::inbox::{self, AppendError, Appended, Durability};
use teamd_shared::message::{Body, LEAD, Message};
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;
use uuid::Uuid;

use teamd_worker_core::work::PendingNotice;

/// How much is sent of an answer that does not fit into a message, in bytes.
const CUT: usize = 64 << 10;

/// Returns the text for the model about a line that was not written, or may be lost: the reason and
/// what to do.
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
}

impl Outbox {
    /// Makes the writer of this member.
    pub(crate) fn new(dir: Arc<TeamDir>, from: Name, durability: Durability) -> Self {
        Self {
            dir,
            from,
            durability,
        }
    }

    /// Returns the team directory.
    pub(crate) fn dir(&self) -> &TeamDir {
        &self.dir
    }

    /// Returns who writes.
    pub(crate) fn from(&self) -> &Name {
        &self.from
    }

    /// Returns how many members run: what is for all reaches so many.
    pub(crate) fn receivers(&self) -> usize {
        let Ok(Some(roster)) = Roster::load(&self.dir) else {
            return 1;
        };
        roster
            .members
            .iter()
            .filter(|member| !member.status.is_ended())
            .count()
    }

    /// Makes a message of this member; `to` is the field in it (what is for `user`, the lead's
    /// inbox holds).
    pub(crate) fn message(&self, id: Uuid, to: &str, body: Body) -> Message {
        Message::new(id, self.from.as_str(), to, clock::wall(), body)
    }

    /// Writes a message into an inbox. `repeated`: an earlier attempt, of this incarnation or
    /// another, may have written it. Then it writes no copy, and syncs the line that is there.
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

    /// Returns the place of a message that was written before; after that it is durable.
    fn find(&self, owner: &Name, id: Uuid) -> Result<Option<Appended>, AppendError> {
        let line = inbox::find_appended(&self.dir, owner, id, self.durability)?;
        #[cfg(test)]
        if line.is_some() {
            crate::sim::syncs_an_inbox(&self.dir, owner)?;
        }
        Ok(line)
    }

    /// Tells whether an inbox holds a message that an earlier incarnation may have written there;
    /// it lasts then.
    ///
    /// # Errors
    /// What the model gets if that cannot be seen, or done.
    pub(crate) fn has_sent(&self, owner: &Name, id: Uuid) -> Result<bool, String> {
        match self.find(owner, id) {
            Ok(line) => Ok(line.is_some()),
            Err(AppendError::NoInbox(_)) => Ok(false),
            // It is there: the model knows then that it need not send it again.
            Err(error @ AppendError::Unsynced { .. }) => Err(explained(&error)),
            Err(error) => Err(format!(
                "whether the message is in the inbox of {owner}, from before the worker was restarted, cannot be \
                 seen: {error}"
            )),
        }
    }

    /// Writes a notice into the lead's inbox. One that is too long for a message is cut.
    pub(crate) fn notify(&self, notice: &PendingNotice) -> Result<(), AppendError> {
        let PendingNotice {
            id,
            body,
            content,
            repeated,
        } = notice;
        let message = self.message(*id, LEAD, body.clone());
        let sent = match self.send(
            &Name::lead(),
            &message.clone().with_content(content.as_str()),
            *repeated,
        ) {
            Err(AppendError::TooLarge(_)) => {
                let cut = format!(
                    "{}…\n(cut: all of it is in the transcript)",
                    head(content, CUT)
                );
                self.send(&Name::lead(), &message.with_content(cut), *repeated)
            }
            other => other,
        };
        sent.map(drop)
    }
}

/// Returns the first bytes of a text, whole characters only.
fn head(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len()))
        .rev()
        .find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests;
