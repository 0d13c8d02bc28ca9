//! The keeper of one command: the process between a worker and `bash` that ends everything the command started.
//!
//! It runs as `team-worker keeper [--timeout-ms N] [--log] -- COMMAND`, with three descriptors:
//!
//! - 0 is the transcript: while the keeper lives, the worker's life lock is held, even if the worker is gone;
//! - 1 is a socket to the worker: the lifeline (its end, by the worker's will or death, ends the command) and the
//!   channel of the report, one JSON line that is written when nothing of the command is left;
//! - 2 is where the output of the command goes: a pipe to the worker, or a log file (`--log`).
//!
//! The command gets neither 0 nor 1. It is over when `bash` ends, the lifeline closes, the time is up or a signal
//! comes. Then all that descends from it is killed, `setsid` or not, since the keeper is the subreaper of its tree.
//!
//! The keeper must never exit before that, never touch the transcript, and start nothing but the command. What it
//! may not kill (a program of another user, started with `sudo`) it waits for: a life is not over before.

pub(crate) mod sweep;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions};
use serde::{Deserialize, Serialize};

/// The hidden subcommand under which the worker's binary is a keeper.
pub(crate) const SUBCOMMAND: &str = "keeper";

/// How a command ended. Code and signal are those of `bash`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Its exit code, if it exited.
    pub(crate) code: Option<i32>,
    /// The signal that ended it, if one did.
    pub(crate) signal: Option<i32>,
    /// Why the command was over.
    pub(crate) because: Because,
    /// What the keeper could not do. Fits behind "error: ".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// Why a command was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Because {
    /// It ended by itself.
    Exited,
    /// Its time was up.
    TimedOut,
    /// The worker closed the lifeline, or died.
    Lifeline,
    /// A signal told the keeper to end.
    Signalled,
    /// It could not be started, or not be watched.
    Failed,
}

/// Keeps one command: the whole program behind the hidden subcommand.
pub(crate) fn keeper_main() -> ExitCode {
    let arguments = std::env::args_os().skip_while(|argument| argument != SUBCOMMAND).skip(1);
    let report = Job::from_arguments(arguments).and_then(|job| job.keep()).unwrap_or_else(|error| Report {
        code: None,
        signal: None,
        because: Because::Failed,
        error: Some(error),
    });
    // If that fails, the worker is gone, and there is nobody to tell.
    if report.send().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Report {
    fn send(&self) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        rustix::io::write(io::stdout(), &line)?;
        Ok(())
    }
}

/// What a keeper is asked to do.
#[derive(Debug, PartialEq, Eq)]
struct Job {
    command: OsString,
    timeout: Option<Duration>,
    /// Whether descriptor 2 is a log, which shall tell how the command ended.
    log: bool,
}

impl Job {
    fn from_arguments(mut arguments: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let mut job = Self { command: OsString::new(), timeout: None, log: false };
        while let Some(argument) = arguments.next() {
            match argument.to_str() {
                Some("--timeout-ms") => {
                    let value = arguments.next().and_then(|value| value.to_str()?.parse().ok());
                    job.timeout = Some(Duration::from_millis(value.ok_or("--timeout-ms wants a number")?));
                }
                Some("--log") => job.log = true,
                Some("--") => {
                    job.command = arguments.next().ok_or("there is no command behind --")?;
                    return Ok(job);
                }
                _ => return Err(format!("the keeper does not know {argument:?}")),
            }
        }
        Err("there is no command".to_owned())
    }

    fn keep(&self) -> Result<Report, String> {
        let begun = Instant::now();
        close_inherited().map_err(|error| format!("cannot close what it has inherited: {error}"))?;
        teamd_shared::process::deny_tracing();
        leave_the_terminal().map_err(|error| format!("cannot leave the terminal: {error}"))?;
        nix::sys::prctl::set_child_subreaper(true).map_err(|error| format!("cannot become a subreaper: {error}"))?;
        let bash = self.start()?;
        let deadline = self.timeout.map(|timeout| begun + timeout);
        let watched = block_signals().and_then(|signals| watch(bash, &signals, deadline));
        let ended = end_everything(bash).map_err(|error| format!("cannot end what it started: {error}"))?;
        let report = Report {
            code: ended.and_then(rustix::process::WaitStatus::exit_status),
            signal: ended.and_then(rustix::process::WaitStatus::terminating_signal),
            because: *watched.as_ref().unwrap_or(&Because::Failed),
            error: watched.err().map(|error| format!("cannot watch the command: {error}")),
        };
        if self.log {
            // A full disk must not keep the report from the worker.
            drop(writeln!(io::stderr(), "\n{}", last_line_of_a_log(&report)));
        }
        Ok(report)
    }

