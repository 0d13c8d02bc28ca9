//! What a teammate uses of the machine: its worker and all that descends from it, as `/proc` shows them. It works without a
//! daemon, and no process waits for it.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;
use teamd_shared::amount::{format_duration, format_size};
use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::process::{boot_id, stat as read_stat, ticks};

/// What the processes of one teammate use.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Resources {
    /// Where that was read: `proc`.
    from: &'static str,
    /// How many there are, the worker among them.
    processes: usize,
    /// Bytes of memory that they have in use, what they share counted for each (`VmRSS`).
    rss: u64,
    /// The same with what they share divided among the sharers (`smaps_rollup`); null where one of them cannot be read, and
    /// where the whole team is shown.
    pss: Option<u64>,
    /// Seconds of CPU time of these, and of those that they had started and that have ended.
    cpu_seconds: f64,
    /// Files that they have open; null where one of them cannot be read: only root may read those of a worker.
    open_files: Option<usize>,
}

/// The processes of the machine, read once.
#[derive(Debug)]
pub(super) struct Processes {
    all: HashMap<u32, ProcStat>,
    children: HashMap<u32, Vec<u32>>,
    boot_id: Option<String>,
}

/// What `/proc/PID/stat` says of one (`proc_pid_stat(5)`).
#[derive(Debug, Clone, PartialEq)]
struct ProcStat {
    parent: u32,
    /// Clock ticks, with those of the children that it has reaped.
    cpu: u64,
    start_ticks: u64,
    /// Pages.
    rss: u64,
}

impl Processes {
    /// Reads them all; those that end meanwhile are left out.
    pub(super) fn read() -> Self {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let stat = |pid: u32| parse(&read_stat(pid).ok()?);
        let all: HashMap<u32, ProcStat> = pids.filter_map(|pid| Some((pid, stat(pid)?))).collect();
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for (pid, process) in &all {
            children.entry(process.parent).or_default().push(*pid);
        }
        Self { all, children, boot_id: boot_id().ok() }
    }

    /// Returns what a member uses; none if its worker does not run. `closely` also reads what takes longer.
    pub(super) fn of(&self, roster: &Roster, member: &RosterMember, closely: bool) -> Option<Resources> {
        let (pid, start_ticks) = (member.pid?, member.start_ticks?);
        // Since another boot, the number belongs to another process.
        let same_boot = roster
            .daemon
            .as_ref()
            .is_none_or(|daemon| Some(&daemon.process.boot_id) == self.boot_id.as_ref());
        self.all.get(&pid).filter(|process| same_boot && process.start_ticks == start_ticks)?;
        let tree = self.tree(pid);
        let sum = |what: fn(&ProcStat) -> u64| {
            tree.iter().filter_map(|pid| self.all.get(pid)).map(what).sum::<u64>()
        };
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        let files = |pid: &u32| Some(std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count());
        Some(Resources {
            from: "proc",
            processes: tree.len(),
            rss: sum(|process| process.rss) * page,
            pss: if closely { tree.iter().map(|&pid| pss(pid)).sum() } else { None },
            cpu_seconds: ticks(sum(|process| process.cpu)).as_secs_f64(),
            open_files: tree.iter().map(files).sum(),
        })
    }

    /// A process, and all that descends from it.
    fn tree(&self, root: u32) -> Vec<u32> {
        let mut found = vec![root];
        let mut next = 0;
        while let Some(pid) = found.get(next) {
            found.extend(self.children.get(pid).into_iter().flatten());
            next += 1;
        }
        found
    }
}

/// The name (field 2) may hold spaces and parentheses: fields count from the last one. A zombie uses nothing any more.
fn parse(stat: &str) -> Option<ProcStat> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // utime, stime, cutime, cstime: fields 14 to 17.
    let cpu = (11..15).map(number).sum::<Option<u64>>()?;
    let parent = u32::try_from(number(1)?).ok()?;
    (fields.first() != Some(&"Z")).then_some(ProcStat {
        parent,
        cpu,
        start_ticks: number(19)?,
        rss: number(21)?,
    })
}

fn pss(pid: u32) -> Option<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? << 10)
}

impl Resources {
    /// Says it in a line.
    pub(super) fn describe(&self) -> String {
        let memory = match self.pss {
            Some(pss) => format!("{} of memory (PSS)", format_size(pss)),
            None => format!("{} of memory (RSS)", format_size(self.rss)),
        };
        let cpu = format_duration(Duration::try_from_secs_f64(self.cpu_seconds).unwrap_or_default());
        let processes =
            if self.processes == 1 { "1 process" } else { &format!("{} processes", self.processes) };
        let files = self.open_files.map(|files| format!(", {files} open files")).unwrap_or_default();
        format!("{memory}, {cpu} of CPU time, {processes}{files} (from /proc)")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::ctl::roster::tests::member;

    #[test]
    fn the_fields_are_found_behind_any_name() {
        let stat = "7 (a) b (c)) S 3 7 7 0 -1 4194560 1 0 0 0 10 20 30 40 20 0 1 0 81991 1000 25 1";
        assert_eq!(parse(stat), Some(ProcStat { parent: 3, cpu: 100, start_ticks: 81_991, rss: 25 }));
        assert_eq!(parse(&stat.replace(") S", ") Z")), None);
        assert_eq!(parse("7 (x"), None);
    }

    #[test]
    fn the_whole_tree_of_a_process_is_counted_and_no_other_process_of_its_number() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let me: RosterMember = serde_json::from_value(member("me", "working")).unwrap();
        let processes = Processes::read();
        assert!(processes.tree(std::process::id()).contains(&child.id()));
        // Children of other tests are of the same tree, and may end while they are looked at: then it is not known.
        let deadline = Instant::now() + Duration::from_secs(30);
        let mine = loop {
            let mine = Processes::read().of(&Roster::default(), &me, true).unwrap();
            if (mine.pss.is_some() && mine.open_files.is_some()) || Instant::now() >= deadline {
                break mine;
            }
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(mine.processes >= 2 && mine.rss > 0 && mine.pss.is_some(), "{mine:?}");
        assert!(mine.open_files.is_some_and(|files| files > 2), "{mine:?}");
        assert!(mine.describe().ends_with(" (from /proc)"), "{}", mine.describe());
        let other = RosterMember { start_ticks: Some(1), ..me };
        assert_eq!(processes.of(&Roster::default(), &other, true), None);
    }
}
