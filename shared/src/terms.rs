//! The terms of a teammate: what it is to be, what it may do and use, and who answers its plans.
//!
//! [`Terms`] are what holds, [`TermsPatch`] is what one source contributes: the flags of a command,
//! the environment, a table of `team.toml`. [`crate::spawn`] merges the patches of all sources and
//! resolves the paths that they name.

mod agent;
mod groups;
mod login;
mod mcp;
mod network;
mod patch;

use std::time::Duration;

use schemars::JsonSchema;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

pub(crate) use agent::launcher_of;
pub use agent::{
    Agent, AgentProgram, BUILT_IN, GATEWAY_PORT, KNOWN, KnownProgram, Protocol, Published, Version,
    model_of, service_of,
};
pub use groups::{ToolGroup, ToolsPatch};
pub use login::{Login, TOKEN_HOST, TokenCosts};
pub use mcp::{McpDefinition, McpName, McpServer, McpTransport, variable_of};
pub use network::{MAX_PORTS, Network};
pub use patch::{SandboxPatch, TermsPatch};
pub(crate) use patch::{count, variables};

use crate::checkout::Checkout;
use crate::model_spec::{ModelSpec, full_name};
use crate::name::Name;
use crate::price::Dollars;
use crate::sandbox::{Layers, Namespaces};

/// What holds for a teammate, as it is recorded when it is spawned.
///
/// It is also part of control frames: no field may be left out when it is written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Terms {
    /// What it is for, in the words of the command that spawned it.
    pub role: String,
    /// The model, as `PROVIDER[:MODEL]`.
    pub model: String,
    /// The model of the same service that answers while that one is overloaded. A record of an
    /// earlier version has none.
    #[serde(default)]
    pub fallback_model: Option<String>,
    /// The program that is its mind; null for the built-in agent.
    pub program: Option<Agent>,
    /// The host that it runs on; none: home. A record of an earlier version has none.
    #[serde(default)]
    pub host: Option<Name>,
    /// The directory that it works in, absolute and without links; on a host it can begin with `~`.
    pub workspace: String,
    /// Whether it must submit a plan first.
    pub plan: bool,
    /// Who answers its plans.
    pub approve_by: ApproveBy,
    /// When it is started again.
    pub restart: Restart,
    /// The instructions of its role to its model, in addition to its own prompt.
    pub instructions: Option<String>,
    /// Whether it gets the next task while it is idle.
    pub auto: bool,
    /// Its own clone of the repository, if it works in one.
    pub checkout: Option<Checkout>,
    /// How its agent's permission questions are answered.
    pub permissions: Permissions,
    /// The MCP servers whose tools it has. A record of an earlier version has none.
    #[serde(default)]
    pub mcp: Vec<McpServer>,
    /// The groups of tools that a conversation of it begins with. A record of an earlier version
    /// has none.
    #[serde(default)]
    pub groups: Vec<ToolGroup>,
    /// How its commands are confined.
    pub sandbox: Sandbox,
    /// What one piece of its work may cost.
    pub limits: Limits,
    /// What one incarnation may use.
    pub bounds: Bounds,
}

impl Terms {
    /// Returns the default terms in a workspace.
    pub fn of_workspace(workspace: String) -> Self {
        Self {
            model: ModelSpec::script().to_string(),
            workspace,
            ..Self::default()
        }
    }

    /// Returns these terms, changed by a patch. Paths are added to the lists.
    #[must_use]
    pub fn with(mut self, patch: &TermsPatch) -> Self {
        set(&mut self.role, patch.role.clone());
        set(
            &mut self.model,
            patch.model.as_ref().map(ToString::to_string),
        );
        let fallback = patch.fallback_model.as_ref().map(ToString::to_string);
        // What was recorded is of the service of the model that was recorded with it.
        let recorded = self.fallback_model.take();
        let recorded = recorded.filter(|model| is_of_service(model, &self.model));
        self.fallback_model = fallback.or(recorded);
        if let Some(name) = &patch.agent {
            let program = patch.program.clone();
            self.program = program.map(|program| Agent {
                name: name.clone(),
                command: program.command,
                protocol: program.protocol,
                login: program.login,
            });
        }
        self.host = patch.host.clone().or(self.host);
        set(&mut self.workspace, patch.workspace.clone());
        set(&mut self.plan, patch.plan);
        set(&mut self.approve_by, patch.approve_by);
        set(&mut self.restart, patch.restart);
        set(&mut self.auto, patch.auto);
        set(&mut self.permissions, patch.permissions);
        if !patch.mcp.is_empty() {
            self.mcp.clone_from(&patch.servers);
        }
        set(
            &mut self.groups,
            patch.tools.groups.clone().map(groups::in_order),
        );
        self.instructions = patch.instructions.clone().or(self.instructions);
        set(&mut self.sandbox.mode, patch.sandbox.mode);
        if let Some(Network(hosts)) = &patch.sandbox.network {
            self.sandbox.no_network = hosts.as_ref().is_some_and(Vec::is_empty);
            self.sandbox.hosts = hosts.clone().unwrap_or_default();
        }
        set(&mut self.sandbox.ports, patch.sandbox.ports.clone());
        set(&mut self.sandbox.localhost, patch.localhost);
        add(&mut self.sandbox.writable, &patch.sandbox.writable);
        add(&mut self.sandbox.hidden, &patch.sandbox.hidden);
        add(&mut self.sandbox.visible, &patch.sandbox.visible);
        self.limits = self.limits.with(patch);
        self.bounds.memory = patch.memory.or(self.bounds.memory);
        self.bounds.cpu_time = patch.cpu_time.or(self.bounds.cpu_time);
        self.bounds.max_procs = patch.max_procs.or(self.bounds.max_procs);
        self.bounds.max_time = patch.max_time.or(self.bounds.max_time);
        self.bounds.max_idle = patch.max_idle.or(self.bounds.max_idle);
        self
    }
}

