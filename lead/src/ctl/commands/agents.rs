//! `teamctl agents`: the agents that a teammate can be, and whether each can be started.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use serde_json::json;
use teamd_shared::environment::Environment;
use teamd_shared::terms::{AgentProgram, BUILT_IN, Protocol};

use crate::ctl::context::Context;
use crate::ctl::escape;
use crate::ctl::table::{Cell, Table};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// What is known of the agent behind a protocol.
struct Known {
    /// Its package.
    package: &'static str,
    /// The variables of which it needs one, in words, and their names.
    needs: (&'static str, &'static [&'static str]),
}

impl Known {
    fn of(protocol: Protocol) -> Option<Self> {
        Some(match protocol {
            Protocol::Run => return None,
            Protocol::Claude => Self {
                package: "@anthropic-ai/claude-code",
                needs: (
                    "ANTHROPIC_API_KEY, or ANTHROPIC_AUTH_TOKEN for a gateway",
                    &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"],
                ),
            },
            Protocol::Codex => {
                Self { package: "@openai/codex", needs: ("OPENAI_API_KEY", &["OPENAI_API_KEY"]) }
            }
        })
    }
}

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context) -> CommandResult {
    let (file, environment) = (context.team_file()?, Environment::of_self());
    let untrusted = context.widening()?.untrusted(context.register.state())?;
    let mut table = Table::new(&["AGENT", "PROTOCOL", "STATE", "COMMAND"]);
    table.row([BUILT_IN, "-", "ready", "-"].map(Cell::new).to_vec());
    let mut all = vec![json!({"name": BUILT_IN, "protocol": null, "state": "ready", "command": null})];
    let known =
        Protocol::KNOWN.map(Protocol::as_str).into_iter().filter(|name| !file.agents.contains_key(*name));
    let known: Vec<_> =
        known.filter_map(|name| Some((name.to_owned(), AgentProgram::known(name)?))).collect();
    for (name, agent) in known.iter().map(|(name, agent)| (name, agent)).chain(&file.agents) {
        let state = match find(agent, &environment) {
            None => "missing",
            Some(_) if untrusted.contains(&agent.trust_key(name)) => "not trusted",
            Some(_) => "ready",
        };
        let (protocol, command) = (agent.protocol.as_str(), agent.command.join(" "));
        table.row([name.as_str(), protocol, state, &command].map(Cell::new).to_vec());
        all.push(json!({"name": name, "protocol": protocol, "state": state, "command": agent.command}));
    }
    if context.out.is_json() {
        context.out.json(&json!(all))?;
        return Ok(ExitCode::Done);
    }
    context.out.text(table.render(context.out.width()))?;
    if file.agents.is_empty() {
        context.out.hint("`[agents.NAME]` in team.toml adds a program of your own (docs/agents.md)");
    }
    Ok(ExitCode::Done)
}

/// Checks that an agent can be started with this environment.
///
/// # Errors
/// [`ExitCode::Failed`] if its program is not there.
pub(super) fn check(name: &str, agent: &AgentProgram, environment: &Environment) -> Result<(), CommandError> {
    let known = Known::of(agent.protocol);
    if find(agent, environment).is_some() {
        let Some(Known { needs: (needs, keys), .. }) = known else { return Ok(()) };
        if keys.iter().any(|key| environment.value(key).is_some()) {
            return Ok(());
        }
        let why =
            "a login of a subscription is not used: the tokens of several processes would log each other out";
        return Err(CommandError::new(ExitCode::Failed, format!("the agent {name} needs {needs}")).hint(why));
    }
    let program = escape::line(&agent.command[0]).into_owned();
    let message = format!("the agent {name} cannot be started: there is no program {program}");
    let hint = match known {
        Some(Known { package, .. }) => format!("`npm install -g {package}` installs it"),
        None => format!("install it, or correct `command` in `[agents.{name}]` of team.toml"),
    };
    Err(CommandError::new(ExitCode::Failed, message).hint(hint).hint("`teamctl agents` lists the agents"))
}

/// Finds the program of an agent as its teammate will: in `PATH`, or by its path. One that counts from the workspace is not looked
/// for: which that is, only the teammate says.
fn find(agent: &AgentProgram, environment: &Environment) -> Option<PathBuf> {
    let program = Path::new(agent.command.first()?);
    let is_program = |path: &PathBuf| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if program.components().count() > 1 {
        return Some(program.to_owned()).filter(|path| path.is_relative() || is_program(path));
    }
    let path = environment.value("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(is_program)
}
