//! The MCP servers that `team.toml` defines: who has them, what is known of their tools, and what
//! keeps them from being started.

use serde::Serialize;
use teamd_shared::control::{McpServerReport, McpServerState};
use teamd_shared::environment::Environment;
use teamd_shared::journal::Team;
use teamd_shared::mcp_tools;
use teamd_shared::message::LEAD;
use teamd_shared::name::Name;
use teamd_shared::spawn::installed_server;
use teamd_shared::state::StateDir;
use teamd_shared::team_file::TeamFile;
use teamd_shared::terms::{McpServer, McpTransport, TermsPatch};

use super::agents::find;
use crate::act::mcp_reports::McpReports;
use crate::error::CommandError;
use crate::exit_code::ExitCode;
use crate::print::escape;

/// Makes sure that a server can be started, or reached. Its command is without a launcher
/// ([`installed_server`]).
///
/// # Errors
/// What is missing, and what to do.
pub fn check(server: &McpServer, environment: &Environment) -> Result<(), CommandError> {
    let name = &server.name;
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
    match unset_variable(server, environment) {
        Some(variable) => Err(failed(format!(
            "the MCP server {name} needs {variable}, which is not set"
        ))
        .hint("set it in this shell; its value is in no file")),
        None => Ok(()),
    }
}

/// Returns the first variable that a server needs and that is not set.
pub fn unset_variable<'s>(server: &'s McpServer, environment: &Environment) -> Option<&'s str> {
    let mut variables = server.variables().into_iter();
    variables.find(|variable| environment.value(variable).is_none())
}

/// A server, as it is listed.
#[derive(Debug, Serialize)]
pub struct ServerRow {
    /// Its name.
    pub name: String,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// The roles and members that have it by `team.toml`.
    pub given_to: Vec<String>,
    /// The teammates that have it now.
    pub teammates: Vec<Name>,
    /// How many tools it has told of; none: it was never started.
    pub tools: Option<usize>,
    /// What its list costs in each model call, in tokens, at four bytes each.
    pub tokens: Option<usize>,
    /// What keeps it from being started, on one line.
    pub problem: Option<String>,
    /// What becomes of it, for each teammate that has it now.
    pub states: Vec<TeammateServer>,
}

/// A server of a teammate that runs.
#[derive(Debug, Serialize)]
pub struct TeammateServer {
    /// The teammate.
    pub teammate: Name,
    /// What the server does; none: its worker has not reported it to the daemon.
    pub state: Option<McpServerState>,
    /// How many tools it has told of, while it is connected.
    pub tools: Option<u32>,
    /// Why it has failed last in this incarnation.
    pub last_error: Option<String>,
}

impl TeammateServer {
    fn of(teammate: Name, report: Option<&McpServerReport>) -> Self {
        Self {
            teammate,
            state: report.map(|report| report.state),
            tools: report.and_then(|report| report.tools),
            last_error: report.and_then(|report| report.last_error.clone()),
        }
    }
}

impl ServerRow {
    /// Describes a server. `team`: none without a team; its states are asked for later.
    pub fn of(
        server: &McpServer,
        file: &TeamFile,
        team: Option<&Team>,
        state: &StateDir,
        environment: &Environment,
    ) -> Self {
        let resolved = installed_server(server, environment);
        let name = server.name.as_str();
        let transport = match server.transport {
            McpTransport::Stdio { .. } => "stdio",
            McpTransport::Http { .. } => "http",
        };
        let has = |terms: &TermsPatch| terms.mcp.iter().any(|named| named == name);
        let roles = file.roles.iter().filter(|(_, terms)| has(terms));
        let roles = roles.map(|(role, _)| format!("role {role}"));
        let members = file.members.iter().filter(|(_, terms)| has(terms));
        let members = members.map(|(member, _)| member.to_string());
        let lead = has(&file.lead).then(|| LEAD.to_owned());
        let started = resolved.as_ref().unwrap_or(server);
        let mut teammates: Vec<Name> = Vec::new();
        for member in team.iter().flat_map(|team| team.members.values()) {
            let is_here = !member.record.phase.is_ended();
            let terms = &member.record.terms;
            // What a host starts is its own, and the record has what is written.
            let its = if terms.host.is_some() {
                server
            } else {
                started
            };
            if is_here && terms.mcp.contains(its) {
                teammates.push(member.record.name.clone());
            }
        }
        // What cannot be read is not known.
        let known = mcp_tools::read(state, started).ok().flatten();
        let lines = known.as_ref().map(|known| {
            let tools = known.tools.iter();
            let lines = tools.map(|tool| {
                let name = mcp_tools::name_for_models(&server.name, &tool.name);
                mcp_tools::listed_line(&name, tool).len() + 1
            });
            lines.sum::<usize>()
        });
        let problem = match &resolved {
            Ok(server) => check(server, environment)
                .err()
                .map(|error| error.to_string()),
            Err(refusal) => Some(refusal.clone().into()),
        };
        Self {
            name: name.to_owned(),
            transport,
            given_to: roles.chain(members).chain(lead).collect(),
            states: Vec::new(),
            teammates,
            tools: known.map(|known| known.tools.len()),
            tokens: lines.map(|bytes| bytes.div_ceil(4)),
            problem,
        }
    }

    /// Adds what becomes of it.
    pub fn add_states(&mut self, reports: &McpReports) {
        for teammate in &self.teammates {
            let report = reports.of_server(teammate, &self.name);
            self.states
                .push(TeammateServer::of(teammate.clone(), report));
        }
    }
}

fn failed(message: String) -> CommandError {
    CommandError::new(ExitCode::Failed, message)
}
