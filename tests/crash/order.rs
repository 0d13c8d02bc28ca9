//! Persist, then announce: what must last is synced before another process can see that it was
//! decided.
//!
//! A kill does not show a sync that is missing, only a loss of power does. The tracer sees it in
//! each run. A sync counts when it has succeeded. The daemon's own log is the journal, a worker's
//! its transcript:
//! - between a write to its own log and the sync, the writer (the thread) does nothing that another
//!   process sees: the daemon after each write, a worker after an answer with calls, and after the
//!   end of a piece of work;
//! - after a refused sync a process does not write to its own log again;
//! - the journal calls nothing done that is not synced, a worker records no sent message that is
//!   not, and no command ends well with something unsynced. What an earlier daemon has told, this
//!   one cannot know to be synced;
//! - no incarnation is spawned whose inbox is new, and not synced with its folder;
//! - a worker tells an agent no message that is not synced in the transcript;
//! - its own log is written to only when its name lasts, and what stands there; it is cut only when
//!   what is cut off lasts aside.
//!
//! A death syncs nothing: what one process leaves behind, the next one of the same victim has to
//! see to.
//!
//! An end is journaled only when the liveness lock is free, and no shim of that incarnation is
//! still at its work.

use std::fs::TryLockError;
use std::io::ErrorKind::PermissionDenied;
use std::path::{Path, PathBuf};

use nix::libc;
use nix::sys::ptrace;
use nix::unistd::Pid;
use serde_json::Value;

use crate::faults::Call;
use crate::stage::Victim;
use crate::support::{is_alive, process};
use crate::syscalls::Sort;
use crate::unsynced::{File, Folder, Unsynced};
use crate::wrapper;

/// What the processes of a victim, one after the other, have written, and not synced.
#[derive(Debug)]
pub(crate) struct Order {
    victim: Victim,
    team: PathBuf,
    /// The thread that has written to its own log what must last before it goes on.
    writer: Option<Pid>,
    /// Whether a sync of its own log was refused.
    refused: bool,
    /// Whether its own log has messages, or a prompt, that are not synced.
    untold: bool,
    /// The inboxes that it has written to; of a command, every file.
    unsynced: Unsynced,
    /// What was written beside its own log: a tail that is cut off, or what is to stand in its
    /// place.
    aside: Unsynced,
    /// The inboxes that it has made.
    made: Folder,
    /// The folder of its own log.
    home: Folder,
    /// The last line of the journal.
    seq: u64,
}

impl Order {
    /// Watches the processes of the team in this directory.
    pub(crate) fn new(victim: Victim, team: &Path) -> Self {
        let home = if victim == Victim::Worker {
            team.join("transcript")
        } else {
            team.to_owned()
        };
        Self {
            victim,
            team: team.to_owned(),
            writer: None,
            refused: false,
            untold: false,
            unsynced: Unsynced::default(),
            aside: Unsynced::default(),
            made: Folder::new(team.join("inbox")),
            home: Folder::new(home),
            seq: 0,
        }
    }

    /// A process begins, or another program in the same one.
    pub(crate) fn begin(&mut self, pid: Pid) {
        self.writer = None;
        self.refused = false;
        self.looks_where(pid);
        self.made.look();
        self.home.look();
        if self.victim == Victim::Daemon {
            self.take_over();
        }
    }

    /// A worker or a host daemon says in its arguments which team directory it has.
    fn looks_where(&mut self, pid: Pid) {
        if !matches!(self.victim, Victim::Worker | Victim::Host) {
            return;
        }
        let line = process::command_line(pid.as_raw());
        let mut words = line.split(' ');
        if words.any(|word| word == "--team-dir")
            && let Some(team) = words.next()
            && self.team != Path::new(team)
        {
            *self = Self::new(self.victim, Path::new(team));
        }
    }

    /// What the daemon before has told, and the journal does not call done, may be unsynced.
    fn take_over(&mut self) {
        let journal = lines(&std::fs::read(self.team.join("journal.jsonl")).unwrap_or_default());
        let done = journal
            .iter()
            .filter_map(|line| line["done"].as_u64())
            .max()
            .unwrap_or_default();
        for line in &journal {
            let Some(seq) = line["seq"].as_u64().filter(|&seq| seq > done) else {
                continue;
            };
            let told = line["tell"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|tell| tell["to"].as_str());
            // A member without an inbox is told nothing.
            let inboxes =
                told.filter_map(|to| File::at(self.team.join(format!("inbox/{to}.jsonl"))).ok());
            for inbox in inboxes {
                self.unsynced.wrote(inbox, seq);
            }
        }
    }

