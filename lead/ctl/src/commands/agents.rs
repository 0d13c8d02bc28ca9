//! `teamctl agents`: the agents that a teammate can be, and whether each can be started.

use serde::Serialize;
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_client::exit_code::ExitCode;
use teamd_client::print::table::{Cell, Table};
use teamd_client::read::agents::{KnownAgent, Problem, inspect};
use teamd_shared::environment::Environment;
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
}

/// Runs the command.
pub(crate) fn run(context: &Context) -> CommandResult {
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
            rows.push(AgentRow::of(name, &agent, is_trusted, &environment));
        }
    }
    for (name, agent) in &file.agents {
        let is_trusted = !untrusted.contains(&agent.trust_key(name));
        rows.push(AgentRow::of(name, agent, is_trusted, &environment));
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
        }
    }

    fn of(name: &str, agent: &AgentProgram, is_trusted: bool, environment: &Environment) -> Self {
        let (version, problem) = inspect(name, agent, environment);
        let state = match problem {
            Some(Problem::Missing) => "missing",
            Some(Problem::Launcher(_)) => "launcher",
            _ if !is_trusted => "not trusted",
            Some(Problem::TooOld(_)) => "too old",
            Some(Problem::NoKey) => "no key",
            Some(Problem::Signs(_) | Problem::NoService) => "no service",
            None => "ready",
        };
        let known_agent = KnownAgent::of(name, agent.protocol);
        Self {
            name: name.to_owned(),
            protocol: Some(agent.protocol.as_str()),
            state,
            command: Some(agent.command.clone()),
            version: version.map(|version| version.to_string()),
            tested: known_agent
                .as_ref()
                .map(|known_agent| tested(&known_agent.published)),
            memory_mb: known_agent.map(|known_agent| known_agent.memory),
        }
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
