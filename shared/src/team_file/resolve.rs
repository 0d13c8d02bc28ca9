//! What holds for one teammate (or the lead agent), from all that may say so: the flags of a command, else the
//! environment (`TEAM_…`), else `team.toml` (the member, then its role, then everybody), else the default. Pure.
//!
//! `teamctl spawn`, `teamctl chat` and the lead's own tools all ask here, so that a teammate is the same whoever
//! spawns it. A life that is resumed keeps what its record says: of a resumed one only flags change anything.

mod service;

use std::path::{Component, Path, PathBuf};

use super::{Profile, TeamFile, VARIABLE};
use crate::amount::{parse_count, parse_memory, parse_seconds};
use crate::config::RosterMember;
use crate::control::SpawnOrder;
use crate::environment::Environment;
use crate::member::{ApproveBy, Bounds, Limits, Restart, Sandbox, SandboxMode, add};
use crate::model_spec::{ModelSpec, Provider};
use crate::name::Name;
use crate::settings::{SettingError, Settings};

/// What a command names itself. Paths are absolute already.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flags {
    /// What it is for.
    pub role: Option<String>,
    /// What the conversation begins with.
    pub prompt: Option<String>,
    /// The model.
    pub model: Option<ModelSpec>,
    /// The directory to work in.
    pub workspace: Option<String>,
    /// It must submit a plan first.
    pub plan: bool,
    /// Who answers its plans.
    pub approve_by: Option<ApproveBy>,
    /// When it is started again.
    pub restart: Option<Restart>,
    /// What its commands may write.
    pub sandbox: Option<SandboxMode>,
    /// Its commands reach no network.
    pub no_network: bool,
    /// What its commands may write besides.
    pub writable: Vec<String>,
    /// What its commands may not read.
    pub hidden: Vec<String>,
    /// What one piece of its work may cost.
    pub limits: Limits,
    /// What one life may use.
    pub bounds: Bounds,
    /// Which certificate authorities its model's service is checked by.
    pub ca: Option<String>,
    /// It goes on with its last conversation.
    pub resume: bool,
}

/// Who is to be started, and what is known of it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Its name; `lead` is the lead agent.
    pub name: &'a Name,
    /// What the command names.
    pub flags: &'a Flags,
    /// Its earlier life, if there was one.
    pub earlier: Option<&'a RosterMember>,
}

/// Where the model's name comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelFrom {
    /// A flag.
    Flag,
    /// The variable `TEAM_MODEL`.
    Environment,
    /// `team.toml`.
    File,
    /// This variable, a key or an address, is set.
    Key(&'static str),
    /// Nothing says anything.
    Default,
    /// Its earlier life.
    Record,
}

/// What holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// What it is for; none: as its record says.
    pub role: Option<String>,
    /// What the conversation begins with.
    pub prompt: Option<String>,
    /// What is added to its system prompt; none: as its record says.
    pub instructions: Option<String>,
    /// The model; none: as its record says.
    pub model: Option<ModelSpec>,
    /// Where that comes from.
    pub model_from: ModelFrom,
    /// The directory to work in, absolute; none: as its record says, or the one that holds the team directory.
    pub workspace: Option<String>,
    /// Whether it must submit a plan first.
    pub plan: bool,
    /// Who answers its plans; none: as its record says, or a person.
    pub approve_by: Option<ApproveBy>,
    /// When it is started again; none: as its record says, or on failure.
    pub restart: Option<Restart>,
    /// How its commands are confined; none: as its record says.
    pub sandbox: Option<Sandbox>,
    /// What one piece of its work may cost; none: as its record says.
    pub limits: Option<Limits>,
    /// What one life may use; none: as its record says.
    pub bounds: Option<Bounds>,
    /// What its environment gets where it does not say it already, name and value.
    pub variables: Vec<(&'static str, String)>,
    /// Variables that its commands are given although their names say that they hold a key.
    pub handed_on: Vec<String>,
    /// Whether the last life goes on.
    pub resume: bool,
}

