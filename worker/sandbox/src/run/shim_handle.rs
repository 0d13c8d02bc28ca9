//! The worker's side of a shim: starts it, reads its report, ends it, and cleans up if it was
//! killed.
//!
//! Nothing here waits in a system call. Every shim is known by its pid while it is not reaped: any
//! other child of this process is what a killed shim has left, and is ended.

use std::fs::File;
use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::net::Shutdown;
use rustix::process::{Pid, Signal, WaitOptions, kill_process};
use teamd_shared::member::Gate;
use teamd_shared::mutant;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use super::agent_gate::{self, AgentGate};
use crate::shim::{self, ExitCause, Report, ShimJob, sweep};

/// How long a shim may take to end a command before it is killed, and the worker does it in its
/// place.
const GRACE: Duration = Duration::from_secs(5);

/// How long a report may be, in bytes: a shim writes one short line.
const MAX_REPORT: usize = 64 << 10;

/// The shims of this process that are not reaped.
static SHIMS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn shims() -> MutexGuard<'static, Vec<Pid>> {
    SHIMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A shim that is not reaped. If it is dropped, the lifeline closes and the shim ends the command.
#[derive(Debug)]
pub(super) struct ShimHandle {
    child: Child,
    channel: UnixStream,
    heard: Vec<u8>,
    /// Whether the shim has closed its end: it does so only by exiting.
    closed: bool,
    reaped: bool,
    /// Made before the shim, so that no child's end is missed.
    child_ended: SignalStream,
    /// When the shim must have ended the command: it can be stopped or hindered, and the worker
    /// cannot.
    deadline: Option<Instant>,
    /// Whether the shim was asked to end the command, and must be killed next.
    asked: bool,
    /// The gate of an agent, if it is one.
    gate: Option<AgentGate>,
}

