//! Merges all sources of a teammate's (or the lead agent's) terms into a spawn order: the flags of
//! a command, else the environment (`TEAM_…`), else `team.toml` (the member, its role, the top
//! level), else the default. Pure.
//!
//! A resumed teammate keeps the terms of its record: only flags change them.

use super::service;
use crate::config::RosterMember;
use crate::control::SpawnOrder;
use crate::environment::Environment;
use crate::model_spec::{ModelSpec, Provider};
use crate::name::Name;
use crate::team_file::{TeamFile, VARIABLE};
use crate::terms::{AgentProgram, BUILT_IN, McpServer, TermsPatch, add, is_of_service, service_of};
use crate::variable::{Lookup, SettingError, variable};
use crate::visible::is_hidden;

/// What a command asks for.
#[derive(Debug, Clone)]
pub struct SpawnRequest<'a> {
    /// The teammate; `lead` is the lead agent.
    pub name: &'a Name,
    /// The terms that the command itself names. Paths are absolute already.
    pub flags: TermsPatch,
    /// The certificate authorities that it names.
    pub ca: Option<String>,
    /// Whether the last conversation continues.
    pub resume: bool,
}

/// Merges the flags, the environment and the file. `earlier` is the roster's record of an earlier
/// incarnation; `default_model` counts where no source names a model.
///
/// # Errors
/// [`SettingError`] for a variable with a wrong value, those of a model's service among them.
pub fn resolve(
    request: SpawnRequest<'_>,
    default_model: Option<ModelSpec>,
    earlier: Option<&RosterMember>,
    mut environment: Environment,
    file: &TeamFile,
) -> Result<SpawnOrder, SettingError> {
    let SpawnRequest {
        name,
        flags,
        ca,
        resume,
    } = request;
    let is_lead = *name == Name::lead();
    let names_role = flags.role.is_some();
    let names_fallback = flags.fallback_model.is_some();
    let tables = TableLayers::of(name, flags.role.as_ref(), earlier, file);
    let lookup = |variable: &str| environment.value(variable);
    let mut terms = flags;
    if !resume {
        terms = terms
            .merge(TermsPatch::of_environment(&lookup)?)
            .merge(tables.terms(is_lead));
    }
    if is_lead {
        terms.plan = None;
        terms.approve_by = None;
        terms.restart = None;
    }
    check_role(&terms)?;
    if let Some(agent) = &terms.agent
        && agent != BUILT_IN
    {
        terms.program = Some(find_agent(agent, file)?);
    }
    terms.servers = find_servers(&terms.mcp, file)?;
    if !resume || names_role {
        terms.instructions = tables.instructions(is_lead);
    }
    if terms.model.is_none() && !resume {
        terms.model = model_of_agent(&terms).or(default_model);
    }
    terms.model = check_model(&terms, earlier.filter(|_| resume), &lookup)?;
    let model = match earlier {
        Some(member) if resume && terms.model.is_none() => member.model.parse().ok(),
        _ => terms.model.clone(),
    };
    service::check(model.as_ref(), &lookup)?;
    let resumed = earlier.filter(|_| resume);
    terms.fallback_model = match check_fallback(&terms, model.as_ref(), resumed, &lookup) {
        // What a table says for all members does not hold for one that has another service.
        Err(_) if !names_fallback && !tables.contradict() => None,
        checked => checked?,
    };
    hand_on(&mut environment, file, ca, is_lead);
    // The environment is always that of the command, and so are the variables in it that the
    // teammate's commands get.
    let passed_on = tables.variables();
    environment.part(&passed_on);
    environment.tell_unattended(&passed_on);
    Ok(SpawnOrder {
        resume,
        terms,
        ..SpawnOrder::new(name.clone(), environment)
    })
}

/// The tables of `team.toml` that hold for a teammate.
struct TableLayers<'f> {
    own: Option<&'f TermsPatch>,
    role: Option<&'f TermsPatch>,
    team: &'f TermsPatch,
}

impl<'f> TableLayers<'f> {
    /// Finds them. The role is the one that the command names, else that of its own table, else the
    /// recorded one.
    fn of(
        name: &Name,
        role: Option<&String>,
        earlier: Option<&RosterMember>,
        file: &'f TeamFile,
    ) -> Self {
        let own = if *name == Name::lead() {
            Some(&file.lead)
        } else {
            file.member(name)
        };
        let role = role
            .or(own.and_then(|own| own.role.as_ref()))
            .or(earlier.map(|member| &member.role));
        Self {
            own,
            role: role.and_then(|role| file.roles.get(role.trim())),
            team: &file.team,
        }
    }