/// Works out what holds.
///
/// # Errors
/// [`SettingError`] for a variable whose value makes no sense (a model's service's among them), or that is missing where a path begins with `~`.
pub fn resolve(
    asked: Asked<'_>,
    lookup: &dyn Fn(&str) -> Option<String>,
    file: &TeamFile,
) -> Result<Resolved, SettingError> {
    let sources = Sources { asked, lookup, file };
    let Flags { resume, plan, approve_by, restart, .. } = *asked.flags;
    let (model, model_from) = sources.model()?;
    let recorded = || asked.earlier.and_then(|member| member.model.parse().ok());
    service::check(model.clone().or_else(recorded).as_ref(), lookup)?;
    let is_lead = *asked.name == Name::lead();
    Ok(Resolved {
        role: asked.flags.role.clone().or_else(|| sources.member_says(|profile| profile.role.clone())),
        prompt: asked
            .flags
            .prompt
            .clone()
            .or_else(|| sources.member_says(|profile| profile.prompt.clone().filter(|_| !is_lead))),
        instructions: sources.instructions(is_lead),
        model,
        model_from,
        workspace: sources.workspace()?,
        plan: plan || sources.teammate_says(|profile| profile.plan).unwrap_or(false),
        approve_by: approve_by.or_else(|| sources.teammate_says(|profile| profile.approve_by)),
        restart: restart.or_else(|| sources.teammate_says(|profile| profile.restart)),
        sandbox: sources.sandbox()?,
        limits: sources.limits()?,
        bounds: sources.bounds()?,
        variables: sources.variables()?,
        handed_on: sources.handed_on(),
        resume,
    })
}

impl Resolved {
    /// Makes the order to the daemon. The environment is that of whoever asks.
    pub fn order(self, name: Name, mut environment: Environment) -> SpawnOrder {
        // Only who spawns others reads the file; the tools of a teammate may well work on another team.
        if name != Name::lead() {
            environment.unset(VARIABLE);
        }
        environment.part(&self.handed_on);
        for (variable, text) in self.variables {
            environment.set(variable, &text);
        }
        SpawnOrder {
            name,
            role: self.role,
            prompt: self.prompt,
            model: self.model.map(|model| model.to_string()),
            workspace: self.workspace,
            plan: self.plan,
            approve_by: self.approve_by,
            restart: self.restart,
            instructions: self.instructions,
            sandbox: self.sandbox,
            limits: self.limits,
            resume: self.resume,
            environment,
            bounds: self.bounds,
        }
    }
}

/// Tells which variables could hold the key that a model's service asks for, if none of them is set.
pub fn missing_key(model: &ModelSpec, lookup: &dyn Fn(&str) -> Option<String>) -> Option<&'static str> {
    let unset = |variables: [&str; 2]| variables.iter().all(|name| value(lookup, name).is_none());
    match model.provider {
        Provider::Anthropic if unset(ANTHROPIC) => Some("ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN)"),
        Provider::OpenAi if unset(OPENAI) => {
            Some("OPENAI_API_KEY (or, for a server of your own, OPENAI_BASE_URL)")
        }
        _ => None,
    }
}

/// The variables that choose a service where nobody names one, in this order.
const ANTHROPIC: [&str; 2] = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"];
const OPENAI: [&str; 2] = ["OPENAI_API_KEY", "OPENAI_BASE_URL"];

struct Sources<'a> {
    asked: Asked<'a>,
    lookup: &'a dyn Fn(&str) -> Option<String>,
    file: &'a TeamFile,
}

