//! The links: the one that counts, and the newest one that has not said who it is.

use std::time::Instant;

use teamd_shared::control::DialledHome;
use teamd_shared::link::{FromHost, MAX_LINK_FRAME};

use super::copies::Copies;
use super::mail::Outboxes;
use super::state::Exited;
use crate::io::outbound::Outbound;

/// A link to home.
#[derive(Debug)]
pub(super) struct HomeLink {
    pub(super) connection: u64,
    outbound: Outbound<String>,
    /// How it has dialled home, if it has.
    pub(super) dials: Option<DialledHome>,
    /// Whether home has said what the team is.
    pub(super) knows_team: bool,
    /// The outboxes, once home has said how far it has taken them.
    pub(super) outboxes: Option<Outboxes>,
    /// The transcripts, once home has said how much it has of them.
    pub(super) copies: Option<Copies>,
    /// The ends that home is to hear, behind the last mail of those that ended.
    pub(super) ends: Vec<Exited>,
}

impl HomeLink {
    pub(super) fn new(
        connection: u64,
        outbound: Outbound<String>,
        dials: Option<DialledHome>,
    ) -> Self {
        Self {
            connection,
            outbound,
            dials,
            knows_team: false,
            outboxes: None,
            copies: None,
            ends: Vec::new(),
        }
    }

    /// Tells whether what can wait may be said now.
    pub(super) fn has_room(&self) -> bool {
        self.outbound.has_room()
    }

    /// Tells whether all that was said is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.outbound.is_idle()
    }

    /// Says which incarnations have ended, once the outboxes are sent to their ends.
    pub(super) fn say_ends(&mut self) {
        let is_sent = self.outboxes.as_ref().is_some_and(|it| !it.has_more());
        if !is_sent {
            return;
        }
        for exited in std::mem::take(&mut self.ends) {
            let of = exited.of;
            let end = Box::new(exited.end);
            self.say(&FromHost::Ended { of, end });
        }
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

/// The links of a host daemon.
#[derive(Debug)]
pub(super) struct HomeLinks {
    /// That of the home that it obeys.
    pub(super) present: Option<HomeLink>,
    /// The newest one on which no home was accepted yet.
    pub(super) newcomer: Option<HomeLink>,
    /// Since when there is none.
    pub(super) none_since: Instant,
}

impl HomeLinks {
    pub(super) fn new() -> Self {
        Self {
            present: None,
            newcomer: None,
            none_since: Instant::now(),
        }
    }

    /// Says something to home, if there is a link.
    pub(super) fn say(&self, frame: &FromHost) {
        if let Some(link) = &self.present {
            link.say(frame);
        }
    }

    /// Drops a link. Its connection closes when what was said is on its way.
    pub(super) fn drop_link(&mut self, connection: u64) {
        self.newcomer.take_if(|it| it.connection == connection);
        if self
            .present
            .take_if(|it| it.connection == connection)
            .is_some()
        {
            self.none_since = Instant::now();
        }
    }

    /// Lets the newcomer take the place of the present link.
    pub(super) fn accept_newcomer(&mut self) {
        if let Some(link) = self.newcomer.take() {
            self.present = Some(link);
        }
    }
}
