//! `teamctl mcp install`: installs what the command of an MCP server would fetch.

use teamd_client::args::McpInstall;
use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_shared::terms::McpTransport;

use crate::commands::install::install_and_report;

/// Runs the command.
pub(super) fn run(context: &Context, args: &McpInstall) -> CommandResult {
    let name = &args.name;
    let file = context.team_file()?;
    let Some((key, definition)) = file.mcp.get_key_value(name.as_str()) else {
        let message = format!("team.toml has no MCP server {name}");
        return Err(CommandError::new(ExitCode::NotFound, message)
            .hint("write `[mcp.NAME]` with `command`, such as [\"npx\", \"-y\", \"PACKAGE\"]"));
    };
    let server = definition.named(key);
    let McpTransport::Stdio { command, .. } = &server.transport else {
        let message = format!("the MCP server {name} is reached by its `url`, and runs already");
        return Err(CommandError::new(ExitCode::Usage, message)
            .hint("nothing is to be installed: `teamctl spawn NAME --mcp` uses it"));
    };
    // To install it runs what the file names, as the user.
    let untrusted = context.widening()?.untrusted(context.register.state())?;
    if server.is_among(&untrusted) {
        context.ask_for_trust()?;
    }
    install_and_report(context, name, command, args.how)?;
    Ok(ExitCode::Done)
}
