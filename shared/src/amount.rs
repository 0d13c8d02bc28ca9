//! Amounts as people write them: times, and numbers of tokens. Pure.

use std::time::Duration;

/// The least tokens that a prompt and its answer must have together: the tools and a little work fit.
pub const LEAST_WINDOW: u64 = 4_000;

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
    (0.0..=315_360_000.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
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
