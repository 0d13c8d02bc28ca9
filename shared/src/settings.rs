//! Settings of a process: from the environment (`TEAM_…`), else from `team.toml`, else the default; read once at its start.
//!
//! Only what a person starts by hand reads `team.toml`; it hands what stands there on to the daemon and to workers as
//! the variables named here ([`Settings::variables`]).

use std::ffi::OsString;
use std::time::Duration;

use crate::amount::{parse_duration, parse_watchdog};
use crate::cgroup;
use crate::inbox::Durability;
use crate::member::RestartLimit;
use crate::team_file::TeamFile;

/// What can be set. Each field names its variable; in `team.toml` it is called as the field is.
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
    /// `TEAM_DECIDE_WITHIN`: how long a model may take to answer a shutdown (default 30 s).
    pub decide_within: Duration,
    /// `TEAM_SHUTDOWN_TIMEOUT`: how long `teamctl shutdown` waits (default 120 s).
    pub shutdown_timeout: Duration,
    /// `TEAM_RESTART_MAX`, `TEAM_RESTART_PERIOD`: how often a worker that crashed is started again (default 3 in 60 s).
    pub restart: RestartLimit,
    /// `TEAM_WATCHDOG`: how long a worker that should answer may be silent before the lead is told, and as long again
    /// before it is ended (default 60 s); none (`off`): nobody is asked.
    pub watchdog: Option<Duration>,
    /// `TEAM_CGROUP`: `auto` (default) gives each life a cgroup where the machine lets the daemon make some; `off` never.
    pub cgroup: cgroup::Use,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            grace: Duration::from_secs(10),
            max_turns: DEFAULT_TURNS,
            poll: false,
            decide_within: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(120),
            restart: RestartLimit::default(),
            watchdog: Some(Duration::from_secs(60)),
            cgroup: cgroup::Use::default(),
        }
    }
}

