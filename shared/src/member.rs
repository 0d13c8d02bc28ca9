//! A member as the journal records it, and the status that people see, pure.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::RequestId;
use crate::name::Name;
use crate::position::Position;
use crate::process::Identity;
use crate::transcript::Usage;

/// How far the life of a member's worker has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Journaled, but no pid yet.
    Spawning,
    /// Its pid is journaled.
    Running,
    /// Ended by the handshake.
    Shutdown,
    /// Ended by force.
    Killed,
    /// Ended by itself.
    Crashed,
}

impl Phase {
    /// Returns how the life ended that led here: one that is started again, or was never run, had crashed.
    pub fn ended_as(self) -> Status {
        match self {
            Self::Shutdown => Status::Shutdown,
            Self::Killed => Status::Killed,
            Self::Crashed | Self::Spawning | Self::Running => Status::Crashed,
        }
    }
}

/// What can happen to the life of a member's worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifeEvent {
    /// A new life is decided.
    Spawning,
    /// Its process exists.
    Spawned,
    /// It ended for good.
    Ended(End),
    /// It ended, and the next life is decided in the same line.
    Restarted,
}

/// How a life ended: a function of the journal alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A shutdown of that life was approved.
    Shutdown,
    /// A signal was journaled before it was sent.
    Killed,
    /// Neither.
    Crashed,
}

/// An event that cannot happen in a phase: a mistake of whoever decided it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} cannot happen to a life that is {phase:?}")]
pub struct Impossible {
    phase: Phase,
    event: LifeEvent,
}

impl Phase {
    /// Computes the phase after an event: every cell of (phase × event).
    ///
    /// # Errors
    /// [`Impossible`] for the cells that no correct decision reaches.
    pub fn after(self, event: LifeEvent) -> Result<Self, Impossible> {
        match (self, event) {
            (Self::Shutdown | Self::Killed | Self::Crashed, LifeEvent::Spawning) => Ok(Self::Spawning),
            (Self::Spawning, LifeEvent::Spawned) => Ok(Self::Running),
            (Self::Spawning | Self::Running, LifeEvent::Ended(end)) => Ok(match end {
                End::Shutdown => Self::Shutdown,
                End::Killed => Self::Killed,
                End::Crashed => Self::Crashed,
            }),
            (Self::Spawning | Self::Running, LifeEvent::Restarted) => Ok(Self::Spawning),
            (Self::Spawning | Self::Running, LifeEvent::Spawning)
            | (Self::Running | Self::Shutdown | Self::Killed | Self::Crashed, LifeEvent::Spawned)
            | (Self::Shutdown | Self::Killed | Self::Crashed, LifeEvent::Ended(_) | LifeEvent::Restarted) => {
                Err(Impossible { phase: self, event })
            }
        }
    }

    /// Tells whether the life is over.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Shutdown | Self::Killed | Self::Crashed)
    }
}

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

impl Sandbox {
    /// Returns this one, with no more network and no wider a mode than the other one; `writable` stays as it is.
    #[must_use]
    pub fn within(self, bounds: &Self) -> Self {
        Self {
            mode: self.mode.narrower(bounds.mode),
            no_network: self.no_network || bounds.no_network,
            writable: self.writable,
        }
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

/// Why a worker is being ended by signals: journaled before the first one is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// `--force`.
    Force,
    /// It was let go, and is still there a grace period later.
    Overdue,
    /// Somebody sent its process SIGTERM, and it said so.
    Sigterm,
    /// The daemon was told by a signal to end.
    Stop,
    /// It did not answer the daemon for too long: it counts as crashed.
    Hung,
    /// It reached a limit of what a life may use.
    Limit,
}

/// How it was established that nothing of a life is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Emptied {
    /// The kernel says that no process is in its cgroup any more; and its life lock is free.
    Cgroup,
    /// Its life lock is free, so every keeper has seen its command to the end; and nothing that a worker and its keeper
    /// left when they were killed together has come to the daemon that started them, or it was ended.
    Keepers,
    /// Its life lock is free. The daemon that saw it end is not the one that started it: what a worker and its keeper left
    /// when they were killed together would not have come to it.
    Lock,
}

