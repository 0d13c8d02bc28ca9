//! The user's own configuration, `config.toml` beside `prices.toml`: what no repository and no tool
//! may choose.
//!
//! It is parsed whole by all that read it. So a mistake in it is an error for each of them, and
//! none takes a part of a file that the user has not meant like that. It holds no secret.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::Deserialize;

use crate::environment::Environment;
use crate::machine::MachineSettings;
use crate::place::open_itself;
use crate::terms::{AgentProgram, Login, Protocol};
use crate::user_dirs::config_dir;

/// Its name.
const FILE: &str = "config.toml";

/// How large it may be, in bytes.
const MAX_SIZE: u64 = 1 << 20;

/// What a wrong agent in it is told.
const ONLY_CLAUDE: &str = "`login = \"token\"` is for `[agents.claude]` alone: no other agent takes a token that does not rotate";

/// The user's own configuration. What it leaves out is the default.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UserConfig {
    /// The commands that run when something happens.
    pub hooks: HookCommands,
    /// How much of the machine is used at once.
    pub machine: MachineSettings,
    agents: BTreeMap<String, AgentSettings>,
    /// Where it is, whether it is there or not.
    #[serde(skip)]
    pub path: PathBuf,
}

/// The commands that run when something happens.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HookCommands {
    /// A plan waits for a person.
    pub on_request: Option<String>,
    /// A request was answered while a lead is connected by MCP.
    pub on_answer: Option<String>,
    /// A piece of work has ended.
    pub on_idle: Option<String>,
    /// An incarnation has ended.
    pub on_end: Option<String>,
    /// The variables of the daemon that hooks get in addition to the usual ones.
    pub env: Vec<String>,
}

/// What the user says of an agent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentSettings {
    #[serde(default)]
    login: LoginName,
    #[serde(default)]
    plan_with_token: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LoginName {
    #[default]
    Key,
    Token,
}

/// Why the user's own configuration is not used. Fits behind "error: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is not used: {why}", .path.display())]
pub struct UserConfigError {
    path: PathBuf,
    why: String,
}

impl UserConfigError {
    /// Returns what to do next. Fits behind "hint: ".
    pub fn hint(&self) -> &'static str {
        "correct that file, or remove it"
    }
}

impl UserConfig {
    /// Returns what the user has set of the machine and, where that says nothing, what a team has. A
    /// configuration that cannot be used says nothing: work does not wait for its correction.
    pub fn machine_over(environment: &Environment, team: MachineSettings) -> MachineSettings {
        let user = Self::load(|name| environment.path(name).map(Into::into))
            .inspect_err(|error| tracing::warn!("{error}"))
            .map(|config| config.machine)
            .unwrap_or_default();
        user.over(team)
    }

    /// Reads it; a missing file counts as empty. `variable` looks up the environment of the user.
    ///
    /// # Errors
    /// [`UserConfigError`] for a mistake, for a link on the way to it, and if another user could
    /// write it: a tool could replace it then.
    pub fn load(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, UserConfigError> {
        let Ok(folder) = config_dir(&variable) else {
            return Ok(Self::default());
        };
        let path = folder.join(FILE);
        let home = variable("HOME").map(PathBuf::from);
        match read(&path, home.as_deref()) {
            Ok(text) => Self::parse(&text, path),
            Err(why) => Err(UserConfigError { path, why }),
        }
    }

    /// Parses its text.
    ///
    /// # Errors
    /// [`UserConfigError`] for the first mistake.
    fn parse(text: &str, path: PathBuf) -> Result<Self, UserConfigError> {
        let parsed = toml::from_str::<Self>(text).map_err(|error| error.message().to_owned());
        let checked = parsed.and_then(|config| {
            let known = config.agents.iter();
            let mut with_token = known.filter(|(_, agent)| agent.login == LoginName::Token);
            match with_token.find(|(name, _)| !takes_token(name)) {
                Some((name, _)) => Err(format!("[agents.{name}]: {ONLY_CLAUDE}")),
                None => Ok(config),
            }
        });
        match checked {
            Ok(config) => Ok(Self { path, ..config }),
            Err(why) => Err(UserConfigError { path, why }),
        }
    }

    /// Returns how the agent of this name logs in. The token goes to the program that needs no table
    /// in `team.toml` and to no other one: such a table could name any program.
    pub fn login(&self, name: &str, program: &AgentProgram) -> Login {
        let Some(AgentSettings {
            login: LoginName::Token,
            plan_with_token,
        }) = self.agents.get(name)
        else {
            return Login::Key;
        };
        match (program.is_known(name), plan_with_token) {
            (false, _) => Login::Key,
            (true, false) => Login::Token,
            (true, true) => Login::TokenWithPlan,
        }
    }

    /// Returns how the agent logs in that a token can be handed to.
    pub fn login_of_claude(&self) -> Login {
        let program = AgentProgram::known(CLAUDE);
        program.map_or(Login::Key, |program| self.login(CLAUDE, &program))
    }
}

/// The agent that a token can be handed to.
const CLAUDE: &str = "claude";

/// Tells whether a token can be handed to the agent of this name.
fn takes_token(name: &str) -> bool {
    AgentProgram::known(name).is_some_and(|agent| agent.protocol == Protocol::Claude)
}

/// Reads the text; empty if there is no file.
///
/// # Errors
/// Why it is not used.
fn read(path: &Path, home: Option<&Path>) -> Result<String, String> {
    // The home directory itself may be reached by a link. Below it a tool could have made one.
    let real = home.and_then(|home| {
        let below = path.strip_prefix(home).ok()?;
        Some(home.canonicalize().ok()?.join(below))
    });
    let real = real.as_deref().unwrap_or(path);
    let file = match open_itself(real, OFlags::RDONLY | OFlags::NONBLOCK) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(String::new()),
        Err(rustix::io::Errno::LOOP) => {
            return Err("a symbolic link stands on the way to it".to_owned());
        }
        Err(errno) => return Err(errno.to_string()),
    };
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file()
        || metadata.uid() != rustix::process::geteuid().as_raw()
        || metadata.mode() & 0o022 != 0
    {
        return Err(
            "it must be a file of yours that neither group nor others can write (`chmod go-w`)"
                .to_owned(),
        );
    }
    let mut text = String::new();
    let mut file = file.take(MAX_SIZE);
    file.read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn parsed(text: &str) -> Result<UserConfig, String> {
        UserConfig::parse(text, "/c/config.toml".into()).map_err(|error| error.to_string())
    }

