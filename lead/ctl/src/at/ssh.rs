//! The `ssh` that a command is run by: begun, waited for, and ended with this program, however that
//! ends.

use std::ffi::{OsStr, OsString};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::pin::pin;
use std::process::{Child, ChildStdout, Command, ExitCode as ProcessExit, Stdio};
use std::task::Poll;

use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process, pidfd_send_signal,
    set_parent_process_death_signal, waitid,
};
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::over_ssh::until_hung_up;
use teamd_shared::process::ProcessHandle;
use teamd_shared::thread::in_thread;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// The program of OpenSSH.
const SSH: &str = "ssh";
/// The first argument of this program where it becomes `ssh`.
const BELOW: &str = "__ssh";
/// The exit codes of that where there is no `ssh`, or it cannot be run: none of `teamctl` and `ssh`.
const NO_SSH: i32 = 122;
const BROKEN_SSH: i32 = 123;

/// An `ssh` that runs.
pub(super) struct Ssh {
    child: Child,
    handle: ProcessHandle,
}

/// What ends a wait for `ssh` beside its own end and signals.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SshEnds {
    /// At a terminal this program stops when `ssh` stops itself (`~^Z`): the shell waits for this
    /// program.
    pub(super) has_terminal: bool,
    /// When the reader of stdout is gone, the command is done. `ssh` sees it only when it writes.
    pub(super) ends_with_reader: bool,
}

/// How `ssh` has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FarEnd {
    /// By itself, with this code.
    Code(i32),
    /// By this signal, which is not of this program.
    Killed(i32),
    /// Since this program was told to end.
    Told(ExitCode),
}

/// What tells this program to end.
pub(super) struct Signals {
    int: Stream,
    term: Stream,
    hup: Stream,
}

impl Signals {
    /// Takes the signals from now on.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn begin() -> Result<Self, CommandError> {
        let on = |kind| {
            signal(kind).map_err(|error| CommandError::refused("cannot watch for signals", &error))
        };
        Ok(Self {
            int: on(SignalKind::interrupt())?,
            term: on(SignalKind::terminate())?,
            hup: on(SignalKind::hangup())?,
        })
    }

    /// Returns the exit code after the next one.
    async fn next(&mut self) -> ExitCode {
        tokio::select! {
            Some(()) = self.int.recv() => ExitCode::Interrupted,
            Some(()) = self.term.recv() => ExitCode::Terminated,
            Some(()) = self.hup.recv() => ExitCode::Interrupted,
        }
    }

    /// Returns the exit code after one that has come by now.
    async fn come(&mut self) -> Option<ExitCode> {
        // Ctrl-C goes to ssh at the same time: the event loop looks at what has come before it goes
        // on here.
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
        let mut next = pin!(self.next());
        poll_fn(|context| {
            Poll::Ready(match next.as_mut().poll(context) {
                Poll::Ready(code) => Some(code),
                Poll::Pending => None,
            })
        })
        .await
    }
}

impl Ssh {
    /// Starts it with these arguments. It ends when this program does, also by SIGKILL. It reads the
    /// stdin of this program if that feeds the command there, else a pipe that ends with this program:
    /// so the command there ends, too, where `ssh` shares a connection that goes on.
    ///
    /// # Errors
    /// If this program cannot be started.
    pub(super) fn start(
        words: &[OsString],
        is_fed: bool,
        stdout: Stdio,
    ) -> Result<Self, CommandError> {
        let stdin = if is_fed {
            Stdio::inherit()
        } else {
            Stdio::piped()
        };
        let cannot = |error| CommandError::refused("cannot start ssh", &error);
        let mut command = Command::new("/proc/self/exe");
        command
            .arg(BELOW)
            .arg(std::process::id().to_string())
            .args(words)
            .stdin(stdin)
            .stdout(stdout);
        let child = command.spawn().map_err(cannot)?;
        let handle = ProcessHandle::open_child(child.id()).map_err(cannot)?;
        Ok(Self { child, handle })
    }

