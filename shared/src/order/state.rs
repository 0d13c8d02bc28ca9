//! What an order has made, and when it is due: pure, with the time as an argument.

use std::collections::VecDeque;
use std::fmt;

use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Missed, OfOrder, Order, Overlap};
use crate::name::Name;
use crate::task::TaskId;

/// How long after its time an order is due, in seconds: later it was missed. So a daemon that is
/// started again at once, and a machine that is busy, miss nothing.
pub const DUE_FOR: f64 = 60.0;

/// The time for which [`Order::most`] holds, in seconds.
const DAY: f64 = 86_400.0;

/// How many of the tasks that an order made last are remembered at least.
const REMEMBERED: usize = 16;

/// An order, and what it has made. It is part of the fold: so what was due is made once, whenever a
/// daemon dies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OrderState {
    /// The order.
    pub order: Order,
    /// Since when it is in force, or has its present times. Seconds since 1970.
    pub since: f64,
    /// The tasks that it made last, oldest first.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub made: VecDeque<Made>,
    /// The last of its tasks that is not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open: Option<TaskId>,
    /// When such a task ended last. Seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<f64>,
    /// What has happened and has no task yet, oldest first.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub waiting: VecDeque<Cause>,
}

/// A task that an order made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Made {
    /// The task.
    pub task: TaskId,
    /// When it was due. Seconds since 1970.
    pub due: f64,
    /// When it was made. Seconds since 1970.
    pub at: f64,
}

/// What triggers an order: no text of a model, since it becomes part of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cause {
    /// When it happened. Seconds since 1970.
    pub at: f64,
    /// The task that failed or was completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The member that crashed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<Name>,
    /// Whether the task has failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.task, &self.member) {
            (Some(task), _) if self.failed => write!(f, "task {task} has failed"),
            (Some(task), _) => write!(f, "task {task} is completed"),
            (None, Some(member)) => write!(f, "{member} has crashed"),
            (None, None) => f.write_str("it was due"),
        }
    }
}

/// A task that an order is to make now.
#[derive(Debug, Clone, PartialEq)]
pub struct Due<'a> {
    /// When it was due. Seconds since 1970.
    pub at: f64,
    /// What triggered it.
    pub cause: Option<&'a Cause>,
}

impl OrderState {
    /// Makes the state of an order that comes into force.
    pub(crate) fn new(order: Order, since: f64) -> Self {
        Self {
            order,
            since,
            made: VecDeque::new(),
            open: None,
            ended_at: None,
            waiting: VecDeque::new(),
        }
    }

    /// Takes over the order as a later start of a daemon has it. Other times begin anew.
    pub(crate) fn replace(&mut self, order: Order, at: f64) {
        if order.every != self.order.every {
            self.since = at;
        }
        if order.on != self.order.on {
            self.waiting.clear();
        }
        self.order = order;
    }

    /// Records a task of it.
    pub(crate) fn made(&mut self, task: TaskId, of: &OfOrder, at: f64) {
        self.waiting.pop_front();
        self.open = Some(task);
        self.made.push_back(Made {
            task,
            due: of.due,
            at,
        });
        let kept = REMEMBERED.max(self.order.most as usize);
        while self.made.len() > kept {
            self.made.pop_front();
        }
    }

    /// Records that one of its tasks has ended.
    pub(crate) fn ended(&mut self, task: TaskId, at: f64) {
        if self.open == Some(task) {
            self.open = None;
            self.ended_at = Some(at);
        }
    }

    /// Records that one of its tasks is tried again.
    pub(crate) fn reopened(&mut self, task: TaskId) {
        if self.made.back().is_some_and(|made| made.task == task) {
            self.open = Some(task);
        }
    }

    /// Records what triggers it, unless that is to be dropped: it has made as many tasks as it may,
    /// or an earlier one is not ended.
    pub(crate) fn triggered(&mut self, cause: Cause) {
        let is_busy = self.open.is_some() || !self.waiting.is_empty();
        if is_busy && self.order.overlap == Overlap::Skip {
            return;
        }
        let most = self.order.most as usize;
        if self.made_within(cause.at) + self.waiting.len() < most {
            self.waiting.push_back(cause);
        }
    }

