//! The worker's side of a keeper: starts it, hears its report, ends it, and sweeps up when it was killed.
//!
//! Nothing here waits in a system call. Every keeper is known by its pid while it is not reaped: any other child of
//! this process is what a killed keeper has left, and is ended.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::net::Shutdown;
use rustix::process::{Pid, Signal, WaitOptions, kill_process};
use teamd_shared::environment::Environment;
use teamd_shared::member::Bounds;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

use crate::sandbox::Policy;
use crate::shim::{self, ExitCause, Job as ShimJob, Order as ShimOrder, Report, sweep};
use crate::variables::Variables;

/// How long a report may be, in bytes: a keeper writes one short line.
const MAX_REPORT: usize = 64 << 10;

/// The keepers of this process that are not reaped.
static KEEPERS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn keepers() -> MutexGuard<'static, Vec<Pid>> {
    KEEPERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a command runs with.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) workspace: PathBuf,
    pub(super) environment: Environment,
    pub(super) bounds: Bounds,
    /// The transcript, locked: each keeper shares the lock.
    pub(super) life_lock: File,
}

/// A command as its call has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) command: &'a str,
    /// Seconds.
    pub(super) timeout: Option<f64>,
    /// What it may do; none: whatever the user may.
    pub(super) policy: Option<&'a Policy>,
}

/// What a keeper is asked to do.
#[derive(Debug)]
pub(super) struct Order<'a> {
    pub(super) command: &'a str,
    pub(super) policy: Option<&'a Policy>,
    pub(super) timeout: Option<Duration>,
    /// Where the output goes.
    pub(super) output: OwnedFd,
    /// Whether that is a log, which shall tell how the command ended.
    pub(super) log: bool,
}

/// How a kept command ended. Nothing of it is left either way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// As the keeper says.
    Reported(Report),
    /// The keeper was killed, by the command or by the worker.
    KeeperLost,
}

/// A keeper that is not reaped. If it is dropped, the lifeline closes and the keeper ends the command.
#[derive(Debug)]
pub(super) struct Kept {
    child: Child,
    channel: UnixStream,
    heard: Vec<u8>,
    /// Whether the keeper has closed its end: it does so only by exiting.
    closed: bool,
    reaped: bool,
    /// Made before the keeper, so that no child's end is missed.
    child_ended: SignalStream,
}

impl Kept {
    /// Starts a keeper and its command.
    pub(super) fn start(surroundings: &Surroundings, order: Order<'_>) -> io::Result<Self> {
        // The keeper would say it later, and less well.
        surroundings.workspace.metadata()?;
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let channel = UnixStream::from_std(ours)?;
        let child_ended = signal(SignalKind::child())?;
        let variables = Variables::of(surroundings.environment.variables());
        let variables = match order.policy {
            Some(policy) => variables.with("TMPDIR", policy.temp_inside().as_os_str()),
            None => variables,
        };
        let asked = ShimOrder {
            timeout: order.timeout,
            log: order.log,
            bounds: surroundings.bounds,
            policy: order.policy.cloned(),
        };
        let asked = ShimJob::new(asked, variables, &surroundings.workspace, order.command.as_ref())?;
        let mut command = asked.program(shim::SUBCOMMAND)?;
        command.stdin(Stdio::from(surroundings.life_lock.try_clone()?));
        command.stdout(Stdio::from(OwnedFd::from(theirs))).stderr(Stdio::from(order.output));
        // Held until the pid is known: a sweep between the two would take the keeper for a stray.
        let mut keepers = keepers();
        let child = spawn_with_signals_blocked(&mut command)?;
        keepers.push(Pid::from_child(&child));
        Ok(Self { child, channel, heard: Vec::new(), closed: false, reaped: false, child_ended })
    }

    /// Asks the keeper to end the command; wakes it if the command has stopped it.
    pub(super) fn end(&self) {
        if let Err(errno) = rustix::net::shutdown(&self.channel, Shutdown::Write) {
            // It has ended already.
            tracing::debug!("cannot close a lifeline: {errno}");
        }
        self.signal(Signal::CONT);
    }