    /// Merges their terms. The prompt of a member is its first task; that of a role or of the lead
    /// is an instruction instead.
    fn terms(&self, is_lead: bool) -> TermsPatch {
        let mut terms = self.own.cloned().unwrap_or_default();
        if is_lead {
            terms.prompt = None;
        }
        for table in self.role.into_iter().chain([self.team]) {
            terms = terms.merge(TermsPatch {
                prompt: None,
                ..table.clone()
            });
        }
        terms
    }

    /// Tells whether one of them names a model and a fallback that do not go together.
    fn contradict(&self) -> bool {
        let mut tables = self.own.into_iter().chain(self.role).chain([self.team]);
        tables.any(|table| match (&table.model, &table.fallback_model) {
            (Some(model), Some(fallback)) => {
                !is_of_service(&fallback.to_string(), &model.to_string())
            }
            _ => false,
        })
    }

    /// Returns what is added to the prompt of the model.
    fn instructions(&self, is_lead: bool) -> Option<String> {
        let table = if is_lead { self.own } else { self.role };
        table.and_then(|table| table.prompt.clone())
    }

    /// Returns the variables that commands get although they would be withheld.
    fn variables(&self) -> Vec<String> {
        let mut variables = Vec::new();
        for table in self.own.into_iter().chain(self.role).chain([self.team]) {
            add(&mut variables, &table.sandbox.env);
        }
        variables
    }
}

/// Makes sure that a role is a line of visible characters.
fn check_role(terms: &TermsPatch) -> Result<(), SettingError> {
    match &terms.role {
        Some(role) if role.trim().chars().any(is_hidden) => Err(SettingError {
            variable: "role",
            value: role.clone(),
            expected: "a line of visible characters",
        }),
        _ => Ok(()),
    }
}

/// Finds the program of an agent: one of the file, else one that is known.
fn find_agent(agent: &str, file: &TeamFile) -> Result<AgentProgram, SettingError> {
    let defined = file.agents.get(agent).cloned();
    defined
        .or_else(|| AgentProgram::known(agent))
        .ok_or_else(|| SettingError {
            variable: "agent",
            value: agent.to_owned(),
            expected: AGENTS,
        })
}

/// Finds the MCP servers of these names.
fn find_servers(names: &[String], file: &TeamFile) -> Result<Vec<McpServer>, SettingError> {
    let mut servers = Vec::new();
    for name in names {
        let found = file.mcp.get_key_value(name.as_str());
        let Some((name, definition)) = found else {
            return Err(SettingError {
                variable: "mcp",
                value: name.clone(),
                expected: "an MCP server of team.toml: write `[mcp.NAME]` with `command` or `url`",
            });
        };
        servers.push(definition.named(name));
    }
    Ok(servers)
}

/// Returns the default model of the service that the agent works with, if it works with one alone.
fn model_of_agent(terms: &TermsPatch) -> Option<ModelSpec> {
    let name = terms.agent.as_ref()?;
    let (provider, _) = service_of(name, terms.program.as_ref()?.protocol)?;
    Some(ModelSpec {
        provider,
        model: None,
    })
}

/// What takes the models of Google.
const OF_GOOGLE: &str = "`anthropic:MODEL` or `openai:MODEL`: the built-in agent does not speak the API of Google, `--agent gemini` does";

/// Makes sure that the agent works with the service of the model, and completes the model's name.
/// `resumed`: the record of a teammate that is resumed.
fn check_model(
    terms: &TermsPatch,
    resumed: Option<&RosterMember>,
    lookup: Lookup<'_>,
) -> Result<Option<ModelSpec>, SettingError> {
    let Some(model) = &terms.model else {
        return Ok(None);
    };
    let agent = match (&terms.agent, &terms.program) {
        (Some(name), Some(program)) => Some((name.as_str(), program.protocol)),
        (Some(_), None) => None,
        (None, _) => resumed
            .and_then(|member| member.agent.as_ref())
            .map(|agent| (agent.name.as_str(), agent.protocol)),
    };
    let service = agent.and_then(|(name, protocol)| service_of(name, protocol));
    let expected = match service {
        Some((provider, expected)) if model.provider != provider => Some(expected),
        None if agent.is_none() && model.provider == Provider::Google => Some(OF_GOOGLE),
        _ => None,
    };
    if let Some(expected) = expected
        && model.provider != Provider::Script
    {
        return Err(SettingError {
            variable: "model",
            value: model.to_string(),
            expected,
        });
    }
    with_model_id(model.clone(), lookup).map(Some)
}

/// What a model may be that answers in the place of another one.
const FALLBACK: &str = "another model of the service of `model`, such as `anthropic:MODEL` for an `anthropic` model; \
                        only the built-in agent has one";

