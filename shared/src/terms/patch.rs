//! One source of a teammate's terms: the flags of a command, the environment, a table of
//! `team.toml`.

use std::path::Path;

use clap::ValueHint;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::network::ports;
use super::{
    AgentProgram, ApproveBy, Localhost, McpServer, Network, Permissions, Restart, SandboxMode,
    ToolsPatch, Total, add,
};
use crate::amount::{parse_count, parse_memory, parse_seconds, parse_tokens, written};
use crate::effects::{KeyEffects, outside};
use crate::environment::is_model_key;
use crate::free_text::FreeText;
use crate::model_spec::ModelSpec;
use crate::name::Name;
use crate::price::{Dollars, parse_dollars};
use crate::terms::DEFAULT_TURNS;
use crate::variable::{Lookup, SettingError, absolute, variable};

/// The headings of the help of `teamctl spawn`.
const WORK: &str = "How it works";
const LIMITS: &str = "Limits";
const SANDBOX: &str = "Sandbox";

// What is set of the terms; what is not set is none. It is a record: its fields are the flags of
// `teamctl spawn` and the keys of a table of `team.toml`, which has no tables below. It is also
// part of control frames: no field may be left out when it is written. The help of `teamctl spawn`
// shows the documentation of the fields.
#[expect(
    missing_docs,
    reason = "it would take the place of the command's own help"
)]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct TermsPatch {
    /// Role, such as "reviewer"
    #[arg(long, value_name = "ROLE")]
    pub role: Option<String>,
    /// Initial task
    // Of a role and of the lead: what is added to its system prompt.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = FreeText)]
    pub prompt: Option<String>,
    /// Model: script, anthropic:MODEL, openai:MODEL, google:MODEL, or only the provider [default:
    /// by the API key that is set, else script]
    #[arg(long, value_name = "MODEL", value_parser = |text: &str| ModelSpec::try_from(text.to_owned()))]
    pub model: Option<ModelSpec>,
    /// Model of the same service that answers while that one is overloaded [default: none]
    #[arg(long, value_name = "MODEL", value_parser = |text: &str| ModelSpec::try_from(text.to_owned()))]
    pub fallback_model: Option<ModelSpec>,
    /// Agent: builtin, claude, codex, opencode, gemini, or one defined in team.toml (`[agents.NAME]`)
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    // The program that the name of the agent stands for, once it was looked up.
    #[arg(skip)]
    pub program: Option<AgentProgram>,
    /// Host that it runs on, added with `teamctl host add`; or any: the one with the most free
    /// memory [default: this machine]
    #[arg(long, value_name = "HOST")]
    pub host: Option<Name>,
    /// Directory to work in [default: the parent of the team directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub workspace: Option<String>,
    /// It must submit a plan, and change nothing before the plan is approved.
    #[arg(skip)]
    pub plan: Option<bool>,
    /// Who answers its plans: person or lead [default: person]
    #[arg(long, value_name = "WHO", hide_possible_values = true, help_heading = WORK)]
    pub approve_by: Option<ApproveBy>,
    /// Who answers permission questions of its agent: allow (the sandbox decides) or ask [default:
    /// allow]
    #[arg(long, value_name = "HOW", hide_possible_values = true, help_heading = WORK)]
    pub permissions: Option<Permissions>,
    /// MCP server whose tools it has, defined in team.toml (`[mcp.NAME]`; repeatable)
    #[arg(long, value_name = "NAME", help_heading = WORK)]
    pub mcp: Vec<String>,
    // The servers that these names stand for, once they were looked up.
    #[arg(skip)]
    pub servers: Vec<McpServer>,
    // Which tools the built-in agent is offered.
    #[arg(skip)]
    pub tools: ToolsPatch,
    /// When to restart it after its worker has ended [default: on-failure]
    #[arg(long, value_name = "POLICY", help_heading = LIMITS)]
    pub restart: Option<Restart>,
    /// Give it the next task whenever it is idle
    #[arg(long, num_args = 0, default_missing_value = "true", help_heading = WORK)]
    pub auto: Option<bool>,
    /// Give it its own clone of the repository to work in
    #[arg(long, num_args = 0, default_missing_value = "true", alias = "worktree", help_heading = WORK)]
    pub checkout: Option<bool>,
    /// Maximum model calls per piece of work [default: 50]
    #[arg(long, value_name = "N", value_parser = parse_count, help_heading = LIMITS)]
    #[serde(deserialize_with = "count")]
    pub max_turns: Option<u32>,
    /// Maximum tokens per piece of work, such as 200k or 2M [default: no limit]
    #[arg(long, value_name = "N", value_parser = parse_tokens, help_heading = LIMITS)]
    #[serde(deserialize_with = "tokens")]
    pub max_tokens: Option<u64>,
    /// Maximum cost per piece of work in dollars, such as 2.50 [default: no limit]
    #[arg(long, value_name = "DOLLARS", value_parser = parse_dollars, help_heading = LIMITS)]
    #[serde(deserialize_with = "dollars")]
    pub max_cost: Option<Dollars>,
    // What a lead gives of its own budget, for all pieces of work together.
    #[arg(skip)]
    pub total: Total,
    /// Maximum memory, such as 2G [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, help_heading = LIMITS)]
    #[serde(deserialize_with = "memory")]
    pub memory: Option<u64>,
    /// Maximum CPU time, such as 1h [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, help_heading = LIMITS)]
    #[serde(deserialize_with = "seconds")]
    pub cpu_time: Option<u64>,
    /// Maximum number of processes of its commands [default: no limit]
    #[arg(long, value_name = "N", value_parser = parse_count, help_heading = LIMITS)]
    #[serde(deserialize_with = "count")]
    pub max_procs: Option<u32>,
    /// Maximum lifetime of an incarnation, such as 8h; after that it is terminated [default: no
    /// limit]
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, help_heading = LIMITS)]
    #[serde(deserialize_with = "seconds")]
    pub max_time: Option<u64>,
    /// Ask it to leave when it was idle for this time, such as 30m [default: it stays]
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, help_heading = LIMITS)]
    #[serde(deserialize_with = "seconds")]
    pub max_idle: Option<u64>,
    /// Whose 127.0.0.1 its commands have: shared (that of the machine) or own, so that several
    /// teammates can serve one port [default: shared]
    #[arg(long, value_name = "WHOSE", hide_possible_values = true, help_heading = SANDBOX)]
    pub localhost: Option<Localhost>,
    /// How its commands are confined.
    #[command(flatten)]
    pub sandbox: SandboxPatch,
    /// The instructions of its role to its model.
    #[arg(skip)]
    pub instructions: Option<String>,
}

