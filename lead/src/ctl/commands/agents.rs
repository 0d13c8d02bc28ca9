//! `teamctl agents`: the agents that a teammate can be, and whether each can be started.

mod known;

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use serde_json::json;
use teamd_shared::environment::Environment;
use teamd_shared::terms::{AgentProgram, BUILT_IN, Protocol, Published, Version};

use crate::ctl::context::Context;
use crate::ctl::escape;
use crate::ctl::table::{Cell, Table};
use known::Known;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;

/// What keeps an agent from being started.
enum Problem {
    Missing,
    NoKey,
    TooOld(String),
    /// This variable chooses a service whose requests are signed.
    Signs(&'static str),
}

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context) -> CommandResult {
    let file = context.team_file()?;
    let environment = Environment::of_self();
    let untrusted = context.widening()?.untrusted(context.register.state())?;
    let mut table = Table::new(&[
        "AGENT", "PROTOCOL", "STATE", "VERSION", "TESTED", "MEMORY", "COMMAND",
    ]);
    table.row(
        [BUILT_IN, "-", "ready", "-", "-", "-", "-"]
            .map(Cell::new)
            .to_vec(),
    );
    let mut all = vec![
        json!({"name": BUILT_IN, "protocol": null, "state": "ready", "command": null,
        "version": null, "tested": null, "memory_mb": null}),
    ];
    let known = Protocol::KNOWN
        .map(Protocol::as_str)
        .into_iter()
        .filter(|name| !file.agents.contains_key(*name));
    let known: Vec<_> = known
        .filter_map(|name| Some((name.to_owned(), AgentProgram::known(name)?)))
        .collect();
    for (name, agent) in known
        .iter()
        .map(|(name, agent)| (name, agent))
        .chain(&file.agents)
    {
        let (version, problem) = inspect(agent, &environment);
        let state = match problem {
            Some(Problem::Missing) => "missing",
            _ if untrusted.contains(&agent.trust_key(name)) => "not trusted",
            Some(Problem::TooOld(_)) => "too old",
            Some(Problem::NoKey) => "no key",
            Some(Problem::Signs(_)) => "no service",
            None => "ready",
        };
        let protocol = agent.protocol.as_str();
        let command = agent.command.join(" ");
        let known = Known::of(agent.protocol);
        let version = version.map(|it| it.to_string());
        let memory = known.as_ref().map(|known| known.memory);
        let tested = known.map(
            |Known {
                 published:
                     Published {
                         tested: [oldest, newest],
                         ..
                     },
                 ..
             }| {
                if oldest == newest {
                    newest.to_string()
                } else {
                    format!("{oldest} to {newest}")
                }
            },
        );
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let costs = memory.map(|memory| format!("{memory} MB"));
        let row = [
            name.as_str(),
            protocol,
            state,
            &or_none(&version),
            &or_none(&tested),
            &or_none(&costs),
            &command,
        ];
        table.row(row.map(Cell::new).to_vec());
        all.push(
            json!({"name": name, "protocol": protocol, "state": state, "command": agent.command,
            "version": version, "tested": tested, "memory_mb": memory}),
        );
    }
    if context.out.is_json() {
        context.out.json(&json!(all))?;
        return Ok(ExitCode::Done);
    }
    context.out.text(table.render(context.out.width()))?;
    if file.agents.is_empty() {
        context
            .out
            .hint("`[agents.NAME]` in team.toml adds a program of your own (docs/agents.md)");
    }
    Ok(ExitCode::Done)
}

/// Checks that an agent can be started with this environment; returns what is to be noted.
///
/// # Errors
/// [`ExitCode::Failed`] if its program is not there or too old, or has no key.
pub(super) fn check(
    name: &str,
    agent: &AgentProgram,
    environment: &Environment,
) -> Result<Option<String>, CommandError> {
    let (version, problem) = inspect(agent, environment);
    let known = Known::of(agent.protocol);
    let Some(problem) = problem else {
        let newest = known.map(|known| known.published.tested[1]);
        let newer = version.filter(|version| newest.is_some_and(|newest| *version > newest));
        return Ok(newer.map(|version| format!("{name} {version} is newer than what was tested")));
    };
    let failed = |message: String| CommandError::new(ExitCode::Failed, message);
    let error = match (problem, known) {
        (Problem::NoKey, Some(known)) => failed(format!("the agent {name} needs {}", known.needs)).hint(
            "a login of a subscription is not used: the tokens of several processes would log each other out",
        ),
        (Problem::Signs(variable), Some(known)) => failed(format!(
            "the agent {name} cannot work with {variable}: requests of that service are signed with a key that the agent holds, \
             and no key enters its sandbox"
        ))
        .hint(format!("unset it, and set {}", known.needs)),
        (Problem::TooOld(why), _) => failed(format!("the agent {name} cannot be started: {why}")),
        (_, known) => {
            let program = escape::line(&agent.command[0]).into_owned();
            let hint = match known {
                Some(known) => format!("`npm install -g {}` installs it", known.published.package),
                None => format!("install it, or correct `command` in `[agents.{name}]` of team.toml"),
            };
            failed(format!("the agent {name} cannot be started: there is no program {program}")).hint(hint)
        }
    };
    Err(error.hint("`teamctl agents` lists the agents"))
}

/// Returns the version of an agent, where that can be known, and what keeps it from being started.
fn inspect(agent: &AgentProgram, environment: &Environment) -> (Option<Version>, Option<Problem>) {
    let Some(program) = find(agent, environment) else {
        return (None, Some(Problem::Missing));
    };
    let Some(known) = Known::of(agent.protocol) else {
        return (None, None);
    };
    let version = known.version(&program);
    let too_old = version
        .and_then(|version| known.published.too_old(version))
        .map(Problem::TooOld);
    let signs = known.signs.iter().find(|variable| {
        environment
            .value(variable)
            .is_some_and(|value| !["", "0", "false"].contains(&value.as_str()))
    });
    let problem = too_old.or(signs.copied().map(Problem::Signs));
    let problem = problem.or_else(|| (!known.has_key(environment)).then_some(Problem::NoKey));
    (version, problem)
}

/// Finds the program of an agent as its teammate will: in `PATH`, or by its path. One that counts
/// from the workspace is not looked for: which that is, only the teammate says.
fn find(agent: &AgentProgram, environment: &Environment) -> Option<PathBuf> {
    let program = Path::new(agent.command.first()?);
    let is_program = |path: &PathBuf| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if program.components().count() > 1 {
        return Some(program.to_owned()).filter(|path| path.is_relative() || is_program(path));
    }
    let path = environment.value("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(is_program)
}