    /// Takes what it prints.
    pub(super) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Waits until it has ended. A signal to this program ends it, and a second one at once.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub(super) async fn until_end(
        &self,
        signals: &mut Signals,
        until: SshEnds,
    ) -> Result<FarEnd, CommandError> {
        let cannot = |error| CommandError::refused("cannot wait for ssh", &error);
        let pidfd = self.handle.try_clone_fd().map_err(cannot)?;
        let mut ended = pin!(in_thread(move || wait(&pidfd, until.has_terminal)));
        let mut unread = pin!(unread(until.ends_with_reader));
        let mut told = None;
        let end = loop {
            tokio::select! {
                biased;
                () = &mut unread, if told.is_none() => {
                    told = Some(ExitCode::Done);
                    self.handle.signal(Signal::TERM).map_err(cannot)?;
                }
                code = signals.next() => {
                    let how = if told.is_none() { Signal::TERM } else { Signal::KILL };
                    told.get_or_insert(code);
                    self.handle.signal(how).map_err(cannot)?;
                }
                end = &mut ended => break end.map_err(cannot)?,
            }
        };
        let is_cut = matches!(end, FarEnd::Killed(_) | FarEnd::Code(super::SSH_FAILED));
        if told.is_none() && is_cut {
            told = signals.come().await;
        }
        if let Some(told) = told {
            return Ok(FarEnd::Told(told));
        }
        match end {
            FarEnd::Code(NO_SSH) => Err(missing()),
            FarEnd::Code(BROKEN_SSH) => Err(CommandError::new(
                ExitCode::Failed,
                "the program ssh cannot be run",
            )
            .hint("`ssh -V` shows why")),
            end => Ok(end),
        }
    }

    /// Ends it, and returns when it has ended.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub(super) async fn end(self) -> Result<(), CommandError> {
        let cannot = |error| CommandError::refused("cannot end ssh", &error);
        self.handle.signal(Signal::TERM).map_err(cannot)?;
        self.handle.ended().await.map_err(cannot)
    }
}

/// Returns when the reader of stdout is gone, if that is to be seen.
async fn unread(is_seen: bool) {
    if is_seen {
        let waited = in_thread(|| {
            until_hung_up(io::stdout().as_fd());
            Ok(())
        });
        // Without a thread, ssh sees it when it writes.
        if waited.await.is_ok() {
            return;
        }
    }
    std::future::pending().await
}

/// Waits for a child, and stops and continues with it.
fn wait(pidfd: &OwnedFd, follows: bool) -> io::Result<FarEnd> {
    let stops = if follows {
        WaitIdOptions::STOPPED
    } else {
        WaitIdOptions::empty()
    };
    loop {
        let wait = || waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | stops);
        let Some(status) = retry_on_intr(wait)? else {
            continue;
        };
        if let Some(code) = status.exit_status() {
            return Ok(FarEnd::Code(code));
        }
        if let Some(signal) = status.terminating_signal() {
            return Ok(FarEnd::Killed(signal));
        }
        kill_process(getpid(), Signal::STOP)?;
        pidfd_send_signal(pidfd, Signal::CONT)?;
    }
}

/// The error of a machine without it.
fn missing() -> CommandError {
    CommandError::new(ExitCode::Failed, "there is no program ssh on this machine")
        .hint("install the client of OpenSSH (`apt-get install openssh-client`)")
}

/// Becomes `ssh`, if that is what this process was started for. First it has the kernel end it with
/// its parent: only a process itself can ask for that, and a program that it becomes keeps it.
pub(crate) fn become_ssh() -> Option<ProcessExit> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != BELOW {
        return None;
    }
    let parent = words.next()?;
    let is_missing = replace(&parent, words).kind() == io::ErrorKind::NotFound;
    let code = if is_missing { NO_SSH } else { BROKEN_SSH };
    Some(ProcessExit::from(u8::try_from(code).unwrap_or_default()))
}

/// Returns only if that fails.
fn replace(parent: &OsStr, words: impl Iterator<Item = OsString>) -> io::Error {
    // ssh gives the terminal back then, which a SIGKILL would not.
    if let Err(errno) = set_parent_process_death_signal(Some(Signal::TERM)) {
        return errno.into();
    }
    let is_above = getppid().map(Pid::as_raw_nonzero);
    let is_above = is_above.is_some_and(|pid| *parent == *pid.get().to_string());
    if !is_above {
        return io::Error::other("its parent has ended");
    }
    Command::new(SSH).args(words).exec()
}