// How one source confines commands.
#[expect(
    missing_docs,
    reason = "it would take the place of the command's own help"
)]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxPatch {
    /// What its commands may write [default: workspace-write]
    #[arg(long = "sandbox", value_name = "MODE", help_heading = SANDBOX)]
    pub mode: Option<SandboxMode>,
    /// What its commands reach.
    #[arg(skip)]
    pub network: Option<Network>,
    /// The services of this machine that they reach, by their ports.
    #[arg(skip)]
    #[serde(deserialize_with = "ports")]
    pub ports: Option<Vec<u16>>,
    /// Directory or file outside the workspace that its commands may write (repeatable)
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath, help_heading = SANDBOX)]
    pub writable: Vec<String>,
    /// The same as they are named: on a host they are paths of that machine.
    #[arg(skip)]
    #[serde(skip)]
    pub named_writable: Vec<String>,
    /// Let its commands write the caches of cargo, npm, pip, go and other tools, but not their
    /// programs
    #[arg(long, num_args = 0, default_missing_value = "true", help_heading = SANDBOX)]
    pub caches: Option<bool>,
    /// Directory or file that its tools may not read (repeatable)
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath, help_heading = SANDBOX)]
    pub hidden: Vec<String>,
    /// See [`SandboxPatch::named_writable`].
    #[arg(skip)]
    #[serde(skip)]
    pub named_hidden: Vec<String>,
    /// What its tools see although it is hidden by default: dot files and dot folders of the home.
    #[arg(skip)]
    pub visible: Vec<String>,
    /// Variables that its commands get although no toolchain needs them, or their names suggest a
    /// key.
    #[arg(skip)]
    #[serde(deserialize_with = "variables")]
    pub env: Vec<String>,
}

