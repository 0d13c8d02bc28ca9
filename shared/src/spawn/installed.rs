//! The programs of a spawn order: no launcher is run at a spawn, but what was installed for it.

use crate::control::{Refusal, RefusalCode, SpawnOrder};
use crate::environment::Environment;
use crate::installed::{command_of_agent, without_launcher};
use crate::terms::{McpServer, McpTransport};

/// Replaces the programs that an order names, of its agent and of its MCP servers, by those that
/// were installed for them.
///
/// # Errors
/// [`RefusalCode::Failed`] if its command begins with a launcher, and nothing was installed.
pub fn use_installed(order: &mut SpawnOrder) -> Result<(), Refusal> {
    for server in &mut order.terms.servers {
        *server = installed_server(server, &order.environment)?;
    }
    let (Some(name), Some(program)) = (&order.terms.agent, &mut order.terms.program) else {
        return Ok(());
    };
    match command_of_agent(name, program, &order.environment) {
        Ok(installed) => {
            program.command = installed.command;
            Ok(())
        }
        Err(error) => {
            let install = format!("teamctl agents install {name}");
            let hint = error.hint(&install, &format!("[agents.{name}]"));
            let why = format!("the agent {name} cannot be started: {error}");
            Err(Refusal::new(RefusalCode::Failed, why).hint(hint))
        }
    }
}

/// Returns an MCP server whose program is the one that was installed for it.
///
/// # Errors
/// [`RefusalCode::Failed`] if its command begins with a launcher, and nothing was installed.
pub fn installed_server(
    server: &McpServer,
    environment: &Environment,
) -> Result<McpServer, Refusal> {
    let mut server = server.clone();
    let McpTransport::Stdio { command, .. } = &mut server.transport else {
        return Ok(server);
    };
    match without_launcher(command, environment) {
        Ok(installed) => {
            *command = installed.command;
            Ok(server)
        }
        Err(error) => {
            let name = &server.name;
            let install = format!("teamctl mcp install {name}");
            let hint = error.hint(&install, &format!("[mcp.{name}]"));
            let why = format!("the MCP server {name} cannot be started: {error}");
            Err(Refusal::new(RefusalCode::Failed, why).hint(hint))
        }
    }
}
