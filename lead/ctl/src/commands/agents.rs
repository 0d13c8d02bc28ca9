//! `teamctl agents`: the agents that a teammate can be, and whether each can be started.

mod install;

use serde::Serialize;
use teamd_client::args::{Agents, AgentsCommand};
use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::table::{Cell, Table};
use teamd_client::read::agents::{KnownAgent, Problem, find, inspect};
use teamd_shared::environment::Environment;
use teamd_shared::installed::{InstalledCommand, NotInstalled, command_of_agent};
use teamd_shared::terms::{AgentProgram, BUILT_IN, KNOWN, Published};
use teamd_shared::user_config::UserConfig;

/// An agent, as it is listed.
#[derive(Serialize)]
struct AgentRow {
    name: String,
    protocol: Option<&'static str>,
    state: &'static str,
    command: Option<Vec<String>>,
    version: Option<String>,
    /// The versions that are known to work.
    tested: Option<String>,
    memory_mb: Option<u32>,
    /// Where its program was found.
    program: Option<String>,
    /// The command that installs it, where it is missing.
    install: Option<String>,
}

/// Runs the command.
pub(crate) fn run(context: &Context, args: &Agents) -> CommandResult {
    match &args.command {
        Some(AgentsCommand::Install(args)) => install::run(context, args),
        None => list(context),
    }
}

fn list(context: &Context) -> CommandResult {
    let file = context.team_file()?;
    let environment = Environment::of_self();
    let config = UserConfig::load(|name| std::env::var_os(name))?;
    let untrusted = context.widening()?.untrusted(context.register.state())?;
    let mut rows = vec![AgentRow::of_builtin()];
    for known in KNOWN {
        let name = known.name;
        if !file.agents.contains_key(name)
            && let Some(mut agent) = AgentProgram::known(name)
        {
            agent.login = config.login(name, &agent);
            let is_trusted = !untrusted.contains(&agent.trust_key(name));
            rows.push(AgentRow::of(name, &agent, is_trusted, &environment)?);
        }
    }
    for (name, agent) in &file.agents {
        let is_trusted = !untrusted.contains(&agent.trust_key(name));
        rows.push(AgentRow::of(name, agent, is_trusted, &environment)?);
    }
    if context.out.is_json() {
        context.out.json(&rows)?;
        return Ok(ExitCode::Done);
    }
    let mut table = Table::new(&[
        "AGENT", "PROTOCOL", "STATE", "VERSION", "TESTED", "MEMORY", "COMMAND",
    ]);
    for row in &rows {
        table.row(row.cells());
    }
    context.out.text(table.render(context.out.width()))?;
    if let Some(install) = rows.iter().find_map(|row| row.install.as_ref()) {
        context.out.hint(format_args!(
            "`{install}` installs it; so it is for each agent that is missing"
        ));
    }
    if file.agents.is_empty() {
        context
            .out
            .hint("`[agents.NAME]` in team.toml adds a program of your own (docs/agents.md)");
    }
    Ok(ExitCode::Done)
}

impl AgentRow {
    fn of_builtin() -> Self {
        Self {
            name: BUILT_IN.to_owned(),
            protocol: None,
            state: "ready",
            command: None,
            version: None,
            tested: None,
            memory_mb: None,
            program: None,
            install: None,
        }
    }

    fn of(
        name: &str,
        agent: &AgentProgram,
        is_trusted: bool,
        environment: &Environment,
    ) -> Result<Self, CommandError> {
        let known_agent = KnownAgent::of(name, agent.protocol);
        let mut row = Self {
            name: name.to_owned(),
            protocol: Some(agent.protocol.as_str()),
            state: "ready",
            command: Some(agent.command.clone()),
            version: None,
            tested: known_agent
                .as_ref()
                .map(|known_agent| tested(&known_agent.published)),
            memory_mb: known_agent.map(|known_agent| known_agent.memory),
            program: None,
            install: None,
        };
        let install = format!("teamctl agents install {name}");
        let InstalledCommand { command, installed } =
            match command_of_agent(name, agent, environment) {
                Ok(resolved) => resolved,
                Err(NotInstalled::Launcher { obstacle: None, .. }) => {
                    row.state = "not installed";
                    row.install = Some(install);
                    return Ok(row);
                }
                Err(NotInstalled::Launcher { .. }) => {
                    row.state = "launcher";
                    return Ok(row);
                }
                Err(error) => {
                    let hint = error.hint(&install, &format!("[agents.{name}]"));
                    let message = error.to_string();
                    return Err(CommandError::new(ExitCode::Failed, message).hint(hint));
                }
            };
        let resolved = AgentProgram {
            command,
            ..agent.clone()
        };
        let (version, problem) = inspect(name, &resolved, environment);
        if matches!(problem, Some(Problem::Missing)) && AgentProgram::known(name).is_some() {
            row.install = Some(install);
        }
        row.state = match problem {
            Some(Problem::Missing) => "missing",
            _ if !is_trusted => "not trusted",
            Some(Problem::TooOld(_)) => "too old",
            Some(Problem::NoKey) => "no key",
            Some(Problem::Signs(_)) => "no service",
            None => "ready",
        };
        row.version = match installed {
            Some(installed) => Some(installed.record.version),
            None => version.map(|version| version.to_string()),
        };
        let program = find(&resolved.command, environment);
        row.program = program.map(|program| program.to_string_lossy().into_owned());
        row.command = Some(resolved.command);
        Ok(row)
    }

    fn cells(&self) -> Vec<Cell> {
        let memory = self.memory_mb.map(|memory| format!("{memory} MB"));
        let command = self.command.as_ref().map(|command| command.join(" "));
        vec![
            Cell::new(&self.name),
            Cell::new(self.protocol.unwrap_or("-")),
            Cell::new(self.state),
            Cell::new(self.version.as_deref().unwrap_or("-")),
            Cell::new(self.tested.as_deref().unwrap_or("-")),
            Cell::new(memory.as_deref().unwrap_or("-")),
            Cell::new(command.as_deref().unwrap_or("-")),
        ]
    }
}

fn tested(published: &Published) -> String {
    let [oldest, newest] = &published.tested;
    if oldest == newest {
        newest.to_string()
    } else {
        format!("{oldest} to {newest}")
    }
}
