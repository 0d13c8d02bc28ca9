//! What waits until hosts have said what they have to give.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use teamd_shared::control::Command;
use teamd_shared::name::Name;

use crate::core::caller::{Actor, ReplyTo};

/// How long a host may take to answer: then it is left out.
const PATIENCE: Duration = Duration::from_secs(2);

/// Everything that waits.
#[derive(Debug, Default)]
pub(crate) struct Measurements {
    waiting: Vec<Measurement>,
}

/// What waits for the same hosts.
#[derive(Debug)]
struct Measurement {
    what: AwaitedVitals,
    hosts: BTreeSet<Name>,
    asked: Instant,
}

/// What is done with what the hosts say.
#[derive(Debug)]
pub(crate) enum AwaitedVitals {
    /// A command gets a list of the hosts.
    List(ReplyTo),
    /// A spawn gets the best host.
    Spawn(ReplyTo, Actor, Command),
}

impl AwaitedVitals {
    fn client(&self) -> ReplyTo {
        match self {
            Self::List(client) | Self::Spawn(client, ..) => *client,
        }
    }
}

impl Measurements {
    /// Adds something that waits for these hosts.
    pub(crate) fn add(&mut self, what: AwaitedVitals, hosts: BTreeSet<Name>) {
        self.waiting.push(Measurement {
            what,
            hosts,
            asked: Instant::now(),
        });
    }

    /// Takes out what waits for nothing any more, now that a host has answered, or cannot; with the
    /// time when the hosts were asked.
    pub(crate) fn answered(&mut self, host: &Name) -> Vec<(AwaitedVitals, Instant)> {
        for measurement in &mut self.waiting {
            measurement.hosts.remove(host);
        }
        self.take(|measurement| measurement.hosts.is_empty())
    }

    /// Takes out what has waited long enough.
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<(AwaitedVitals, Instant)> {
        self.take(|measurement| measurement.asked + PATIENCE <= now)
    }

    /// Returns when something has waited long enough.
    pub(crate) fn due(&self) -> Option<Instant> {
        let asked = self.waiting.iter().map(|measurement| measurement.asked);
        asked.min().map(|asked| asked + PATIENCE)
    }

    /// Forgets the commands of a connection that is closed.
    pub(crate) fn drop_connection(&mut self, connection: u64) {
        self.waiting
            .retain(|measurement| measurement.what.client().connection != connection);
    }

    fn take(&mut self, is_over: impl Fn(&Measurement) -> bool) -> Vec<(AwaitedVitals, Instant)> {
        let over = self.waiting.extract_if(.., |waiting| is_over(waiting));
        over.map(|measurement| (measurement.what, measurement.asked))
            .collect()
    }
}
