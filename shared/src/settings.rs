//! Settings of a process: from the environment (`TEAM_…`), else from `team.toml`, else the default;
//! read once at its start.
//!
//! Only a command that a person gives reads `team.toml`. It passes the content on to the daemon and
//! the workers as the variables named here ([`Settings::variables`]).

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Deserializer};

use crate::amount::{amount, parse_count, parse_duration, parse_period, parse_watchdog};
use crate::cgroup;
use crate::checkout::CheckoutSettings;
use crate::effects::{KeyEffects, outside};
use crate::inbox::Durability;
use crate::machine::{self, MachineSettings};
use crate::order::{self, Order, orders};
use crate::terms::{RestartLimit, set};
use crate::variable::{Lookup, SettingError, variable};
use crate::work::Work;

/// The settings. Each field names its variable; its key in `team.toml` has the name of the field.
/// Keys that the file leaves out have their default.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// `TEAM_DURABILITY`: `disk` (default) syncs each message, `process` leaves it to the kernel.
    pub durability: Durability,
    /// `TEAM_GRACE`: time between the steps of the termination ladder (default 10 s).
    #[serde(deserialize_with = "duration")]
    pub grace: Duration,
    /// `TEAM_POLL`: `1` looks at files on a timer instead of waiting for events.
    pub poll: bool,
    /// `TEAM_DECIDE_WITHIN`: how long a model may take to answer a shutdown (default 30 s).
    #[serde(deserialize_with = "duration")]
    pub decide_within: Duration,
    /// `TEAM_PERMISSION_TIMEOUT`: how long a permission question waits for its answer, and is
    /// refused then (default 10 min).
    #[serde(deserialize_with = "duration")]
    pub permission_timeout: Duration,
    /// `TEAM_SHUTDOWN_TIMEOUT`: how long `teamctl shutdown` waits (default 120 s).
    #[serde(deserialize_with = "duration")]
    pub shutdown_timeout: Duration,
    /// `TEAM_RESTART_MAX`: how often a worker that crashed is started again within the period
    /// (default 3).
    #[serde(deserialize_with = "count")]
    pub restart_max: u32,
    /// `TEAM_RESTART_PERIOD`: that period (default 60 s).
    #[serde(deserialize_with = "period")]
    pub restart_period: Duration,
    /// `TEAM_WATCHDOG`: how long a worker that should respond may be silent before the daemon
    /// notifies the lead, and as long again before the daemon kills it (default 60 s); none: `off`.
    #[serde(deserialize_with = "watchdog")]
    pub watchdog: Option<Duration>,
    /// `TEAM_CGROUP`: `auto` (default) gives each incarnation a cgroup where the daemon may make
    /// them; `off` never.
    pub cgroup: cgroup::Use,
    /// `TEAM_AUTO_START`: whether `teamctl spawn` and `teamctl chat` start the daemon if none runs
    /// (default true).
    pub auto_start: bool,
    /// `TEAM_MAX_MEMBERS`: how large the lead agent may make the team; in `team.toml` the table
    /// `[team]`.
    pub team: TeamSize,
    /// `TEAM_WORK`: how work is checked, as JSON; in `team.toml` the table `[work]`.
    pub work: Work,
    /// `TEAM_ORDERS`: what is made a task by itself, as JSON; in `team.toml` the tables `[[order]]`.
    #[serde(rename = "order", deserialize_with = "orders")]
    pub orders: Vec<Order>,
    /// `TEAM_CHECKOUTS`: where checkouts lie (default: `../REPO.team`).
    pub checkouts: Option<String>,
    /// `TEAM_CHECKOUT`: how a checkout is prepared, as JSON; in `team.toml` the table `[checkout]`.
    pub checkout: CheckoutSettings,
    /// `TEAM_MACHINE`: how much of the machine is used at once, as JSON; in `team.toml` the table
    /// `[machine]`.
    pub machine: MachineSettings,
    /// `TEAM_NOTIFY`: how a chat notifies the person at its terminal that an answer is needed:
    /// `bell` (default), `osc9` or `off`.
    pub notify: Notify,
}

