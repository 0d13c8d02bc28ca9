//! Amounts as people write them: times, and numbers of tokens. Pure.

use std::time::Duration;

/// The least tokens that a prompt and its answer must have together: the tools and a little work fit.
pub const LEAST_WINDOW: u64 = 4_000;

/// The longest time that is waited for, in seconds: 10 years.
pub const LONGEST: f64 = 315_360_000.0;

/// What belongs into `TEAM_CONTEXT_WINDOW`. Fits behind "is not ".
pub const WINDOW: &str =
    "a number of tokens of 4000 or more, or such as 200k (the tools alone take more than less would hold)";

/// Reads a window of a model; none if it is no number, or below [`LEAST_WINDOW`].
pub fn parse_window(text: &str) -> Option<u64> {
    parse_count(text.trim()).filter(|&tokens| tokens >= LEAST_WINDOW)
}

/// Reads a time: a number with `ms`, `s`, `m`, `h` or `d`, or a bare number of seconds. At most 10 years.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number: f64 = text[..unit_at].parse().ok()?;
    let seconds = match &text[unit_at..] {
        "ms" => number / 1000.0,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86_400.0,
        _ => return None,
    };
    (0.0..=LONGEST).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

/// Reads a number of tokens: a whole number, also in thousands (`200k`) or millions (`2M`, `1.5M`).
pub fn parse_count(text: &str) -> Option<u64> {
    let (digits, zeros) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 3),
        None => text.strip_suffix(['m', 'M']).map_or((text, 0), |digits| (digits, 6)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let ordinary = |text: &str| text.bytes().all(|c| c.is_ascii_digit());
    if whole.is_empty() || !ordinary(whole) || !ordinary(fraction) || fraction.len() > zeros {
        return None;
    }
    if digits.contains('.') && fraction.is_empty() {
        return None;
    }
    format!("{whole}{fraction}{}", "0".repeat(zeros - fraction.len())).parse().ok()
}

/// Says a time as people do: its two largest units, such as `1m10s`, `2h`, `0.4s`.
pub fn told(time: Duration) -> String {
    let seconds = time.as_secs();
    let two = |large: u64, unit: &str, small: u64, below: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{below}"),
    };
    match seconds {
        0 if time.subsec_millis() > 0 => format!("{}s", time.as_millis() as f64 / 1000.0),
        0..60 => format!("{seconds}s"),
        60..3600 => two(seconds / 60, "m", seconds % 60, "s"),
        3600..86_400 => two(seconds / 3600, "h", seconds % 3600 / 60, "m"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

/// Says a number of bytes as people do, such as `512K`, `1.5G`.
pub fn told_size(bytes: u64) -> String {
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

/// Reads a time, or `off`.
pub fn parse_watchdog(text: &str) -> Option<Option<Duration>> {
    if text == "off" {
        return Some(None);
    }
    parse_duration(text).filter(|time| !time.is_zero()).map(Some)
}

/// Reads a number of bytes: a number, also with `K`, `M`, `G` or `T` (powers of 1024, a fraction may stand before them).
pub fn parse_size(text: &str) -> Option<u64> {
    let unit_at = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let unit = unit.strip_suffix("iB").or_else(|| unit.strip_suffix('B')).unwrap_or(unit);
    let shift = match unit {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift);
    }
    let bytes = number.parse::<f64>().ok()?
        * f64::from(1_u32 << shift.min(31))
        * if shift == 40 { 512.0 } else { 1.0 };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the bounds before")]
    let whole = (shift > 0 && (0.0..=9e15).contains(&bytes)).then_some(bytes as u64);
    whole
}

/// The least memory that a life may be bounded to, in bytes: what confines a command, and its shell, fit.
pub const LEAST_MEMORY: u64 = 64 << 20;

/// Reads a bound of memory; none if it is no size, or below [`LEAST_MEMORY`].
pub fn parse_memory(text: &str) -> Option<u64> {
    parse_size(text).filter(|&bytes| bytes >= LEAST_MEMORY)
}

/// Reads a bound of time in whole seconds, at least one: what is begun counts.
pub fn parse_seconds(text: &str) -> Option<u64> {
    whole_seconds(parse_duration(text)?)
}

/// Returns a time in whole seconds, a begun one counted; none if it is no time at all.
pub fn whole_seconds(time: Duration) -> Option<u64> {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    (seconds > 0).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, seconds) in
            [("30s", 30.0), ("500ms", 0.5), ("2m", 120.0), ("1h", 3600.0), ("0", 0.0), ("1.5", 1.5)]
        {
            assert_eq!(parse_duration(text), Some(Duration::from_secs_f64(seconds)), "{text}");
        }
        for bad in ["", "s", "-1s", "1 s", "1e9", "99999d", "1.2.3", "NaN"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
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
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        let huge = format!("{}G", "9".repeat(15));
        for bad in ["", "G", "-1G", "1.5", "2X", "2 G", "2GG", "1e3", ".", &huge] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
        assert_eq!((parse_memory("63M"), parse_memory("64M")), (None, Some(LEAST_MEMORY)));
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
            assert_eq!(told(Duration::from_secs_f64(seconds)), text);
        }
        for (bytes, text) in
            [(0, "0"), (1023, "1023"), (1024, "1K"), (2 << 30, "2G"), (3 << 29, "1.5G"), (5 << 40, "5T")]
        {
            assert_eq!(told_size(bytes), text);
        }
    }

    #[test]
    fn a_bound_of_time_is_whole_seconds_and_at_least_one() {
        assert_eq!(
            (parse_seconds("1h"), parse_seconds("1.2"), parse_seconds("10ms")),
            (Some(3600), Some(2), Some(1))
        );
        assert_eq!((parse_seconds("0"), parse_seconds("soon")), (None, None));
        assert_eq!(parse_watchdog("off"), Some(None));
        assert_eq!((parse_watchdog("2m"), parse_watchdog("0")), (Some(Some(Duration::from_secs(120))), None));
    }

    #[test]
    fn counts_are_read_as_people_write_them() {
        for (text, count) in [("7", 7), ("200k", 200_000), ("1.5M", 1_500_000), ("2m", 2_000_000), ("0", 0)] {
            assert_eq!(parse_count(text), Some(count), "{text}");
        }
        let huge = "9".repeat(40);
        for bad in ["", "k", "-1", "1.5", "1.", "1.k", ".5k", "1.2345k", "1e3", "2G", "1 k", "+1", &huge] {
            assert_eq!(parse_count(bad), None, "{bad}");
        }
    }
}