impl ShimHandle {
    /// Starts a shim and its command.
    pub(super) fn start(job: &ShimJob, liveness_lock: &File, output: OwnedFd) -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let channel = UnixStream::from_std(ours)?;
        let child_ended = signal(SignalKind::child())?;
        let mut command = job.program(shim::SUBCOMMAND)?;
        command.stdin(Stdio::from(liveness_lock.try_clone()?));
        if mutant::is_on("shim-without-lock") {
            command.stdin(Stdio::null());
        }
        command
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::from(output));
        let deadline = job
            .order
            .timeout
            .map(|timeout| Instant::now() + timeout + GRACE);
        let child = start_known(&mut command)?;
        let heard = Vec::new();
        let closed = false;
        let reaped = false;
        let asked = false;
        let gate = None;
        Ok(Self {
            child,
            channel,
            heard,
            closed,
            reaped,
            child_ended,
            deadline,
            asked,
            gate,
        })
    }

    /// Asks the shim to end the command, and wakes it if the command has stopped it. The second
    /// time, and if it takes too long, the shim is killed: what it leaves is swept up by
    /// [`ShimHandle::ended`].
    pub(super) fn end(&mut self) {
        if self.asked {
            if !self.reaped {
                tracing::warn!("a shim did not end its command, and is killed");
            }
            self.signal(Signal::KILL);
        } else {
            if let Err(errno) = rustix::net::shutdown(&self.channel, Shutdown::Write) {
                // It has ended already.
                tracing::debug!("cannot close a lifeline: {errno}");
            }
            self.signal(Signal::CONT);
        }
        self.asked = true;
        self.deadline = Some(Instant::now() + GRACE);
    }

    /// Tells whether the shim was asked to end the command.
    pub(super) fn is_asked(&self) -> bool {
        self.asked
    }

    fn signal(&self, signal: Signal) {
        // A process that is not reaped keeps its pid.
        if !self.reaped
            && let Err(errno) = kill_process(Pid::from_child(&self.child), signal)
        {
            tracing::warn!("cannot send {signal:?} to a shim: {errno}");
        }
    }

    /// Follows what is wanted of the gate of an agent from now on.
    pub(super) fn follow_gate(&mut self, gate: AgentGate) {
        self.gate = Some(gate);
    }

    /// Tells whether the agent was ended because its gate closed.
    pub(super) fn is_ended_by_gate(&self) -> bool {
        self.gate.as_ref().is_some_and(AgentGate::has_ended_it)
    }

    /// Waits until the command and all that it started is gone. May be dropped and called again.
    pub(super) async fn ended(&mut self) -> Report {
        let report = self.ended_in_time().await;
        if let Some(gate) = &mut self.gate {
            gate.nothing_runs();
        }
        report
    }

    async fn ended_in_time(&mut self) -> Report {
        loop {
            let gate_due = if !self.asked {
                self.gate.as_ref().and_then(AgentGate::due_by)
            } else {
                None
            };
            let next = self.deadline.into_iter().chain(gate_due).min();
            let is_over = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                report = self.gone() => {
                    if let Some(report) = report {
                        return report;
                    }
                }
                () = is_over => self.is_late(Instant::now()),
            }
        }
    }

    fn is_late(&mut self, now: Instant) {
        let mut ends = has_passed(self.deadline, now);
        if let Some(gate) = &mut self.gate
            && !self.asked
            && has_passed(gate.due_by(), now)
        {
            gate.ends_it();
            ends = true;
        }
        if ends {
            self.end();
        }
    }

    /// Returns what has become of the command; none when another gate was asked for: that has a
    /// deadline of its own.
    async fn gone(&mut self) -> Option<Report> {
        while !self.closed {
            let mut bytes = [0; 1024];
            let read = tokio::select! {
                read = self.channel.read(&mut bytes) => read,
                gate = agent_gate::wanted(&mut self.gate) => {
                    self.set_gate(gate);
                    return None;
                }
            };
            match read {
                Ok(0) | Err(_) => self.closed = true,
                Ok(read) if self.heard.len() < MAX_REPORT => {
                    self.heard.extend_from_slice(&bytes[..read])
                }
                Ok(_) => {}
            }
            if let Some(gate) = &mut self.gate {
                gate.hear(&mut self.heard);
            }
        }
        // A process leaves its children to the next one after it has closed its descriptors: reap
        // it before looking for orphans.
        while !self.try_reap() {
            self.child_ended.recv().await;
        }
        let mut lines = self.heard.split(|&byte| byte == b'\n').rev();
        let report = lines.find_map(|line| serde_json::from_slice(line).ok());
        let report: Report = report.unwrap_or_else(|| Report::new(ExitCause::ShimLost));
        // One that failed may have left its command, as one that was killed has.
        if !matches!(report.cause, ExitCause::Failed | ExitCause::ShimLost) {
            return Some(report);
        }
        loop {
            match sweep_orphans() {
                Swept::Nothing => return Some(report),
                Swept::Gone => {}
                Swept::Dying => {
                    self.child_ended.recv().await;
                }
                Swept::Unknown => tokio::time::sleep(sweep::AGAIN).await,
            }
        }
    }

    /// Has the shim open or close the gate; where that cannot be while the agent runs, a closed
    /// gate ends it.
    fn set_gate(&mut self, wanted: Gate) {
        let Some(gate) = &mut self.gate else { return };
        match gate.ask(wanted).map(|byte| self.channel.try_write(&byte)) {
            Some(Ok(1)) => {}
            None if wanted == Gate::Open => {}
            // What cannot be told is not known to be done.
            None | Some(_) => {
                gate.ends_it();
                if !self.asked {
                    self.end();
                }
            }
        }
    }

    fn try_reap(&mut self) -> bool {
        self.reaped = self.reaped || try_reap_known(&mut self.child);
        self.reaped
    }
}

