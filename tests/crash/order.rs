//! Persist, then announce: what must last is synced before anybody else can see that it was decided.
//!
//! A kill does not show a sync that is missing, only a loss of power does. The tracer sees it in each run. A sync counts when
//! it has succeeded. The daemon's own log is the journal, a worker's its transcript:
//! - between a write to its own log and the sync, the writer (the thread) does nothing that anybody sees: the daemon after
//!   each write, a worker after an answer with calls, and after the end of a piece of work;
//! - after a refused sync nobody writes to its own log again;
//! - the journal calls nothing done that is not synced, a worker records no sent message that is not, and no command ends
//!   well with something unsynced.
//!
//! Nor is an end journaled while somebody holds the life lock: the keeper of a call, say, that is still at its work.

use std::fs::TryLockError;
use std::io::ErrorKind::PermissionDenied;
use std::path::{Path, PathBuf};

use nix::libc;
use nix::unistd::Pid;
use serde_json::Value;

use crate::faults::Call;
use crate::stage::Victim;
use crate::syscalls::Sort;
use crate::unsynced::{File, Unsynced};
use crate::wrapper;

/// What one traced process has written, and not synced.
#[derive(Debug)]
pub(crate) struct Order {
    victim: Victim,
    team: PathBuf,
    /// The thread that has written to its own log what must last before it goes on.
    writer: Option<Pid>,
    /// Whether a sync of its own log was refused.
    refused: bool,
    /// The inboxes that it has written to; of a command, every file.
    unsynced: Unsynced,
    /// The last line of the journal.
    seq: u64,
}

impl Order {
    /// Watches a process of the team in this directory.
    pub(crate) fn new(victim: Victim, team: &Path) -> Self {
        Self {
            victim,
            team: team.to_owned(),
            writer: None,
            refused: false,
            unsynced: Unsynced::default(),
            seq: 0,
        }
    }