    /// Kills a keeper that does not end its command. What it leaves is swept up by [`Kept::ended`].
    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        // A process that is not reaped keeps its pid.
        if !self.reaped
            && let Err(errno) = kill_process(Pid::from_child(&self.child), signal)
        {
            tracing::warn!("cannot send {signal:?} to a keeper: {errno}");
        }
    }

    /// Waits until the command and all that it started is gone. May be dropped and called again.
    pub(super) async fn ended(&mut self) -> Ended {
        while !self.closed {
            let mut bytes = [0; 1024];
            match self.channel.read(&mut bytes).await {
                Ok(0) | Err(_) => self.closed = true,
                Ok(read) if self.heard.len() < MAX_REPORT => self.heard.extend_from_slice(&bytes[..read]),
                Ok(_) => {}
            }
        }
        // A process leaves its children to the next one after it has closed its descriptors: reap it before
        // looking for strays.
        while !self.try_reap() {
            self.child_ended.recv().await;
        }
        let mut lines = self.heard.split(|&byte| byte == b'\n').rev();
        let ended = lines.find_map(|line| serde_json::from_slice(line).ok());
        let ended = ended.map_or(Ended::KeeperLost, Ended::Reported);
        // One that failed may have left its command, as one that was killed has.
        if matches!(&ended, Ended::Reported(report) if report.cause != ExitCause::Failed) {
            return ended;
        }
        loop {
            match sweep_strays() {
                Swept::Nothing => return ended,
                Swept::Gone => {}
                Swept::Dying => {
                    self.child_ended.recv().await;
                }
                Swept::Unknown => tokio::time::sleep(sweep::AGAIN).await,
            }
        }
    }

    fn try_reap(&mut self) -> bool {
        if !self.reaped {
            let mut keepers = keepers();
            // An error means that somebody else has reaped it.
            self.reaped = !matches!(self.child.try_wait(), Ok(None));
            if self.reaped {
                keepers.retain(|&keeper| keeper != Pid::from_child(&self.child));
            }
        }
        self.reaped
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // A keeper that nobody waits for any more is reaped, and if need be killed, as a stray.
        if !self.try_reap() {
            keepers().retain(|&keeper| keeper != Pid::from_child(&self.child));
        }
    }
}

/// Starts a keeper. It is born with all signals blocked, and reads them when it can: none kills it before.
fn spawn_with_signals_blocked(command: &mut Command) -> io::Result<Child> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let started = command.spawn();
    before.thread_set_mask()?;
    started
}

/// What one round of sweeping up came upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Swept {
    /// Nothing: nothing is left.
    Nothing,
    /// Strays, which are gone; what they leave is found in the next round.
    Gone,
    /// Strays that are not gone yet: SIGCHLD announces the end of each.
    Dying,
    /// It could not be seen who is there.
    Unknown,
}

/// Kills and reaps, in one round, the children of this process that are no keepers, and what descends from them.
pub(super) fn sweep_strays() -> Swept {
    // Mostly: it costs one call, where the look at all processes costs each of a thousand workers one of them all.
    if !sweep::has_children() {
        return Swept::Nothing;
    }
    let keepers = keepers();
    try_sweep(|child| keepers.contains(&child) || is_of_another_test(child)).unwrap_or_else(|error| {
        tracing::error!("cannot look for what a keeper left: {error}");
        Swept::Unknown
    })
}

fn try_sweep(spared: impl Fn(Pid) -> bool) -> io::Result<Swept> {
    let strays = sweep::kill_children(&spared)?;
    if strays.is_empty() {
        return Ok(if sweep::has_child(spared)? { Swept::Gone } else { Swept::Nothing });
    }
    let is_dying = |stray| matches!(rustix::process::waitpid(Some(stray), WaitOptions::NOHANG), Ok(None));
    // All of them, not only up to the first: each is to be reaped.
    let dying = strays.into_iter().filter(|&stray| is_dying(stray)).count();
    Ok(if dying > 0 { Swept::Dying } else { Swept::Gone })
}

/// In a worker, only keepers are started.
#[cfg(not(test))]
fn is_of_another_test(_child: Pid) -> bool {
    false
}

/// In unit tests, other tests start workers at the same time: the harness again, by a name that no stray has. Spared are
/// also a child that is not yet the program it shall be, and the keeper of a worker that was killed: it ends by itself.
#[cfg(test)]
fn is_of_another_test(child: Pid) -> bool {
    let of = |name: &str| format!("/proc/{}/{name}", child.as_raw_pid());
    let own = std::fs::read_link("/proc/self/exe").unwrap();
    std::fs::read_link(of("exe")).is_ok_and(|program| program == own)
        || std::fs::read_to_string(of("comm")).is_ok_and(|name| name == "exe\n" || name == "team-shim\n")
}
