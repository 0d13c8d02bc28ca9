//! The errors that a client is told, with the next step.

use agent_client_protocol_schema::v1::{Error, ErrorCode, SessionId};
use teamd_client::error::CommandError;
use teamd_client::print::escape;

/// Makes the error of parameters that cannot be used.
pub(super) fn invalid(why: &str) -> Error {
    Error::new(ErrorCode::InvalidParams.into(), why)
}

/// Makes the error of a prompt that could not be answered.
pub(super) fn failed(why: &str) -> Error {
    Error::new(ErrorCode::InternalError.into(), escape::text(why))
}

/// Makes the error of a session that is not open; `next` says how to have one.
pub(super) fn no_session(id: &SessionId, next: &str) -> Error {
    let message = format!("there is no session {id} ({next})");
    Error::new(ErrorCode::ResourceNotFound.into(), message)
}

/// Makes the error of what could not be done.
pub(super) fn refused(error: &CommandError) -> Error {
    failed(&explained(error))
}

/// Returns an error with its next step, on one line.
pub(super) fn explained(error: &CommandError) -> String {
    match error.next_step() {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    }
}
