//! Settings that come from the environment (`TEAM_…`), read once at the start of a process.

use std::ffi::OsString;
use std::time::Duration;

use crate::inbox::Durability;

/// What can be set. Each field names its variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `TEAM_DURABILITY`: `disk` (default) syncs each message, `process` leaves it to the kernel.
    pub durability: Durability,
    /// `TEAM_GRACE`: time between the steps of the termination ladder (default 10 s).
    pub grace: Duration,
    /// `TEAM_MAX_TURNS`: model calls for one piece of work (default 50).
    pub max_turns: u32,
    /// `TEAM_POLL`: `1` looks at files on a timer instead of waiting for events.
    pub poll: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { durability: Durability::default(), grace: Duration::from_secs(10), max_turns: 50, poll: false }
    }
}

/// A variable has a value that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value:?} is not {expected}")]
pub struct SettingError {
    /// The variable.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// What belongs there.
    pub expected: &'static str,
}

impl Settings {
    /// Reads the settings of this process.
    ///
    /// # Errors
    /// [`SettingError`] for the first wrong value.
    pub fn from_env() -> Result<Self, SettingError> {
        Self::from_lookup(|name| std::env::var_os(name))
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, SettingError> {
        let mut settings = Self::default();
        let set = |variable: &'static str, expected, take: &mut dyn FnMut(&str) -> bool| {
            let Some(value) = lookup(variable).filter(|value| !value.is_empty()) else { return Ok(()) };
            let value = value.to_string_lossy().into_owned();
            if take(&value) { Ok(()) } else { Err(SettingError { variable, value, expected }) }
        };
        set("TEAM_DURABILITY", "disk or process", &mut |v| {
            v.parse().map(|d| settings.durability = d).is_ok()
        })?;
        set("TEAM_GRACE", "a time such as 10s", &mut |v| {
            parse_duration(v).map(|d| settings.grace = d).is_some()
        })?;
        set("TEAM_MAX_TURNS", "a whole number above 0", &mut |v| {
            v.parse().ok().filter(|&n| n > 0).map(|n| settings.max_turns = n).is_some()
        })?;
        set("TEAM_POLL", "0 or 1", &mut |v| {
            settings.poll = v == "1";
            matches!(v, "0" | "1")
        })?;
        Ok(settings)
    }
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
    fn a_wrong_value_names_variable_and_expectation() {
        let error = Settings::from_lookup(|name| (name == "TEAM_POLL").then(|| "yes".into())).unwrap_err();
        assert_eq!(error.to_string(), "TEAM_POLL=\"yes\" is not 0 or 1");
        assert_eq!(Settings::from_lookup(|_| None).unwrap(), Settings::default());
    }
}
