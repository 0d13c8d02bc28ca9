//! Whether the kernel has killed a command for memory.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use teamd_worker_core::tools::KILLED;
use teamd_worker_slots::memory::{Kills, kills};

use crate::bounds::is_ended_by;

/// What programs say whose own processes were killed.
const SAID: [&str; 4] = ["signal 9", "signal: 9", "SIGKILL", "Killed"];

/// How often the kernel had killed for memory when a command began.
#[derive(Debug)]
pub(super) struct Killer {
    cgroup: Option<PathBuf>,
    before: Kills,
}

impl Killer {
    /// Begins to watch; `cgroup`: that in which the command runs.
    pub(super) fn watch(cgroup: Option<&Path>) -> Self {
        Self {
            before: kills(cgroup),
            cgroup: cgroup.map(Path::to_owned),
        }
    }

    /// Says whether it was killed, of a command that has failed.
    pub(super) fn killed(
        &self,
        (code, signal): (Option<i32>, Option<i32>),
        output: &str,
    ) -> Option<String> {
        let was_killed = is_ended_by(Signal::SIGKILL, code, signal)
            || SAID.iter().any(|words| output.contains(words));
        // Most commands that fail are not looked at any further.
        if !was_killed && !self.before.is_own {
            return None;
        }
        let now = kills(self.cgroup.as_deref());
        if !now.rose_since(self.before) {
            return None;
        }
        Some(if now.is_own {
            format!("{KILLED}: the kernel ended a process of this teammate")
        } else {
            format!("probably {KILLED}: the kernel ended a process of this machine meanwhile")
        })
    }
}
