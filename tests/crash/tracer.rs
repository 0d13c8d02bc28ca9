//! The tracer: counts the system calls of a victim, over all its threads and incarnations, and
//! makes the fault happen.
//!
//! It lives in threads of the test, each of which traces one process. It reads and writes
//! registers, and looks up which files their descriptors are.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::faults::{Act, Call, Fault};
use crate::order::Order;
use crate::stage::{Stage, Victim};
use crate::support::{poll_until, process};
use crate::trace::Trace;
use crate::truth::Truth;
use crate::wrapper;

/// Where the team directory is below the directory of a run.
const TEAM: &str = "work/.team";

/// Where the fault is to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    /// What happens.
    pub(crate) fault: Fault,
    /// At which of the calls that it can happen to: 1, 2, 3 …
    pub(crate) at: u64,
}

/// What the tracer has seen so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// How many calls each fault could have happened to.
    pub(crate) counts: BTreeMap<Fault, u64>,
    /// The numbers, among the calls to be killed at, of those that another process can see.
    pub(crate) visible: Vec<u64>,
    /// The call at which the fault (first) happened.
    pub(crate) fired: Option<String>,
    /// What was true when a command was refused something last.
    pub(crate) then: Option<Truth>,
    /// What a process did too early.
    pub(crate) wrong: Option<String>,
    /// The processes that were held, and what became of them.
    held: HashMap<i32, Held>,
    counting: bool,
    /// The file was synced that faults are to follow on, and no call has followed yet.
    synced: bool,
    /// No process is traced any more.
    pub(crate) over: bool,
    hits: u64,
}

/// What became of a process that called.
///
/// While it is held, no other thread may wait for it, though it is a child of this test: a wait
/// would take its stops away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// It is traced.
    Yes,
    /// It was killed, and is not gone yet.
    Dying,
    /// It was released: its parent waits for it.
    Released,
    /// It has ended with this exit code, or by a signal.
    Ended(Option<i32>),
}

/// A tracer that waits for victims.
#[derive(Debug, Clone)]
pub(crate) struct Tracer {
    scratch: PathBuf,
    victim: Victim,
    point: Option<Point>,
    behind: Option<&'static str>,
    seen: Arc<Mutex<Seen>>,
    order: Arc<Mutex<Order>>,
}

