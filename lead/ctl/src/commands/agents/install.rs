//! `teamctl agents install`: installs what the command of an agent would fetch.

use std::collections::BTreeMap;
use std::path::Path;

use teamd_client::act::install::{ListedAgent, listed_agent};
use teamd_client::args::InstallArgs;
use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_shared::installed::FetchedPackage;

use crate::commands::install::install_and_report;

/// An agent that is to be installed.
struct AgentInstall {
    name: String,
    /// Its command, which begins with a launcher.
    command: Vec<String>,
    /// The variables that it is to be started with, by the file that lists it.
    variables: BTreeMap<String, String>,
    /// Whether a spawn finds it without more ado.
    is_defined: bool,
}

/// Runs the command.
pub(super) fn run(context: &Context, args: &InstallArgs) -> CommandResult {
    let order = match args.agent.as_slice() {
        [file, id] => listed(context, Path::new(file), id)?,
        [id] => defined(context, id)?,
        _ => {
            return Err(usage(
                "an agent is expected, or a file and an agent".to_owned(),
            ));
        }
    };
    install_and_report(context, &order.name, &order.command, args.how)?;
    if !order.is_defined {
        tell_definition(context, &order);
    }
    Ok(ExitCode::Done)
}

/// Finds an agent of `team.toml`, else one that needs no table there.
fn defined(context: &Context, id: &str) -> Result<AgentInstall, CommandError> {
    let file = context.team_file()?;
    if let Some(agent) = file.agents.get(id) {
        // To install it runs what the file names, as the user.
        let untrusted = context.widening()?.untrusted(context.register.state())?;
        if untrusted.contains(&agent.trust_key(id)) {
            context.ask_for_trust()?;
        }
        return Ok(AgentInstall {
            name: id.to_owned(),
            command: agent.command.clone(),
            variables: BTreeMap::new(),
            is_defined: true,
        });
    }
    // Where none is named, npm takes an old version if the newest asks for a newer Node.js. Claude
    // Code does, and is a program of its own that needs none.
    let (name, version) = id.split_once('@').unwrap_or((id, "latest"));
    let Some(package) = FetchedPackage::of_known(name) else {
        return Err(CommandError::new(
            ExitCode::NotFound,
            format!("there is no agent {id} that could be installed"),
        )
        .hint("it is claude, codex, opencode or gemini, `[agents.NAME]` of team.toml, or one of a file: `teamctl agents install registry.json ID`"));
    };
    let package = FetchedPackage {
        version: Some(version.to_owned()),
        ..package
    };
    Ok(AgentInstall {
        name: name.to_owned(),
        command: ["npx".to_owned(), "-y".to_owned(), package.spec()].into(),
        variables: BTreeMap::new(),
        is_defined: true,
    })
}

/// Finds an agent in a file of the ACP registry.
fn listed(context: &Context, file: &Path, id: &str) -> Result<AgentInstall, CommandError> {
    let ListedAgent { command, variables } = listed_agent(file, id)?;
    let of_team = context.team_file()?.agents.get(id);
    let is_defined = of_team.is_some_and(|agent| agent.command == command);
    Ok(AgentInstall {
        name: id.to_owned(),
        command,
        variables,
        is_defined,
    })
}

/// Tells a person what makes an agent of the registry one of the team.
fn tell_definition(context: &Context, order: &AgentInstall) {
    let words: Vec<String> = order.command.iter().map(|word| quoted(word)).collect();
    context
        .out
        .hint("write this into team.toml, then `teamd trust`:");
    context
        .out
        .aside(format_args!("[agents.{}]", quoted(&order.name)));
    context
        .out
        .aside(format_args!("command = [{}]", words.join(", ")));
    context.out.aside("protocol = \"acp\"");
    for (name, value) in &order.variables {
        let line = format!("{name}={value}");
        context.out.note(format_args!(
            "its authors start it with {}: set it in the shell that spawns",
            escape::line(&line)
        ));
    }
}

/// Returns a text as a string of TOML, whose escapes are those of JSON.
fn quoted(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    escape::line(&quoted).into_owned()
}

fn usage(message: String) -> CommandError {
    CommandError::new(ExitCode::Usage, message)
}
