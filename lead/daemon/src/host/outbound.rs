//! The way to home on one link.

use std::time::Duration;

use teamd_shared::link::{FromHost, MAX_LINK_FRAME};

use crate::io::outbound::Outbound;

/// How long what can wait waits for a link that is full.
pub(super) const FULL: Duration = Duration::from_millis(10);

/// Takes frames for home.
#[derive(Debug)]
pub(super) struct HomeOutbound {
    outbound: Outbound<String>,
}

impl HomeOutbound {
    pub(super) fn new(outbound: Outbound<String>) -> Self {
        Self { outbound }
    }

    /// Tells whether what can wait may be said now.
    pub(super) fn has_room(&self) -> bool {
        self.outbound.has_room()
    }

    /// Tells whether all that was said is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.outbound.is_idle()
    }

    /// Says something to home.
    pub(super) fn say(&self, frame: &FromHost) {
        match serde_json::to_string(frame) {
            Ok(line) if line.len() <= MAX_LINK_FRAME => self.outbound.say(line),
            Ok(line) => {
                let length = line.len();
                tracing::error!("a frame of {length} bytes is too long for a link, and is dropped");
            }
            Err(error) => tracing::error!("a frame cannot be written: {error}"),
        }
    }

    /// Tells home something that a person should know.
    pub(super) fn warn(&self, text: String) {
        tracing::warn!("{text}");
        self.say(&FromHost::Warning { text });
    }
}
