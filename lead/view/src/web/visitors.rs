//! Who is connected. Any process of this machine can connect, so those that have not shown the key
//! never keep out one that has: when there are too many of them, the oldest is closed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

/// How many connections may be open that have not shown the key.
const STRANGERS: usize = 256;

/// How many may be open that have.
const KNOWN: usize = 128;

/// The connections.
#[derive(Debug, Default)]
pub(super) struct Visitors(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    last: u64,
    /// Those that have not shown the key, the oldest first.
    strangers: BTreeMap<u64, AbortHandle>,
    /// How many have.
    admitted: usize,
}

/// One connection; it is over when this is dropped.
#[derive(Debug)]
pub(super) struct Visit {
    number: u64,
    is_known: bool,
    visitors: Arc<Visitors>,
}

impl Visitors {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a visit, which is to be served by a task of its own: see [`Visitors::served_by`].
    pub(super) fn enter(self: &Arc<Self>) -> Visit {
        let mut open = self.open();
        open.last += 1;
        Visit {
            number: open.last,
            is_known: false,
            visitors: Arc::clone(self),
        }
    }

    /// Takes in which task serves a visit that has begun just now; closes the oldest stranger if
    /// there are too many.
    pub(super) fn served_by(&self, number: u64, task: AbortHandle) {
        self.open().strangers.insert(number, task);
        if self.open().strangers.len() > STRANGERS {
            self.close_oldest();
        }
    }

    /// Closes the oldest stranger, if any.
    pub(super) fn close_oldest(&self) {
        // The visit is dropped by its task, and not here.
        let oldest = self.open().strangers.pop_first();
        if let Some((_, task)) = oldest {
            task.abort();
        }
    }
}

impl Visit {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Takes in that it has shown the key. Returns false if there are too many of those.
    pub(super) fn becomes_known(&mut self) -> bool {
        let mut open = self.visitors.open();
        if self.is_known || open.admitted >= KNOWN {
            return self.is_known;
        }
        open.strangers.remove(&self.number);
        open.admitted += 1;
        self.is_known = true;
        true
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut open = self.visitors.open();
        open.strangers.remove(&self.number);
        open.admitted -= usize::from(self.is_known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> tokio::task::JoinHandle<()> {
        tokio::spawn(std::future::pending())
    }

    #[tokio::test]
    async fn the_oldest_that_has_not_shown_the_key_goes_when_there_are_too_many() {
        let visitors = Arc::new(Visitors::default());
        let mut visits = Vec::new();
        for _ in 0..=STRANGERS {
            let visit = visitors.enter();
            let task = task();
            visitors.served_by(visit.number(), task.abort_handle());
            visits.push((visit, task));
            if visits.len() == 1 {
                assert!(visits[0].0.becomes_known());
            }
        }
        let last = visitors.enter();
        let of_last = task();
        visitors.served_by(last.number(), of_last.abort_handle());
        tokio::task::yield_now().await;
        let ended: Vec<usize> = (0..visits.len())
            .filter(|&at| visits[at].1.is_finished())
            .collect();
        assert_eq!(ended, [1], "the first has shown the key");
        drop(visits);
        let open = visitors.open();
        assert_eq!((open.admitted, open.strangers.len()), (0, 1));
    }

    #[tokio::test]
    async fn there_is_a_limit_for_those_with_the_key_too() {
        let visitors = Arc::new(Visitors::default());
        let mut visits: Vec<Visit> = (0..=KNOWN).map(|_| visitors.enter()).collect();
        let known = visits
            .iter_mut()
            .filter_map(|visit| visit.becomes_known().then_some(()))
            .count();
        assert_eq!(known, KNOWN);
        visits.remove(0);
        assert!(visits.last_mut().unwrap().becomes_known());
    }
}
