//! When an order is due: by a line of cron in the local time zone, or after each period.

use cronexpr::{Crontab, FallbackTimezoneOption, MakeTimestamp, ParseOptions, parse_crontab_with};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp, ToSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::amount::parse_seconds;

/// How many fields a line of cron has.
const FIELDS: usize = 5;

/// How many times in a row a local time may be passed over that does not exist, or that has come
/// already: the minutes of a day, as one is missing where a country changes its side of the date
/// line.
const PASSED_OVER: usize = 1500;

/// How far a line of cron is looked ahead, in steps of the four years that the crate looks: 29
/// February comes within eight.
const STEPS: usize = 3;

/// When an order is due, as it is written: `0 2 * * *`, or `2h`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Every(String);

/// What it means.
enum Times {
    /// Each so many seconds.
    Period(f64),
    /// A line of cron, of which only the civil times are used: those of UTC, where none is missing
    /// and none comes twice.
    Cron(Box<Crontab>),
}

impl Every {
    /// Reads it.
    ///
    /// # Errors
    /// What it is not, or that it never comes.
    pub fn new(text: String) -> Result<Self, String> {
        if let Times::Cron(cron) = times(&text)?
            && next_civil(DateTime::constant(2000, 1, 1, 0, 0, 0, 0), &cron).is_none()
        {
            return Err(format!("{text:?} never comes: no month has that day"));
        }
        Ok(Self(text))
    }

    /// Returns it as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the first time after another one, in seconds since 1970. A period counts from
    /// `anchor`. A local time that does not exist is passed over, and one that comes twice counts
    /// the first time.
    pub fn next(&self, after: f64, anchor: f64, zone: &TimeZone) -> Option<f64> {
        match times(&self.0).ok()? {
            Times::Period(period) => Some(next_of_period(after, anchor, period)),
            Times::Cron(cron) => next_of_cron(after, &cron, zone),
        }
    }

    /// Returns the last time behind `after` and not behind `until`, if there is one.
    pub fn last(&self, after: f64, until: f64, anchor: f64, zone: &TimeZone) -> Option<f64> {
        let cron = match times(&self.0).ok()? {
            Times::Period(period) => {
                let next = next_of_period(until, anchor, period);
                return Some(next - period).filter(|last| *last > after);
            }
            Times::Cron(cron) => cron,
        };
        let first = next_of_cron(after, &cron, zone).filter(|first| *first <= until)?;
        // From the end backwards, in spans that double: so few times are looked at.
        let mut span = 60.0;
        while until - span > first {
            if let Some(found) = last_within(until - span, until, &cron, zone) {
                return Some(found);
            }
            span *= 2.0;
        }
        last_within(first, until, &cron, zone).or(Some(first))
    }
}

fn times(text: &str) -> Result<Times, String> {
    let fields = text.split_ascii_whitespace().count();
    if fields < 2 {
        let seconds = parse_seconds(text.trim()).map_err(|_| {
            format!("{text:?} is not a time above 0 such as 30m or 2h, or a line of cron such as \"0 2 * * *\"")
        })?;
        #[expect(
            clippy::cast_precision_loss,
            reason = "at most 10 years, which `f64` holds exactly"
        )]
        return Ok(Times::Period(seconds as f64));
    }
    if fields != FIELDS {
        return Err(format!(
            "{text:?} is not a line of cron: it has the fields minute, hour, day of month, month and day of week"
        ));
    }
    let mut options = ParseOptions::default();
    options.fallback_timezone_option = FallbackTimezoneOption::UTC;
    let cron = parse_crontab_with(text, options).map_err(|error| {
        let error = error.to_string();
        let why = error.lines().last().unwrap_or_default();
        let why = why.trim_start().trim_start_matches("^ ");
        format!("{text:?} is not a line of cron: {why}")
    })?;
    Ok(Times::Cron(Box::new(cron)))
}

fn next_of_period(after: f64, anchor: f64, period: f64) -> f64 {
    let anchor = anchor.floor();
    anchor + (((after - anchor) / period).floor() + 1.0) * period
}

fn next_of_cron(after: f64, cron: &Crontab, zone: &TimeZone) -> Option<f64> {
    let at = Timestamp::from_duration(SignedDuration::try_from_secs_f64(after).ok()?).ok()?;
    let mut civil = zone.to_datetime(at);
    for _ in 0..PASSED_OVER {
        civil = next_civil(civil, cron)?;
        let instant = zone.to_ambiguous_timestamp(civil);
        let offset = match instant.offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Fold { before, .. } => before,
            AmbiguousOffset::Gap { .. } => continue,
        };
        let seconds = offset.to_timestamp(civil).ok()?.as_duration().as_secs_f64();
        if seconds > after {
            return Some(seconds);
        }
    }
    None
}

/// Returns the next time by calendar and clock alone.
fn next_civil(civil: DateTime, cron: &Crontab) -> Option<DateTime> {
    let mut from = civil.to_zoned(TimeZone::UTC).ok()?.timestamp();
    for _ in 0..STEPS {
        if let Ok(next) = cron.find_next(MakeTimestamp(from)) {
            return Some(next.datetime());
        }
        let later = from.to_zoned(TimeZone::UTC).checked_add(4.years()).ok()?;
        from = later.timestamp();
    }
    None
}