/// How a life ended, as far as anybody could see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Exit {
    /// The exit code; null if a signal ended it, or nobody could see.
    pub code: Option<i32>,
    /// The signal; null if it exited, or nobody could see.
    pub signal: Option<i32>,
    /// Seconds since 1970, when it was seen.
    pub at: f64,
    /// The shutdown request that it answered with yes.
    pub request_id: Option<RequestId>,
    /// Messages that it had not taken in.
    #[serde(default)]
    pub unread: u64,
    /// Where its inbox stood: a fresh life begins there.
    #[serde(default)]
    pub inbox: Position,
    /// Why it was ended by the daemon itself, and why it is not (or could not be) started again, in plain words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What its conversation had cost, as far as it had said.
    #[serde(default, skip_serializing_if = "Usage::is_nothing")]
    pub usage: Usage,
    /// Why it was ended by signals; null if it was not.
    #[serde(default)]
    pub ending: Option<Ending>,
    /// How it was established that nothing of it is left; null for one that was never run.
    #[serde(default)]
    pub emptied: Option<Emptied>,
    /// Processes of its commands that had to be killed after its worker had ended; null where nobody could count them.
    #[serde(default)]
    pub left_behind: Option<u32>,
}

/// A member as it stands in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Member {
    /// Its name.
    pub name: Name,
    /// What it is for, as the one who spawned it put it.
    pub role: String,
    /// The model, as `PROVIDER[:MODEL]`.
    pub model: String,
    /// The directory that it works in, absolute.
    pub workspace: String,
    /// Whether it must submit a plan first.
    pub plan: bool,
    /// Who answers its plans.
    pub approve_by: ApproveBy,
    /// When it is started again.
    pub restart: Restart,
    /// What its role says to its model, beside its own prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// How its commands are confined.
    #[serde(default)]
    pub sandbox: Sandbox,
    /// What one piece of its work may cost.
    #[serde(default)]
    pub limits: Limits,
    /// What one life of it may use.
    #[serde(default, skip_serializing_if = "Bounds::is_nothing")]
    pub bounds: Bounds,
    /// The life: 1, 2, 3 …
    pub incarnation: u32,
    /// The life in which its conversation began.
    pub conversation: u32,
    /// Where its inbox stood when the conversation began.
    pub begins_at: Position,
    /// How far the life has come.
    pub phase: Phase,
    /// Its process, once there is one.
    #[serde(flatten)]
    pub process: Option<Identity>,
    /// The cgroup of that process; none where it has none of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<Cgroup>,
    /// Whether it may change anything.
    pub gate: Gate,
    /// Why it is being ended by signals, if it is.
    pub ending: Option<Ending>,
    /// The same in plain words, where there is more to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending_note: Option<String>,
    /// Times of its restarts by the policy, seconds since 1970: those that still count.
    #[serde(default)]
    pub restarts: Vec<f64>,
    /// How often the policy has started it again since somebody spawned it.
    #[serde(default)]
    pub restarted: u32,
    /// Since when it does not answer the daemon, seconds since 1970, where the lead was told so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<f64>,
    /// How the last life ended; null in a first life.
    pub exit: Option<Exit>,
    /// Seconds since 1970.
    pub spawned_at: f64,
    /// Seconds since 1970, of the last change that was journaled.
    pub updated_at: f64,
}

/// What people see of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Spawned, and not ready yet.
    Starting,
    /// Waiting for messages.
    Idle,
    /// At work.
    Working,
    /// A plan of it waits for a verdict.
    AwaitingApproval,
    /// A shutdown is asked or agreed.
    ShuttingDown,
    /// Ended by the handshake.
    Shutdown,
    /// Ended by force.
    Killed,
    /// Ended by itself.
    Crashed,
}

/// What a worker last said that it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// It is not ready yet.
    #[default]
    Starting,
    /// It waits for messages, or for a verdict.
    Idle,
    /// It works.
    Working,
}

/// A pause in which a worker waits for the service of its model.
///
/// It stands in control frames, too: no field may be left out when it is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waiting {
    /// Seconds since 1970, when it ends at the latest.
    pub until: f64,
    /// What for, in a few words of our own.
    pub why: String,
}

