//! The shim of one command: the process between a worker and `bash` that ends everything the
//! command started.
//!
//! It runs as `team-worker shim FD WORKSPACE COMMAND`, in `/`, without an environment: the
//! [`ShimJob`]. It has three more descriptors:
//!
//! - 0 is the transcript: while the shim lives, the liveness lock is held, even if the worker is
//!   gone;
//! - 1 is a socket to the worker: the lifeline (its end, by the worker's will or death, ends the
//!   command) and the channel of the report, one JSON line that is written when nothing of the
//!   command is left. While an agent runs, the worker says a byte to open or close its gate, and
//!   the shim answers with a line when that is done;
//! - 2 is where the output of the command goes: a pipe to the worker, or a log file; for an agent,
//!   a socket, in which its other descriptors lie (`AgentStdio`).
//!
//! With a policy the command runs below a sandbox init that confines it ([`crate`]); the
//! shim stays outside. The command gets neither 0 nor 1. It is over when `bash` ends, the lifeline
//! closes, the time is up or a signal comes. Then everything that it started is ended, by one of
//! two nets: the kernel ends a pid namespace with its first process; without one the shim is the
//! subreaper of the tree, and kills all that descends from it, `setsid` or not.
//!
//! The shim must never exit before that, never touch the transcript, and start nothing but the
//! command, and what changes its gate. What it may not kill (a program of another user, started
//! with `sudo`) it waits for: an incarnation is not over before.

mod job;
mod report;
pub(crate) mod sweep;

use std::io::{self, PipeReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use nix::libc::{SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH, c_int};
use nix::sys::prctl::{set_child_subreaper, set_name, set_pdeathsig};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process, pidfd_open,
    waitpid,
};
use teamd_shared::member::Gate;
use teamd_shared::process::{close_inherited, deny_tracing};
use teamd_shared::sandbox::Namespaces;

use crate::bounds;
use crate::{AbsentFiles, LiveGate};
pub use job::{AgentOrder, Listen, ShimJob, ShimOrder, ShimProgram};
pub use report::GateSet;
pub(crate) use report::{ExitCause, Report};

/// The hidden subcommand under which the worker's program is a shim.
pub const SUBCOMMAND: &str = "shim";

/// What a worker says over the lifeline to open the gate of an agent, and to close it.
pub(crate) const OPEN_GATE: [u8; 1] = *b"o";
pub(crate) const CLOSE_GATE: [u8; 1] = *b"c";

/// How long a sandbox may take to end with its agent.
const GONE_WITHIN: Duration = Duration::from_secs(2);

/// How long a sandbox may take to be built.
const CONFINED_WITHIN: Duration = Duration::from_secs(10);

/// How often the processes of a command are counted that may have only so many.
const COUNTED_EVERY: Duration = Duration::from_millis(250);

/// Supervises one command: the whole program behind the hidden subcommand.
pub fn shim_main() -> ExitCode {
    let report = ShimJob::inherited(SUBCOMMAND)
        .and_then(|job| job.supervise())
        .unwrap_or_else(Report::failed);
    // If that fails, the worker is gone, and no other process wants the report.
    drop(report.send(io::stdout()));
    ExitCode::SUCCESS
}

impl ShimJob {
    /// Supervises the command to its end.
    fn supervise(&self) -> Result<Report, String> {
        let deadline = self.order.timeout.map(|timeout| Instant::now() + timeout);
        // What the shell that once started the daemon had left open is no business of a command.
        let mut kept = self.descriptors();
        let localhost = self.order.localhost;
        kept.extend(localhost.iter().flat_map(|entry| [entry.user, entry.net]));
        close_inherited(&kept).map_err(cannot("close what it inherited"))?;
        if let Some(policy) = &self.order.policy {
            crate::prepare(policy, localhost).map_err(cannot("make namespaces for the command"))?;
        }
        if self.order.bounds.memory.is_some() {
            // Before no process may look into this one, itself included.
            bounds::go_first().map_err(cannot("say that its command goes first"))?;
        }
        become_shim().map_err(cannot("become a shim"))?;
        let absent = self
            .order
            .policy
            .as_ref()
            .map(AbsentFiles::note)
            .transpose();
        let absent = absent
            .map_err(cannot("look for a protected file"))?
            .unwrap_or_default();
        let mut report = self.run(deadline).unwrap_or_else(Report::failed);
        report.notes = absent.put_aside();
        Ok(report)
    }