/// Model calls for one piece of work, where nobody has said how many.
pub const DEFAULT_TURNS: u32 = 50;

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
    /// Reads the settings of a process that was started with what `team.toml` says in its environment.
    ///
    /// # Errors
    /// [`SettingError`] for the first wrong value.
    pub fn from_env() -> Result<Self, SettingError> {
        Self::load(&TeamFile::default())
    }

    /// Reads the settings of this process: the environment, else the file.
    ///
    /// # Errors
    /// [`SettingError`] for the first wrong value of a variable.
    pub fn load(file: &TeamFile) -> Result<Self, SettingError> {
        Self::from_lookup(|name| std::env::var_os(name), file)
    }

    /// Returns what a file says.
    pub fn of_file(file: &TeamFile) -> Self {
        let default = Self::default();
        Self {
            durability: file.durability.unwrap_or(default.durability),
            grace: file.grace.unwrap_or(default.grace),
            max_turns: file.everybody.max_turns.unwrap_or(default.max_turns),
            poll: file.poll.unwrap_or(default.poll),
            decide_within: file.decide_within.unwrap_or(default.decide_within),
            shutdown_timeout: file.shutdown_timeout.unwrap_or(default.shutdown_timeout),
            restart: RestartLimit {
                max: file.restart_max.unwrap_or(default.restart.max),
                period: file.restart_period.unwrap_or(default.restart.period),
            },
            watchdog: file.watchdog.unwrap_or(default.watchdog),
            cgroup: file.cgroup.unwrap_or(default.cgroup),
        }
    }

    /// Returns what the daemon or a worker must be told in its environment to have the same settings: what is not the
    /// default. (The limit of turns is in the record of each teammate.)
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let default = Self::default();
        let mut variables = Vec::new();
        if self.durability != default.durability {
            variables.push(("TEAM_DURABILITY", self.durability.as_str().to_owned()));
        }
        if self.grace != default.grace {
            variables.push(("TEAM_GRACE", format!("{}s", self.grace.as_secs_f64())));
        }
        if self.poll != default.poll {
            variables.push(("TEAM_POLL", u8::from(self.poll).to_string()));
        }
        if self.restart.max != default.restart.max {
            variables.push(("TEAM_RESTART_MAX", self.restart.max.to_string()));
        }
        if self.restart.period != default.restart.period {
            variables.push(("TEAM_RESTART_PERIOD", format!("{}s", self.restart.period.as_secs_f64())));
        }
        if self.watchdog != default.watchdog {
            let time = self.watchdog.map(|time| format!("{}s", time.as_secs_f64()));
            variables.push(("TEAM_WATCHDOG", time.unwrap_or_else(|| "off".to_owned())));
        }
        if self.cgroup != default.cgroup {
            variables.push(("TEAM_CGROUP", self.cgroup.as_str().to_owned()));
        }
        variables
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>, file: &TeamFile) -> Result<Self, SettingError> {
        let mut settings = Self::of_file(file);
        let set = |variable: &'static str, expected, take: &mut dyn FnMut(&str) -> bool| {
            let Some(value) = lookup(variable).filter(|value| !value.is_empty()) else { return Ok(()) };
            let value = value.to_string_lossy().into_owned();
            if take(&value) { Ok(()) } else { Err(SettingError { variable, value, expected }) }
        };
        set("TEAM_DURABILITY", "disk or process", &mut |v| {
            v.parse().map(|d| settings.durability = d).is_ok()
        })?;
        set("TEAM_GRACE", TIME, &mut |v| parse_duration(v).map(|d| settings.grace = d).is_some())?;
        set("TEAM_MAX_TURNS", "a whole number above 0", &mut |v| {
            v.parse().ok().filter(|&n| n > 0).map(|n| settings.max_turns = n).is_some()
        })?;
        set("TEAM_POLL", "0 or 1", &mut |v| {
            settings.poll = v == "1";
            matches!(v, "0" | "1")
        })?;
        set("TEAM_DECIDE_WITHIN", TIME, &mut |v| {
            parse_duration(v).map(|d| settings.decide_within = d).is_some()
        })?;
        set("TEAM_SHUTDOWN_TIMEOUT", TIME, &mut |v| {
            parse_duration(v).map(|d| settings.shutdown_timeout = d).is_some()
        })?;
        set("TEAM_RESTART_MAX", "a whole number above 0", &mut |v| {
            v.parse().ok().filter(|&n| n > 0).map(|n| settings.restart.max = n).is_some()
        })?;
        set("TEAM_RESTART_PERIOD", "a time such as 10s, above 0", &mut |v| {
            let period = parse_duration(v).filter(|time| !time.is_zero());
            period.map(|time| settings.restart.period = time).is_some()
        })?;
        set("TEAM_WATCHDOG", "a time such as 60s, or off", &mut |v| {
            parse_watchdog(v).map(|time| settings.watchdog = time).is_some()
        })?;
        set("TEAM_CGROUP", "auto or off", &mut |v| v.parse().map(|it| settings.cgroup = it).is_ok())?;
        Ok(settings)
    }
}

const TIME: &str = "a time such as 10s";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_names_variable_and_expectation() {
        let lookup = |name: &str| (name == "TEAM_POLL").then(|| "yes".into());
        let error = Settings::from_lookup(lookup, &TeamFile::default()).unwrap_err();
        assert_eq!(error.to_string(), "TEAM_POLL=\"yes\" is not 0 or 1");
        assert_eq!(Settings::from_lookup(|_| None, &TeamFile::default()).unwrap(), Settings::default());
    }

    #[test]
    fn the_environment_goes_before_the_file_and_the_file_before_the_default() {
        let file = TeamFile::parse("grace = 3\npoll = true\nmax_turns = 7\n").unwrap();
        let lookup = |name: &str| (name == "TEAM_GRACE").then(|| "4s".into());
        let settings = Settings::from_lookup(lookup, &file).unwrap();
        assert_eq!((settings.grace, settings.poll), (Duration::from_secs(4), true));
        assert_eq!((settings.max_turns, settings.durability), (7, Durability::Disk));
    }

    #[test]
    fn what_is_handed_on_is_read_as_the_same() {
        let file = TeamFile::parse(
            "grace = 0.25\npoll = true\ndurability = 'process'\nrestart_max = 5\nrestart_period = '2m'\nwatchdog = 'off'\ncgroup = 'off'\n",
        )
        .unwrap();
        let settings = Settings::of_file(&file);
        assert_eq!(settings.restart, RestartLimit { max: 5, period: Duration::from_secs(120) });
        assert_eq!((settings.watchdog, settings.cgroup), (None, cgroup::Use::Off));
        let variables = settings.variables();
        let lookup =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, text)| text.into());
        assert_eq!(Settings::from_lookup(lookup, &TeamFile::default()).unwrap(), settings);
        assert_eq!(Settings::default().variables(), []);
    }
}