/// The table `[team]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TeamSize {
    /// How many teammates may run when the lead agent spawns one, that one included (default 16). A
    /// person may spawn more.
    #[serde(deserialize_with = "count")]
    pub max_members: u32,
    /// Whether an answer that a person decides needs four digits, which only views and hooks show.
    pub approve_code: bool,
}

impl Default for TeamSize {
    fn default() -> Self {
        Self {
            max_members: 16,
            approve_code: false,
        }
    }
}

/// How a terminal notifies its person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Notify {
    /// By its bell.
    #[default]
    Bell,
    /// By a desktop notification, if the terminal supports OSC 9.
    #[value(name = "osc9")]
    Osc9,
    /// Not at all.
    Off,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            grace: Duration::from_secs(10),
            poll: false,
            decide_within: Duration::from_secs(30),
            permission_timeout: Duration::from_secs(600),
            shutdown_timeout: Duration::from_secs(120),
            restart_max: 3,
            restart_period: Duration::from_secs(60),
            watchdog: Some(Duration::from_secs(60)),
            cgroup: cgroup::Use::default(),
            auto_start: true,
            team: TeamSize::default(),
            work: Work::default(),
            orders: Vec::new(),
            checkouts: None,
            checkout: CheckoutSettings::default(),
            machine: MachineSettings::default(),
            notify: Notify::default(),
        }
    }
}

impl Settings {
    /// Names of the keys in `team.toml`, separated by blanks.
    pub const KEYS: &str = "durability grace poll decide_within permission_timeout shutdown_timeout restart_max restart_period watchdog cgroup auto_start \
                            notify team work order checkouts checkout machine";

    /// Reads the settings of a process that was started with what `team.toml` says in its
    /// environment.
    ///
    /// # Errors
    /// [`SettingError`] for the first variable with a wrong value.
    pub fn from_env() -> Result<Self, SettingError> {
        Self::default().with_environment(&|name| std::env::var(name).ok())
    }

    /// Returns these settings, replaced by those of the environment.
    ///
    /// # Errors
    /// [`SettingError`] for the first variable with a wrong value.
    pub fn with_environment(mut self, lookup: Lookup<'_>) -> Result<Self, SettingError> {
        set(
            &mut self.durability,
            variable(lookup, "TEAM_DURABILITY", |text| {
                Durability::from_str(text, false).map_err(|_| "disk or process")
            })?,
        );
        set(
            &mut self.grace,
            variable(lookup, "TEAM_GRACE", parse_duration)?,
        );
        set(
            &mut self.poll,
            variable(lookup, "TEAM_POLL", |text| match text {
                "0" => Ok(false),
                "1" => Ok(true),
                _ => Err("0 or 1"),
            })?,
        );
        set(
            &mut self.decide_within,
            variable(lookup, "TEAM_DECIDE_WITHIN", parse_duration)?,
        );
        set(
            &mut self.permission_timeout,
            variable(lookup, "TEAM_PERMISSION_TIMEOUT", parse_duration)?,
        );
        set(
            &mut self.shutdown_timeout,
            variable(lookup, "TEAM_SHUTDOWN_TIMEOUT", parse_duration)?,
        );
        set(
            &mut self.restart_max,
            variable(lookup, "TEAM_RESTART_MAX", parse_count)?,
        );
        set(
            &mut self.restart_period,
            variable(lookup, "TEAM_RESTART_PERIOD", parse_period)?,
        );
        set(
            &mut self.watchdog,
            variable(lookup, "TEAM_WATCHDOG", parse_watchdog)?,
        );
        set(
            &mut self.cgroup,
            variable(lookup, "TEAM_CGROUP", |text| {
                cgroup::Use::from_str(text, false).map_err(|_| "auto or off")
            })?,
        );
        set(
            &mut self.auto_start,
            variable(lookup, "TEAM_AUTO_START", |text| {
                text.parse().map_err(|_| "true or false")
            })?,
        );
        set(
            &mut self.team.max_members,
            variable(lookup, "TEAM_MAX_MEMBERS", parse_count)?,
        );
        // A lead that starts the daemon chooses its variables: none takes the codes away.
        set(
            &mut self.team.approve_code,
            variable(lookup, "TEAM_APPROVE_CODE", |text| match text {
                "true" => Ok(true),
                _ => Err("true: no variable switches it off, only team.toml does"),
            })?,
        );
        set(
            &mut self.work,
            variable(lookup, "TEAM_WORK", |text| {
                serde_json::from_str(text).map_err(|_| "the table [work] as JSON")
            })?,
        );
        set(
            &mut self.orders,
            variable(lookup, "TEAM_ORDERS", |text| {
                order::of_variable(text).map_err(|_| "the tables [[order]] as JSON")
            })?,
        );
        self.checkouts =
            variable(lookup, "TEAM_CHECKOUTS", |text| Ok(text.to_owned()))?.or(self.checkouts);
        set(
            &mut self.checkout,
            variable(lookup, "TEAM_CHECKOUT", |text| {
                serde_json::from_str(text).map_err(|_| "the table [checkout] as JSON")
            })?,
        );
        set(
            &mut self.machine,
            variable(lookup, machine::VARIABLE, |text| {
                serde_json::from_str(text).map_err(|_| "the table [machine] as JSON")
            })?,
        );
        set(
            &mut self.notify,
            variable(lookup, "TEAM_NOTIFY", |text| {
                Notify::from_str(text, false).map_err(|_| "bell, osc9 or off")
            })?,
        );
        Ok(self)
    }