impl Tracer {
    /// Waits for victims at a socket below a directory; without a point it only counts.
    /// `behind`: of all calls it sees those alone that follow directly on a sync of this file.
    pub(crate) fn new(
        scratch: &Path,
        victim: Victim,
        point: Option<Point>,
        behind: Option<&'static str>,
    ) -> Self {
        let order = Arc::new(Mutex::new(Order::new(victim, &scratch.join(TEAM))));
        let tracer = Self {
            scratch: scratch.to_owned(),
            victim,
            point,
            behind,
            seen: Arc::default(),
            order,
        };
        let listener = UnixListener::bind(scratch.join(wrapper::SOCKET)).unwrap();
        let own = tracer.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let own = own.clone();
                let Ok(stream) = stream else { return };
                if own.seen().over {
                    return;
                }
                std::thread::spawn(move || own.hold(stream));
            }
        });
        tracer
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What its processes have written, and not synced.
    pub(crate) fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to count.
    pub(crate) fn mark(&self) {
        self.seen().counting = true;
    }

    /// Ends the fault, if it lasts, and the counting.
    pub(crate) fn unmark(&self) {
        let mut seen = self.seen();
        seen.counting = false;
        seen.over = true;
    }

    /// What was seen so far.
    pub(crate) fn look(&self) -> Seen {
        self.seen().clone()
    }

    /// Waits until the process that is being killed is gone.
    pub(crate) fn until_killed(&self) {
        assert!(poll_until(&mut || !self
            .seen()
            .held
            .values()
            .any(|held| *held == Held::Dying)));
    }

    /// Whether the fault has happened, and its successor is watched, too.
    pub(crate) fn watches_on(&self) -> bool {
        let seen = self.seen();
        seen.fired.is_some() && !seen.over
    }

    /// What becomes of a process.
    pub(crate) fn note(&self, pid: Pid, held: Held) {
        self.seen().held.insert(pid.as_raw(), held);
    }

    /// What became of a process; none if it has not called yet.
    pub(crate) fn held(&self, pid: i32) -> Option<Held> {
        self.seen().held.get(&pid).copied()
    }

    /// Seizes the process that has called, and lets it become the victim.
    fn hold(&self, mut stream: UnixStream) {
        let mut pid = [0; 4];
        if stream.read_exact(&mut pid).is_err() {
            return;
        }
        let pid = Pid::from_raw(i32::from_le_bytes(pid));
        let options = if self.victim == Victim::Host {
            options() | Options::PTRACE_O_TRACEFORK | Options::PTRACE_O_TRACEVFORK
        } else {
            options()
        };
        if self.seen().over || ptrace::seize(pid, options).is_err() {
            // Untraced, it does what it always does.
            self.note(pid, Held::Released);
            return;
        }
        self.note(pid, Held::Yes);
        self.order().begin(pid);
        drop(stream.write_all(&[0]));
        let trace = match self.victim {
            Victim::Host => Trace::of_its_daemon(self, pid),
            _ => Trace::new(self, pid),
        };
        trace.run();
    }

    fn team(&self, file: &str) -> PathBuf {
        self.scratch.join(TEAM).join(file)
    }

    /// Kills the one at the other end, and waits until it is gone: once the victim is reported as
    /// ended, neither is there. Only a process that is seen to be of this team is signalled.
    pub(crate) fn end_the_other(&self) {
        let roster = std::fs::read(self.team("config.json")).unwrap_or_default();
        let roster: serde_json::Value = serde_json::from_slice(&roster).unwrap_or_default();
        let members = roster["members"].as_array().cloned().unwrap_or_default();
        let alice = members
            .into_iter()
            .find(|member| member["name"] == wrapper::NAME);
        let other = match self.victim {
            Victim::Daemon | Victim::Host => Stage::process_of(&alice.unwrap_or_default()),
            _ => roster["daemon"]["pid"]
                .as_i64()
                .and_then(|pid| i32::try_from(pid).ok()),
        };
        let Some(pid) = other.filter(|pid| *pid > 0) else {
            return;
        };
        if process::command_line(pid).contains(&*self.scratch.to_string_lossy()) {
            crate::support::signal(pid, Signal::SIGKILL);
            assert!(
                poll_until(&mut || !crate::support::is_alive(pid)),
                "{pid} outlives SIGKILL"
            );
        }
    }

    /// Takes note of a file that was synced.
    pub(crate) fn synced(&self, pid: Pid, descriptor: u64) {
        let Some(behind) = self.behind else { return };
        let file = std::fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).unwrap_or_default();
        if file == self.team(behind) {
            self.seen().synced = true;
        }
    }

    /// Takes note of what happened without a call.
    pub(crate) fn struck(&self, what: String) {
        self.seen().fired.get_or_insert(what);
    }

    /// Decides what happens to a call.
    pub(crate) fn decide(&self, call: &Call) -> Option<Act> {
        let mut seen = self.seen();
        if !seen.counting || self.behind.is_some() && !Fault::Kill.can_hit(call) {
            return None;
        }
        if !std::mem::take(&mut seen.synced) && self.behind.is_some() {
            return None;
        }
        let Some(point) = self.point else {
            for fault in Fault::ALL.into_iter().filter(|fault| fault.can_hit(call)) {
                *seen.counts.entry(fault).or_default() += 1;
            }
            if Fault::Kill.can_hit(call) && (call.sort.is_seen() || self.behind.is_some()) {
                let number = seen.counts[&Fault::Kill];
                seen.visible.push(number);
            }
            return None;
        };
        if !point.fault.can_hit(call) {
            return None;
        }
        seen.hits += 1;
        if seen.hits < point.at {
            return None;
        }
        if seen.hits + 1 >= point.at + point.fault.lasts() {
            // A process that lives on, or comes after it, is watched: what follows must be in
            // order, too.
            seen.counting = false;
        }
        if self.victim == Victim::Ctl {
            seen.then = Some(Truth::look(&self.team("")));
        }
        seen.fired
            .get_or_insert_with(|| format!("{}({:#x}, …)", call.name, call.args[0]));
        Some(point.fault.act())
    }
}

/// What is told of a victim.
pub(crate) fn options() -> Options {
    Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL
}

/// Tries to trace a child.
///
/// # Errors
/// Why not: then nothing at all can be tested here.
pub(crate) fn probe() -> Result<(), String> {
    let itself = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut child = Command::new(itself)
        .arg(wrapper::WAIT)
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|error| format!("no child can be started: {error}"))?;
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let traced =
        ptrace::seize(pid, options()).map_err(|errno| format!("ptrace is refused: {errno}"));
    let ended = child.kill().and_then(|()| child.wait());
    traced.and(
        ended
            .map(drop)
            .map_err(|error| format!("a child cannot be ended: {error}")),
    )
}