    fn claude() -> AgentProgram {
        AgentProgram::known("claude").unwrap()
    }

    #[test]
    fn a_token_is_for_the_claude_that_no_team_file_defines() {
        let config = parsed("[agents.claude]\nlogin = 'token'\n").unwrap();
        assert_eq!(config.login_of_claude(), Login::Token);
        let of_a_repository = AgentProgram {
            command: vec!["./claude".into()],
            ..claude()
        };
        assert_eq!(config.login("claude", &of_a_repository), Login::Key);
        assert_eq!(config.login("mine", &claude()), Login::Key);
        let both = "[agents.claude]\nlogin = 'token'\nplan_with_token = true\n";
        let login = parsed(both).unwrap().login("claude", &claude());
        assert_eq!(login, Login::TokenWithPlan);
        for text in [
            "",
            "[agents.claude]\n",
            "[agents.claude]\nlogin = 'key'\nplan_with_token = true\n",
        ] {
            assert_eq!(
                parsed(text).unwrap().login_of_claude(),
                Login::Key,
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for (text, why) in [
            (
                "[agents.codex]\nlogin = 'token'\n",
                "[agents.codex]: `login",
            ),
            (
                "[agents.claude]\nlogin = 'oauth'\n",
                "unknown variant `oauth`",
            ),
            ("[agents.claude]\nlogn = 'token'\n", "unknown field `logn`"),
            ("[agents.claude]\ntoken = 'x'\n", "unknown field `token`"),
            ("login = 'token'\n", "unknown field `login`"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(
                error.starts_with("/c/config.toml is not used: ") && error.contains(why),
                "{error}"
            );
        }
    }

    #[test]
    fn the_file_is_the_users_alone_and_reached_by_no_link() {
        let scratch = tempfile::tempdir().unwrap();
        let home = scratch.path().canonicalize().unwrap();
        let load = || {
            UserConfig::load(|name| (name == "HOME").then(|| home.clone().into_os_string()))
                .map_err(|error| error.to_string())
        };
        assert_eq!(load().unwrap().login_of_claude(), Login::Key);
        let folder = home.join(".config/teamd");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("config.toml");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"[agents.claude]\nlogin = 'token'\n")
            .unwrap();
        let config = load().unwrap();
        assert!(config.login_of_claude().is_token() && config.path == path);
        file.set_permissions(PermissionsExt::from_mode(0o664))
            .unwrap();
        assert!(load().unwrap_err().contains("`chmod go-w`"));
        file.set_permissions(PermissionsExt::from_mode(0o600))
            .unwrap();
        std::fs::rename(&path, home.join("real")).unwrap();
        symlink(home.join("real"), &path).unwrap();
        assert!(load().unwrap_err().contains("a symbolic link"));
    }
}
