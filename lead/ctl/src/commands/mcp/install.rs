//! `teamctl mcp install`: installs what the command of an MCP server would fetch.

use serde::Serialize;
use teamd_client::act::install::{InstallOptions, Installation, install};
use teamd_client::args::McpInstall;
use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_shared::suggest::among;
use teamd_shared::terms::McpServer;
use teamd_shared::terms::{McpName, McpTransport};

/// What is installed, for programs.
#[derive(Serialize)]
struct InstallationReport<'a> {
    name: &'a str,
    package: String,
    version: &'a str,
    program: String,
    new: bool,
    command: &'a [String],
}

/// Runs the command.
pub(super) fn run(context: &Context, args: &McpInstall) -> CommandResult {
    let server = find(context, &args.name)?;
    let McpTransport::Stdio { command, .. } = &server.transport else {
        return Err(CommandError::new(
            ExitCode::Usage,
            format!(
                "the MCP server {} is reached over HTTP: there is nothing to install",
                args.name
            ),
        ));
    };
    let options = InstallOptions {
        upgrade: args.upgrade,
        scripts: args.scripts,
    };
    let Installation { installed, is_new } = install(&context.out, &args.name, command, options)?;
    let version = &installed.record.version;
    let program = installed.program().to_string_lossy().into_owned();
    let report = InstallationReport {
        name: &args.name,
        package: installed.record.package.to_string(),
        version,
        program: program.clone(),
        new: is_new,
        command,
    };
    let state = if is_new { "is" } else { "was already" };
    let text = format!("{} {version} {state} installed: {program}", args.name);
    context.out.result(&report, escape::line(&text))?;
    if !is_new && !args.upgrade {
        context.out.hint("`--upgrade` looks for a newer version");
    }
    Ok(ExitCode::Done)
}

/// Finds a server of `team.toml`. To install it runs what the file names, as the user.
fn find(context: &Context, name: &str) -> Result<McpServer, CommandError> {
    let file = context.team_file()?;
    let found = file.mcp.get_key_value(name);
    let Some((name, definition)) = found else {
        let names = file.mcp.keys().map(McpName::as_str);
        let hint = among(name, "team.toml defines", names);
        let error = CommandError::new(
            ExitCode::NotFound,
            format!("there is no MCP server {name} in team.toml"),
        );
        return Err(error.hint(hint));
    };
    let untrusted = context.widening()?.untrusted(context.register.state())?;
    let table = format!("mcp.{name}.");
    if untrusted.iter().any(|key| key.starts_with(&table)) {
        context.ask_for_trust()?;
    }
    Ok(definition.named(name))
}
