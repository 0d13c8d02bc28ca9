//! `teamctl agents`: the agents that a teammate can be, and whether each can be started.

use serde_json::json;
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_client::exit_code::ExitCode;
use teamd_client::print::table::{Cell, Table};
use teamd_client::read::agents::{Known, Problem, inspect};
use teamd_shared::environment::Environment;
use teamd_shared::terms::{AgentProgram, BUILT_IN, Protocol, Published};

/// Runs the command.
pub(crate) fn run(context: &Context) -> CommandResult {
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