    /// Returns how many tasks it has made in the 24 hours before. One of a time that has not come,
    /// before the clock was set back, does not count.
    pub fn made_within(&self, now: f64) -> usize {
        self.made
            .iter()
            .filter(|made| made.at <= now && made.at > now - DAY)
            .count()
    }

    /// Returns what it is to make now, if anything.
    pub fn due(&self, now: f64, zone: &TimeZone) -> Option<Due<'_>> {
        if self.open.is_some() {
            return None;
        }
        let Some(every) = &self.order.every else {
            let cause = self.waiting.front()?;
            return Some(Due {
                at: cause.at,
                cause: Some(cause),
            });
        };
        let free = self.free_from(now);
        if free > now {
            return None;
        }
        let last = |after: f64, until: f64| every.last(after, until, self.since, zone);
        let done = self.done_until(now);
        let queued = self.ended_at.filter(|at| *at <= now);
        let queued = queued.filter(|_| self.order.overlap == Overlap::Queue);
        let from = match self.order.missed {
            Missed::Once => done,
            Missed::Skip => done.max(now - DUE_FOR),
        };
        let at = last(from.max(free), now);
        let at = at.or_else(|| last(done.max(free), queued?));
        at.map(|at| Due { at, cause: None })
    }

    /// Returns when it is due next, if nothing happens before. None of an order with `on`, and while
    /// a task of it is not ended.
    pub fn next(&self, now: f64, zone: &TimeZone) -> Option<f64> {
        if self.open.is_some() {
            return None;
        }
        let every = self.order.every.as_ref()?;
        every.next(now.max(self.free_from(now)), self.since, zone)
    }

    /// Returns the time up to which nothing is due any more: it was made, is older than the order,
    /// or came while an earlier task was not ended. What is later than now does not count: the
    /// clock was set back.
    fn done_until(&self, now: f64) -> f64 {
        let made = self.made.iter().map(|made| made.due);
        let ended = self
            .ended_at
            .filter(|_| self.order.overlap == Overlap::Skip);
        let past = made.chain([self.since]).chain(ended);
        let past = past.filter(|at| *at <= now).max_by(f64::total_cmp);
        past.unwrap_or(now - DUE_FOR)
    }

    /// Returns from when on it may make a task, by the number that it has made. What is due before
    /// is dropped.
    fn free_from(&self, now: f64) -> f64 {
        let past = self.made.iter().filter(|made| made.at <= now);
        let mut latest: Vec<f64> = past.map(|made| made.at).collect();
        latest.sort_by(f64::total_cmp);
        let most = self.order.most as usize;
        match latest.len().checked_sub(most) {
            Some(at) => latest[at] + DAY,
            None => f64::MIN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: f64 = 1_790_000_000.0;

    fn state(text: &str) -> OrderState {
        let text = format!("name = 'a'\ntask.subject = 'x'\n{text}");
        OrderState::new(toml::from_str(&text).unwrap(), NOON)
    }

    fn due(state: &OrderState, after: f64) -> Option<f64> {
        let due = state.due(NOON + after, &TimeZone::UTC)?;
        Some(due.at - NOON)
    }

    fn next(state: &OrderState, after: f64) -> Option<f64> {
        Some(state.next(NOON + after, &TimeZone::UTC)? - NOON)
    }

    fn make(state: &mut OrderState, task: TaskId, at: f64) {
        let of = OfOrder {
            name: state.order.name.clone(),
            due: NOON + due(state, at).unwrap(),
            follows: false,
        };
        state.made(task, &of, NOON + at);
    }

    #[test]
    fn a_due_time_is_made_once_and_the_next_waits_for_the_end_of_the_task() {
        let mut order = state("every = '100s'");
        assert_eq!((due(&order, 99.0), next(&order, 99.0)), (None, Some(100.0)));
        assert_eq!(due(&order, 100.0), Some(100.0));
        make(&mut order, 1, 100.5);
        assert_eq!((due(&order, 100.6), next(&order, 100.6)), (None, None));
        assert_eq!(due(&order, 210.0), None, "the task is not ended");
        order.ended(1, NOON + 211.0);
        assert_eq!(
            (due(&order, 211.0), next(&order, 211.0)),
            (None, Some(300.0))
        );
        assert_eq!(due(&order, 301.0), Some(300.0));
        let mut order = state("every = '100s'\noverlap = 'queue'");
        make(&mut order, 1, 100.0);
        order.ended(1, NOON + 450.0);
        assert_eq!(due(&order, 1000.0), Some(1000.0));
        assert_eq!(
            due(&order, 480.0),
            Some(400.0),
            "one, however often it was due"
        );
        assert_eq!(due(&order, 490.0), Some(400.0), "although that is long ago");
        make(&mut order, 2, 490.0);
        order.ended(2, NOON + 495.0);
        assert_eq!(due(&order, 496.0), None);
    }

    #[test]
    fn what_was_missed_is_passed_over_or_made_once() {
        let order = state("every = '1000s'");
        assert_eq!(
            due(&order, 1059.0),
            Some(1000.0),
            "a daemon that is started again at once"
        );
        assert_eq!(due(&order, 1061.0), None);
        let mut order = state("every = '1000s'\nmissed = 'once'");
        assert_eq!(due(&order, 5900.0), Some(5000.0));
        make(&mut order, 1, 5900.0);
        order.ended(1, NOON + 5910.0);
        assert_eq!(
            (due(&order, 5950.0), next(&order, 5950.0)),
            (None, Some(6000.0))
        );
    }

    #[test]
    fn a_time_that_has_not_come_does_not_count_when_the_clock_was_set_back() {
        let mut order = state("every = '100s'");
        make(&mut order, 1, 100.0);
        order.ended(1, NOON + 110.0);
        make(&mut order, 2, 1_000_000.0);
        order.ended(2, NOON + 1_000_010.0);
        assert_eq!(due(&order, 130.0), None, "made before");
        assert_eq!(
            (next(&order, 130.0), due(&order, 200.0)),
            (Some(200.0), Some(200.0))
        );
        assert_eq!(due(&order, 1_000_020.0), None);
        // Before it was in force.
        assert_eq!(next(&order, -1050.0), Some(-1000.0));
        assert_eq!(due(&order, -990.0), Some(-1000.0));
    }

    #[test]
    fn an_order_makes_so_many_tasks_in_a_day_and_drops_what_is_due_then() {
        let mut order = state("every = '100s'\nmost = 2\nmissed = 'once'");
        for (task, at) in [(1, 100.0), (2, 200.0)] {
            make(&mut order, task, at);
            order.ended(task, NOON + at + 1.0);
        }
        assert_eq!(
            (due(&order, 301.0), next(&order, 301.0)),
            (None, Some(86_600.0))
        );
        assert_eq!(order.made_within(NOON + 86_499.0), 2);
        assert_eq!(due(&order, 86_550.0), None);
        assert_eq!(due(&order, 86_601.0), Some(86_600.0));
        let mut order = state("on = 'task.failed'\nmost = 2\noverlap = 'queue'");
        let cause = |at: f64| Cause {
            at: NOON + at,
            task: Some(7),
            member: None,
            failed: true,
        };
        for at in [1.0, 2.0, 3.0] {
            order.triggered(cause(at));
        }
        assert_eq!(order.waiting.len(), 2);
        make(&mut order, 8, 4.0);
        assert_eq!(due(&order, 5.0), None);
        order.ended(8, NOON + 6.0);
        assert_eq!(due(&order, 7.0), Some(2.0));
        let mut order = state("on = 'task.failed'");
        order.triggered(cause(1.0));
        order.triggered(cause(2.0));
        assert_eq!((order.waiting.len(), next(&order, 3.0)), (1, None));
        assert_eq!(order.waiting[0].to_string(), "task 7 has failed");
    }
}