    /// A call is about to be made: tells what is wrong with that.
    pub(crate) fn enter(&mut self, pid: Pid, call: &Call) -> Option<String> {
        let fd = call.args[0];
        if call.sort == Sort::Sync {
            self.unsynced.begin(pid);
            self.aside.begin(pid);
        }
        if self.victim == Victim::Ctl {
            let ends_well = call.name == "exit_group" && fd == 0;
            let unsynced = self.unsynced.any().filter(|_| ends_well)?;
            return Some(format!(
                "a command ended with 0, and did not sync what it wrote: {unsynced:?}"
            ));
        }
        if self.untold && call.name == "write" && !call.on_file && tells_an_agent(pid, call.args[1])
        {
            return Some(
                "an agent is told a message that is not synced in the transcript".to_owned(),
            );
        }
        let cuts = call.name == "ftruncate";
        if self.writer != Some(pid) && !self.refused && !cuts {
            return None;
        }
        let own = call.on_file && File::of(pid, fd).is_ok_and(|file| self.is_own(&file));
        if own && call.sort == Sort::Write {
            return self
                .refused
                .then(|| format!("{}({fd:#x}, …) goes on after a refused sync", call.name));
        }
        if own
            && cuts
            && let Some(aside) = self.aside.any()
        {
            return Some(format!(
                "the {} is cut, and {aside:?}, which keeps its tail, is not synced",
                self.log()
            ));
        }
        (self.writer == Some(pid) && self.is_seen(call)).then(|| {
            format!(
                "{}({fd:#x}, …) comes between a write to the {} and its sync",
                call.name,
                self.log()
            )
        })
    }

    /// A call has come to its end, with this result: tells what is wrong with what it has written.
    pub(crate) fn leave(&mut self, pid: Pid, call: &Call, result: i64) -> Option<String> {
        if self.victim != Victim::Ctl
            && matches!(call.sort, Sort::Open(_) | Sort::Open2)
            && let Ok(descriptor) = u64::try_from(result)
            && let Ok(file) = File::of(pid, descriptor)
        {
            self.made.opened(&file);
            self.home.opened(&file);
        }
        let cuts = call.name == "ftruncate";
        if !call.on_file || call.sort != Sort::Sync && call.sort != Sort::Write && !cuts {
            return None;
        }
        let file = match File::of(pid, call.args[0]) {
            Ok(file) => file,
            // Else it is gone.
            Err(error) => {
                return (error.kind() == PermissionDenied)
                    .then(|| format!("the test cannot see what it writes to: {error}"));
            }
        };
        if call.sort == Sort::Write {
            let bytes = usize::try_from(result).ok().filter(|&bytes| bytes > 0)?;
            return self.wrote(pid, file, bytes);
        }
        // A call that is interrupted is made again.
        if result < 0 && (result == i64::from(-libc::EINTR) || result <= RESTARTS) {
            return None;
        }
        if result == 0 && !cuts {
            self.aside.synced(pid, &file);
        }
        if self.is_own(&file) {
            self.refused |= result < 0;
            self.untold &= result < 0;
            self.writer = None;
        } else if result == 0 && !cuts {
            self.unsynced.synced(pid, &file);
            self.made.synced(&file);
            self.home.synced(&file);
        }
        None
    }