/// Tells whether two models are different ones of the same service.
pub(crate) fn is_of_service(one: &str, other: &str) -> bool {
    let (one, other) = (full_name(one), full_name(other));
    let provider = |model: &str| model.parse::<ModelSpec>().ok().map(|spec| spec.provider);
    one != other && provider(&one) == provider(&other)
}

pub(crate) fn set<T>(value: &mut T, said: Option<T>) {
    if let Some(said) = said {
        *value = said;
    }
}

/// Adds to a list the values that are not in it.
pub(crate) fn add(list: &mut Vec<String>, more: &[String]) {
    for one in more {
        if !list.contains(one) {
            list.push(one.clone());
        }
    }
}

/// Whether a teammate may change anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Gate {
    /// It may.
    Open,
    /// It may not.
    Closed,
}

impl Gate {
    /// Returns the gate as it is written.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Who answers the plans of a teammate.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum ApproveBy {
    /// A person.
    #[default]
    Person,
    /// The lead agent alone.
    Lead,
}

/// How the permission questions of an agent are answered.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Permissions {
    /// With yes: the sandbox decides what it may do.
    #[default]
    Allow,
    /// By who answers its plans, one by one.
    Ask,
}

/// When a worker that ended is started again.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// Never.
    Never,
    /// After a crash, within the limits of `restart_max` and `restart_period`.
    #[default]
    OnFailure,
}

/// How often a worker that crashed is started again, before its member counts as crashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartLimit {
    /// How many times within the period.
    pub max: u32,
    /// The period, counted back from the last crash.
    pub period: Duration,
}

/// What a command of a teammate may do in addition to reading, while its gate is open; the
/// narrowest mode first.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum SandboxMode {
    /// Only a private temporary directory; no network. The same as before a plan is approved.
    ReadOnly,
    /// The workspace, a private temporary directory, and what --writable and --caches add.
    #[default]
    WorkspaceWrite,
    /// Everything that you may write.
    Off,
}

/// Whose 127.0.0.1 the commands of a teammate have.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Localhost {
    /// That of the machine; where `network` is false or a list, each command its own.
    #[default]
    Shared,
    /// One for all commands of an incarnation.
    Own,
}

impl SandboxMode {
    /// Returns the mode as it is written.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// How the commands of a teammate are confined while its gate is open. A closed gate confines them
/// further.
///
/// It is also part of control frames: no field may be left out when it is written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Sandbox {
    /// What they may write.
    pub mode: SandboxMode,
    /// Whether they have no network.
    pub no_network: bool,
    /// The hosts that they reach; empty: those that the machine reaches, or all public ones in a
    /// network of their own.
    pub hosts: Vec<String>,
    /// The services of this machine that they reach in a network of their own, by their ports.
    pub ports: Vec<u16>,
    /// Whose 127.0.0.1 they have. A record of an earlier version does not say.
    #[serde(default)]
    pub localhost: Localhost,
    /// Directories and files outside the workspace that they may write too, absolute.
    pub writable: Vec<String>,
    /// Directories and files that they may not read, absolute.
    pub hidden: Vec<String>,
    /// Directories and files of the home that they see although they are hidden by default,
    /// absolute.
    pub visible: Vec<String>,
}

impl Sandbox {
    /// Returns what they reach.
    pub fn network(&self) -> Network {
        Network((self.no_network || !self.hosts.is_empty()).then(|| self.hosts.clone()))
    }

    /// Tells whether the sandbox gives them a network with such a gate. False without a sandbox.
    pub fn has_network(&self, gate: Gate) -> bool {
        gate == Gate::Open && self.mode == SandboxMode::WorkspaceWrite && !self.no_network
    }