    /// Reports what each key does.
    pub(crate) fn effects(&self, to: &mut KeyEffects<'_>) {
        let Self {
            durability: _,
            grace: _,
            poll: _,
            decide_within: _,
            permission_timeout: _,
            shutdown_timeout: _,
            restart_max: _,
            restart_period: _,
            watchdog: _,
            cgroup,
            auto_start: _,
            team:
                TeamSize {
                    max_members,
                    approve_code,
                },
            work,
            orders,
            checkouts,
            checkout,
            machine,
            notify: _,
        } = self;
        // They decide when something is done, and how it is kept or shown.
        to.neither([
            "durability",
            "grace",
            "poll",
            "decide_within",
            "permission_timeout",
            "shutdown_timeout",
        ]);
        to.neither([
            "restart_max",
            "restart_period",
            "watchdog",
            "auto_start",
            "notify",
        ]);
        // It bounds what a lead agent, whose tools may write the file, starts by itself.
        let usual = TeamSize::default().max_members;
        to.widens(
            "team.max_members",
            (*max_members > usual).then_some(max_members),
        );
        // A tool that may write the file must not take it away.
        to.narrows("team.approve_code", approve_code.then_some(true));
        // Without cgroups the limits hold for each process, and no longer for all of them together.
        to.widens("cgroup", (*cgroup == cgroup::Use::Off).then_some("off"));
        work.effects(to);
        order::effects(orders, to);
        let elsewhere = to.file.zip(checkouts.as_deref());
        to.widens(
            "checkouts",
            elsewhere.and_then(|(file, at)| outside(file, Path::new(at))),
        );
        checkout.effects(to);
        machine.effects(to);
    }

    /// Returns how often a worker that crashed is started again.
    pub fn restart(&self) -> RestartLimit {
        RestartLimit {
            max: self.restart_max,
            period: self.restart_period,
        }
    }

