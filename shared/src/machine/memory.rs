//! How much memory there is, and what the kernel has killed for it.

use std::fs;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cgroup::CgroupPlace;

/// Where the kernel says how long processes waited for memory.
const PRESSURE: &str = "/proc/pressure/memory";

/// How much memory there is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryAmount {
    /// All of it.
    pub total: u64,
    /// What can be had without a process losing its own.
    pub available: u64,
}

impl MemoryAmount {
    /// Tells whether less than so many percent of it are available.
    pub fn is_below(self, percent: u32) -> bool {
        let available = u128::from(self.available) * 100;
        available < u128::from(self.total) * u128::from(percent)
    }
}

/// Returns for which share of the last ten seconds a process waited for memory, in percent; none
/// where the kernel does not say so.
pub fn stalled() -> Option<f64> {
    stalled_in(&fs::read_to_string(PRESSURE).ok()?)
}

fn stalled_in(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split(' ')
        .find_map(|field| field.strip_prefix("avg10="))?
        .parse()
        .ok()
}

/// Returns how much memory the machine has.
pub fn of_machine() -> Option<MemoryAmount> {
    machine_in(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn machine_in(text: &str) -> Option<MemoryAmount> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes = line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?;
        kilobytes.checked_mul(1024)
    };
    Some(MemoryAmount {
        total: field("MemTotal:")?,
        available: field("MemAvailable:")?,
    })
}

/// Lists the cgroups around this process that have a limit, without its own.
pub fn limited_cgroups(own: Option<&Path>) -> Vec<PathBuf> {
    let place = CgroupPlace::look(None).ok().map(|place| place.folder);
    let Some(inner) = own.and_then(Path::parent).map(Path::to_owned).or(place) else {
        return Vec::new();
    };
    inner
        .ancestors()
        .take_while(|folder| folder.join("cgroup.procs").exists())
        .filter(|folder| of_cgroup(folder).is_some())
        .map(Path::to_owned)
        .collect()
}

/// Returns how much memory a cgroup has; none if it has no limit.
pub fn of_cgroup(folder: &Path) -> Option<MemoryAmount> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let total: u64 = read("memory.max")?.trim().parse().ok()?;
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    // The kernel takes that back first.
    let cached = field_of(&read("memory.stat").unwrap_or_default(), "inactive_file");
    let used = used.saturating_sub(cached.unwrap_or_default());
    Some(MemoryAmount {
        total,
        available: total.saturating_sub(used),
    })
}

/// Returns how often the kernel has killed for memory: in this cgroup, where that can be read, else
/// on the whole machine (Linux 4.13).
pub fn kills(cgroup: Option<&Path>) -> Kills {
    let of_cgroup = cgroup
        .and_then(|folder| fs::read_to_string(folder.join("memory.events")).ok())
        .and_then(|text| field_of(&text, "oom_kill"));
    if let Some(count) = of_cgroup {
        return Kills {
            count,
            is_own: true,
        };
    }
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    Kills {
        count: field_of(&text, "oom_kill").unwrap_or_default(),
        is_own: false,
    }
}

/// How sure it is that the kernel has killed something of a command for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKill {
    /// It has: in the cgroup of the command.
    Certain,
    /// It has killed on this machine while something of the command was killed.
    Probable,
}

/// How often the kernel has killed for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kills {
    count: u64,
    /// Whether only what runs in one cgroup counts.
    pub is_own: bool,
}

impl Kills {
    /// Tells whether it has killed since an earlier look at the same place.
    pub fn rose_since(self, earlier: Self) -> bool {
        self.is_own == earlier.is_own && self.count > earlier.count
    }
}

fn field_of(text: &str, name: &str) -> Option<u64> {
    let fields = text.lines().filter_map(|line| line.split_once(' '));
    let mut values = fields.filter(|(field, _)| *field == name);
    values.next()?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_read() {
        let pressure = "some avg10=12.50 avg60=0.00 avg300=0.00 total=7\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=3\n";
        assert_eq!(stalled_in(pressure), Some(12.5));
        assert_eq!(stalled_in(""), None);
        let machine = machine_in("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  99 kB\n");
        let machine = machine.unwrap();
        assert_eq!((machine.total, machine.available), (1_024_000, 101_376));
        assert!(machine.is_below(10) && !machine.is_below(9));
        assert_eq!(machine_in("MemTotal: 1000 kB\n"), None);
        assert_eq!(field_of("oom 1\noom_kill 3\n", "oom_kill"), Some(3));
        assert_eq!(field_of("oom_kill x\n", "oom_kill"), None);
    }

    #[test]
    fn a_cgroup_without_a_limit_says_nothing_and_a_cache_is_no_use() {
        let scratch = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = scratch.path().join(name);
            let mut file = fs::File::create(path).unwrap();
            std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        };
        write("memory.current", "900\n");
        write("memory.max", "max\n");
        assert_eq!(of_cgroup(scratch.path()), None);
        write("memory.max", "1000\n");
        write("memory.stat", "anon 1\ninactive_file 300\n");
        let amount = of_cgroup(scratch.path()).unwrap();
        assert_eq!((amount.total, amount.available), (1000, 400));
        write("memory.events", "oom 0\noom_kill 0\n");
        let before = kills(Some(scratch.path()));
        write("memory.events", "oom 1\noom_kill 1\n");
        let after = kills(Some(scratch.path()));
        assert!(after.is_own && after.rose_since(before) && !before.rose_since(before));
        let elsewhere = kills(None);
        assert!(!elsewhere.is_own && !elsewhere.rose_since(before));
    }
}
