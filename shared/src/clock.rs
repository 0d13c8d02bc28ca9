//! The clocks: the one that all processes of a machine share, for order, and the wall clock, for
//! people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Returns the time since the boot, which cannot be set (`CLOCK_MONOTONIC`): it orders what several
/// processes do.
pub fn since_boot() -> Duration {
    now(ClockId::Monotonic)
}

/// Returns what a clock of the kernel shows.
pub(crate) fn now(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    // It is never negative, and its nanoseconds are fewer than a second.
    Duration::new(
        now.tv_sec.unsigned_abs(),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

/// Returns seconds since 1970, as people see them. This clock can be set, so no order depends on
/// it.
pub fn wall() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on() {
        let before = since_boot();
        assert!(before > Duration::ZERO && since_boot() >= before);
    }
}