    /// Starts the command, in a process group of its own.
    ///
    /// No signal is blocked yet: what is blocked here would be blocked in the command as well.
    fn start(&self) -> Result<Pid, String> {
        let output = || io::stderr().as_fd().try_clone_to_owned().map(Stdio::from);
        let start = |shell: &str| {
            let mut command = Command::new(shell);
            // A command that begins with a dash is no option.
            command.args([OsStr::new("-c"), OsStr::new("--"), &self.command]);
            command.stdin(Stdio::null()).stdout(output()?).stderr(output()?).process_group(0).spawn()
        };
        let started = match start("bash") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => start("sh"),
            other => other,
        };
        started.map(|child| Pid::from_child(&child)).map_err(|error| format!("cannot start bash: {error}"))
    }
}

fn last_line_of_a_log(report: &Report) -> String {
    match (report.because, report.code, report.signal) {
        (Because::Exited, Some(code), _) => format!("[exit code {code}]"),
        (Because::Exited, _, Some(signal)) => format!("[ended by signal {signal}]"),
        (Because::TimedOut, ..) => "[timed out]".to_owned(),
        _ => "[ended]".to_owned(),
    }
}

/// Closes all but the three descriptors: what the shell that once started the daemon had left open (a lock, a
/// jobserver) is no business of a command. Comes before anything else is opened.
fn close_inherited() -> io::Result<()> {
    let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for descriptor in open.into_iter().filter(|&descriptor| descriptor > 2) {
        // One of them was that of the listing, and is closed already.
        drop(nix::unistd::close(descriptor));
    }
    Ok(())
}

/// Makes sure that a command cannot reach a terminal, and that no key pressed there reaches the keeper.
///
/// Where there is no terminal, the keeper stays in the worker's session: if it is stopped when the worker dies,
/// the kernel then wakes it with SIGHUP and SIGCONT, as any group that is orphaned while stopped (`setpgid(2)`).
fn leave_the_terminal() -> rustix::io::Result<()> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::open("/dev/tty", flags, rustix::fs::Mode::empty()) {
        Ok(_terminal) => rustix::process::setsid().map(drop),
        Err(_none) => rustix::process::setpgid(None, None),
    }
}

/// Turns all signals into something to read. Comes after the command is started, since it would inherit this.
fn block_signals() -> io::Result<SignalFd> {
    let all = SigSet::all();
    all.thread_block()?;
    Ok(SignalFd::with_flags(&all, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// Waits until the command is over, and returns why. Reaps the orphans that it leaves meanwhile, but not `bash`:
/// its pid names the process group that is killed next, and must not become another's.
fn watch(bash: Pid, signals: &SignalFd, deadline: Option<Instant>) -> io::Result<Because> {
    let lifeline = io::stdout();
    loop {
        if has_ended(bash)? {
            return Ok(Because::Exited);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Ok(Because::TimedOut);
        }
        let timeout = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        let mut waits = [PollFd::new(&lifeline, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        match poll(&mut waits, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) | Ok(0) => continue,
            other => other?,
        };
        let [lifeline_ready, signal_ready] = waits.map(|wait| !wait.revents().is_empty());
        if lifeline_ready && is_closed(lifeline.as_fd()) {
            return Ok(Because::Lifeline);
        }
        while let Some(signal) = signal_ready.then(|| signals.read_signal()).transpose()?.flatten() {
            if ends_the_keeper(signal.ssi_signo) {
                return Ok(Because::Signalled);
            }
        }
        sweep::reap_orphans(bash)?;
    }
}

fn has_ended(bash: Pid) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(rustix::process::waitid(WaitId::Pid(bash), options)?.is_some())
}

/// The worker sends nothing here: whatever can be read is the end. An error is one too.
fn is_closed(lifeline: BorrowedFd<'_>) -> bool {
    let mut byte = [0];
    !matches!(rustix::io::read(lifeline, &mut byte), Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR))
}

/// Tells whether a signal asks the keeper to end: all do that would end another process by default.
fn ends_the_keeper(number: u32) -> bool {
    const HARMLESS: [Signal; 7] = [
        Signal::SIGCHLD,
        Signal::SIGCONT,
        Signal::SIGWINCH,
        Signal::SIGURG,
        Signal::SIGTSTP,
        Signal::SIGTTIN,
        Signal::SIGTTOU,
    ];
    !HARMLESS.iter().any(|&signal| i32::try_from(number) == Ok(signal as i32))
}

/// Kills all that descends from this process, round by round, until nothing is left; returns how `bash` ended.
///
/// A process that is killed leaves its children to the keeper: so each round finds what the one before missed, and
/// when there is no child any more, nothing is left. The group of `bash` goes first, in one step that no fork outruns.
fn end_everything(bash: Pid) -> io::Result<Option<rustix::process::WaitStatus>> {
    let mut ended = None;
    loop {
        sweep::kill_children(|_| false)?;
        let mut options = WaitOptions::empty();
        loop {
            match rustix::process::wait(options) {
                Ok(Some((pid, status))) if pid == bash => ended = Some(status),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(rustix::io::Errno::CHILD) => return Ok(ended),
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            // One has ended: take in whoever else has, and look again.
            options = WaitOptions::NOHANG;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
