//! The processes of this machine, as far as they can be seen, and which of them belong to a team.
//!
//! A process is shown here as evidence. What is signalled is told by its identity, and held by a pidfd.

use std::path::{Path, PathBuf};

use teamd_shared::name::Name;

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ProcessEntry {
    pub(super) pid: u32,
    pub(super) parent: u32,
    /// The real user id.
    pub(super) user: u32,
    pub(super) threads: u64,
    /// Its command line; empty for one of the kernel.
    command: Vec<String>,
    /// Where descriptor 0 leads, where that may be seen.
    input: Option<PathBuf>,
}

/// Lists all that can be seen; those that end meanwhile are left out.
pub(super) fn list() -> Vec<ProcessEntry> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| look(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect()
}

fn look(pid: u32) -> Option<ProcessEntry> {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let input = std::fs::read_link(format!("/proc/{pid}/fd/0")).ok();
    Some(ProcessEntry { input, ..parse(pid, &command, &status)? })
}

/// Reads `proc_pid_cmdline(5)` and `proc_pid_status(5)`; none for a zombie.
fn parse(pid: u32, command: &[u8], status: &str) -> Option<ProcessEntry> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_ascii_whitespace().next()
    };
    if matches!(field("State")?, "Z" | "X") {
        return None;
    }
    let words =
        command.split_inclusive(|&byte| byte == 0).map(|word| word.strip_suffix(b"\0").unwrap_or(word));
    Some(ProcessEntry {
        pid,
        parent: field("PPid")?.parse().ok()?,
        user: field("Uid")?.parse().ok()?,
        threads: field("Threads").and_then(|count| count.parse().ok()).unwrap_or(1),
        command: words.map(|word| String::from_utf8_lossy(word).into_owned()).collect(),
        input: None,
    })
}

impl ProcessEntry {
    /// Returns the teammate and the incarnation, if it is a worker of the team directory at this path.
    pub(super) fn worker_in(&self, root: &Path) -> Option<(Name, u32)> {
        let here = self.option("--team-dir").is_some_and(|path| Path::new(path) == root);
        if !here || !self.program()?.starts_with("team-worker") || self.command.get(1)? != "run" {
            return None;
        }
        Some((Name::of_inbox(self.option("--name")?).ok()?, self.option("--incarnation")?.parse().ok()?))
    }

    /// Tells whether it is a shim of the team directory at this path: its descriptor 0 is a transcript there.
    pub(super) fn is_shim_in(&self, root: &Path) -> bool {
        self.command.get(1).is_some_and(|word| word == "shim")
            && self.input.as_ref().is_some_and(|input| input.starts_with(root.join("transcript")))
    }

    /// Tells whether it is a daemon.
    pub(super) fn is_daemon(&self) -> bool {
        self.program() == Some("teamd")
    }

    fn program(&self) -> Option<&str> {
        Path::new(self.command.first()?).file_name()?.to_str()
    }

    fn option(&self, name: &str) -> Option<&str> {
        // The words behind `--` are the command of a tool call.
        let mut own = self.command.iter().take_while(|word| *word != "--");
        own.find(|word| *word == name)?;
        own.next().map(String::as_str)
    }

    /// Says what it is, for people: the beginning of its command line.
    pub(super) fn describe(&self) -> String {
        const MOST: usize = 100;
        let line = self.command.join(" ");
        let short: String = line.chars().take(MOST).collect();
        let more = if short.len() < line.len() { "…" } else { "" };
        format!("process {} (`{short}{more}`)", self.pid)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A process with this command line.
    fn process(command: &[&str]) -> ProcessEntry {
        let command = command.iter().map(|&word| word.to_owned()).collect();
        ProcessEntry { pid: 1, parent: 1, command, threads: 1, ..ProcessEntry::default() }
    }

    #[test]
    fn what_the_kernel_says_is_read() {
        let status = "Name:\tx\nState:\tS (sleeping)\nPPid:\t7\nUid:\t1000\t0\t0\t0\nThreads:\t3\n";
        let read = parse(9, b"/bin/x\0a b\0", status).unwrap();
        assert_eq!((read.parent, read.user, read.threads), (7, 1000, 3));
        assert_eq!(read.command, ["/bin/x", "a b"]);
        assert_eq!(parse(9, b"", &status.replace('S', "Z")), None);
        assert!(list().iter().any(|process| process.pid == std::process::id()));
    }

    #[test]
    fn workers_and_shims_are_known_by_the_directory_that_they_name() {
        let root = Path::new("/w/.team");
        let run =
            ["/b/team-worker", "run", "--name", "alice", "--incarnation", "3", "--team-dir", "/w/.team"];
        let worker = process(&run).worker_in(root).unwrap();
        assert_eq!((worker.0.as_str(), worker.1), ("alice", 3));
        assert_eq!(process(&run).worker_in(Path::new("/w")), None);
        assert_eq!(process(&["vi", "run", "--team-dir", "/w/.team"]).worker_in(root), None);
        let with_input =
            |command: &[&str], input: &str| ProcessEntry { input: Some(input.into()), ..process(command) };
        let shim = ["/proc/self/exe", "shim", "7", "/w", "make"];
        assert!(with_input(&shim, "/w/.team/transcript/alice.jsonl").is_shim_in(root));
        assert!(!with_input(&shim, "/v/.team/transcript/alice.jsonl").is_shim_in(root));
        assert!(!with_input(&["vi", "shim.rs"], "/w/.team/transcript/alice.jsonl").is_shim_in(root));
    }
}
