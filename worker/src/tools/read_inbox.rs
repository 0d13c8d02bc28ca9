//! `read_inbox`: delivers what has arrived since the last delivery, and lists it.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Outcome, Tools};
use crate::agent::session::Session;
use crate::agent::transcript::TranscriptError;
use crate::model::message_text;

/// Shows the messages that have arrived since the last ones you were given. Messages reach you with
/// the results of your calls anyway: it is needed only in the middle of long work.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadInbox {}

impl<T: Tools> Session<T> {
    /// Consumes what has arrived, and lists it in the result.
    pub(crate) fn read_inbox(&mut self) -> Result<(), TranscriptError> {
        self.dispatcher.fetch();
        let delivered = self.consume()?;
        let owner = self.outbox.from();
        let shown: Vec<_> = delivered
            .iter()
            .filter_map(|message| message_text::show(message, owner))
            .collect();
        // An agent is told each message as a line of its own: those outlive a crash.
        let listed = if self.model.agent().is_none() {
            message_text::list(&shown)
        } else {
            None
        };
        self.end_call(Outcome::ok(
            listed.unwrap_or_else(|| format!("{} new messages, below", shown.len())),
        ))
    }
}
