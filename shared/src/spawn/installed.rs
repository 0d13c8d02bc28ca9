//! The programs of a spawn order: no launcher is run at a spawn, but what was installed for it.

use crate::control::{Refusal, RefusalCode, SpawnOrder};
use crate::environment::Environment;
use crate::installed::{command_of_agent, installed_at, without_launcher};
use crate::terms::{AgentProgram, McpServer, McpTransport};

/// Replaces the programs of the agent and of the MCP servers that an order names by those that were
/// installed for them. Those of a teammate on a host are found there.
///
/// # Errors
/// [`RefusalCode::Failed`] if a command begins with a launcher, and nothing was installed.
pub fn use_installed(order: &mut SpawnOrder) -> Result<(), Refusal> {
    let environment = &order.environment;
    if let (Some(name), Some(program)) = (&order.terms.agent, &mut order.terms.program) {
        program.command = installed_agent(name, program, environment)?;
    }
    for server in &mut order.terms.servers {
        *server = installed_server(server, environment)?;
    }
    Ok(())
}

/// Returns the command of an agent as a spawn starts it: without a launcher.
///
/// # Errors
/// [`RefusalCode::Failed`] if it begins with a launcher, and nothing was installed.
pub fn installed_agent(
    name: &str,
    program: &AgentProgram,
    environment: &Environment,
) -> Result<Vec<String>, Refusal> {
    let resolved = command_of_agent(name, program, environment).map_err(|error| {
        let install = format!("teamctl agents install {name}");
        let hint = error.hint(&install, &format!("[agents.{name}]"));
        let why = format!("the agent {name} cannot be started: {error}");
        Refusal::new(RefusalCode::Failed, why).hint(hint)
    })?;
    Ok(resolved.command)
}

/// Returns an MCP server as a spawn starts it: without a launcher.
///
/// # Errors
/// [`RefusalCode::Failed`] if its command begins with a launcher, and nothing was installed.
pub fn installed_server(
    server: &McpServer,
    environment: &Environment,
) -> Result<McpServer, Refusal> {
    let mut server = server.clone();
    let name = &server.name;
    if let McpTransport::Stdio { command, .. } = &mut server.transport {
        let resolved = without_launcher(command, environment).map_err(|error| {
            let hint = error.hint(
                &format!("teamctl mcp install {name}"),
                &format!("[mcp.{name}]"),
            );
            let why = format!("the MCP server {name} cannot be started: {error}");
            Refusal::new(RefusalCode::Failed, why).hint(hint)
        })?;
        *command = resolved.command;
    }
    Ok(server)
}

/// Tells whether two servers are the same but for the version of what was installed for them.
pub(super) fn differ_in_version_alone(one: &McpServer, other: &McpServer) -> bool {
    let as_asked_for = |server: &McpServer| {
        let mut server = server.clone();
        if let McpTransport::Stdio { command, .. } = &mut server.transport
            && let Some(program) = command.first_mut()
            && let Ok(Some(installed)) = installed_at(program.as_ref())
        {
            let package = installed.record.package;
            *program = format!("{:?} {package} {:?}", package.registry, package.program);
        }
        server
    };
    as_asked_for(one) == as_asked_for(other)
}
