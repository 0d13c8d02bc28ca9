//! The links: the one that counts, and the newest one that has not said who it is.

use std::time::Instant;

use teamd_shared::control::DialledHome;
use teamd_shared::link::FromHost;

use super::copies::Copies;
use super::mail::Outboxes;
use super::outbound::HomeOutbound;
use super::state::Exited;
use crate::io::outbound::Outbound;

/// A link to home.
#[derive(Debug)]
pub(super) struct HomeLink {
    pub(super) connection: u64,
    pub(super) outbound: HomeOutbound,
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
            outbound: HomeOutbound::new(outbound),
            dials,
            knows_team: false,
            outboxes: None,
            copies: None,
            ends: Vec::new(),
        }
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
            self.outbound.say(&FromHost::Ended { of, end });
        }
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
            link.outbound.say(frame);
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