    /// Starts the command, waits until it is over, and ends all that it started.
    fn run(&self, deadline: Option<Instant>) -> Result<Report, String> {
        let signals = read_signals().map_err(cannot("read signals"))?;
        let early = next_event(&signals, None, Some(Instant::now()))
            .map_err(cannot("look at its lifeline"))?;
        if let Some(ShimEvent::Over(cause)) = early {
            return Ok(Report::new(cause));
        }
        let (process, init) = self.start().map_err(cannot("start the command"))?;
        if self.order.agent().is_some() {
            give_up_output().map_err(cannot("close the output of the agent"))?;
        }
        let namespaces = self
            .order
            .policy
            .as_ref()
            .map_or(Namespaces::None, |it| it.layers.namespaces);
        // Beside the command there is the sandbox init, where it stays.
        let stays = usize::from(namespaces != Namespaces::None);
        let most = self
            .order
            .bounds
            .max_procs
            .map(|most| most as usize + stays);
        let watched = self.watch(process, &signals, init.as_ref(), (deadline, most));
        let ended = match namespaces {
            Namespaces::Own => end_namespace(process),
            Namespaces::Bubblewrap | Namespaces::None => end_descendants(process),
        };
        let ended = ended.map_err(cannot("end what it started"))?;
        let error = watched
            .as_ref()
            .err()
            .map(|error| format!("cannot watch the command: {error}"));
        let cause = watched.unwrap_or(ExitCause::Failed);
        // Without a report, `bash` took the place of the sandbox init, or that was killed.
        let report = init
            .and_then(Report::read)
            .unwrap_or_else(|| Report::exited(ended));
        Ok(Report {
            cause,
            error: report.error.clone().or(error),
            ..report
        })
    }

    /// Starts the command, in a process group of its own and with no signal blocked: it would
    /// inherit that. The sandbox init confines it, or puts limits on it, and says over the pipe how
    /// `bash` ended.
    fn start(&self) -> io::Result<(Pid, Option<PipeReader>)> {
        let ShimOrder {
            policy,
            bounds,
            program,
            ..
        } = &self.order;
        if policy.is_none() && bounds.is_nothing() && *program == ShimProgram::Bash {
            let mut bash = self.variables.command(&self.command, &self.workspace);
            bash.current_dir(&self.workspace);
            return Ok((spawn(bash)?, None));
        }
        let (init, report) = crate::command(self)?;
        Ok((spawn(init)?, Some(report)))
    }
}

/// Makes the error of a step that failed. Fits behind "error: ".
fn cannot(step: &'static str) -> impl FnOnce(io::Error) -> String {
    move |error| format!("cannot {step}: {error}")
}

/// Starts a program whose output goes where the command's does.
fn spawn(mut command: Command) -> io::Result<Pid> {
    let stdout = io::stderr().as_fd().try_clone_to_owned()?;
    let stderr = stdout.try_clone()?;
    command.stdout(stdout).stderr(stderr).process_group(0);
    // A signal that comes just now ends the shim as SIGKILL would: the worker sweeps up.
    SigSet::empty().thread_set_mask()?;
    let started = command.spawn();
    SigSet::all().thread_set_mask()?;
    // The command holds the writing end of what the shim reads to its end: it is closed here.
    drop(command);
    Ok(Pid::from_child(&started?))
}

