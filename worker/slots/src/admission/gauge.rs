//! Whether memory is short, for commands that ask.

use std::fs;
use std::path::{Path, PathBuf};

use teamd_shared::machine::AdmissionRules;
use teamd_shared::machine::memory::{
    MemoryAmount, limited_cgroups, of_cgroup, of_machine, stalled,
};
use teamd_shared::process::Stat;

/// The share of the last ten seconds, in percent, in which a process waited for memory: above it,
/// memory is short.
const STALLED: f64 = 10.0;

/// What says whether memory is short.
#[derive(Debug)]
pub(crate) struct Gauge {
    /// How much stays free, in percent.
    reserve: u32,
    /// How much there is, in bytes, if that is pretended.
    pretended: Option<u64>,
    /// The cgroups around this process that have a limit.
    limits: Vec<PathBuf>,
}

impl Gauge {
    /// Looks for what can be read here. `own`: the cgroup of this process alone. It is not looked
    /// at: no other command gives back what that one lacks.
    pub(crate) fn new(rules: &AdmissionRules, own: Option<&Path>) -> Self {
        let limits = if rules.memory.is_some() {
            Vec::new()
        } else {
            limited_cgroups(own)
        };
        Self {
            reserve: rules.reserve,
            pretended: rules.memory,
            limits,
        }
    }

    /// Tells whether memory is short; `running`: the processes whose commands were admitted. What
    /// cannot be read is not short.
    pub(crate) fn is_short(&self, running: impl Iterator<Item = u32>) -> bool {
        if let Some(total) = self.pretended {
            let used = used_below(&running.collect::<Vec<_>>());
            let available = total.saturating_sub(used);
            return MemoryAmount { total, available }.is_below(self.reserve);
        }
        let is_stalled = stalled().is_some_and(|share| share > STALLED);
        let machine = of_machine();
        let amounts = machine
            .into_iter()
            .chain(self.limits.iter().filter_map(|it| of_cgroup(it)));
        is_stalled || amounts.into_iter().any(|it| it.is_below(self.reserve))
    }
}

/// Returns how much memory all that descends from these processes has, in bytes, without them.
fn used_below(running: &[u32]) -> u64 {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let all: Vec<(u32, Stat)> = pids
        .filter_map(|pid| Some((pid, Stat::of(pid).ok()?)))
        .collect();
    let mut above = running.to_vec();
    let mut pages: u64 = 0;
    while let Some(parent) = above.pop() {
        for (pid, stat) in all.iter().filter(|(_, stat)| stat.parent == parent) {
            pages = pages.saturating_add(stat.rss);
            above.push(*pid);
        }
    }
    pages.saturating_mul(rustix::param::page_size() as u64)
}

/// The one child of all tests of this crate, which has memory.
///
/// A child holds the locks of its parent from its fork until its program begins, and to a test whose
/// clock is paused that is longer than any patience. So it starts before the first lock is taken, and
/// no other one does. It ends with the tests: its input closes then.
#[cfg(test)]
pub(super) static CHILD: std::sync::LazyLock<std::process::Child> =
    std::sync::LazyLock::new(|| {
        let mut command = std::process::Command::new("cat");
        let child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let began = std::time::Instant::now();
        while used_below(&[std::process::id()]) == 0 {
            assert!(began.elapsed().as_secs() < 60, "the child has no memory");
            std::thread::yield_now();
        }
        child
    });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_descends_from_a_process_counts_and_it_does_not() {
        let child = CHILD.id();
        assert!(used_below(&[std::process::id()]) > 0);
        assert_eq!(used_below(&[child]), 0);
    }
}