    fn wrote(&mut self, pid: Pid, file: File, bytes: usize) -> Option<String> {
        if !self.is_own(&file) {
            // The line is in its outbox on the other machine: lost, it comes again.
            if self.is_a_daemon() && came_over_a_link(&file, bytes) {
                return None;
            }
            if self.victim == Victim::Ctl || file.is_inbox() {
                self.unsynced.wrote(file, self.seq);
            } else if self.own().is_some_and(|own| file.is_beside(&own)) {
                self.aside.wrote(file, self.seq);
            }
            return None;
        }
        let put_there = self.aside.has(&file).then_some("what was put there");
        if let Some(what) = put_there.or_else(|| self.home.has(&file).then_some("its name")) {
            return Some(format!(
                "the {} is written to, and {what} is not synced",
                self.log()
            ));
        }
        let log = std::fs::read(self.own()?).unwrap_or_default();
        let new = lines(log.get(log.len().checked_sub(bytes)?..)?);
        if self.is_a_daemon() {
            self.writer = Some(pid);
            return self.journaled(&new);
        }
        if new
            .iter()
            .any(|entry| entry["entry"] == "idle" || calls(entry).next().is_some())
        {
            self.writer = Some(pid);
        }
        self.untold |= new
            .iter()
            .any(|entry| entry["entry"] == "messages" || !entry["prompt"].is_null());
        // A new conversation does not go on from what an earlier one has sent.
        if new.iter().any(|entry| {
            entry["entry"] == "incarnation" && entry["conversation"] == entry["incarnation"]
        }) {
            self.unsynced = Unsynced::default();
        }
        let sent = new.iter().any(|entry| has_sent(entry, &log));
        let unsynced = self.unsynced.up_to(u64::MAX).filter(|_| sent)?;
        Some(format!(
            "a message is recorded as sent, and not synced: {unsynced:?}"
        ))
    }

    /// The journal has grown by some lines.
    fn journaled(&mut self, new: &[Value]) -> Option<String> {
        self.seq = new
            .last()
            .and_then(|line| line["seq"].as_u64())
            .unwrap_or(self.seq);
        let done = new
            .iter()
            .filter_map(|line| line["done"].as_u64())
            .max()
            .unwrap_or_default();
        if self.victim == Victim::Daemon
            && let Some(unsynced) = self.unsynced.up_to(done)
        {
            return Some(format!(
                "line {done} counts as done, and is not synced: {unsynced:?}"
            ));
        }
        let spawned = new
            .iter()
            .any(|line| self.is_of_a_member(line) && line["event"] == "spawned");
        if spawned && let Some(made) = self.made.any() {
            return Some(format!(
                "an incarnation is spawned, and the folder of {made:?}, which is new, is not synced"
            ));
        }
        let ended = new
            .iter()
            .filter(|line| self.is_of_a_member(line) && line["event"] == "exited");
        let names = ended.map(|line| line["name"].as_str().or(line["of"]["name"].as_str()));
        let ended: Vec<&str> = names.flatten().collect();
        if let Some(held) = ended.iter().find(|name| self.is_held(name)) {
            return Some(format!(
                "the end of {held} is journaled, and its liveness lock is held"
            ));
        }
        let kept = ended
            .iter()
            .find_map(|name| Some((name, self.shim_of(name)?)))?;
        Some(format!(
            "the end of {} is journaled, and {} still keeps a command",
            kept.0, kept.1
        ))
    }

    /// A line of `host.jsonl` is about a member wherever it has one of these events.
    fn is_of_a_member(&self, line: &Value) -> bool {
        self.victim == Victim::Host || line["record"] == "member"
    }

