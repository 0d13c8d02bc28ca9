//! Many that ask, with their commands and the memory that these take, without files.

use proptest::prelude::*;

use super::*;

const PATIENCE: u32 = 240;
const LOOK: u32 = 1;

fn ticks(count: u32) -> Duration {
    Duration::from_millis(u64::from(count) * 250)
}

/// One that asks at a time, and runs for some.
#[derive(Debug, Clone)]
struct Waiter {
    asks_at: u32,
    is_check: bool,
    runs_for: u32,
    /// In percent of all.
    memory: u32,
    begun: Option<u32>,
    /// Whether it was killed while it waited or ran.
    is_gone: bool,
}

impl Waiter {
    fn patience(&self) -> u32 {
        if self.is_check {
            10 * PATIENCE
        } else {
            PATIENCE
        }
    }

    fn waits(&self, now: u32) -> bool {
        self.asks_at <= now && self.begun.is_none() && !self.is_gone
    }

    fn runs(&self, now: u32) -> bool {
        !self.is_gone && self.begun.is_some_and(|begun| now < begun + self.runs_for)
    }
}

/// Returns which of the others are before one.
fn before(all: &[Waiter], index: usize, now: u32) -> Vec<usize> {
    let own = &all[index];
    let is_before = |(other, it): &(usize, &Waiter)| {
        *other != index
            && it.waits(now)
            && if it.is_check == own.is_check {
                (it.asks_at, *other) < (own.asks_at, index)
            } else {
                it.is_check
            }
    };
    let found = all.iter().enumerate().filter(is_before);
    found.map(|(other, _)| other).collect()
}

fn asker() -> impl Strategy<Value = Waiter> {
    (0..400_u32, any::<bool>(), 1..600_u32, 0..70_u32).prop_map(
        |(asks_at, is_check, runs_for, memory)| Waiter {
            asks_at,
            is_check,
            runs_for,
            memory,
            begun: None,
            is_gone: false,
        },
    )
}

proptest! {
    /// Nothing waits for ever, none begins before those that came before it unless its patience is
    /// over, checks come first, and where nothing runs the first one begins.
    #[test]
    fn each_begins_in_order_and_in_time(
        mut all in prop::collection::vec(asker(), 1..12),
        kills in prop::collection::vec((0..800_u32, 0..12_usize), 0..4),
        first in 0..12_usize,
    ) {
        let last = 400 + 11 * PATIENCE;
        for now in 0..=last {
            for (at, killed) in &kills {
                if *at == now && let Some(asker) = all.get_mut(*killed) {
                    asker.is_gone = true;
                }
            }
            let count = all.len();
            // They look in any order.
            for number in 0..count {
                let index = (number + first + now as usize) % count;
                if !all[index].waits(now) {
                    continue;
                }
                let ahead = before(&all, index, now);
                let others: Vec<_> = all.iter().filter(|it| it.runs(now)).collect();
                let used: u32 = others.iter().map(|it| it.memory).sum();
                let seen = QueueView {
                    waited: ticks(now - all[index].asks_at),
                    before: u32::try_from(ahead.len()).unwrap(),
                    others_run: !others.is_empty(),
                    is_short: used > 90,
                };
                let waited = now - all[index].asks_at;
                let patience = all[index].patience();
                match seen.decide(ticks(patience)) {
                    QueueStanding::Begins => {
                        let in_order = ahead.is_empty() || waited >= patience;
                        prop_assert!(in_order, "{index} begins before {ahead:?}");
                        let has_room = used <= 90 || others.is_empty() || waited >= patience;
                        prop_assert!(has_room, "{index} begins at {used} %");
                        all[index].begun = Some(now);
                    }
                    QueueStanding::Waits { before } => {
                        prop_assert!(waited < patience, "{index} waits {waited}");
                        prop_assert_eq!(before as usize, ahead.len());
                        let must = !ahead.is_empty() || !others.is_empty();
                        prop_assert!(must, "{index} waits for nothing");
                    }
                }
            }
        }
        for (index, asker) in all.iter().enumerate() {
            let in_time = asker.is_gone
                || asker.begun.is_some_and(|begun| begun <= asker.asks_at + asker.patience() + LOOK);
            prop_assert!(in_time, "{index} never began in time: {asker:?}");
        }
    }
}

#[test]
fn only_short_memory_and_another_one_hold_back() {
    let seen = QueueView {
        waited: Duration::ZERO,
        before: 0,
        others_run: true,
        is_short: true,
    };
    let decide = |seen: QueueView| seen.decide(ticks(PATIENCE));
    assert_eq!(decide(seen), QueueStanding::Waits { before: 0 });
    let alone = QueueView {
        others_run: false,
        ..seen
    };
    assert_eq!(decide(alone), QueueStanding::Begins);
    assert!(!alone.depends_on_memory() && seen.depends_on_memory());
    let has_room = QueueView {
        is_short: false,
        ..seen
    };
    assert_eq!(decide(has_room), QueueStanding::Begins);
    let behind = QueueView {
        before: 2,
        ..has_room
    };
    assert_eq!(decide(behind), QueueStanding::Waits { before: 2 });
    let late = QueueView {
        waited: ticks(PATIENCE),
        ..behind
    };
    assert_eq!(decide(late), QueueStanding::Begins);
}
