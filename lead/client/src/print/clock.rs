//! Times for people: ages, and the time of day where the user is. It reads the clock and the time
//! zone, nothing rests on either.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use teamd_shared::clock::wall;

/// The length of a day, in seconds.
const DAY: f64 = 86_400.0;
/// The age from which on a date is shown with its year, and without the time.
const OLD: i64 = 180 * 86_400;

/// Returns how long ago a time (seconds since 1970) was, such as `3s`, `5m`, `2h` or `4d`.
pub fn age(since: f64) -> String {
    span(wall() - since)
}

/// Formats a number of seconds in its largest unit.
pub fn span(seconds: f64) -> String {
    let (unit, letter) = unit(seconds);
    format!("{}{letter}", whole(seconds.max(0.0) / unit))
}

/// Returns after how many seconds [`span`] changes.
pub fn span_stays(seconds: f64) -> f64 {
    let unit = unit(seconds).0;
    unit - seconds.max(0.0) % unit
}

/// Returns the length and the letter of the largest unit that fits into a number of seconds.
fn unit(seconds: f64) -> (f64, char) {
    let units = [(DAY, 'd'), (3600.0, 'h'), (60.0, 'm')];
    units
        .into_iter()
        .find(|(unit, _)| seconds >= *unit)
        .unwrap_or((1.0, 's'))
}

/// Returns the local time of day of a time (seconds since 1970); of another day the date, and the
/// time to the minute.
pub fn time_of_day(at: f64) -> String {
    let zone = TimeZone::system();
    show(&local(at, &zone), &local(wall(), &zone))
}

/// Reads a time of today, or a date, or both, in the time zone of the user; seconds since 1970.
pub fn parse(text: &str) -> Option<f64> {
    if let Ok(exact) = text.parse::<Timestamp>() {
        return Some(exact.as_duration().as_secs_f64());
    }
    let zone = TimeZone::system();
    // The date first: a time alone is also read from a text with a date, which would be lost.
    let date_and_time = match text.parse::<DateTime>() {
        Ok(date_and_time) => date_and_time,
        Err(_) => {
            let time = text.parse::<Time>().ok()?;
            local(wall(), &zone).date().to_datetime(time)
        }
    };
    Some(
        date_and_time
            .to_zoned(zone.clone())
            .ok()?
            .timestamp()
            .as_duration()
            .as_secs_f64(),
    )
}

fn local(at: f64, zone: &TimeZone) -> Zoned {
    Timestamp::from_second(whole(at))
        .unwrap_or_default()
        .to_zoned(zone.clone())
}

fn show(at: &Zoned, now: &Zoned) -> String {
    let age = now.timestamp().as_second() - at.timestamp().as_second();
    let format = if at.date() == now.date() {
        "%H:%M:%S"
    } else if age.abs() < OLD {
        "%b %d %H:%M"
    } else {
        "%b %d %Y"
    };
    at.strftime(format).to_string()
}

/// Rounds down to whole seconds; a time beyond all calendars is no reason to panic.
fn whole(seconds: f64) -> i64 {
    const LATEST: f64 = 253_402_300_799.0; // The end of the year 9999.
    let bounded = if seconds.is_finite() {
        seconds.floor().clamp(-LATEST, LATEST)
    } else {
        0.0
    };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "whole and within the bounds above"
    )]
    let whole = bounded as i64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_one_unit() {
        let ages = [
            (-5.0, "0s"),
            (3.9, "3s"),
            (60.0, "1m"),
            (7300.0, "2h"),
            (400_000.0, "4d"),
            (f64::NAN, "0s"),
        ];
        for (seconds, shown) in ages {
            assert_eq!(span(seconds), shown);
        }
        for seconds in [-5.0_f64, 3.9, 60.0, 119.5, 7300.0, 400_000.0] {
            let later = seconds.max(0.0) + span_stays(seconds);
            assert_ne!(span(later + 1e-6), span(seconds));
            assert_eq!(span(later - 1e-6), span(seconds));
        }
    }

    #[test]
    fn a_time_is_read_with_and_without_its_date() {
        assert_eq!(parse("1970-01-01T00:02:00Z"), Some(120.0));
        let day = parse("2020-02-29").unwrap();
        let minute = parse("2020-02-29 00:01").unwrap();
        assert_eq!(minute - day, 60.0);
        assert!(parse("14:05").is_some() && parse("soon").is_none());
    }

    #[test]
    fn the_date_is_shown_where_it_is_not_today() {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        let shown = |at, now| show(&local(at, &zone), &local(now, &zone));
        let noon = 1_763_726_585.0; // 2025-11-21 12:03:05 UTC
        assert_eq!(shown(noon, noon + 3600.0), "13:03:05");
        assert_eq!(shown(noon, noon + DAY), "Nov 21 13:03");
        assert_eq!(
            shown(noon, noon - DAY),
            "Nov 21 13:03",
            "the clock was set back"
        );
        assert_eq!(shown(noon, noon + 181.0 * DAY), "Nov 21 2025");
        assert_eq!(shown(-3601.0, noon), "Dec 31 1969");
        assert_eq!(shown(f64::INFINITY, noon), "Jan 01 1970");
    }
}
