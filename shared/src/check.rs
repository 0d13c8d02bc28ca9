//! The order for a check and its report. Each is one JSON text: on standard input, which stays open
//! while the check is wanted, and on standard output.

use serde::{Deserialize, Serialize};

use crate::checkout::Checkout;
use crate::environment::Environment;
use crate::fingerprint::Baseline;
use crate::id::TaskId;
use crate::member::{Bounds, Sandbox};
use crate::merged::Merged;
use crate::name::Name;

/// What is to be run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckOrder {
    /// The task.
    pub task: TaskId,
    /// Which submission of it.
    pub number: u32,
    /// The commands, which run in turn until one fails.
    pub commands: Vec<String>,
    /// Where they run.
    pub workspace: String,
    /// The checkout that this is in, if it is one.
    pub checkout: Option<Checkout>,
    /// Seconds that they may take together.
    pub timeout: f64,
    /// Whether nothing else is to run beside them: they failed before while the kernel killed for
    /// memory.
    #[serde(default)]
    pub alone: bool,
    /// Their variables and umask.
    pub environment: Environment,
    /// How they are confined.
    pub sandbox: Sandbox,
    /// Their limits.
    pub bounds: Bounds,
    /// Where commands of the team may or once could write.
    pub territory: Vec<String>,
    /// The files that decide whether work is done, and where they lie.
    pub protect: Vec<String>,
    /// The directory that those count from.
    pub protect_in: String,
    /// Their state when the work was set; none: they were not looked at.
    pub protected: Option<Baseline>,
}

impl CheckReport {
    /// Adds how the commands ended to what a merge has found out.
    #[must_use]
    pub fn with(self, commands: Self) -> Self {
        Self {
            merged: self.merged,
            touched_protected: self.touched_protected.or(commands.touched_protected),
            ..commands
        }
    }
}

/// How a check ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CheckReport {
    /// Which command ran last, from 0.
    pub command: usize,
    /// Its exit code; none if something else ended it.
    pub exit: Option<i32>,
    /// What ended it, if it was not itself. Fits behind the command.
    pub how: String,
    /// How long all commands took, in seconds.
    pub seconds: f64,
    /// The end of the output.
    pub output: String,
    /// Which protected file has changed since the work was set, or why that is not known.
    pub touched_protected: Option<String>,
    /// Whether the kernel has killed for memory while the command ran that failed.
    pub starved: bool,
    /// What was checked, of work that is to be integrated.
    pub merged: Option<Merged>,
    /// The files on which a merge with the integration branch fails. Then no command ran.
    pub conflicts: Vec<String>,
    /// The host on which the commands ran; none: home.
    pub host: Option<Name>,
}
