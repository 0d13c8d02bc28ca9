//! The programs of a teammate here: its agent and its MCP servers. Home names them, and this host
//! looks for them, since they run here: what was installed here, and what is in the `PATH` of the
//! login.

use teamd_client::error::CommandError;
use teamd_client::read::agents::Problem;
use teamd_client::read::{agents, mcp};
use teamd_shared::control::Refusal;
use teamd_shared::environment::{CLAUDE_TOKEN, Environment};
use teamd_shared::job::MakeOrder;
use teamd_shared::member::Agent;
use teamd_shared::spawn::{installed_agent, installed_server};
use teamd_shared::terms::{AgentProgram, McpServer, Terms};

use super::daemon::HostDaemon;

impl HostDaemon {
    /// Replaces the programs that terms name by those of this host. `known`: the terms of the same
    /// conversation with the same programs, whose versions it keeps.
    ///
    /// # Errors
    /// What is missing here, and what to do. One line.
    pub(super) fn find_programs(
        &mut self,
        terms: &mut Terms,
        known: Option<&Terms>,
        environment: &Environment,
    ) -> Result<(), String> {
        let host = self.host_name();
        if let Some(agent) = &mut terms.program {
            let known = known.and_then(|known| known.program.as_ref());
            let note = find_agent(agent, known, environment, &host)?;
            if let Some(note) = note {
                self.warn(note);
            }
        }
        for server in &mut terms.mcp {
            let mut known = known.iter().flat_map(|known| &known.mcp);
            let known = known.find(|known| known.name == server.name);
            find_server(server, known, environment, &host)?;
        }
        Ok(())
    }

    /// Makes sure that the programs of a teammate are here, before its checkout is made. Its keys
    /// come with the start alone.
    ///
    /// # Errors
    /// As for the start.
    pub(super) fn look_for_programs(
        &self,
        make: &MakeOrder,
        known: Option<&Terms>,
        environment: &Environment,
    ) -> Result<(), String> {
        let host = self.host_name();
        if let Some(agent) = &make.program {
            let known = known.and_then(|known| known.program.as_ref());
            let program = program_of(agent, known, environment, &host)?;
            let (_, problem) = agents::inspect(&agent.name, &program, environment);
            if let Some(Problem::Missing | Problem::TooOld(_)) = problem {
                let checked = agents::check(&agent.name, &program, environment);
                checked.map_err(|error| of_error(&error, &host))?;
            }
        }
        for server in &make.mcp {
            let mut with_keys = environment.clone();
            while let Some(variable) = mcp::unset_variable(server, &with_keys) {
                with_keys.set(variable, "comes with the start");
            }
            let mut known = known.iter().flat_map(|known| &known.mcp);
            let known = known.find(|known| known.name == server.name);
            find_server(&mut server.clone(), known, &with_keys, &host)?;
        }
        Ok(())
    }

    /// Returns what home calls this host.
    pub(super) fn host_name(&self) -> String {
        let host = self.log.state.obeys.as_ref();
        host.map_or_else(|| "this host".to_owned(), |it| it.host.to_string())
    }
}

/// Finds the program of an agent. Returns what is to be noted.
fn find_agent(
    agent: &mut Agent,
    known: Option<&Agent>,
    environment: &Environment,
    host: &str,
) -> Result<Option<String>, String> {
    let name = &agent.name;
    if agent.login.is_token() && environment.value(CLAUDE_TOKEN).is_none() {
        return Err(format!(
            "the agent {name} is to log in with a token, and {host} has no {CLAUDE_TOKEN}: set it in the login there, or name it in \
             `env` of `[hosts.{host}]` in team.toml and set it in your shell"
        ));
    }
    let program = program_of(agent, known, environment, host)?;
    let note = agents::check(name, &program, environment);
    let note = note.map_err(|error| of_error(&error, host))?;
    agent.command = program.command;
    Ok(note)
}

/// Returns the program of an agent as it is started here.
fn program_of(
    agent: &Agent,
    known: Option<&Agent>,
    environment: &Environment,
    host: &str,
) -> Result<AgentProgram, String> {
    let mut program = AgentProgram {
        command: agent.command.clone(),
        protocol: agent.protocol,
        login: agent.login,
    };
    let known = known.filter(|known| agents::find(&known.command, environment).is_some());
    program.command = match known {
        Some(known) => known.command.clone(),
        None => installed_agent(&agent.name, &program, environment)
            .map_err(|refusal| of_refusal(&refusal, host))?,
    };
    Ok(program)
}

/// Finds the program of an MCP server, and makes sure that its variables are set.
fn find_server(
    server: &mut McpServer,
    known: Option<&McpServer>,
    environment: &Environment,
    host: &str,
) -> Result<(), String> {
    if let Some(variable) = mcp::unset_variable(server, environment) {
        let name = &server.name;
        return Err(format!(
            "the MCP server {name} needs {variable}, which is not set on {host}: set it in the login there, or name it in `env` of \
             `[hosts.{host}]` in team.toml and set it in your shell"
        ));
    }
    let found = match known.filter(|known| mcp::check(known, environment).is_ok()) {
        Some(known) => known.clone(),
        None => {
            installed_server(server, environment).map_err(|refusal| of_refusal(&refusal, host))?
        }
    };
    mcp::check(&found, environment).map_err(|error| of_error(&error, host))?;
    *server = found;
    Ok(())
}

fn of_refusal(refusal: &Refusal, host: &str) -> String {
    there(&refusal.message, refusal.hint.as_deref(), host)
}

fn of_error(error: &CommandError, host: &str) -> String {
    there(error.message(), error.next_step(), host)
}

/// Says what is missing on this host, and the next step there.
fn there(message: &str, hint: Option<&str>, host: &str) -> String {
    match hint {
        Some(hint) => {
            // The files of the team are at home.
            let is_at_home = ["team.toml", "config.toml"]
                .iter()
                .any(|file| hint.contains(file));
            let place = if is_at_home { "at home" } else { "there" };
            format!("{message} on {host}; {place}: {hint}")
        }
        None => format!("{message} on {host}"),
    }
}
