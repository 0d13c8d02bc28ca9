//! The codes that answers need, as the daemon shows them to a view.

use teamd_shared::control::RequestCode;
use teamd_shared::id::RequestId;
use teamd_shared::team_dir::TeamDir;

use crate::act::{self, RunningAction};

/// What a view knows of them.
#[derive(Debug, Default)]
pub(crate) struct ShownCodes {
    known: Vec<RequestCode>,
    /// Whether this daemon needs none.
    are_off: bool,
}

impl ShownCodes {
    /// Asks the daemon for them, unless it needs none.
    pub(crate) fn ask<'d>(&self, dir: &'d TeamDir) -> Option<RunningAction<'d>> {
        (!self.are_off).then(|| act::codes(dir))
    }

    /// Takes what the daemon has said.
    pub(crate) fn set(&mut self, codes: Option<Vec<RequestCode>>) {
        self.are_off = codes.is_none();
        self.known = codes.unwrap_or_default();
    }

    /// Returns the code of a request.
    pub(crate) fn of(&self, request: &RequestId) -> Option<&str> {
        let mut known = self.known.iter();
        let found = known.find(|known| known.request_id == *request)?;
        Some(&found.code)
    }
}
