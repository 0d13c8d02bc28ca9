//! What was agreed on when somebody spawned a member: what it may do and use, and who answers for it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a teammate may change anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// It may.
    Open,
    /// It may not.
    Closed,
}

impl Gate {
    /// Returns the gate as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

/// Who answers the plans of a teammate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApproveBy {
    /// A person.
    #[default]
    Person,
    /// The lead agent alone.
    Lead,
}

/// When a worker that ended is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// Not at all.
    Never,
    /// When it crashed, at most as often as [`RestartLimit`] says.
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

impl Default for RestartLimit {
    fn default() -> Self {
        Self { max: 3, period: Duration::from_secs(60) }
    }
}

/// What a command of a teammate may do besides reading, while its gate is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Write in its workspace, in a temporary directory of its own, and where it is allowed to by name.
    #[default]
    WorkspaceWrite,
    /// Write in a temporary directory of its own only, and reach no network: as with a closed gate.
    ReadOnly,
    /// Whatever the user may do.
    Off,
}

impl SandboxMode {
    /// Returns the mode that lets less be done.
    pub fn narrower(self, other: Self) -> Self {
        match (self, other) {
            (Self::ReadOnly, _) | (_, Self::ReadOnly) => Self::ReadOnly,
            (Self::WorkspaceWrite, _) | (_, Self::WorkspaceWrite) => Self::WorkspaceWrite,
            (Self::Off, Self::Off) => Self::Off,
        }
    }
}

/// How the commands of a teammate are confined while its gate is open. A closed gate confines them further.
///
/// It stands in control frames, too: no field may be left out when it is written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Sandbox {
    /// What they may write.
    #[serde(default)]
    pub mode: SandboxMode,
    /// Whether the network is taken away from them.
    #[serde(default)]
    pub no_network: bool,
    /// Directories and files outside the workspace that they may write too, absolute.
    #[serde(default)]
    pub writable: Vec<String>,
    /// Directories and files that they may not read, absolute.
    #[serde(default)]
    pub hidden: Vec<String>,
}

impl Sandbox {
    /// Returns this one, with no more network, no wider a mode and no less hidden than the other one; `writable` stays as it is.
    #[must_use]
    pub fn within(mut self, bounds: &Self) -> Self {
        self.mode = self.mode.narrower(bounds.mode);
        self.no_network |= bounds.no_network;
        bounds.hidden.iter().cloned().for_each(|path| add(&mut self.hidden, path));
        self
    }
}

/// Adds a path to a list, unless it stands there.
pub(crate) fn add(paths: &mut Vec<String>, path: String) {
    if !paths.contains(&path) {
        paths.push(path);
    }
}

/// What one piece of work may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// Model calls; none: the setting `max_turns`.
    #[serde(default)]
    pub max_turns: Option<u32>,
    /// Tokens, as [`crate::transcript::Usage::billed`] counts them; none: no limit.
    #[serde(default)]
    pub max_tokens: Option<u64>,
}

/// What one life may use of the machine. None: no limit.
///
/// It stands in control frames, too: no field may be left out when it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Bounds {
    /// Bytes of memory.
    #[serde(default)]
    pub memory: Option<u64>,
    /// Seconds of CPU time.
    #[serde(default)]
    pub cpu_time: Option<u64>,
    /// Processes of its commands.
    #[serde(default)]
    pub max_procs: Option<u32>,
    /// Seconds from its beginning to its end.
    #[serde(default)]
    pub max_time: Option<u64>,
}

impl Bounds {
    /// Returns these; where they say nothing, what the others say.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            memory: self.memory.or(others.memory),
            cpu_time: self.cpu_time.or(others.cpu_time),
            max_procs: self.max_procs.or(others.max_procs),
            max_time: self.max_time.or(others.max_time),
        }
    }

    /// Tells whether nothing is bounded.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// The cgroup (version 2) into which a life was put, with all that it starts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Cgroup {
    /// Its directory, absolute.
    pub path: String,
    /// Whether the limit of memory holds for all its processes together.
    #[serde(default)]
    pub memory: bool,
    /// Whether the limit of processes does.
    #[serde(default)]
    pub procs: bool,
}
