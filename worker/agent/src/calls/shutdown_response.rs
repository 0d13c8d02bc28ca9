//! `shutdown_response` of a teammate, and of a lead agent that has been asked to leave itself: the
//! model answers a shutdown.

use teamd_shared::message::AnsweredBy;
use uuid::Uuid;

use crate::outbox::explained;
use crate::session::Session;
use crate::tools::Tools;
use crate::transcript::TranscriptError;
use teamd_worker_core::tools::{Outcome, ShutdownResponse};

impl<T: Tools> Session<T> {
    /// Submits the model's answer. The call gets its result when the daemon has recorded or refused
    /// that answer.
    pub(crate) fn answer_shutdown(
        &mut self,
        ShutdownResponse {
            request_id,
            approve,
            reason,
        }: ShutdownResponse,
        message_id: Uuid,
        repeated: bool,
    ) -> Result<(), TranscriptError> {
        let pending = self.dispatcher.state.pending_shutdown();
        if pending != Some(&request_id) {
            let mut error = format!("no shutdown request {request_id} is pending");
            if let Some(pending) = pending {
                error.push_str(&format!(
                    "; the one that waits for your answer is {pending}"
                ));
            }
            return self.end_call(Outcome::error(error));
        }
        self.dispatcher
            .state
            .calling("answering a shutdown".to_owned(), false, false);
        match self.respond(
            &request_id,
            (message_id, repeated),
            (approve, reason),
            AnsweredBy::Model,
        ) {
            Ok(()) => Ok(()),
            Err(error) => self.end_call(Outcome::error(explained(&error))),
        }
    }
}
