//! The input of `shutdown_response` as the lead agent calls it. With `approve` it is the answer of a
//! lead agent that is itself asked to leave.

use schemars::JsonSchema;
use serde::Deserialize;
use teamd_shared::id::RequestId;

use super::shutdown_response::ShutdownResponse;
use super::{Action, TeamAction};

/// Returns the status of a request (shutdown, plan or review): pending, approved, rejected or
/// expired, with the reason. Set `approve` only to answer a request that asks you yourself to
/// leave.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestStatus {
    /// The id of the request.
    pub request_id: RequestId,
    /// Only for a request that asks you to leave: true to leave, false to stay.
    pub approve: Option<bool>,
    /// Why; only with `approve`.
    #[serde(default)]
    pub reason: String,
}

impl RequestStatus {
    /// Returns what is to be done.
    pub(super) fn action(self) -> Action {
        let Self {
            request_id,
            approve,
            reason,
        } = self;
        match approve {
            Some(approve) => Action::AnswerShutdown(ShutdownResponse {
                request_id,
                approve,
                reason,
            }),
            None => Action::Team(TeamAction::ShowRequest(request_id)),
        }
    }
}