/// Makes sure that the fallback is another model of the same service, and completes its name.
fn check_fallback(
    terms: &TermsPatch,
    model: Option<&ModelSpec>,
    resumed: Option<&RosterMember>,
    lookup: Lookup<'_>,
) -> Result<Option<ModelSpec>, SettingError> {
    let Some(fallback) = &terms.fallback_model else {
        return Ok(None);
    };
    let has_agent = match &terms.agent {
        Some(_) => terms.program.is_some(),
        None => resumed.is_some_and(|member| member.agent.is_some()),
    };
    let named = with_model_id(fallback.clone(), lookup)?;
    let is_script = fallback.provider == Provider::Script;
    let fits = model.is_some_and(|model| is_of_service(&named.to_string(), &model.to_string()));
    if has_agent || is_script || !fits {
        return Err(SettingError {
            variable: "fallback_model",
            value: fallback.to_string(),
            expected: FALLBACK,
        });
    }
    Ok(Some(named))
}

/// What an agent is called.
const AGENTS: &str = "`builtin`, `claude`, `codex`, `opencode`, `gemini`, or an agent of team.toml: write `[agents.NAME]` with `command` and `protocol`";

/// The variables that choose a service where no model is named, in this order.
const ANTHROPIC: [&str; 2] = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"];
const OPENAI: [&str; 2] = ["OPENAI_API_KEY", "OPENAI_BASE_URL"];

/// The variable of the service that agents of others alone work with.
const GOOGLE: [&str; 1] = ["GEMINI_API_KEY"];

fn are_set(variables: &[&str], lookup: Lookup<'_>) -> bool {
    variables
        .iter()
        .any(|variable| lookup(variable).is_some_and(|value| !value.is_empty()))
}

/// Returns the model of the service whose key is set: the default for a person who names none.
pub fn model_of_key(lookup: Lookup<'_>) -> Option<ModelSpec> {
    let services = [(Provider::Anthropic, ANTHROPIC), (Provider::OpenAi, OPENAI)];
    let (provider, _) = services
        .into_iter()
        .find(|(_, variables)| are_set(variables, lookup))?;
    Some(ModelSpec {
        provider,
        model: None,
    })
}

/// Makes sure that a key of the model's service is set: without one every piece of work would fail.
///
/// # Errors
/// [`SettingError`] that names the variable.
pub fn require_key(model: &ModelSpec, lookup: Lookup<'_>) -> Result<(), SettingError> {
    let (variables, expected): (&[&'static str], _) = match model.provider {
        Provider::Script => return Ok(()),
        Provider::Anthropic => (
            &ANTHROPIC,
            "an `anthropic` model needs it, or ANTHROPIC_AUTH_TOKEN",
        ),
        Provider::Google => (&GOOGLE, "a `google` model needs it"),
        Provider::OpenAi => (
            &OPENAI,
            "an `openai` model needs it, or OPENAI_BASE_URL for a server of your own that asks for no key",
        ),
    };
    if are_set(variables, lookup) {
        Ok(())
    } else {
        Err(SettingError {
            variable: variables[0],
            value: String::new(),
            expected,
        })
    }
}

/// Names the model of a service by `MODEL_ID`, if nothing else names it.
fn with_model_id(spec: ModelSpec, lookup: Lookup<'_>) -> Result<ModelSpec, SettingError> {
    if spec.model.is_some() || spec.provider == Provider::Script {
        return Ok(spec);
    }
    Ok(variable(lookup, "MODEL_ID", |text| {
        format!("{}:{text}", spec.provider.as_str())
            .parse()
            .map_err(|_| "the name of a model")
    })?
    .unwrap_or(spec))
}

/// Passes the services and settings of the file on to the worker, in variables that are not set
/// already.
fn hand_on(environment: &mut Environment, file: &TeamFile, ca: Option<String>, is_lead: bool) {
    // Only the lead agent spawns others and reads the file. The tools of a teammate may well work
    // on another team.
    if !is_lead {
        environment.unset(VARIABLE);
    }
    let mut variables = file.settings.variables();
    let timeout = file
        .service
        .timeout
        .map(|time| time.as_secs_f64().to_string());
    variables.extend(timeout.map(|time| ("TEAM_MODEL_TIMEOUT", time)));
    variables.extend(
        file.service
            .context_window
            .map(|tokens| ("TEAM_CONTEXT_WINDOW", tokens.to_string())),
    );
    variables.extend(file.service.ca.clone().map(|ca| ("TEAM_CA", ca)));
    if is_lead && !file.path.as_os_str().is_empty() {
        variables.push((VARIABLE, file.path.to_string_lossy().into_owned()));
    }
    // A flag takes precedence over the environment.
    if let Some(ca) = ca {
        environment.set("TEAM_CA", &ca);
    }
    for (variable, text) in variables {
        if environment.value(variable).is_none() {
            environment.set(variable, &text);
        }
    }
}

#[cfg(test)]
mod tests;
