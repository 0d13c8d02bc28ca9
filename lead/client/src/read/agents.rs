//! The programs of agents: which are there, in which version, and what keeps one from being
//! started.

mod known;

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use teamd_shared::environment::{CLAUDE_TOKEN, Environment};
use teamd_shared::terms::{AgentProgram, Protocol, Version};

use crate::error::CommandError;
use crate::exit_code::ExitCode;
use crate::print::escape;

pub use known::KnownAgent;

/// What keeps an agent from being started.
pub enum Problem {
    /// Its program is not there.
    Missing,
    /// It has no key.
    NoKey,
    /// Its version is too old, and why that matters.
    TooOld(String),
    /// This variable chooses a service whose requests are signed.
    Signs(&'static str),
}

/// Checks that an agent can be started with this environment; returns what is to be noted.
///
/// # Errors
/// [`ExitCode::Failed`] if its program is not there or too old, or has no key.
pub fn check(
    name: &str,
    agent: &AgentProgram,
    environment: &Environment,
) -> Result<Option<String>, CommandError> {
    let (version, problem) = inspect(name, agent, environment);
    let agent_kind = KnownAgent::of(name, agent.protocol);
    let Some(problem) = problem else {
        let newest = agent_kind.map(|agent_kind| agent_kind.published.tested[1]);
        let newer = version.filter(|version| newest.is_some_and(|newest| *version > newest));
        return Ok(newer.map(|version| format!("{name} {version} is newer than what was tested")));
    };
    let error = match (problem, agent_kind) {
        (Problem::NoKey, Some(agent_kind)) => {
            failed(format!("the agent {name} needs {}", agent_kind.needs)).hint(no_login(name, agent))
        }
        (Problem::Signs(variable), Some(agent_kind)) => failed(format!(
            "the agent {name} cannot work with {variable}: requests of that service are signed with a key that the agent holds, \
             and no key enters its sandbox"
        ))
        .hint(format!("unset it, and set {}", agent_kind.needs)),
        (Problem::TooOld(why), _) => failed(format!("the agent {name} cannot be started: {why}")),
        (_, agent_kind) => {
            let program = escape::line(&agent.command[0]).into_owned();
            let hint = match agent_kind {
                Some(agent_kind) => format!(
                    "`teamctl agents install {name}` installs it, or `npm install -g {}`",
                    agent_kind.published.package
                ),
                None => format!("install it, or correct `command` in `[agents.{name}]` of team.toml"),
            };
            failed(format!("the agent {name} cannot be started: there is no program {program}")).hint(hint)
        }
    };
    Err(error.hint("`teamctl agents` lists the agents"))
}

/// Explains why a login of a subscription is not used, and which setting changes that.
fn no_login(name: &str, agent: &AgentProgram) -> String {
    let why = "a login of a subscription is not used: the tokens of several processes would log each other out";
    if agent.protocol != Protocol::Claude {
        return why.to_owned();
    }
    if !agent.is_known(name) {
        return format!(
            "{why}; a token that does not rotate goes only to `--agent claude`, where team.toml has no `[agents.claude]`"
        );
    }
    format!(
        "{why}; {CLAUDE_TOKEN} does not rotate: `login = \"token\"` in `[agents.{name}]` of your own ~/.config/teamd/config.toml \
         hands it to the agent (docs/agents.md says what that costs)"
    )
}

/// Returns the version of an agent, where that can be known, and what keeps it from being started.
/// Its command is without a launcher ([`teamd_shared::installed`]).
pub fn inspect(
    name: &str,
    agent: &AgentProgram,
    environment: &Environment,
) -> (Option<Version>, Option<Problem>) {
    let Some(program) = find(&agent.command, environment) else {
        return (None, Some(Problem::Missing));
    };
    let Some(agent_kind) = KnownAgent::of(name, agent.protocol) else {
        return (None, None);
    };
    let version = agent_kind.version(&program);
    let too_old = version
        .and_then(|version| agent_kind.published.too_old(version))
        .map(Problem::TooOld);
    let signs = agent_kind.signs.iter().find(|variable| {
        environment
            .value(variable)
            .is_some_and(|value| !["", "0", "false"].contains(&value.as_str()))
    });
    let problem = too_old.or_else(|| signs.copied().map(Problem::Signs));
    let problem = problem
        .or_else(|| (!agent_kind.has_key(agent.login, environment)).then_some(Problem::NoKey));
    (version, problem)
}

/// Finds the program of a command as its teammate will: in `PATH`, or by its path. One that counts
/// from the workspace is not searched for: only the teammate knows it.
pub fn find(command: &[String], environment: &Environment) -> Option<PathBuf> {
    let program = Path::new(command.first()?);
    if program.components().count() > 1 {
        return Some(program.to_owned()).filter(|path| path.is_relative() || is_program(path));
    }
    let path = environment.value("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|path| is_program(path))
}

fn failed(message: String) -> CommandError {
    CommandError::new(ExitCode::Failed, message)
}

pub(crate) fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}
