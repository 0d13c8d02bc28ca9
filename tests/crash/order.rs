//! Persist, then announce: what must last is synced before anybody else can see that it was decided.
//!
//! A kill does not show a sync that is missing, only a loss of power does. The tracer sees it in each run: between a write to
//! the journal and its sync the daemon may do nothing that anybody sees, and no command ends well with something unsynced.
//! Nor is an end journaled while somebody holds the life lock: the keeper of a call, say, that is still at its work.

use std::collections::{HashMap, HashSet};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use nix::unistd::Pid;
use serde_json::Value;

use crate::faults::Call;
use crate::stage::Victim;
use crate::syscalls::Sort;

/// What one traced process has written, and not synced.
#[derive(Debug)]
pub(crate) struct Order {
    victim: Victim,
    journal: PathBuf,
    /// How long the journal was when a thread began to write to a file.
    before: HashMap<Pid, u64>,
    /// The thread that has written to the journal, and the descriptor.
    unsynced: Option<(Pid, u64)>,
    /// The descriptors of all files that were written to.
    written: HashSet<u64>,
}

impl Order {
    /// Watches a process of the team whose journal this is.
    pub(crate) fn new(victim: Victim, journal: &Path) -> Self {
        Self {
            victim,
            journal: journal.to_owned(),
            before: HashMap::new(),
            unsynced: None,
            written: HashSet::new(),
        }
    }

    /// Another program begins in the same process.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self::new(self.victim, &self.journal);
    }

    /// A call is about to be made: tells what is wrong with that.
    pub(crate) fn enter(&mut self, pid: Pid, call: &Call) -> Option<String> {
        let fd = call.args[0];
        match self.victim {
            Victim::Daemon => {
                if call.sort == Sort::Write && call.on_file {
                    self.before.insert(pid, self.length());
                }
                let (_, journal) = self.unsynced.filter(|(writer, _)| *writer == pid)?;
                if fd == journal && (call.sort == Sort::Sync || call.name == "ftruncate") {
                    self.unsynced = None;
                    return None;
                }
                is_seen(call, journal).then(|| {
                    format!("{}({fd:#x}, …) comes between a write to the journal and its sync", call.name)
                })
            }
            Victim::Ctl => {
                if call.sort == Sort::Sync {
                    self.written.remove(&fd);
                }
                let ends_well = call.name == "exit_group" && fd == 0;
                (ends_well && !self.written.is_empty())
                    .then(|| "a command ended with 0, and did not sync what it wrote".to_owned())
            }
            Victim::Worker => None,
        }
    }

    /// A write has come to its end, with so many bytes: tells what is wrong with what it says.
    pub(crate) fn wrote(&mut self, pid: Pid, call: &Call, bytes: u64) -> Option<String> {
        if !call.on_file || bytes == 0 {
            return None;
        }
        self.written.insert(call.args[0]);
        let before = self.before.remove(&pid).filter(|before| before + bytes == self.length())?;
        self.unsynced = Some((pid, call.args[0]));
        let journal = std::fs::read(&self.journal).unwrap_or_default();
        let new = journal.get(usize::try_from(before).ok()?..)?;
        let lines = new.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        let ended = lines.filter(|line: &Value| line["record"] == "member" && line["event"] == "exited");
        let held = ended
            .filter_map(|line| line["name"].as_str().map(str::to_owned))
            .find(|name| self.is_held(name))?;
        Some(format!("the end of {held} is journaled, and its life lock is held"))
    }

    /// Whether somebody holds the life lock of a member. The daemon is stopped meanwhile, and no next life has begun: to try it
    /// disturbs nobody. (`/proc/locks` does not list a lock whose taker is gone, as a dead worker is whose keeper shares it.)
    fn is_held(&self, name: &str) -> bool {
        let transcript = self.journal.with_file_name("transcript").join(format!("{name}.jsonl"));
        File::open(transcript)
            .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    fn length(&self) -> u64 {
        self.journal.metadata().map_or(0, |found| found.len())
    }
}

/// Whether somebody else can see that the call was made, or what it wrote. The log (2) and event counters (8 bytes) tell
/// nobody anything.
fn is_seen(call: &Call, journal: u64) -> bool {
    match call.sort {
        Sort::Talk | Sort::Change => true,
        Sort::Process => !matches!(call.name, "wait4" | "waitid" | "setsid" | "exit_group"),
        Sort::Write if call.on_file => call.args[0] != journal,
        Sort::Write => call.args[0] > 2 && call.args[2] != 8,
        _ => false,
    }
}
