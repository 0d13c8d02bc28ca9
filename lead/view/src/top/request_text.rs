//! The text of a request, and which request an answer is for: the one whose text was on the screen
//! when the key was pressed. Pure.

use std::time::Instant;

use teamd_shared::id::RequestId;

use crate::terminal::{Pager, SETTLES};

/// A request whose text is on the screen.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RequestOnScreen {
    pub(super) request_id: RequestId,
    /// What it is, for people: `plan 7b468522 of ana`.
    pub(super) what: String,
}

/// The text of a request.
#[derive(Debug, Default)]
pub(super) struct RequestText {
    pub(super) pager: Pager,
    /// Whether the text has the place of the list, too.
    pub(super) is_alone: bool,
    /// The request whose text the present frame shows.
    pub(super) drawing: Option<RequestOnScreen>,
    /// The one that is on the screen.
    shown: Option<RequestOnScreen>,
    /// Since when it is there.
    since: Option<Instant>,
    /// The request that was answered last: the selection leaves it.
    pub(super) answered: Option<RequestId>,
}

impl RequestText {
    /// Notes that the frame is on the screen.
    pub(super) fn drawn(&mut self, now: Instant) {
        if self.shown != self.drawing {
            self.shown.clone_from(&self.drawing);
            self.since = Some(now);
        }
    }

    /// Returns the request whose text has been on the screen for long enough to be answered.
    ///
    /// # Errors
    /// Why nothing can be answered, for people.
    pub(super) fn settled(&self, now: Instant) -> Result<RequestOnScreen, &'static str> {
        let (Some(shown), Some(since)) = (&self.shown, self.since) else {
            return Err(
                "no request that waits for an answer is on the screen: 2 lists them, Enter shows one",
            );
        };
        if now.duration_since(since) < SETTLES {
            return Err(
                "nothing was answered: another request has just come to this place, look again",
            );
        }
        Ok(shown.clone())
    }
}
