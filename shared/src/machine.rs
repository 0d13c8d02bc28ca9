//! `[machine]` in `team.toml` and in the user's own configuration: how much of the machine the
//! commands of a team use at once. What the user says of the machine goes before what a team says.

mod form;
pub mod memory;

use std::num::NonZero;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::amount::{parse_memory, parse_seconds, written};
use crate::effects::KeyEffects;
use crate::environment::Environment;
use crate::state::StateDir;
pub use form::{Form, old_make, old_ninja};

/// The most slots that can be set.
const MOST: u32 = 1024;

/// How much of the memory is kept free unless a setting says so, in percent.
const RESERVE: u32 = 10;

/// How much of it can be kept free at most, in percent.
const MOST_RESERVE: u32 = 90;

/// How long a command is held back for memory unless a setting says so, in seconds.
const PATIENCE: u64 = 60;

/// How long it can be held back at most, in seconds.
const MOST_PATIENCE: u64 = 600;

/// How much of the machine is used at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MachineSettings {
    /// How many processes the builds of all teams of the user run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<SlotCount>,
    /// Whether commands and checks are held back while memory is short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admit: Option<Admit>,
    /// How much memory stays free, in percent, before another command begins.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "reserve")]
    pub reserve: Option<u32>,
    /// How long a command is held back at most, in seconds; a check ten times as long.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "patience")]
    pub patience: Option<u64>,
    /// As if the machine had so much memory, in bytes, and only the commands of teammates used it.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "memory")]
    pub memory: Option<u64>,
    /// Whether `make` and `ninja` take part in the slots: then a plain `make` runs in parallel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub make: Option<bool>,
}

/// Whether commands and checks are held back while memory is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Admit {
    /// They are, while another one runs.
    #[default]
    Auto,
    /// They are not.
    Off,
}

/// When commands and checks are held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionRules {
    /// How much memory stays free, in percent.
    pub reserve: u32,
    /// How long a command waits at most; a check ten times as long.
    pub patience: Duration,
    /// How much memory the machine has, in bytes, if that is pretended.
    pub memory: Option<u64>,
}

/// How many slots there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SlotCount {
    /// One for each processor that the process may use.
    Auto,
    /// None are handed out: each build runs as many processes as it likes.
    Off,
    /// So many.
    #[serde(untagged)]
    Number(u32),
}

impl MachineSettings {
    /// Reads what the team has set.
    pub fn of_variable(environment: &Environment) -> Self {
        environment
            .value(VARIABLE)
            .and_then(|text| serde_json::from_str::<Self>(&text).ok())
            .unwrap_or_default()
    }

    /// Returns these settings and, where they say nothing, the others.
    #[must_use]
    pub fn over(self, others: Self) -> Self {
        Self {
            slots: self.slots.or(others.slots),
            admit: self.admit.or(others.admit),
            reserve: self.reserve.or(others.reserve),
            patience: self.patience.or(others.patience),
            memory: self.memory.or(others.memory),
            make: self.make.or(others.make),
        }
    }

    /// Tells whether `make` and `ninja` take part in the slots.
    pub fn tells_make(&self) -> bool {
        self.make == Some(true)
    }

    /// Returns when commands and checks are held back; none if they never are.
    pub fn admission(&self) -> Option<AdmissionRules> {
        if self.admit == Some(Admit::Off) {
            return None;
        }
        Some(AdmissionRules {
            reserve: self.reserve.unwrap_or(RESERVE),
            patience: Duration::from_secs(self.patience.unwrap_or(PATIENCE)),
            memory: self.memory,
        })
    }

    /// Returns how many slots there are; none if none are handed out.
    pub fn slots(&self) -> Option<u32> {
        match self.slots.unwrap_or(SlotCount::Auto) {
            SlotCount::Off => None,
            SlotCount::Number(number) => Some(number),
            SlotCount::Auto => {
                let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
                Some(u32::try_from(processors).map_or(MOST, |number| number.min(MOST)))
            }
        }
    }

    /// Reports what each key does. More slots than processors make the machine slow, and reach
    /// nothing.
    pub(crate) fn effects(&self, to: &mut KeyEffects<'_>) {
        let Self {
            slots: _,
            admit: _,
            reserve: _,
            patience: _,
            memory: _,
            make: _,
        } = self;
        to.neither([
            "machine.slots",
            "machine.admit",
            "machine.reserve",
            "machine.patience",
            "machine.memory",
            "machine.make",
        ]);
    }
}

/// The variable that carries `[machine]` of `team.toml`, as JSON.
pub const VARIABLE: &str = "TEAM_MACHINE";

/// Returns the file whose bytes are the slots of the user on this machine. All teams of the user
/// find the same one.
///
/// # Errors
/// If no directory for it is known.
pub fn slots_file(environment: &Environment) -> std::io::Result<PathBuf> {
    let session = PathBuf::from(format!("/run/user/{}", nix::unistd::geteuid()));
    let session = environment
        .path("XDG_RUNTIME_DIR")
        .filter(|path| path.is_absolute() && is_own(path))
        .or_else(|| is_own(&session).then_some(session));
    match session {
        Some(session) => Ok(session.join("teamd/slots")),
        None => Ok(StateDir::of_environment(environment)
            .map_err(std::io::Error::other)?
            .slots_file()),
    }
}

