//! When an order may be due next: one timer for all. Decisions rest on the wall clock there, which
//! can be set; so the time is looked at in each turn of the loop, and there is one each ten seconds.

use std::time::Duration;

use jiff::tz::TimeZone;
use teamd_shared::journal::Team;

use crate::core::event::Now;

/// How far ahead the timer is set at most.
const LONGEST: f64 = 3600.0;

/// What was last found about the orders.
#[derive(Debug)]
pub(crate) struct OrderWatch {
    zone: TimeZone,
    /// The last look; none: the next one is due.
    looked: Option<OrdersLook>,
    /// When the timer ends, since the daemon began.
    wakes_at: Option<Duration>,
}

/// A look at the orders.
#[derive(Debug)]
struct OrdersLook {
    /// What the journal had said about them.
    changed: u64,
    /// When. Seconds since 1970.
    at: f64,
    /// When the next one is due. Seconds since 1970.
    next: Option<f64>,
}

impl Default for OrderWatch {
    fn default() -> Self {
        Self {
            zone: TimeZone::UTC,
            looked: None,
            wakes_at: None,
        }
    }
}

impl OrderWatch {
    /// Returns the time zone of the orders.
    pub(crate) fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// Sets the time zone of the orders.
    pub(crate) fn use_zone(&mut self, zone: TimeZone) {
        self.zone = zone;
    }

    /// Tells whether an order may be due, and counts it as looked at. Otherwise sets the timer.
    pub(crate) fn look(&mut self, team: &Team, now: Now) -> bool {
        self.wakes_at = None;
        if team.orders.is_empty() || team.stopping {
            self.looked = None;
            return false;
        }
        let is_due = self.looked.as_ref().is_none_or(|look| {
            let was_set_back = now.wall < look.at;
            let has_come = look.next.is_some_and(|next| next <= now.wall);
            look.changed != team.orders_changed || was_set_back || has_come
        });
        if is_due {
            let next = team.orders.values();
            let next = next.filter_map(|state| state.next(now.wall, &self.zone));
            self.looked = Some(OrdersLook {
                changed: team.orders_changed,
                at: now.wall,
                next: next.min_by(f64::total_cmp),
            });
            return true;
        }
        let next = self.looked.as_ref().and_then(|look| look.next);
        self.wakes_at = next.map(|next| {
            let ahead = (next - now.wall).clamp(0.0, LONGEST);
            now.monotonic + Duration::from_secs_f64(ahead)
        });
        false
    }

    /// Has the next look come at once: what the last one led to could not be journaled.
    pub(crate) fn look_again(&mut self) {
        self.looked = None;
    }

    /// Returns when the timer ends, since the daemon began.
    pub(crate) fn wakes_at(&self) -> Option<Duration> {
        self.wakes_at
    }
}