    /// Whether a process holds the liveness lock of a member. The daemon is stopped meanwhile, and
    /// no next incarnation has begun: a try disturbs no process. (`/proc/locks` does not list a
    /// lock whose taker is gone, like a dead worker whose shim shares it.)
    fn is_held(&self, name: &str) -> bool {
        std::fs::File::open(self.transcript(name))
            .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// A shim whose worker is gone, and that holds neither another member's liveness lock nor that
    /// of a check, a checkout or the team repository, whose jobs go on when the author of the work has
    /// ended. The daemon, which would end it, is stopped.
    fn shim_of(&self, name: &str) -> Option<i32> {
        let scratch = self.team.parent()?.to_string_lossy().into_owned();
        let pids = std::fs::read_dir("/proc").ok()?.flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let has_lost_its_worker = |&pid: &i32| {
            process::parent(pid)
                .is_some_and(|parent| !process::command_line(parent).contains(" run --name "))
        };
        let others = |&pid: &i32| {
            let lock = std::fs::read_link(format!("/proc/{pid}/fd/0"));
            lock.map_or(true, |lock| {
                let is_of_repository = lock.ends_with("lock")
                    && lock.to_string_lossy().contains("/teamd/repositories/");
                // Here and on a host.
                let file = lock.file_name().unwrap_or_default().to_string_lossy();
                let is_of_checkout = file.starts_with("job-")
                    && lock.parent().is_some_and(|run| run.ends_with(".team/run"));
                let is_of_a_job =
                    lock == self.team.join("run/checks") || is_of_checkout || is_of_repository;
                is_of_a_job
                    || lock.starts_with(self.team.join("transcript"))
                        && lock != self.transcript(name)
            })
        };
        pids.filter(|&pid| {
            let line = process::command_line(pid);
            line.contains(" shim ") && line.contains(&scratch) && is_alive(pid)
        })
        .find(|pid| has_lost_its_worker(pid) && !others(pid))
    }

    fn transcript(&self, name: &str) -> PathBuf {
        self.team.join("transcript").join(format!("{name}.jsonl"))
    }

    /// The file that it alone writes, and goes on from.
    fn own(&self) -> Option<PathBuf> {
        match self.victim {
            Victim::Daemon => Some(self.team.join("journal.jsonl")),
            Victim::Worker => Some(self.transcript(wrapper::NAME)),
            Victim::Host => Some(self.team.join("host.jsonl")),
            Victim::Ctl | Victim::Agent | Victim::Shim | Victim::Link => None,
        }
    }

    /// What that is called.
    fn log(&self) -> &'static str {
        match self.victim {
            Victim::Daemon => "journal",
            Victim::Host => "host.jsonl",
            _ => "transcript",
        }
    }

    fn is_a_daemon(&self) -> bool {
        matches!(self.victim, Victim::Daemon | Victim::Host)
    }

    fn is_own(&self, file: &File) -> bool {
        self.own().is_some_and(|own| file.is_at(&own))
    }

    /// Whether another process can see that the call was made, or what it wrote. The log (2), event
    /// counters (8 bytes) and the pair by which a runtime hears of signals (a byte: a death
    /// interrupts any call) tell another process nothing. What a worker says to the daemon promises
    /// nothing.
    fn is_seen(&self, call: &Call) -> bool {
        match call.sort {
            Sort::Change => true,
            Sort::Process => !matches!(call.name, "wait4" | "waitid" | "setsid" | "exit_group"),
            Sort::Write if call.on_file => true,
            Sort::Talk => self.is_a_daemon() && !(call.name == "sendto" && call.args[2] == 1),
            Sort::Write => self.is_a_daemon() && call.args[0] > 2 && call.args[2] != 8,
            _ => false,
        }
    }
}

/// Whether the last bytes of a file are a line that came from another machine.
fn came_over_a_link(file: &File, bytes: usize) -> bool {
    let text = file.read().unwrap_or_default();
    let from = text.len().saturating_sub(bytes);
    lines(&text[from..])
        .iter()
        .any(|line| !line["via"].is_null())
}

/// Whether what is about to be written is a message to an agent: `{"type":"user",` and not the
/// answer to a question of its.
fn tells_an_agent(pid: Pid, at: u64) -> bool {
    let word = ptrace::read(pid, (at + 8) as ptrace::AddressType);
    word.is_ok_and(|word| &word.to_ne_bytes() == b"\"user\",\"")
}

/// The results from here on down tell the kernel to make a call again, which was interrupted.
const RESTARTS: i64 = -512;

fn lines(bytes: &[u8]) -> Vec<Value> {
    bytes
        .split(|&byte| byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

/// The calls of an answer of the model.
fn calls(entry: &Value) -> impl Iterator<Item = &Value> {
    let content = if entry["entry"] == "answer" {
        entry["content"].as_array()
    } else {
        None
    };
    content
        .into_iter()
        .flatten()
        .filter(|block| block["type"] == "tool_use")
}

/// Whether an entry says that a call has sent its message. (A pending notice is tried again, and
/// need not last yet.)
fn has_sent(entry: &Value, log: &[u8]) -> bool {
    let well = entry["entry"] == "result"
        && entry["is_error"] != true
        && entry["pending_notices"].is_null();
    well && lines(log)
        .iter()
        .flat_map(calls)
        .any(|call| call["id"] == entry["tool_use_id"] && !call["message_id"].is_null())
}
