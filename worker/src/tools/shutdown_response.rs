//! `shutdown_response` of a teammate, and of a lead agent that is itself asked to leave: the model
//! answers a shutdown.

use schemars::JsonSchema;
use serde::Deserialize;
use teamd_shared::id::RequestId;
use teamd_shared::message::AnsweredBy;
use uuid::Uuid;

use super::{Outcome, Tools};
use crate::agent::outbox::explained;
use crate::agent::session::Session;
use crate::agent::transcript::TranscriptError;

/// Answers a shutdown request that was shown to you, under its id: `approve` true when your work is
/// done or can be left as it is (you then leave), false with a `reason` when you must finish
/// something first. Nothing else answers such a request, text does not.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShutdownResponse {
    /// The id of the shutdown request.
    pub(crate) request_id: RequestId,
    /// True to leave, false to stay.
    pub(crate) approve: bool,
    /// Why, or why not.
    #[serde(default)]
    pub(crate) reason: String,
}

impl<T: Tools> Session<T> {
    /// Submits the answer of the model. The call has its result when the daemon has recorded or
    /// refused the answer.
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
            let which =
                pending.map(|pending| format!("; the one that waits for your answer is {pending}"));
            let told = format!(
                "no shutdown request {request_id} is pending{}",
                which.unwrap_or_default()
            );
            return self.end_call(Outcome::error(told));
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