impl Sources<'_> {
    /// Returns what the file says of the member alone; nothing, where a life is resumed.
    fn own(&self) -> Option<&Profile> {
        match () {
            () if self.asked.flags.resume => None,
            () if *self.asked.name == Name::lead() => Some(&self.file.lead),
            () => self.file.members.get(self.asked.name),
        }
    }

    fn member_says<T>(&self, what: impl Fn(&Profile) -> Option<T>) -> Option<T> {
        self.own().and_then(what)
    }

    fn role(&self) -> Option<&Profile> {
        let recorded = || self.asked.earlier.map(|member| member.role.clone());
        let role = self.asked.flags.role.clone();
        let role = role.or_else(|| self.member_says(|profile| profile.role.clone())).or_else(recorded)?;
        // Who resumes in another role says so.
        let named = !self.asked.flags.resume || self.asked.flags.role.is_some();
        self.file.roles.get(role.trim()).filter(|_| named)
    }

    /// Returns what the file says: the member, then its role, then everybody; nothing, where a life is resumed.
    fn says<T>(&self, what: impl Fn(&Profile) -> Option<T>) -> Option<T> {
        if self.asked.flags.resume {
            return None;
        }
        let profiles = [self.own(), self.role(), Some(&self.file.everybody)];
        profiles.into_iter().flatten().find_map(what)
    }

    /// As [`Sources::says`], for what the lead agent has not.
    fn teammate_says<T>(&self, what: impl Fn(&Profile) -> Option<T>) -> Option<T> {
        if *self.asked.name == Name::lead() { None } else { self.says(what) }
    }

    fn instructions(&self, is_lead: bool) -> Option<String> {
        match is_lead {
            true => self.member_says(|profile| profile.prompt.clone()),
            false => self.role().and_then(|role| role.prompt.clone()),
        }
    }

    fn model(&self) -> Result<(Option<ModelSpec>, ModelFrom), SettingError> {
        let flag = self.asked.flags.model.clone();
        if flag.is_none() && self.asked.flags.resume {
            return Ok((None, ModelFrom::Record));
        }
        let (spec, from) = match flag {
            Some(spec) => (spec, ModelFrom::Flag),
            None => match read(self.lookup, "TEAM_MODEL", MODELS, |text| text.parse().ok())? {
                Some(spec) => (spec, ModelFrom::Environment),
                None => match self.says(|profile| profile.model.clone()) {
                    Some(spec) => (spec, ModelFrom::File),
                    None => self.by_key(),
                },
            },
        };
        if spec.model.is_some() || spec.provider == Provider::Script {
            return Ok((Some(spec), from));
        }
        let named = |text: &str| format!("{}:{text}", spec.provider.as_str()).parse().ok();
        let named = read(self.lookup, "MODEL_ID", "the name of a model", named)?;
        Ok((Some(named.unwrap_or(spec)), from))
    }

    /// The service whose key is there, else the built-in model.
    fn by_key(&self) -> (ModelSpec, ModelFrom) {
        let services = [(Provider::Anthropic, ANTHROPIC), (Provider::OpenAi, OPENAI)];
        for (provider, variables) in services {
            let set = variables.into_iter().find(|variable| value(self.lookup, variable).is_some());
            if let Some(variable) = set {
                return (ModelSpec { provider, model: None }, ModelFrom::Key(variable));
            }
        }
        (ModelSpec::script(), ModelFrom::Default)
    }

    fn workspace(&self) -> Result<Option<String>, SettingError> {
        if let Some(named) = &self.asked.flags.workspace {
            return Ok(Some(named.clone()));
        }
        self.member_says(|profile| profile.workspace.clone()).map(|path| self.absolute(&path)).transpose()
    }

    fn sandbox(&self) -> Result<Option<Sandbox>, SettingError> {
        let flags = self.asked.flags;
        let lists = !flags.writable.is_empty() || !flags.hidden.is_empty();
        let named = flags.sandbox.is_some() || flags.no_network || lists;
        if flags.resume && !named {
            return Ok(None);
        }
        let recorded = self.asked.earlier.filter(|_| flags.resume).map(|member| member.sandbox.clone());
        let mut sandbox = recorded.unwrap_or_default();
        if let Some(mode) = flags.sandbox.or_else(|| self.says(|profile| profile.sandbox.mode)) {
            sandbox.mode = mode;
        }
        sandbox.no_network |= flags.no_network || self.says(|profile| profile.sandbox.network) == Some(false);
        // Every list counts: a cache that everybody shares, and what this one needs besides.
        flags.writable.iter().cloned().for_each(|path| add(&mut sandbox.writable, path));
        flags.hidden.iter().cloned().for_each(|path| add(&mut sandbox.hidden, path));
        if !flags.resume {
            let profiles = [self.own(), self.role(), Some(&self.file.everybody)];
            for profile in profiles.into_iter().flatten() {
                for path in &profile.sandbox.writable {
                    add(&mut sandbox.writable, self.absolute(path)?);
                }
                for path in &profile.sandbox.hidden {
                    add(&mut sandbox.hidden, self.absolute(path)?);
                }
            }
        }
        Ok(Some(sandbox))
    }

    fn limits(&self) -> Result<Option<Limits>, SettingError> {
        let flags = self.asked.flags;
        if flags.resume {
            let recorded = self.asked.earlier.map(|member| member.limits).unwrap_or_default();
            let changed = Limits {
                max_turns: flags.limits.max_turns.or(recorded.max_turns),
                max_tokens: flags.limits.max_tokens.or(recorded.max_tokens),
            };
            return Ok(Some(changed).filter(|_| flags.limits != Limits::default()));
        }
        let turns = |text: &str| text.parse().ok().filter(|&turns| turns > 0);
        let turns = read(self.lookup, "TEAM_MAX_TURNS", "a whole number above 0", turns)?;
        let tokens = |text: &str| parse_count(text).filter(|&tokens| tokens > 0);
        let tokens = read(self.lookup, "TEAM_MAX_TOKENS", "a whole number above 0, or such as 200k", tokens)?;
        Ok(Some(Limits {
            max_turns: flags.limits.max_turns.or(turns).or_else(|| self.says(|profile| profile.max_turns)),
            max_tokens: flags
                .limits
                .max_tokens
                .or(tokens)
                .or_else(|| self.says(|profile| profile.max_tokens)),
        }))
    }

    fn bounds(&self) -> Result<Option<Bounds>, SettingError> {
        let flags = self.asked.flags;
        if flags.resume {
            let recorded = self.asked.earlier.map(|member| member.bounds).unwrap_or_default();
            return Ok(Some(flags.bounds.or(recorded)).filter(|_| !flags.bounds.is_nothing()));
        }
        let time = "a time such as 1h, above 0";
        let set = Bounds {
            memory: read(self.lookup, "TEAM_MEMORY", "a size such as 2G, 64M or more", parse_memory)?,
            cpu_time: read(self.lookup, "TEAM_CPU_TIME", time, parse_seconds)?,
            max_procs: read(self.lookup, "TEAM_MAX_PROCS", "a whole number above 0", |text| {
                text.parse().ok().filter(|&most| most > 0)
            })?,
            max_time: read(self.lookup, "TEAM_MAX_TIME", time, parse_seconds)?,
        };
        let file = Bounds {
            memory: self.says(|profile| profile.bounds.memory),
            cpu_time: self.says(|profile| profile.bounds.cpu_time),
            max_procs: self.says(|profile| profile.bounds.max_procs),
            max_time: self.says(|profile| profile.bounds.max_time),
        };
        Ok(Some(flags.bounds.or(set).or(file)))
    }

    /// Every list counts. The environment is that of whoever asks, each time: so is this, where a life is resumed.
    fn handed_on(&self) -> Vec<String> {
        let name = self.asked.name;
        let own = if *name == Name::lead() { Some(&self.file.lead) } else { self.file.members.get(name) };
        let recorded = self.asked.earlier.map(|member| &member.role);
        let role = self.asked.flags.role.as_ref().or(own.and_then(|own| own.role.as_ref())).or(recorded);
        let role = role.and_then(|role| self.file.roles.get(role.trim()));
        let profiles = [own, role, Some(&self.file.everybody)].into_iter().flatten();
        profiles.flat_map(|profile| profile.sandbox.env.iter().cloned()).collect()
    }

    /// What reaches a worker in its environment: how services are reached, and how it keeps its files.
    fn variables(&self) -> Result<Vec<(&'static str, String)>, SettingError> {
        let mut variables = Vec::new();
        let unset = |variable: &&str| value(self.lookup, variable).is_none();
        let mut add = |variable: &'static str, text: Option<String>| {
            variables.extend(text.filter(|_| unset(&variable)).map(|text| (variable, text)));
        };
        let service = &self.file.service;
        add("TEAM_MODEL_TIMEOUT", service.timeout.map(|time| time.as_secs_f64().to_string()));
        add("TEAM_CONTEXT_WINDOW", service.context_window.map(|tokens| tokens.to_string()));
        for (variable, text) in Settings::of_file(self.file).variables() {
            add(variable, Some(text));
        }
        if *self.asked.name == Name::lead() && !self.file.path.as_os_str().is_empty() {
            add(VARIABLE, Some(self.file.path.to_string_lossy().into_owned()));
        }
        // A flag goes before the environment.
        let ca = match (&self.asked.flags.ca, value(self.lookup, "TEAM_CA"), &service.ca) {
            (Some(flag), _, _) => Some(flag.clone()),
            (None, None, Some(named)) if !matches!(named.as_str(), "platform" | "embedded") => {
                Some(self.absolute(named)?)
            }
            (None, None, named) => named.clone(),
            (None, Some(_), _) => None,
        };
        variables.extend(ca.map(|ca| ("TEAM_CA", ca)));
        Ok(variables)
    }

    fn absolute(&self, path: &str) -> Result<String, SettingError> {
        absolute(&self.file.path, path, self.lookup)
    }
}

