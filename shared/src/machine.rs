//! `[machine]` in `team.toml` and in the user's own configuration: how much of the machine the
//! commands of a team use at once. What the user says of the machine goes before what a team says.

mod form;

use std::num::NonZero;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::effects::KeyEffects;
use crate::environment::Environment;
use crate::state::StateDir;
use crate::user_config::UserConfig;
pub use form::{Form, old_make};

/// The most slots that can be set.
const MOST: u32 = 1024;

/// How much of the machine is used at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MachineSettings {
    /// How many processes the builds of all teams of the user run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<SlotCount>,
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
    /// Reads what the user has set and, where that says nothing, what the team has. A configuration
    /// of the user that cannot be used says nothing: work does not wait for its correction.
    pub fn of_environment(environment: &Environment) -> Self {
        let user = UserConfig::load(|name| environment.path(name).map(Into::into))
            .inspect_err(|error| tracing::warn!("{error}"))
            .map(|config| config.machine)
            .unwrap_or_default();
        let team = environment
            .value(VARIABLE)
            .and_then(|text| serde_json::from_str::<Self>(&text).ok())
            .unwrap_or_default();
        user.over(team)
    }

    /// Returns these settings and, where they say nothing, the others.
    #[must_use]
    pub fn over(self, others: Self) -> Self {
        Self {
            slots: self.slots.or(others.slots),
        }
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
        let Self { slots: _ } = self;
        to.neither(["machine.slots"]);
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
    fn what_is_passed_on_is_read_again() {
        for slots in [SlotCount::Auto, SlotCount::Off, SlotCount::Number(7)] {
            let settings = MachineSettings { slots: Some(slots) };
            let text = serde_json::to_string(&settings).unwrap();
            assert_eq!(
                serde_json::from_str::<MachineSettings>(&text).unwrap(),
                settings
            );
        }
    }
}
