//! What a teammate uses of the machine: its worker and all that descends from it, as `/proc` shows
//! them. It works without a daemon, and no process waits for it.

use std::fs;
use std::time::Duration;

use serde::Serialize;
use teamd_shared::amount::{count, format_duration, format_size};
use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::process::{boot_id, ticks};

use super::processes::Processes;

/// What the processes of one teammate use.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Resources {
    /// Where that was read: `proc`.
    from: &'static str,
    /// How many there are, the worker among them.
    processes: usize,
    /// Bytes of memory that they have in use, what they share counted for each (`VmRSS`).
    rss: u64,
    /// The same with what they share divided among the sharers (`smaps_rollup`); null where one of
    /// them cannot be read, and where the whole team is shown.
    pss: Option<u64>,
    /// Seconds of CPU time of these, and of those that they had started and that have ended.
    cpu_seconds: f64,
    /// Files that they have open; null where one of them cannot be read: only root may read those
    /// of a worker.
    open_files: Option<usize>,
}

impl Resources {
    /// Returns what a member uses; none if its worker does not run. `closely` also reads what takes
    /// longer.
    pub fn of(
        processes: &Processes,
        roster: &Roster,
        member: &RosterMember,
        closely: bool,
    ) -> Option<Self> {
        let worker = processes
            .get(member.pid?)
            .filter(|it| Some(it.stat.start_ticks) == member.start_ticks)?;
        // Since another boot, the number belongs to another process.
        let recorded = roster.daemon.as_ref().map(|daemon| &daemon.process.boot_id);
        if recorded.is_some_and(|recorded| boot_id().ok().as_ref() != Some(recorded)) {
            return None;
        }
        let tree = processes.tree(worker);
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        Some(Self {
            from: "proc",
            processes: tree.len(),
            rss: tree.iter().map(|it| it.stat.rss).sum::<u64>() * page,
            pss: if closely {
                tree.iter().map(|it| pss(it.pid)).sum()
            } else {
                None
            },
            cpu_seconds: ticks(tree.iter().map(|it| it.stat.cpu).sum()).as_secs_f64(),
            open_files: tree
                .iter()
                .map(|it| Some(fs::read_dir(format!("/proc/{}/fd", it.pid)).ok()?.count()))
                .sum(),
        })
    }

    /// Returns the bytes of memory in use.
    pub fn memory(&self) -> u64 {
        self.pss.unwrap_or(self.rss)
    }

    /// Describes them in a line.
    pub fn describe(&self) -> String {
        let memory = match self.pss {
            Some(pss) => format!("{} of memory (PSS)", format_size(pss)),
            None => format!("{} of memory (RSS)", format_size(self.rss)),
        };
        let cpu =
            format_duration(Duration::try_from_secs_f64(self.cpu_seconds).unwrap_or_default());
        let processes = if self.processes == 1 {
            "1 process"
        } else {
            &format!("{} processes", self.processes)
        };
        let files = self
            .open_files
            .map(|files| format!(", {}", count(files, "open file")))
            .unwrap_or_default();
        format!("{memory}, {cpu} of CPU time, {processes}{files} (from /proc)")
    }
}

fn pss(pid: u32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::testing::member;

    #[test]
    fn the_whole_tree_of_a_process_is_counted_and_no_other_process_of_its_number() {
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let me: RosterMember = serde_json::from_value(member("me", "working")).unwrap();
        let processes = Processes::read();
        let own = processes.get(std::process::id()).unwrap();
        assert!(
            processes
                .tree(own)
                .iter()
                .any(|process| process.pid == child.id())
        );
        // Children of other tests are of the same tree, and may end while they are looked at: then
        // it is not known.
        let deadline = Instant::now() + Duration::from_secs(30);
        let mine = loop {
            let mine = Resources::of(&Processes::read(), &Roster::default(), &me, true).unwrap();
            if (mine.pss.is_some() && mine.open_files.is_some()) || Instant::now() >= deadline {
                break mine;
            }
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(
            mine.processes >= 2 && mine.rss > 0 && mine.pss.is_some(),
            "{mine:?}"
        );
        assert!(mine.open_files.is_some_and(|files| files > 2), "{mine:?}");
        assert!(
            mine.describe().ends_with(" (from /proc)"),
            "{}",
            mine.describe()
        );
        let other = RosterMember {
            start_ticks: Some(1),
            ..me
        };
        assert_eq!(
            Resources::of(&processes, &Roster::default(), &other, true),
            None
        );
    }
}