/// Returns the file whose bytes say which commands of the user run and wait on this machine, beside
/// that of the slots. Those of a pretended machine hold back no others.
///
/// # Errors
/// If no directory for it is known.
pub fn admission_file(
    environment: &Environment,
    rules: &AdmissionRules,
) -> std::io::Result<PathBuf> {
    let beside = slots_file(environment)?;
    // It may be named by the machine, where several share a home directory.
    let mut name = beside.file_name().unwrap_or_default().to_owned();
    name.push(".admission");
    if let Some(memory) = rules.memory {
        name.push(format!("-{memory}"));
    }
    Ok(beside.with_file_name(name))
}

fn reserve<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let percent = i64::deserialize(deserializer)?;
    match u32::try_from(percent) {
        Ok(percent) if (1..=MOST_RESERVE).contains(&percent) => Ok(Some(percent)),
        _ => Err(serde::de::Error::custom(format!(
            "a number of percent from 1 to {MOST_RESERVE} is expected"
        ))),
    }
}

/// What waits is before the commands of other teams, so it has an end.
fn patience<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match written(deserializer, parse_seconds)? {
        Some(seconds) if seconds > MOST_PATIENCE => Err(serde::de::Error::custom(format!(
            "at most {} minutes are expected",
            MOST_PATIENCE / 60
        ))),
        seconds => Ok(seconds),
    }
}

fn memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    written(deserializer, parse_memory)
}

/// Tells whether a directory belongs to this user: `sudo` and `su` can leave that of another one in
/// the environment.
fn is_own(folder: &Path) -> bool {
    folder.metadata().is_ok_and(|metadata| {
        metadata.is_dir() && metadata.uid() == nix::unistd::geteuid().as_raw()
    })
}

impl FromStr for SlotCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => Err(format!(
                "\"auto\", \"off\" or a number from 1 to {MOST} is expected"
            )),
        }
    }
}

impl<'de> Deserialize<'de> for SlotCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(i64),
            Word(String),
        }
        let word = match Written::deserialize(deserializer)? {
            Written::Number(number) => match u32::try_from(number) {
                Ok(number) if (1..=MOST).contains(&number) => return Ok(Self::Number(number)),
                _ => number.to_string(),
            },
            Written::Word(word) => word,
        };
        word.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_auto_off_or_a_number() {
        let read = |text: &str| toml::from_str::<MachineSettings>(text).map(|it| it.slots());
        assert_eq!(read("slots = 3").unwrap(), Some(3));
        assert_eq!(read("slots = 'off'").unwrap(), None);
        assert_eq!(read("").unwrap(), read("slots = 'auto'").unwrap());
        assert!(read("").unwrap().is_some_and(|slots| slots >= 1));
        for wrong in ["0", "-1", "1025", "'many'", "1.5", "true"] {
            let error = read(&format!("slots = {wrong}")).unwrap_err();
            assert!(!error.message().is_empty(), "{wrong}");
        }
    }

    #[test]
    fn only_a_person_tells_make() {
        let read = |text: &str| toml::from_str::<MachineSettings>(text).unwrap();
        assert!(!read("").tells_make());
        assert!(read("make = true").tells_make());
        // What the user says goes first.
        assert!(!read("make = false").over(read("make = true")).tells_make());
        assert!(read("slots = 2").over(read("make = true")).tells_make());
        assert!(toml::from_str::<MachineSettings>("make = 'yes'").is_err());
    }

    #[test]
    fn commands_are_held_back_unless_that_is_off() {
        let read = |text: &str| toml::from_str::<MachineSettings>(text).map(|it| it.admission());
        let rules = AdmissionRules {
            reserve: 10,
            patience: Duration::from_secs(60),
            memory: None,
        };
        assert_eq!(read("").unwrap(), Some(rules));
        assert_eq!(read("admit = 'auto'").unwrap(), Some(rules));
        assert_eq!(read("admit = 'off'\nreserve = 20").unwrap(), None);
        let set = read("reserve = 20\npatience = '2m'\nmemory = '1G'").unwrap();
        let expected = AdmissionRules {
            reserve: 20,
            patience: Duration::from_secs(120),
            memory: Some(1 << 30),
        };
        assert_eq!(set, Some(expected));
        for wrong in [
            "reserve = 0",
            "reserve = 91",
            "reserve = -1",
            "patience = 0",
            "patience = '11m'",
            "memory = '1M'",
            "admit = 'on'",
        ] {
            let error = read(wrong).unwrap_err();
            assert!(!error.message().is_empty(), "{wrong}");
        }
    }

    #[test]
    fn what_is_passed_on_is_read_again() {
        for slots in [SlotCount::Auto, SlotCount::Off, SlotCount::Number(7)] {
            let settings = MachineSettings {
                slots: Some(slots),
                admit: Some(Admit::Off),
                reserve: Some(25),
                patience: Some(7),
                memory: Some(1 << 30),
                make: Some(true),
            };
            let text = serde_json::to_string(&settings).unwrap();
            assert_eq!(
                serde_json::from_str::<MachineSettings>(&text).unwrap(),
                settings
            );
        }
    }
}
