//! Amounts as people write them: times, sizes, numbers of tokens. Pure.
//!
//! A flag, a variable and a key of `team.toml` are read by the same function. Its error says what
//! is expected, and fits behind "is not ".

use std::fmt;
use std::time::Duration;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// What is expected in the place of a text.
pub type Expected = &'static str;

/// The least tokens that a prompt and its answer must have together: the tools and a little work
/// fit.
const LEAST_WINDOW: u64 = 4_000;

/// The least memory that an incarnation may be limited to, in bytes: the sandbox init and its shell
/// fit.
const LEAST_MEMORY: u64 = 64 << 20;

/// The longest time that is read, in seconds: 10 years.
pub(crate) const LONGEST: f64 = 315_360_000.0;

/// Reads a time: a number with `ms`, `s`, `m`, `h` or `d`, or a bare number of seconds. At most 10
/// years.
///
/// # Errors
/// What is expected.
pub fn parse_duration(text: &str) -> Result<Duration, Expected> {
    time(text).ok_or("a time such as 500ms, 30s, 2m or 1h")
}

/// Reads a time that is not 0.
///
/// # Errors
/// What is expected.
pub fn parse_period(text: &str) -> Result<Duration, Expected> {
    time(text)
        .filter(|time| !time.is_zero())
        .ok_or("a time above 0 such as 30s, 10m or 8h")
}

/// Reads a time that is not 0, in seconds; a begun second counts.
///
/// # Errors
/// What is expected.
pub fn parse_seconds(text: &str) -> Result<u64, Expected> {
    parse_period(text).map(|time| time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

/// Reads a time that is not 0, or `off`.
///
/// # Errors
/// What is expected.
pub fn parse_watchdog(text: &str) -> Result<Option<Duration>, Expected> {
    match text {
        "off" => Ok(None),
        _ => parse_period(text)
            .map(Some)
            .map_err(|_| "a time above 0 such as 60s, or off"),
    }
}

/// Reads a whole number above 0.
///
/// # Errors
/// What is expected.
pub fn parse_count(text: &str) -> Result<u32, Expected> {
    text.parse()
        .ok()
        .filter(|&count| count > 0)
        .ok_or("a whole number above 0")
}

/// Reads a number of tokens: a whole number above 0, also in thousands (`200k`) or millions (`2M`,
/// `1.5M`).
///
/// # Errors
/// What is expected.
pub fn parse_tokens(text: &str) -> Result<u64, Expected> {
    tokens(text)
        .filter(|&count| count > 0)
        .ok_or("a number of tokens above 0 such as 50000, 200k or 2M")
}

/// Reads how many tokens a prompt and its answer may have together.
///
/// # Errors
/// What is expected.
pub fn parse_window(text: &str) -> Result<u64, Expected> {
    tokens(text).filter(|&count| count >= LEAST_WINDOW).ok_or(
        "a number of tokens of 4000 or more, or such as 200k (the tools alone take more than less would hold)",
    )
}

/// Reads a limit of memory in bytes: a number, also with `K`, `M`, `G` or `T` (powers of 1024).
///
/// # Errors
/// What is expected.
pub fn parse_memory(text: &str) -> Result<u64, Expected> {
    bytes(text)
        .filter(|&bytes| bytes >= LEAST_MEMORY)
        .ok_or("a size such as 2G or 512M, 64M or more")
}

fn time(text: &str) -> Option<Duration> {
    let units = [
        ("ms", 1e-3),
        ("", 1.0),
        ("s", 1.0),
        ("m", 60.0),
        ("min", 60.0),
        ("h", 3600.0),
        ("d", 86_400.0),
    ];
    scaled(text, &units)
        .filter(|&seconds| seconds <= LONGEST)
        .map(Duration::from_secs_f64)
}

fn tokens(text: &str) -> Option<u64> {
    let count = scaled(
        text,
        &[("", 1.0), ("k", 1e3), ("K", 1e3), ("m", 1e6), ("M", 1e6)],
    )?;
    let is_whole = (count - count.round()).abs() < 1e-6;
    if is_whole { whole(count.round()) } else { None }
}

fn bytes(text: &str) -> Option<u64> {
    let text = text
        .strip_suffix("iB")
        .or_else(|| text.strip_suffix('B'))
        .unwrap_or(text)
        .to_ascii_uppercase();
    let units = ["", "K", "M", "G", "T"]
        .into_iter()
        .zip(0..)
        .map(|(unit, power)| (unit, 1024_f64.powi(power)));
    whole(scaled(&text, &units.collect::<Vec<_>>())?)
}

/// Reads a number with one of these units.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, unit) = number_and_unit(text)?;
    let (_, factor) = units.iter().find(|(known, _)| *known == unit)?;
    Some(number * factor)
}

/// Splits a number from its unit. The number begins and ends with a digit.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let unit_at = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let is_number = !number.starts_with('.') && !number.ends_with('.');
    if !is_number {
        return None;
    }
    Some((number.parse().ok()?, unit))
}

/// Returns the whole part of a number that `f64` holds exactly.
fn whole(number: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is not negative, and below 2^53"
    )]
    let whole = (number < 9e15).then_some(number as u64);
    whole
}

/// Reads a value that a person writes as a text or as a number. A frame holds it as it is.
///
/// # Errors
/// What is expected in its place.
pub(crate) fn written<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    parse: fn(&str) -> Result<T, Expected>,
) -> Result<Option<T>, D::Error> {
    if !deserializer.is_human_readable() {
        return Option::deserialize(deserializer);
    }
    amount(deserializer, parse).map(Some)
}

