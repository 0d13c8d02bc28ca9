//! `read_inbox`: delivers what has arrived since the last delivery, and lists it.

use crate::session::Session;
use crate::tools::Tools;
use crate::transcript::TranscriptError;
use teamd_shared::message_text;
use teamd_worker_core::tools::Outcome;

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
        // An agent process gets each message on its own, with an id that outlives a crash.
        let list = if self.model.agent().is_none() {
            message_text::list(&shown)
        } else {
            None
        };
        let content = list.unwrap_or_else(|| format!("{} new messages, below", shown.len()));
        self.end_call(Outcome::ok(content))
    }
}
