//! Whether the kernel has killed a command for memory.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use teamd_shared::machine::memory::{Kills, MemoryKill, kills};

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
    ) -> Option<MemoryKill> {
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
            MemoryKill::Certain
        } else {
            MemoryKill::Probable
        })
    }
}

/// Says it behind a command.
pub(super) fn told(kill: MemoryKill) -> &'static str {
    match kill {
        MemoryKill::Certain => "killed for memory: the kernel ended a process of this teammate",
        MemoryKill::Probable => {
            "probably killed for memory: the kernel ended a process of this machine meanwhile"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_cgroup_tells_whom_the_kernel_has_killed_and_the_machine_only_when() {
        let scratch = tempfile::tempdir().unwrap();
        let kills = |count: u32| {
            let mut file = std::fs::File::create(scratch.path().join("memory.events")).unwrap();
            writeln!(file, "oom {count}\noom_kill {count}").unwrap();
        };
        kills(1);
        let killer = Killer::watch(Some(scratch.path()));
        let killed = |killer: &Killer, end, output| killer.killed(end, output);
        assert_eq!(killed(&killer, (None, Some(9)), ""), None);
        kills(2);
        // Also where a shell has handed on that its own process was killed.
        for end in [(None, Some(9)), (Some(137), None), (Some(2), None)] {
            assert_eq!(killed(&killer, end, ""), Some(MemoryKill::Certain));
        }
        let on_machine = Killer {
            cgroup: None,
            before: Killer::watch(None).before,
        };
        assert_eq!(killed(&on_machine, (Some(1), None), ""), None);
    }
}
