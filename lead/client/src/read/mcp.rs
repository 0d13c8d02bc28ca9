//! Whether the MCP servers of a teammate can be started, as far as that is known before.

use teamd_shared::environment::Environment;
use teamd_shared::terms::{McpServer, McpTransport};

use super::agents::find;
use crate::error::CommandError;
use crate::exit_code::ExitCode;
use crate::print::escape;

/// Makes sure that a server can be started, or reached.
///
/// # Errors
/// What is missing, and what to do.
pub fn check(server: &McpServer, environment: &Environment) -> Result<(), CommandError> {
    let name = &server.name;
    if let Some(launcher) = server.launcher() {
        return Err(failed(format!(
            "the MCP server {name} cannot be started: its command begins with {launcher}, which fetches a program each time; in the sandbox it would hang"
        ))
        .hint(format!(
            "install the program once, and name what results in `command` of `[mcp.{name}]`"
        )));
    }
    if let McpTransport::Stdio { command, .. } = &server.transport
        && find(command, environment).is_none()
    {
        let program = escape::line(&command[0]).into_owned();
        return Err(failed(format!(
            "the MCP server {name} cannot be started: there is no program {program}"
        ))
        .hint(format!(
            "install it, or correct `command` in `[mcp.{name}]` of team.toml"
        )));
    }
    let unset = server
        .variables()
        .into_iter()
        .find(|variable| environment.value(variable).is_none());
    match unset {
        Some(variable) => Err(failed(format!(
            "the MCP server {name} needs {variable}, which is not set"
        ))
        .hint("set it in this shell; its value is in no file")),
        None => Ok(()),
    }
}

fn failed(message: String) -> CommandError {
    CommandError::new(ExitCode::Failed, message)
}
