//! From all that says something of a teammate (or of the lead agent) to the spawn order: the flags
//! of a command, else the environment (`TEAM_…`), else `team.toml` (the member, its role, the top
//! level), else the default. Pure.
//!
//! `teamctl spawn`, `teamctl chat` and the lead agent's tools all ask here, so that a teammate is
//! the same whichever of them spawns it. A resumed teammate keeps the terms of its record: only
//! flags change them.

use super::service;
use super::{AgentProgram, BUILT_IN, TermsPatch, add};
use crate::config::RosterMember;
use crate::control::SpawnOrder;
use crate::environment::Environment;
use crate::model_spec::{ModelSpec, Provider};
use crate::name::Name;
use crate::settings::{Lookup, SettingError, variable};
use crate::team_file::{TeamFile, VARIABLE};
use crate::visible::is_hidden;

/// What a command asks for.
#[derive(Debug, Clone)]
pub struct SpawnRequest<'a> {
    /// The teammate; `lead` is the lead agent.
    pub name: &'a Name,
    /// What the command itself says. Paths are absolute already.
    pub flags: TermsPatch,
    /// Which certificate authorities it names.
    pub ca: Option<String>,
    /// Whether the last conversation goes on.
    pub resume: bool,
}

/// Merges what the flags, the environment and the file say. `earlier` is what the roster says of an
/// earlier incarnation; `default_model` counts where no source names a model.
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
    let nothing = TermsPatch::default();
    let is_lead = *name == Name::lead();
    let own = if is_lead {
        Some(&file.lead)
    } else {
        file.member(name)
    }
    .unwrap_or(&nothing);
    let names_role = flags.role.is_some();
    let role = flags
        .role
        .as_ref()
        .or(own.role.as_ref())
        .or(earlier.map(|member| &member.role));
    let role = role
        .and_then(|role| file.roles.get(role.trim()))
        .unwrap_or(&nothing);
    let in_file = [own, role, &file.team];
    let mut terms = flags;
    let lookup = |variable: &str| environment.value(variable);
    if !resume {
        terms = terms.merge(TermsPatch::of_environment(&lookup)?);
        for (layer, is_own) in in_file.into_iter().zip([true, false, false]) {
            // Only of a member it is what it does first.
            let prompt = if is_own && !is_lead {
                layer.prompt.clone()
            } else {
                None
            };
            terms = terms.merge(TermsPatch {
                prompt,
                ..layer.clone()
            });
        }
    }
    if is_lead {
        terms.plan = None;
        terms.approve_by = None;
        terms.restart = None;
    }
    if let Some(role) = terms
        .role
        .as_ref()
        .filter(|role| role.trim().chars().any(is_hidden))
    {
        let expected = "a line of visible characters";
        return Err(SettingError {
            variable: "role",
            value: role.clone(),
            expected,
        });
    }
    if let Some(agent) = terms.agent.as_ref().filter(|agent| *agent != BUILT_IN) {
        terms.program = Some(
            file.agents
                .get(agent)
                .cloned()
                .or_else(|| AgentProgram::known(agent))
                .ok_or_else(|| SettingError {
                    variable: "agent",
                    value: agent.clone(),
                    expected: AGENTS,
                })?,
        );
    }
    let service = terms
        .program
        .as_ref()
        .and_then(|program| program.protocol.service());
    if !resume {
        terms.model = terms.model.or(service
            .map(|(provider, _)| ModelSpec {
                provider,
                model: None,
            })
            .or(default_model));
    }
    if let Some((provider, expected)) = service
        && let Some(model) = &terms.model
        && ![provider, Provider::Script].contains(&model.provider)
    {
        return Err(SettingError {
            variable: "model",
            value: model.to_string(),
            expected,
        });
    }
    if !resume || names_role {
        terms.instructions = if is_lead {
            own.prompt.clone()
        } else {
            role.prompt.clone()
        };
    }
    terms.model = terms
        .model
        .map(|model| with_model_id(model, &lookup))
        .transpose()?;
    service::check(
        terms
            .model
            .clone()
            .or_else(|| {
                if resume {
                    earlier.and_then(|member| member.model.parse().ok())
                } else {
                    None
                }
            })
            .as_ref(),
        &lookup,
    )?;
    hand_on(&mut environment, file, ca, is_lead);
    // The environment is that of the command, each time: so are the keys in it that commands are
    // given.
    let mut given = Vec::new();
    for layer in in_file.iter() {
        add(&mut given, &layer.sandbox.env);
    }
    environment.part(&given);
    environment.tell_unattended(&given);
    Ok(SpawnOrder {
        resume,
        terms,
        ..SpawnOrder::new(name.clone(), environment)
    })
}

/// What an agent is called.
const AGENTS: &str = "`builtin`, `claude`, `codex`, or an agent of team.toml: write `[agents.NAME]` with `command` and `protocol`";

/// The variables that choose a service where no model is named, in this order.
const ANTHROPIC: [&str; 2] = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"];
const OPENAI: [&str; 2] = ["OPENAI_API_KEY", "OPENAI_BASE_URL"];

fn are_set(variables: [&str; 2], lookup: Lookup<'_>) -> bool {
    variables
        .iter()
        .any(|variable| lookup(variable).is_some_and(|value| !value.is_empty()))
}

/// Returns the model of the service whose key is set: the default for a person who names none.
pub fn model_of_key(lookup: Lookup<'_>) -> Option<ModelSpec> {
    let services = [(Provider::Anthropic, ANTHROPIC), (Provider::OpenAi, OPENAI)];
    let found = services
        .into_iter()
        .find(|(_, variables)| are_set(*variables, lookup));
    found.map(|(provider, _)| ModelSpec {
        provider,
        model: None,
    })
}

/// Makes sure that a key of the model's service is set: without one every piece of work would fail.
///
/// # Errors
/// [`SettingError`] that names the variable.
pub fn require_key(model: &ModelSpec, lookup: Lookup<'_>) -> Result<(), SettingError> {
    let (variables, expected) = match model.provider {
        Provider::Script => return Ok(()),
        Provider::Anthropic => (
            ANTHROPIC,
            "an `anthropic` model needs it, or ANTHROPIC_AUTH_TOKEN",
        ),
        Provider::OpenAi => (
            OPENAI,
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

/// Hands on to the worker what the file says of services and settings: in variables, unless they
/// are set already.
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
    // A flag goes before the environment.
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