impl TermsPatch {
    /// Reads the environment.
    ///
    /// # Errors
    /// [`SettingError`] for the first variable with a wrong value.
    pub fn of_environment(lookup: Lookup<'_>) -> Result<Self, SettingError> {
        Ok(Self {
            model: variable(lookup, "TEAM_MODEL", |text| {
                text.parse().map_err(|_| MODELS)
            })?,
            max_turns: variable(lookup, "TEAM_MAX_TURNS", parse_count)?,
            max_tokens: variable(lookup, "TEAM_MAX_TOKENS", parse_tokens)?,
            max_cost: variable(lookup, "TEAM_MAX_COST", parse_dollars)?,
            memory: variable(lookup, "TEAM_MEMORY", parse_memory)?,
            cpu_time: variable(lookup, "TEAM_CPU_TIME", parse_seconds)?,
            max_procs: variable(lookup, "TEAM_MAX_PROCS", parse_count)?,
            max_time: variable(lookup, "TEAM_MAX_TIME", parse_seconds)?,
            max_idle: variable(lookup, "TEAM_MAX_IDLE", parse_seconds)?,
            ..Self::default()
        })
    }

    /// Returns this patch, completed by the other one. Lists add up.
    #[must_use]
    pub fn merge(mut self, below: Self) -> Self {
        add(&mut self.mcp, &below.mcp);
        Self {
            mcp: self.mcp,
            servers: self.servers,
            tools: self.tools.merge(below.tools),
            role: self.role.or(below.role),
            auto: self.auto.or(below.auto),
            checkout: self.checkout.or(below.checkout),
            prompt: self.prompt.or(below.prompt),
            model: self.model.or(below.model),
            fallback_model: self.fallback_model.or(below.fallback_model),
            agent: self.agent.or(below.agent),
            program: self.program.or(below.program),
            host: self.host.or(below.host),
            workspace: self.workspace.or(below.workspace),
            plan: self.plan.or(below.plan),
            approve_by: self.approve_by.or(below.approve_by),
            permissions: self.permissions.or(below.permissions),
            restart: self.restart.or(below.restart),
            max_turns: self.max_turns.or(below.max_turns),
            max_tokens: self.max_tokens.or(below.max_tokens),
            max_cost: self.max_cost.or(below.max_cost),
            total: self.total,
            memory: self.memory.or(below.memory),
            cpu_time: self.cpu_time.or(below.cpu_time),
            max_procs: self.max_procs.or(below.max_procs),
            max_time: self.max_time.or(below.max_time),
            max_idle: self.max_idle.or(below.max_idle),
            localhost: self.localhost.or(below.localhost),
            sandbox: self.sandbox.merge(&below.sandbox),
            instructions: self.instructions.or(below.instructions),
        }
    }

    /// Makes every path absolute: `~` is the user's home, any other path counts from a directory.
    ///
    /// # Errors
    /// [`SettingError`] if a path begins with `~` and there is no home.
    pub fn make_absolute(&mut self, base: &Path, lookup: Lookup<'_>) -> Result<(), SettingError> {
        let SandboxPatch {
            writable,
            named_writable,
            hidden,
            named_hidden,
            visible,
            ..
        } = &mut self.sandbox;
        named_writable.clone_from(writable);
        named_hidden.clone_from(hidden);
        let lists = [writable, hidden, visible];
        // On a host, the workspace is a path of that machine.
        let workspace = self.workspace.iter_mut().filter(|_| self.host.is_none());
        for path in workspace.chain(lists.into_iter().flatten()) {
            *path = absolute(base, path, lookup)?;
        }
        Ok(())
    }
}