/// Gives up its own copy of what the agent writes to: that ends when the agent closes it.
fn give_up_output() -> io::Result<()> {
    Ok(rustix::stdio::dup2_stderr(std::fs::File::open(
        "/dev/null",
    )?)?)
}

/// Makes this process what a shim has to be, before it starts anything.
fn become_shim() -> io::Result<()> {
    deny_tracing();
    // For `ps` and `top`: it was started as `/proc/self/exe`.
    set_name(c"team-shim")?;
    // No command reaches a terminal, and no key that is pressed there reaches the shim.
    rustix::process::setsid()?;
    // If the command has stopped its shim, the worker's death wakes it.
    set_pdeathsig(Signal::SIGCONT)?;
    Ok(set_child_subreaper(true)?)
}

/// Makes all signals readable. The worker starts a shim with all of them blocked, so that none is
/// missed.
fn read_signals() -> io::Result<SignalFd> {
    let all = SigSet::all();
    all.thread_block()?;
    Ok(SignalFd::with_flags(
        &all,
        SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK,
    )?)
}

/// What a shim waits for.
#[derive(Debug, Clone, Copy)]
enum ShimEvent {
    /// The command is over, for this reason.
    Over(ExitCause),
    /// The worker opens or closes the gate of the agent.
    Gate(Gate),
}

/// Waits for the next event: the lifeline, a signal, the end of the command, or the deadline; none
/// if it is one of the last two, or means nothing.
fn next_event(
    signals: &SignalFd,
    command: Option<&OwnedFd>,
    deadline: Option<Instant>,
) -> io::Result<Option<ShimEvent>> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let left = left
        .map(Timespec::try_from)
        .transpose()
        .map_err(io::Error::other)?;
    let lifeline = io::stdout();
    let mut waits = vec![
        PollFd::new(&lifeline, PollFlags::IN),
        PollFd::new(signals, PollFlags::IN),
    ];
    waits.extend(command.map(|command| PollFd::new(command, PollFlags::IN)));
    match poll(&mut waits, left.as_ref()) {
        Err(rustix::io::Errno::INTR) | Ok(0) => return Ok(None),
        other => other?,
    };
    if !waits[0].revents().is_empty() {
        return Ok(Some(read_lifeline(&lifeline)));
    }
    while let Some(signal) = signals.read_signal()? {
        if ends_a_shim(signal.ssi_signo) {
            return Ok(Some(ShimEvent::Over(ExitCause::Signalled)));
        }
    }
    Ok(None)
}

/// Reads what the worker wants: one byte for each change of the gate. All else, and the end, is the
/// end of the lifeline.
fn read_lifeline(lifeline: impl AsFd) -> ShimEvent {
    let mut byte = [0];
    match rustix::io::read(lifeline, &mut byte) {
        Ok(1) if byte == OPEN_GATE => ShimEvent::Gate(Gate::Open),
        Ok(1) if byte == CLOSE_GATE => ShimEvent::Gate(Gate::Closed),
        _ => ShimEvent::Over(ExitCause::Lifeline),
    }
}

impl ShimJob {
    /// Waits until the command is over, and returns why. Reaps the orphans that it leaves
    /// meanwhile, but not `bash`: its pid names the process group that is killed next, and must not
    /// become another's.
    fn watch(
        &self,
        bash: Pid,
        signals: &SignalFd,
        confined: Option<&PipeReader>,
        (deadline, most): (Option<Instant>, Option<usize>),
    ) -> io::Result<ExitCause> {
        let held = pidfd_open(bash, PidfdFlags::empty())?;
        loop {
            let count_at = most.map(|_| Instant::now() + COUNTED_EVERY);
            let event = next_event(
                signals,
                Some(&held),
                [deadline, count_at].into_iter().flatten().min(),
            )?;
            if has_ended(bash)? {
                return Ok(ExitCause::Exited);
            }
            match event {
                Some(ShimEvent::Over(cause)) => return Ok(cause),
                Some(ShimEvent::Gate(gate)) if !self.set_gate(gate, bash, confined)? => {
                    return Ok(ExitCause::GateClosed);
                }
                Some(ShimEvent::Gate(_)) | None => {}
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(ExitCause::TimedOut);
            }
            if most.is_some_and(|most| sweep::count_descendants() > most) {
                return Ok(ExitCause::TooMany);
            }
            sweep::reap_orphans(bash)?;
        }
    }