impl Drop for ShimHandle {
    fn drop(&mut self) {
        // A shim that no call waits for is reaped, and if need be killed, as an orphan.
        if !self.try_reap() {
            forget_known(&self.child);
        }
    }
}

/// Starts a shim, or what keeps a localhost, with all signals blocked. It is no orphan until it is
/// reaped or forgotten.
///
/// # Errors
/// The system's error.
pub(super) fn start_known(command: &mut Command) -> io::Result<Child> {
    // Held until the pid is known: a sweep between the two would take it for an orphan.
    let mut shims = shims();
    let child = spawn_with_signals_blocked(command)?;
    shims.push(Pid::from_child(&child));
    Ok(child)
}

/// Reaps what was started so, if it has ended; tells whether it has.
pub(super) fn try_reap_known(child: &mut Child) -> bool {
    let mut shims = shims();
    // An error means that it is reaped already.
    let reaped = !matches!(child.try_wait(), Ok(None));
    if reaped {
        shims.retain(|&shim| shim != Pid::from_child(child));
    }
    reaped
}

/// Leaves what was started so to the next sweep.
pub(super) fn forget_known(child: &Child) {
    shims().retain(|&shim| shim != Pid::from_child(child));
}

fn has_passed(due: Option<Instant>, now: Instant) -> bool {
    due.is_some_and(|due| due <= now)
}

/// Starts a shim with all signals blocked. It reads them when it can, and none kills it before.
fn spawn_with_signals_blocked(command: &mut Command) -> io::Result<Child> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let started = command.spawn();
    before.thread_set_mask()?;
    started
}

/// Kills and reaps, in one round, the orphans of killed shims.
pub fn reap_orphans() {
    sweep_orphans();
}

/// What one round of sweeping up came upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Swept {
    /// Nothing: nothing is left.
    Nothing,
    /// Orphans, which are gone; what they leave is found in the next round.
    Gone,
    /// Orphans that are not gone yet: SIGCHLD announces the end of each.
    Dying,
    /// The children could not be listed.
    Unknown,
}

/// Kills and reaps, in one round, the children of this process that are no shims, and what descends
/// from them.
fn sweep_orphans() -> Swept {
    // Mostly: it costs one call, where the look at all processes costs each of a thousand workers
    // one of them all.
    if !sweep::has_children() {
        return Swept::Nothing;
    }
    let shims = shims();
    try_sweep(|child| shims.contains(&child) || is_of_another_test(child)).unwrap_or_else(|error| {
        tracing::error!("cannot look for what a shim left: {error}");
        Swept::Unknown
    })
}

fn try_sweep(spared: impl Fn(Pid) -> bool) -> io::Result<Swept> {
    let orphans = sweep::kill_children(&spared)?;
    if orphans.is_empty() {
        return Ok(if sweep::has_child(spared)? {
            Swept::Gone
        } else {
            Swept::Nothing
        });
    }
    let mut swept = Swept::Gone;
    // All of them, not only up to the first: each is to be reaped.
    for orphan in orphans {
        if let Ok(None) = rustix::process::waitpid(Some(orphan), WaitOptions::NOHANG) {
            swept = Swept::Dying;
        }
    }
    Ok(swept)
}

/// In a worker, only shims are started.
#[cfg(not(test))]
fn is_of_another_test(_child: Pid) -> bool {
    false
}

/// In unit tests, other tests start workers at the same time: the harness again, by a name that no
/// orphan has. Spared are also a child that is not yet the program it shall be, and the shim of a
/// worker that was killed: it ends by itself.
#[cfg(test)]
fn is_of_another_test(child: Pid) -> bool {
    let of = |name: &str| format!("/proc/{}/{name}", child.as_raw_pid());
    let own = std::fs::read_link("/proc/self/exe").unwrap();
    std::fs::read_link(of("exe")).is_ok_and(|program| program == own)
        || std::fs::read_to_string(of("comm"))
            .is_ok_and(|name| name == "exe\n" || name == "team-shim\n")
}