impl TermsPatch {
    /// Says what each key does, below the tables `above` it.
    pub(crate) fn effects(&self, above: &[&Self], to: &mut KeyEffects<'_>) {
        let Self {
            role: _,
            prompt: _,
            model: _,
            fallback_model: _,
            agent: _,
            program: _,
            host,
            workspace,
            plan,
            approve_by,
            permissions,
            mcp,
            servers: _,
            // Each of their tools is bound by the sandbox and the gate as the others are.
            tools: ToolsPatch { groups: _ },
            restart: _,
            auto: _,
            checkout,
            max_turns,
            max_tokens,
            max_cost,
            total: _,
            memory,
            cpu_time,
            max_procs,
            max_time,
            max_idle: _,
            // It opens nothing: it parts what the commands of a teammate have in common anyway.
            localhost: _,
            sandbox,
            instructions: _,
        } = self;
        // The addresses and keys of the services are only in the environment, so a model's name
        // cannot lead elsewhere. An agent is a program of the user's, or its command is trusted
        // separately.
        to.neither([
            "role",
            "prompt",
            "model",
            "fallback_model",
            "agent",
            "program",
            "servers",
            "tools",
            "tools.groups",
            "total",
            "restart",
            "auto",
            "max_idle",
            "localhost",
            "instructions",
        ]);
        let elsewhere = to.file.zip(workspace.as_deref());
        // The owner of a host has the keys and the work of the teammates there.
        to.widens("host", host);
        to.widens(
            "workspace",
            elsewhere.and_then(|(file, path)| outside(file, Path::new(path))),
        );
        let is_asked = |ask: fn(&Self) -> bool| above.iter().any(|above| ask(above));
        to.narrows("plan", plan.filter(|plan| *plan));
        to.widens(
            "plan",
            plan.filter(|plan| !plan && is_asked(|above| above.plan == Some(true))),
        );
        let by_lead = approve_by.filter(|by| *by == ApproveBy::Lead);
        to.widens("approve_by", by_lead.map(|_| "lead"));
        let led = is_asked(|above| above.approve_by == Some(ApproveBy::Lead));
        to.narrows(
            "approve_by",
            approve_by
                .filter(|by| led && *by == ApproveBy::Person)
                .map(|_| "person"),
        );
        to.narrows(
            "permissions",
            permissions
                .filter(|it| *it == Permissions::Ask)
                .map(|_| "ask"),
        );
        let asks = is_asked(|above| above.permissions == Some(Permissions::Ask));
        to.widens(
            "permissions",
            permissions
                .filter(|it| asks && *it == Permissions::Allow)
                .map(|_| "allow"),
        );
        to.widens("mcp", mcp);
        // A checkout keeps a teammate out of the user's own tree.
        to.narrows("checkout", checkout.filter(|own| *own));
        to.widens(
            "checkout",
            checkout.filter(|own| !own && is_asked(|above| above.checkout == Some(true))),
        );
        let least = |of: &dyn Fn(&Self) -> Option<f64>| {
            above.iter().filter_map(|it| of(it)).reduce(f64::min)
        };
        let turns = least(&|it| it.max_turns.map(f64::from)).unwrap_or(f64::from(DEFAULT_TURNS));
        to.limits("max_turns", max_turns.map(f64::from), Some(turns));
        to.limits(
            "max_tokens",
            max_tokens.map(as_float),
            least(&|it| it.max_tokens.map(as_float)),
        );
        to.limits(
            "max_cost",
            max_cost.map(f64::from),
            least(&|it| it.max_cost.map(f64::from)),
        );
        to.limits(
            "memory",
            memory.map(as_float),
            least(&|it| it.memory.map(as_float)),
        );
        to.limits(
            "cpu_time",
            cpu_time.map(as_float),
            least(&|it| it.cpu_time.map(as_float)),
        );
        to.limits(
            "max_procs",
            max_procs.map(f64::from),
            least(&|it| it.max_procs.map(f64::from)),
        );
        to.limits(
            "max_time",
            max_time.map(as_float),
            least(&|it| it.max_time.map(as_float)),
        );
        let above: Vec<&SandboxPatch> = above.iter().map(|above| &above.sandbox).collect();
        sandbox.effects(&above, to);
    }
}