    /// Tells whether these layers can give them a localhost that lasts, if they are to have one.
    /// `has_agent`: they are those of an agent that has a network of its own anyway.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub fn can_have_localhost(
        &self,
        layers: Layers,
        has_agent: bool,
    ) -> Result<(), (&'static str, &'static str)> {
        if self.localhost == Localhost::Shared {
            return Ok(());
        }
        if self.mode == SandboxMode::Off {
            return Err((
                "`localhost = \"own\"` takes a sandbox, and its commands have none",
                "leave out `--sandbox off`, or `localhost`",
            ));
        }
        if layers.namespaces != Namespaces::Own {
            return Err((
                "`localhost = \"own\"` takes namespaces of our own, which this machine does not give",
                "leave out `localhost`; `teamctl doctor` says what is missing",
            ));
        }
        if self.has_network(Gate::Open) && self.hosts.is_empty() && !has_agent {
            return Err((
                "`localhost = \"own\"` is not to be had with the network of the machine, whose 127.0.0.1 is part of it",
                "set `network` of `[sandbox]` to a list of hosts (`[\"*\"]`: all public ones by HTTPS), or spawn it with --no-network",
            ));
        }
        Ok(())
    }

    /// Tells whether these layers can keep them to the hosts of a list.
    ///
    /// # Errors
    /// Why not.
    pub fn is_kept_by(&self, layers: Layers) -> Result<(), &'static str> {
        let is_listed = self.has_network(Gate::Open) && !self.hosts.is_empty();
        if is_listed && layers.namespaces != Namespaces::Own {
            Err(
                "`network` lists hosts, and this machine has no namespaces of our own to keep out the others",
            )
        } else {
            Ok(())
        }
    }
}

/// Model calls for one piece of work by default.
pub const DEFAULT_TURNS: u32 = 50;

/// What one piece of work may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
pub struct Limits {
    /// Model calls; none: the setting `max_turns`.
    pub max_turns: Option<u32>,
    /// Tokens, as [`crate::transcript::Usage::billed`] counts them; none: no limit.
    pub max_tokens: Option<u64>,
    /// Dollars, at the price of its model; none: no limit.
    pub max_cost: Option<Dollars>,
    /// What a lead has given it for all its pieces of work together.
    #[serde(default)]
    pub total: Total,
}

/// What a lead has given a teammate that it spawned. It counts into the lead's own budget once, so
/// it holds for the whole conversation, over every piece of work and every restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Total {
    /// Tokens; none: no limit.
    pub tokens: Option<u64>,
    /// Dollars; none: no limit.
    pub cost: Option<Dollars>,
}

impl Limits {
    /// Returns these limits, changed by a patch. What a patch says of a limit, it says of the total
    /// too: a person who names another limit is not bound by what a lead has given.
    fn with(self, patch: &TermsPatch) -> Self {
        let mut total = self.total;
        if patch.max_tokens.is_some() {
            total.tokens = patch.total.tokens;
        }
        if patch.max_cost.is_some() {
            total.cost = patch.total.cost;
        }
        Self {
            max_turns: patch.max_turns.or(self.max_turns),
            max_tokens: patch.max_tokens.or(self.max_tokens),
            max_cost: patch.max_cost.or(self.max_cost),
            total,
        }
    }
}

impl Serialize for Limits {
    /// JSON has the limit of cost and the total only if there is one. A control frame holds every
    /// field.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let has_cost = self.max_cost.is_some() || !serializer.is_human_readable();
        let has_total = self.total != Total::default() || !serializer.is_human_readable();
        let fields = 2 + usize::from(has_cost) + usize::from(has_total);
        let mut limits = serializer.serialize_struct("Limits", fields)?;
        limits.serialize_field("max_turns", &self.max_turns)?;
        limits.serialize_field("max_tokens", &self.max_tokens)?;
        if has_cost {
            limits.serialize_field("max_cost", &self.max_cost)?;
        }
        if has_total {
            limits.serialize_field("total", &self.total)?;
        }
        limits.end()
    }
}

/// What one incarnation may use of the machine. None: no limit.
///
/// It is also part of control frames: no field may be left out when it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Bounds {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Seconds of CPU time.
    pub cpu_time: Option<u64>,
    /// Processes of its commands.
    pub max_procs: Option<u32>,
    /// Seconds from its beginning to its end.
    pub max_time: Option<u64>,
    /// Seconds that it is idle until it is asked to leave.
    pub max_idle: Option<u64>,
}

impl Bounds {
    /// Tells whether nothing is bounded.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// The cgroup (version 2) into which an incarnation was put, with all that it starts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Cgroup {
    /// Its directory, absolute.
    pub path: String,
    /// Whether the limit of memory holds for all its processes together.
    pub memory: bool,
    /// Whether the limit of processes does.
    pub procs: bool,
}