    /// Another program begins in the same process.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self::new(self.victim, &self.team);
    }

    /// A call is about to be made: tells what is wrong with that.
    pub(crate) fn enter(&mut self, pid: Pid, call: &Call) -> Option<String> {
        let fd = call.args[0];
        if call.sort == Sort::Sync {
            self.unsynced.begin(pid);
        }
        if self.victim == Victim::Ctl {
            let ends_well = call.name == "exit_group" && fd == 0;
            let unsynced = self.unsynced.any().filter(|_| ends_well)?;
            return Some(format!("a command ended with 0, and did not sync what it wrote: {unsynced:?}"));
        }
        if self.writer != Some(pid) && !self.refused {
            return None;
        }
        let own = call.on_file && File::of(pid, fd).is_ok_and(|file| self.is_own(&file));
        if own && call.sort == Sort::Write {
            return self.refused.then(|| format!("{}({fd:#x}, …) goes on after a refused sync", call.name));
        }
        (self.writer == Some(pid) && self.is_seen(call)).then(|| {
            let log = if self.victim == Victim::Daemon { "journal" } else { "transcript" };
            format!("{}({fd:#x}, …) comes between a write to the {log} and its sync", call.name)
        })
    }

    /// A call has come to its end, with this result: tells what is wrong with what it has written.
    pub(crate) fn leave(&mut self, pid: Pid, call: &Call, result: i64) -> Option<String> {
        let cuts = call.name == "ftruncate";
        if !call.on_file || call.sort != Sort::Sync && call.sort != Sort::Write && !cuts {
            return None;
        }
        let file = match File::of(pid, call.args[0]) {
            Ok(file) => file,
            // Else it is gone.
            Err(error) => {
                return (error.kind() == PermissionDenied)
                    .then(|| format!("nobody can see what it writes to: {error}"));
            }
        };
        if call.sort == Sort::Write {
            let bytes = usize::try_from(result).ok().filter(|&bytes| bytes > 0)?;
            return self.wrote(pid, file, bytes);
        }
        // Whoever is interrupted tries again.
        if result < 0 && (result == i64::from(-libc::EINTR) || result <= RESTARTS) {
            return None;
        }
        if self.is_own(&file) {
            self.refused |= result < 0;
            self.writer = None;
        } else if result == 0 && !cuts {
            self.unsynced.synced(pid, &file);
        }
        None
    }

    fn wrote(&mut self, pid: Pid, file: File, bytes: usize) -> Option<String> {
        if !self.is_own(&file) {
            if self.victim == Victim::Ctl || file.is_inbox() {
                self.unsynced.wrote(file, self.seq);
            }
            return None;
        }
        let log = std::fs::read(self.own()?).unwrap_or_default();
        let new = lines(log.get(log.len().checked_sub(bytes)?..)?);
        if self.victim == Victim::Daemon {
            self.writer = Some(pid);
            return self.journaled(&new);
        }
        if new.iter().any(|entry| entry["entry"] == "idle" || calls(entry).next().is_some()) {
            self.writer = Some(pid);
        }
        let sent = new.iter().any(|entry| has_sent(entry, &log));
        let unsynced = self.unsynced.any().filter(|_| sent)?;
        Some(format!("a message is recorded as sent, and not synced: {unsynced:?}"))
    }

    /// The journal has grown by some lines.
    fn journaled(&mut self, new: &[Value]) -> Option<String> {
        self.seq = new.last().and_then(|line| line["seq"].as_u64()).unwrap_or(self.seq);
        let done = new.iter().filter_map(|line| line["done"].as_u64()).max().unwrap_or_default();
        if let Some(unsynced) = self.unsynced.up_to(done) {
            return Some(format!("line {done} counts as done, and is not synced: {unsynced:?}"));
        }
        let ended = new.iter().filter(|line| line["record"] == "member" && line["event"] == "exited");
        let held = ended.filter_map(|line| line["name"].as_str()).find(|name| self.is_held(name))?;
        Some(format!("the end of {held} is journaled, and its life lock is held"))
    }

    /// Whether somebody holds the life lock of a member. The daemon is stopped meanwhile, and no next life has begun: to try it
    /// disturbs nobody. (`/proc/locks` does not list a lock whose taker is gone, as a dead worker is whose keeper shares it.)
    fn is_held(&self, name: &str) -> bool {
        std::fs::File::open(self.transcript(name))
            .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    fn transcript(&self, name: &str) -> PathBuf {
        self.team.join("transcript").join(format!("{name}.jsonl"))
    }

    /// The file that it alone writes, and goes on from.
    fn own(&self) -> Option<PathBuf> {
        match self.victim {
            Victim::Daemon => Some(self.team.join("journal.jsonl")),
            Victim::Worker => Some(self.transcript(wrapper::NAME)),
            Victim::Ctl => None,
        }
    }

    fn is_own(&self, file: &File) -> bool {
        self.own().is_some_and(|own| file.is_at(&own))
    }

    /// Whether somebody else can see that the call was made, or what it wrote. The log (2) and event counters (8 bytes) tell
    /// nobody anything; what a worker says to the daemon promises nothing.
    fn is_seen(&self, call: &Call) -> bool {
        match call.sort {
            Sort::Change => true,
            Sort::Process => !matches!(call.name, "wait4" | "waitid" | "setsid" | "exit_group"),
            Sort::Write if call.on_file => true,
            Sort::Talk => self.victim == Victim::Daemon,
            Sort::Write => self.victim == Victim::Daemon && call.args[0] > 2 && call.args[2] != 8,
            _ => false,
        }
    }
}

/// The results from here on down tell the kernel to make a call again, which was interrupted.
const RESTARTS: i64 = -512;

fn lines(bytes: &[u8]) -> Vec<Value> {
    bytes.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// The calls of an answer of the model.
fn calls(entry: &Value) -> impl Iterator<Item = &Value> {
    let content = entry["content"].as_array().filter(|_| entry["entry"] == "answer");
    content.into_iter().flatten().filter(|block| block["type"] == "tool_use")
}

/// Whether an entry says that a call has sent its message. (A notice that is owed is tried again, and need not last yet.)
fn has_sent(entry: &Value, log: &[u8]) -> bool {
    let well = entry["entry"] == "result" && entry["is_error"] != true && entry["owed"].is_null();
    well && lines(log)
        .iter()
        .flat_map(calls)
        .any(|call| call["id"] == entry["tool_use_id"] && !call["message_id"].is_null())
}