impl SandboxPatch {
    /// Says what each key does, below the tables `above` it.
    fn effects(&self, above: &[&Self], to: &mut KeyEffects<'_>) {
        let Self {
            mode,
            network,
            ports,
            writable,
            named_writable: _,
            caches,
            hidden,
            named_hidden: _,
            visible,
            env,
        } = self;
        let modes = above.iter().filter_map(|above| above.mode);
        let strictest = modes.fold(SandboxMode::default(), SandboxMode::min);
        to.widens(
            "sandbox.mode",
            mode.filter(|mode| *mode > strictest)
                .map(SandboxMode::as_str),
        );
        to.narrows(
            "sandbox.mode",
            mode.filter(|mode| *mode < SandboxMode::default())
                .map(SandboxMode::as_str),
        );
        let is_limited = above
            .iter()
            .any(|above| above.network.as_ref().is_some_and(|it| it.0.is_some()));
        match network.as_ref().map(|network| &network.0) {
            None => {}
            Some(None) => to.widens("sandbox.network", is_limited.then_some(true)),
            Some(Some(hosts)) if hosts.is_empty() => to.narrows_to("sandbox.network", "false", 0.0),
            Some(Some(hosts)) => {
                to.narrows_to("sandbox.network", "only the hosts of a list", 1.0);
                // A host that is named may belong to the network of this machine.
                to.widens("sandbox.network", hosts);
            }
        }
        to.widens("sandbox.network", [(); 0]);
        to.widens("sandbox.ports", ports.iter().flatten());
        to.widens("sandbox.writable", writable);
        to.widens("sandbox.env", env);
        to.widens("sandbox.visible", visible);
        to.widens("sandbox.caches", caches.filter(|write| *write));
        to.narrows("sandbox.hidden", hidden);
    }

    fn merge(mut self, below: &Self) -> Self {
        add(&mut self.writable, &below.writable);
        add(&mut self.named_writable, &below.named_writable);
        add(&mut self.hidden, &below.hidden);
        add(&mut self.named_hidden, &below.named_hidden);
        add(&mut self.visible, &below.visible);
        add(&mut self.env, &below.env);
        let network = self.network.or(below.network.clone());
        let ports = self.ports.or(below.ports.clone());
        Self {
            mode: self.mode.or(below.mode),
            network,
            ports,
            caches: self.caches.or(below.caches),
            ..self
        }
    }
}

const MODELS: &str = "script, anthropic[:MODEL], openai[:MODEL] or google[:MODEL]";

/// Reads a number above 0.
pub(crate) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    written(deserializer, parse_count)
}

fn tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    written(deserializer, parse_tokens)
}

fn dollars<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Dollars>, D::Error> {
    written(deserializer, parse_dollars)
}

fn memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    written(deserializer, parse_memory)
}

fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    written(deserializer, parse_seconds)
}

/// Reads names of variables, none of which is a model's key.
pub(crate) fn variables<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    match names
        .iter()
        .find(|name| name.contains('=') || is_model_key(name.as_bytes()))
    {
        Some(name) => Err(D::Error::custom(format_args!(
            "{name:?} is not the name of a variable, or is a model's key"
        ))),
        None => Ok(names),
    }
}

fn as_float(count: u64) -> f64 {
    count as f64
}