/// Reads a value that a person writes as a text or as a number.
///
/// # Errors
/// What is expected in its place.
pub(crate) fn amount<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: fn(&str) -> Result<T, Expected>,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(AmountVisitor(parse))
}

struct AmountVisitor<T>(fn(&str) -> Result<T, Expected>);

impl<T> Visitor<'_> for AmountVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An empty text is never an amount, so this returns what is expected.
        f.write_str((self.0)("").err().unwrap_or_default())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text.trim()).map_err(|expected| E::invalid_value(Unexpected::Str(text), &expected))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        (self.0)(&number.to_string())
            .map_err(|expected| E::invalid_value(Unexpected::Unsigned(number), &expected))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        (self.0)(&number.to_string())
            .map_err(|expected| E::invalid_value(Unexpected::Signed(number), &expected))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        (self.0)(&number.to_string())
            .map_err(|expected| E::invalid_value(Unexpected::Float(number), &expected))
    }
}

/// Formats a number of a unit, and of the unit below if there is any.
fn two_units(large: u64, unit: &str, small: u64, below: &str) -> String {
    if small == 0 {
        format!("{large}{unit}")
    } else {
        format!("{large}{unit}{small}{below}")
    }
}

/// Formats a time as people do: its two largest units, such as `1m10s`, `2h`, `0.4s`.
pub fn format_duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 if time.subsec_millis() > 0 => format!("{}s", time.as_millis() as f64 / 1000.0),
        0..60 => format!("{seconds}s"),
        60..3600 => two_units(seconds / 60, "m", seconds % 60, "s"),
        3600..86_400 => two_units(seconds / 3600, "h", seconds % 3600 / 60, "m"),
        _ => two_units(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

/// Formats a number of bytes as people do, such as `512K`, `1.5G`.
pub fn format_size(bytes: u64) -> String {
    let mut unit = 0;
    while unit < 4 && bytes >> (10 * (unit + 1)) > 0 {
        unit += 1;
    }
    let letter = ["", "K", "M", "G", "T"][unit];
    let tenths = (u128::from(bytes) * 10) >> (10 * unit);
    match tenths % 10 {
        0 => format!("{}{letter}", tenths / 10),
        rest => format!("{}.{rest}{letter}", tenths / 10),
    }
}

/// Counts things in words: `1 line`, `2 lines`.
pub fn count(number: usize, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, seconds) in [
            ("30s", 30.0),
            ("500ms", 0.5),
            ("2m", 120.0),
            ("1h", 3600.0),
            ("0", 0.0),
            ("1.5", 1.5),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_secs_f64(seconds)),
                "{text}"
            );
        }
        for bad in ["", "s", "-1s", "1 s", "1e9", "99999d", "1.2.3", "NaN"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let sizes = [
            ("7", 7),
            ("2G", 2 << 30),
            ("512M", 512 << 20),
            ("1.5GiB", 3 << 29),
            ("64kB", 64 << 10),
            ("2T", 2 << 40),
            ("0.5t", 1 << 39),
        ];
        for (text, bytes) in sizes {
            assert_eq!(super::bytes(text), Some(bytes), "{text}");
        }
        let huge = format!("{}G", "9".repeat(15));
        for bad in ["", "G", "-1G", "2X", "2 G", "2GG", "1e3", ".", &huge] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
        assert_eq!(
            (parse_memory("63M"), parse_memory("64M")),
            (
                Err("a size such as 2G or 512M, 64M or more"),
                Ok(LEAST_MEMORY)
            )
        );
    }

    #[test]
    fn times_and_sizes_are_told_shortly() {
        for (seconds, text) in [
            (0.4, "0.4s"),
            (0.0, "0s"),
            (59.9, "59s"),
            (70.0, "1m10s"),
            (60.0, "1m"),
            (28_800.0, "8h"),
            (90_000.0, "1d1h"),
        ] {
            assert_eq!(format_duration(Duration::from_secs_f64(seconds)), text);
        }
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1K"),
            (2 << 30, "2G"),
            (3 << 29, "1.5G"),
            (5 << 40, "5T"),
        ] {
            assert_eq!(format_size(bytes), text);
        }
    }

    #[test]
    fn a_limit_of_time_is_whole_seconds_and_at_least_one() {
        assert_eq!(
            (
                parse_seconds("1h"),
                parse_seconds("1.2"),
                parse_seconds("10ms")
            ),
            (Ok(3600), Ok(2), Ok(1))
        );
        assert!(parse_seconds("0").is_err() && parse_seconds("soon").is_err());
        assert_eq!(parse_watchdog("off"), Ok(None));
        assert_eq!(parse_watchdog("2m"), Ok(Some(Duration::from_secs(120))));
        assert!(parse_watchdog("0").is_err());
    }

    #[test]
    fn counts_are_read_as_people_write_them() {
        for (text, count) in [
            ("7", 7),
            ("200k", 200_000),
            ("1.5M", 1_500_000),
            ("2m", 2_000_000),
            ("0", 0),
        ] {
            assert_eq!(tokens(text), Some(count), "{text}");
        }
        let huge = "9".repeat(40);
        for bad in [
            "", "k", "-1", "1.5", "1.", "1.k", ".5k", "1.2345k", "1e3", "2G", "1 k", "+1", &huge,
        ] {
            assert_eq!(tokens(bad), None, "{bad}");
        }
    }
}