/// Makes a path of a file absolute: `~` is the user's home, anything else is beside the file.
pub(crate) fn absolute(
    file: &Path,
    path: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<String, SettingError> {
    let home = || {
        let expected = "set: a path in team.toml begins with ~";
        value(lookup, "HOME").ok_or_else(|| SettingError { variable: "HOME", value: String::new(), expected })
    };
    let beside = file.parent().unwrap_or(Path::new("/"));
    let path = match path.strip_prefix('~') {
        Some("") => PathBuf::from(home()?),
        Some(rest) if rest.starts_with('/') => Path::new(&home()?).join(rest.trim_start_matches('/')),
        _ => beside.join(path),
    };
    Ok(tidy(&path).to_string_lossy().into_owned())
}

const MODELS: &str = "script, anthropic[:MODEL] or openai[:MODEL]";

/// Returns a variable that is set to something.
fn value(lookup: &dyn Fn(&str) -> Option<String>, variable: &str) -> Option<String> {
    lookup(variable).filter(|value| !value.is_empty())
}

fn read<T>(
    lookup: &dyn Fn(&str) -> Option<String>,
    variable: &'static str,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, SettingError> {
    let Some(value) = value(lookup, variable) else { return Ok(None) };
    match parse(&value) {
        Some(read) => Ok(Some(read)),
        None => Err(SettingError { variable, value, expected }),
    }
}

/// Takes `.` and doubled slashes out. `..` stays: behind a link it is not what it looks like.
fn tidy(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

#[cfg(test)]
mod tests;