    /// Returns the variables that give the daemon or a worker the same settings: those that differ
    /// from the default.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let default = Self::default().all_variables();
        self.all_variables()
            .into_iter()
            .filter(|variable| !default.contains(variable))
            .collect()
    }

    fn all_variables(&self) -> [(&'static str, String); 15] {
        [
            (
                "TEAM_DURABILITY",
                format!("{:?}", self.durability).to_lowercase(),
            ),
            ("TEAM_GRACE", seconds(self.grace)),
            ("TEAM_PERMISSION_TIMEOUT", seconds(self.permission_timeout)),
            ("TEAM_POLL", u8::from(self.poll).to_string()),
            ("TEAM_RESTART_MAX", self.restart_max.to_string()),
            ("TEAM_RESTART_PERIOD", seconds(self.restart_period)),
            (
                "TEAM_WATCHDOG",
                self.watchdog.map_or_else(|| "off".to_owned(), seconds),
            ),
            ("TEAM_CGROUP", self.cgroup.as_str().to_owned()),
            ("TEAM_MAX_MEMBERS", self.team.max_members.to_string()),
            ("TEAM_APPROVE_CODE", self.team.approve_code.to_string()),
            (
                "TEAM_WORK",
                serde_json::to_string(&self.work).unwrap_or_default(),
            ),
            (
                "TEAM_ORDERS",
                serde_json::to_string(&self.orders).unwrap_or_default(),
            ),
            ("TEAM_CHECKOUTS", self.checkouts.clone().unwrap_or_default()),
            (
                "TEAM_CHECKOUT",
                serde_json::to_string(&self.checkout).unwrap_or_default(),
            ),
            (
                machine::VARIABLE,
                serde_json::to_string(&self.machine).unwrap_or_default(),
            ),
        ]
    }
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    amount(deserializer, parse_duration)
}

fn period<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    amount(deserializer, parse_period)
}

fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    amount(deserializer, parse_count)
}

fn watchdog<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    amount(deserializer, parse_watchdog)
}

fn seconds(time: Duration) -> String {
    format!("{}s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Settings {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_wrong_value_names_variable_and_expectation() {
        let lookup = |name: &str| (name == "TEAM_POLL").then(|| "yes".into());
        let error = Settings::default().with_environment(&lookup).unwrap_err();
        assert_eq!(error.to_string(), "TEAM_POLL=\"yes\" is not 0 or 1");
        let lookup = |name: &str| (name == "TEAM_DURABILITY").then(|| "sync".into());
        let error = Settings::default().with_environment(&lookup).unwrap_err();
        assert_eq!(
            error.to_string(),
            "TEAM_DURABILITY=\"sync\" is not disk or process"
        );
        assert_eq!(
            Settings::default().with_environment(&|_| None),
            Ok(Settings::default())
        );
    }

    #[test]
    fn the_environment_goes_before_the_file_and_the_file_before_the_default() {
        let lookup = |name: &str| (name == "TEAM_GRACE").then(|| "4s".into());
        let settings = file("grace = 3\npoll = true\n");
        let settings = settings.with_environment(&lookup).unwrap();
        assert_eq!(
            (settings.grace, settings.poll),
            (Duration::from_secs(4), true)
        );
        assert_eq!(settings.durability, Durability::Disk);
    }

    #[test]
    fn what_is_handed_on_is_read_as_the_same() {
        let settings = file(
            "grace = 0.25\npoll = true\ndurability = 'process'\nrestart_max = 5\nrestart_period = '2m'\nwatchdog = 'off'\ncgroup = 'off'\n\
             [[order]]\nname = 'nightly'\nevery = '0 2 * * *'\ntask.subject = 'x'\n",
        );
        assert_eq!(
            settings.restart(),
            RestartLimit {
                max: 5,
                period: Duration::from_secs(120)
            }
        );
        assert_eq!(
            (settings.watchdog, settings.cgroup),
            (None, cgroup::Use::Off)
        );
        let variables = settings.variables();
        let lookup = |name: &str| {
            variables
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, text)| text.clone())
        };
        assert_eq!(
            Settings::default().with_environment(&lookup).unwrap(),
            settings
        );
        assert_eq!(Settings::default().variables(), []);
    }
}