    /// Opens or closes the gate of the agent, and tells the worker when that is done. Returns
    /// whether the agent continues: it does not if only its end keeps it from writing.
    fn set_gate(&self, gate: Gate, init: Pid, confined: Option<&PipeReader>) -> io::Result<bool> {
        let Some(policy) = &self.order.policy else {
            return Ok(false);
        };
        let Some(confined) = confined else {
            return Ok(false);
        };
        // There is something to read when the mounts are made, and at the end.
        let patience = Timespec::try_from(CONFINED_WITHIN).map_err(io::Error::other)?;
        if poll(&mut [PollFd::new(confined, PollFlags::IN)], Some(&patience))? == 0 {
            return Ok(false);
        }
        let live = LiveGate::new(policy, init);
        let is_set = match gate {
            Gate::Open => live.open().map(|()| true),
            Gate::Closed => live.close(),
        };
        match is_set {
            Ok(true) => GateSet { gate }.send(io::stdout()).map(|()| true),
            Ok(false) => Ok(false),
            Err(error) => {
                tracing::debug!("the gate of the sandbox {init} cannot be set: {error}");
                // The agent may just have ended: then nothing of the sandbox is left in a moment,
                // and that is the event to come.
                let ended = pidfd_open(init, PidfdFlags::empty())?;
                let patience = Timespec::try_from(GONE_WITHIN).map_err(io::Error::other)?;
                Ok(poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&patience))? > 0)
            }
        }
    }
}

fn has_ended(bash: Pid) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(rustix::process::waitid(WaitId::Pid(bash), options)?.is_some())
}

/// Tells whether a signal asks the shim to end: all do that would end another process by default.
fn ends_a_shim(number: u32) -> bool {
    const HARMLESS: [c_int; 7] = [
        SIGCHLD, SIGCONT, SIGWINCH, SIGURG, SIGTSTP, SIGTTIN, SIGTTOU,
    ];
    !HARMLESS
        .iter()
        .any(|&signal| i32::try_from(number) == Ok(signal))
}

/// Ends a pid namespace by its first process: the kernel kills all the others before that one can
/// be reaped.
fn end_namespace(init: Pid) -> io::Result<Option<WaitStatus>> {
    // A process that is not reaped keeps its pid.
    kill_process(init, rustix::process::Signal::KILL)?;
    loop {
        match waitpid(Some(init), WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?.map(|(_, status)| status)),
        }
    }
}

/// Kills all that descends from this process, round by round, until nothing is left; returns how
/// `bash` ended.
///
/// A process that is killed leaves its children to the shim: so each round finds what the one
/// before missed, and when there is no child any more, nothing is left. The group of `bash` goes
/// first, in one step that no fork outruns.
fn end_descendants(bash: Pid) -> io::Result<Option<WaitStatus>> {
    let mut ended = None;
    let mut is_logged = false;
    loop {
        let mut options = match sweep::kill_children(|_| false) {
            Ok(_) => WaitOptions::empty(),
            // No other process would end them: no descriptor may be left just now.
            Err(error) => {
                if !std::mem::replace(&mut is_logged, true) {
                    tracing::warn!("cannot look for what is to be ended (tried again): {error}");
                }
                sweep::pause();
                WaitOptions::NOHANG
            }
        };
        loop {
            match rustix::process::wait(options) {
                Ok(Some((pid, status))) if pid == bash => ended = Some(status),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(rustix::io::Errno::CHILD) => return Ok(ended),
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            // One has ended: reap all others that have, and look again.
            options = WaitOptions::NOHANG;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