fn last_within(after: f64, until: f64, cron: &Crontab, zone: &TimeZone) -> Option<f64> {
    let mut last = None;
    let mut at = after;
    while let Some(next) = next_of_cron(at, cron, zone).filter(|next| *next <= until) {
        last = Some(next);
        at = next;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A zone with the rules of Berlin, whatever this machine has.
    fn berlin() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
    }

    fn at(text: &str, zone: &TimeZone) -> f64 {
        let civil: DateTime = text.parse().unwrap();
        let zoned = civil.to_zoned(zone.clone()).unwrap();
        zoned.timestamp().as_duration().as_secs_f64()
    }

    fn local(at: f64, zone: &TimeZone) -> String {
        let at = Timestamp::from_duration(SignedDuration::try_from_secs_f64(at).unwrap()).unwrap();
        at.to_zoned(zone.clone())
            .strftime("%m-%d %H:%M%:z")
            .to_string()
    }

    fn next_of(every: &str, after: f64) -> (f64, String) {
        let zone = berlin();
        let next = Every::new(every.to_owned())
            .unwrap()
            .next(after, 0.0, &zone)
            .unwrap();
        (next, local(next, &zone))
    }

    #[test]
    fn a_local_time_that_is_missing_is_passed_over_and_one_that_comes_twice_counts_once() {
        let zone = berlin();
        for (every, after, expected) in [
            ("0 2 * * *", "2026-11-28T15:00", "11-29 02:00+01:00"),
            ("0 2 * * *", "2026-11-28T01:59:59.5", "11-28 02:00+01:00"),
            // 29 March 2026: 02:00 to 03:00 is missing.
            ("30 2 * * *", "2026-03-28T12:00", "03-30 02:30+02:00"),
            ("*/20 * * * *", "2026-03-29T01:40", "03-29 03:00+02:00"),
            // 25 October 2026: 02:00 to 03:00 comes twice.
            ("30 2 * * *", "2026-10-24T12:00", "10-25 02:30+02:00"),
            // Sunday is 0 and 7, and Monday is 1.
            ("0 9 * * 1", "2026-11-28T12:00", "11-30 09:00+01:00"),
            ("0 9 * * 7", "2026-11-28T12:00", "11-29 09:00+01:00"),
            ("0 0 29 2 *", "2026-11-28T12:00", "02-29 00:00+01:00"),
            ("0 0 29 2 *", "2097-11-28T12:00", "02-29 00:00+01:00"),
        ] {
            let (_, found) = next_of(every, at(after, &zone));
            assert_eq!(found, expected, "{every} after {after}");
        }
        let (first, _) = next_of("30 2 * * *", at("2026-10-24T12:00", &zone));
        let (second, found) = next_of("30 2 * * *", first);
        assert_eq!(
            (found.as_str(), second - first),
            ("10-26 02:30+01:00", 25.0 * 3600.0)
        );
        // In the hour that comes the second time, nothing is due again.
        let (third, found) = next_of("*/10 * * * *", first + 3600.0);
        assert_eq!(
            (found.as_str(), third - first),
            ("10-25 03:00+01:00", 5400.0)
        );
    }

    #[test]
    fn a_period_counts_from_its_anchor_and_the_last_time_is_found_from_the_end() {
        let zone = berlin();
        let every = Every::new("2h".to_owned()).unwrap();
        assert_eq!(every.next(10_000.0, 100.7, &zone), Some(14_500.0));
        assert_eq!(every.next(14_500.0, 100.7, &zone), Some(21_700.0));
        assert_eq!(
            every.next(50.0, 100.7, &zone),
            Some(100.0),
            "a clock that was set back"
        );
        assert_eq!(every.last(100.0, 14_499.0, 100.7, &zone), Some(7_300.0));
        assert_eq!(every.last(100.0, 7_299.0, 100.7, &zone), None);
        for (every, after, until, expected) in [
            (
                "0 2 * * *",
                "2020-01-01T00:00",
                "2026-11-28T15:00",
                "11-28 02:00+01:00",
            ),
            (
                "* * * * *",
                "2020-01-01T00:00",
                "2026-11-28T15:00",
                "11-28 15:00+01:00",
            ),
            (
                "0 0 1 1 *",
                "2020-01-01T00:00",
                "2026-11-28T15:00",
                "01-01 00:00+01:00",
            ),
            (
                "30 2 * * *",
                "2026-10-24T12:00",
                "2026-10-25T23:00",
                "10-25 02:30+02:00",
            ),
        ] {
            let every = Every::new(every.to_owned()).unwrap();
            let found = every
                .last(at(after, &zone), at(until, &zone), 0.0, &zone)
                .unwrap();
            assert_eq!(local(found, &zone), expected, "{every:?}");
            assert_eq!(
                every.last(found, at(until, &zone), 0.0, &zone),
                None,
                "{every:?}"
            );
        }
    }

    #[test]
    fn what_never_comes_or_is_no_time_is_refused() {
        for (text, what) in [
            ("0 0 30 2 *", "never comes"),
            ("0 0 31 4,6 *", "never comes"),
            ("0 2 * *", "is not a line of cron: it has the fields"),
            ("0 2 * * * *", "is not a line of cron: it has the fields"),
            ("0 2 * * * UTC", "is not a line of cron: it has the fields"),
            ("61 2 * * *", "is not a line of cron: "),
            ("H 2 * * *", "is not a line of cron: "),
            (
                "soon",
                "is not a time above 0 such as 30m or 2h, or a line of cron",
            ),
            ("0s", "is not a time above 0"),
            ("", "is not a time above 0"),
        ] {
            let told = Every::new(text.to_owned()).unwrap_err();
            assert!(told.contains(what), "{text}: {told}");
        }
    }
}