impl Waiting {
    /// Says it as it is at a time, in seconds since 1970.
    pub fn told(&self, now: f64) -> String {
        let left = (self.until - now).ceil();
        if left >= 1.0 { format!("waiting {left} s: {}", self.why) } else { format!("waiting: {}", self.why) }
    }
}

impl Status {
    /// Returns the status as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Idle => "idle",
            Self::Working => "working",
            Self::AwaitingApproval => "awaiting_approval",
            Self::ShuttingDown => "shutting_down",
            Self::Shutdown => "shutdown",
            Self::Killed => "killed",
            Self::Crashed => "crashed",
        }
    }

    /// Tells whether the member has ended.
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Shutdown | Self::Killed | Self::Crashed)
    }

    /// Computes the status; it is stored nowhere. The end counts first, then a shutdown, then a plan, then
    /// what the worker last said.
    pub fn of(phase: Phase, leaving: bool, plan_pending: bool, doing: Doing) -> Self {
        match phase {
            Phase::Shutdown => Self::Shutdown,
            Phase::Killed => Self::Killed,
            Phase::Crashed => Self::Crashed,
            Phase::Spawning | Phase::Running if leaving => Self::ShuttingDown,
            Phase::Spawning => Self::Starting,
            Phase::Running if plan_pending => Self::AwaitingApproval,
            Phase::Running => match doing {
                Doing::Starting => Self::Starting,
                Doing::Idle => Self::Idle,
                Doing::Working => Self::Working,
            },
        }
    }
}

impl std::str::FromStr for Status {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        serde_json::from_value(serde_json::Value::String(text.to_owned())).map_err(|_| {
            "one of starting, idle, working, awaiting_approval, shutting_down, shutdown, killed, crashed is expected"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [Phase; 5] =
        [Phase::Spawning, Phase::Running, Phase::Shutdown, Phase::Killed, Phase::Crashed];

    #[test]
    fn every_cell_of_the_life_is_named() {
        let ends =
            [(End::Shutdown, Phase::Shutdown), (End::Killed, Phase::Killed), (End::Crashed, Phase::Crashed)];
        for phase in PHASES {
            let live = !phase.is_ended();
            assert_eq!(phase.after(LifeEvent::Spawning).ok(), (!live).then_some(Phase::Spawning));
            assert_eq!(phase.after(LifeEvent::Restarted).ok(), live.then_some(Phase::Spawning));
            let spawned = (phase == Phase::Spawning).then_some(Phase::Running);
            assert_eq!(phase.after(LifeEvent::Spawned).ok(), spawned);
            for (end, after) in ends {
                assert_eq!(phase.after(LifeEvent::Ended(end)).ok(), live.then_some(after));
            }
        }
    }

    #[test]
    fn an_end_counts_before_a_shutdown_before_a_plan_before_what_the_worker_says() {
        for doing in [Doing::Starting, Doing::Idle, Doing::Working] {
            for plan in [false, true] {
                for leaving in [false, true] {
                    assert_eq!(Status::of(Phase::Crashed, leaving, plan, doing), Status::Crashed);
                    assert_eq!(Status::of(Phase::Shutdown, leaving, plan, doing), Status::Shutdown);
                }
                assert_eq!(Status::of(Phase::Running, true, plan, doing), Status::ShuttingDown);
            }
            assert_eq!(Status::of(Phase::Running, false, true, doing), Status::AwaitingApproval);
        }
        assert_eq!(Status::of(Phase::Running, false, false, Doing::Working), Status::Working);
        assert_eq!(Status::of(Phase::Spawning, false, false, Doing::Starting), Status::Starting);
    }

    #[test]
    fn a_pause_is_told_with_the_seconds_that_are_left() {
        let waiting = Waiting { until: 100.0, why: "overloaded (529)".to_owned() };
        assert_eq!(waiting.told(82.5), "waiting 18 s: overloaded (529)");
        for over in [100.0, 200.0, f64::NAN] {
            assert_eq!(waiting.told(over), "waiting: overloaded (529)");
        }
    }

    #[test]
    fn a_status_is_read_as_it_is_written() {
        for status in [Status::Starting, Status::AwaitingApproval, Status::ShuttingDown, Status::Crashed] {
            assert_eq!(status.as_str().parse(), Ok(status));
        }
        assert!("gone".parse::<Status>().is_err());
    }
}
