//! The processes of this machine as `/proc` shows them, and which of them belong to a team.
//!
//! A process is shown here as evidence. What is signalled is identified exactly, and held by a
//! pidfd.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use teamd_shared::name::Name;
use teamd_shared::process::{Identity, Stat, boot_id};

/// A process that has not ended.
#[derive(Debug)]
pub struct ProcessEntry {
    /// Its id.
    pub pid: u32,
    /// Its state, from the kernel.
    pub stat: Stat,
}

/// All processes, read once.
#[derive(Debug)]
pub struct Processes(BTreeMap<u32, ProcessEntry>);

impl Processes {
    /// Reads them; those that end meanwhile are left out.
    pub fn read() -> Self {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let entries = pids.filter_map(|pid| {
            Some(ProcessEntry {
                pid,
                stat: Stat::of(pid).ok()?,
            })
        });
        Self(
            entries
                .filter(|it| !it.stat.has_ended())
                .map(|it| (it.pid, it))
                .collect(),
        )
    }

    /// Returns all of them.
    pub fn all(&self) -> impl Iterator<Item = &ProcessEntry> {
        self.0.values()
    }

    /// Returns the one that has this number.
    pub fn get(&self, pid: u32) -> Option<&ProcessEntry> {
        self.0.get(&pid)
    }

    /// Returns a process, and all that descends from it.
    pub(crate) fn tree<'a>(&'a self, root: &'a ProcessEntry) -> Vec<&'a ProcessEntry> {
        let mut tree = vec![root];
        let mut next = 0;
        while let Some(parent) = tree.get(next).map(|process| process.pid) {
            tree.extend(self.all().filter(|process| process.stat.parent == parent));
            next += 1;
        }
        tree
    }
}

impl ProcessEntry {
    /// Returns the identity of the process that was looked at. Another process that gets the pid
    /// later has a different one.
    ///
    /// # Errors
    /// The system's error if the id of this boot cannot be read.
    pub fn identity(&self) -> io::Result<Identity> {
        Ok(Identity {
            pid: self.pid,
            start_ticks: self.stat.start_ticks,
            boot_id: boot_id()?,
        })
    }

    /// Returns the real user id.
    pub fn user(&self) -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("Uid:"))?
            .split_ascii_whitespace()
            .next()?
            .parse()
            .ok()
    }

    /// Returns the command line; an empty one of the kernel's own, and where it cannot be seen.
    pub fn command(&self) -> CommandLine {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let words = line.split_inclusive(|&byte| byte == 0);
        CommandLine(
            words
                .map(|word| {
                    String::from_utf8_lossy(word.strip_suffix(b"\0").unwrap_or(word)).into_owned()
                })
                .collect(),
        )
    }

    /// Tells whether it is a shim of the team directory at this path: its descriptor 0 is a
    /// transcript there.
    pub fn is_shim_in(&self, root: &Path) -> bool {
        self.command().is_shim()
            && fs::read_link(format!("/proc/{}/fd/0", self.pid))
                .unwrap_or_default()
                .starts_with(root.join("transcript"))
    }

    /// Says what it is, for people: the beginning of its command line.
    pub fn describe(&self) -> String {
        const MOST: usize = 100;
        let line = self.command().0.join(" ");
        let short: String = line.chars().take(MOST).collect();
        let more = if short.len() < line.len() { "…" } else { "" };
        format!("process {} (`{short}{more}`)", self.pid)
    }
}

/// The words of a command line.
pub struct CommandLine(Vec<String>);

impl CommandLine {
    /// Returns the teammate and the incarnation, if it is that of a worker of the team directory at
    /// this path.
    pub fn worker_in(&self, root: &Path) -> Option<(Name, u32)> {
        let is_of_team = self
            .option("--team-dir")
            .is_some_and(|path| Path::new(path) == root);
        if !is_of_team || !self.program()?.starts_with("team-worker") || self.0.get(1)? != "run" {
            return None;
        }
        Some((
            Name::of_inbox(self.option("--name")?).ok()?,
            self.option("--incarnation")?.parse().ok()?,
        ))
    }

    /// Tells whether it is that of a daemon.
    pub fn is_daemon(&self) -> bool {
        self.program() == Some("teamd")
    }

    fn is_shim(&self) -> bool {
        self.0.get(1).is_some_and(|word| word == "shim")
    }

    fn program(&self) -> Option<&str> {
        Path::new(self.0.first()?).file_name()?.to_str()
    }

    fn option(&self, name: &str) -> Option<&str> {
        // The words behind `--` are the command of a tool call.
        let mut own = self.0.iter().take_while(|word| *word != "--");
        own.find(|word| *word == name)?;
        own.next().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen() {
        let processes = Processes::read();
        let own = processes.get(std::process::id()).unwrap();
        assert_eq!(own.user(), Some(nix::unistd::getuid().as_raw()));
        assert!(
            own.describe().contains("teamd_client"),
            "{}",
            own.describe()
        );
        assert!(own.stat.threads > 0 && !own.is_shim_in(Path::new("/")));
    }

    #[test]
    fn workers_and_shims_are_known_by_what_they_were_started_with() {
        let line =
            |words: &[&str]| CommandLine(words.iter().map(|&word| word.to_owned()).collect());
        let root = Path::new("/w/.team");
        let run = [
            "/b/team-worker",
            "run",
            "--name",
            "alice",
            "--incarnation",
            "3",
            "--team-dir",
            "/w/.team",
        ];
        let worker = line(&run).worker_in(root).unwrap();
        assert_eq!((worker.0.as_str(), worker.1), ("alice", 3));
        assert_eq!(line(&run).worker_in(Path::new("/w")), None);
        assert_eq!(
            line(&["vi", "run", "--team-dir", "/w/.team"]).worker_in(root),
            None
        );
        assert!(line(&["/proc/self/exe", "shim", "7", "/w", "make"]).is_shim());
        assert!(!line(&["vi", "shim.rs"]).is_shim() && line(&["/b/teamd", "serve"]).is_daemon());
    }
}
