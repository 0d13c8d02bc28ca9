//! The keeper of one command: the process between a worker and `bash` that ends everything the command started.
//!
//! It runs as `team-worker keeper [--timeout-ms N] [--log] [--bounds JSON] [--variables FD] [--policy JSON | --directory DIR] -- COMMAND`,
//! in `/`, without an environment (that of the command is [`crate::variables`]), and with three descriptors more:
//!
//! - 0 is the transcript: while the keeper lives, the worker's life lock is held, even if the worker is gone;
//! - 1 is a socket to the worker: the lifeline (its end, by the worker's will or death, ends the command) and the
//!   channel of the report, one JSON line that is written when nothing of the command is left;
//! - 2 is where the output of the command goes: a pipe to the worker, or a log file (`--log`).
//!
//! With a policy the command is run by a helper that confines it ([`crate::sandbox`]); the keeper stays outside.
//! The command gets neither 0 nor 1. It is over when `bash` ends, the lifeline closes, the time is up or a signal
//! comes. Then all that descends from it is killed, `setsid` or not, since the keeper is the subreaper of its tree.
//!
//! The keeper must never exit before that, never touch the transcript, and start nothing but the command. What it
//! may not kill (a program of another user, started with `sudo`) it waits for: a life is not over before.

pub(crate) mod sweep;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::prctl::{set_child_subreaper, set_name, set_pdeathsig};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, WaitOptions, pidfd_open};
use serde::{Deserialize, Serialize};
use teamd_shared::member::Bounds;
use teamd_shared::process::{KEEPER, KEEPER_MOST, KEEPER_UNHEARD, close_inherited, deny_tracing};

use crate::bounds;
use crate::sandbox::{self, Hearing, Policy, Verdict};
use crate::variables::Variables;
use teamd_shared::sandbox::Namespaces;

/// The hidden subcommand under which the worker's binary is a keeper.
pub(crate) const SUBCOMMAND: &str = "keeper";

/// How often the processes of a command are counted that may have only so many.
const COUNTED_EVERY: Duration = Duration::from_millis(250);

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
    /// What else the user is to be told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
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
    /// It had more processes than it may.
    TooMany,
    /// It could not be started, or not be watched.
    Failed,
}

/// Keeps one command: the whole program behind the hidden subcommand.
pub(crate) fn keeper_main() -> ExitCode {
    let arguments = std::env::args_os().skip_while(|argument| argument != SUBCOMMAND).skip(1);
    let mut killed = 0;
    let report =
        Job::from_arguments(arguments).and_then(|job| job.keep(&mut killed)).unwrap_or_else(|error| Report {
            code: None,
            signal: None,
            because: Because::Failed,
            error: Some(error),
            notes: Vec::new(),
        });
    // If that fails, the worker is gone: the daemon, to which this process has come, sees how it ends.
    match report.send() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(KEEPER_UNHEARD + u8::try_from(killed).unwrap_or(u8::MAX).min(KEEPER_MOST)),
    }
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
#[derive(Debug, PartialEq, Eq, Default)]
struct Job {
    command: OsString,
    timeout: Option<Duration>,
    /// Whether descriptor 2 is a log, which shall tell how the command ended.
    log: bool,
    /// What the command may do; none: whatever the user may.
    policy: Option<Box<Policy>>,
    /// Where the command begins, if no policy says so.
    directory: Option<PathBuf>,
    /// The descriptor that holds the variables of the command; none: it has none.
    variables: Option<u32>,
    /// What its processes may use.
    bounds: Bounds,
}

/// A command that runs: `bash`, or the helper that confines it and tells how it ended.
struct Started {
    process: Pid,
    hearing: Option<Hearing>,
}

impl Job {
    fn from_arguments(mut arguments: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let mut job = Self::default();
        while let Some(argument) = arguments.next() {
            match argument.to_str() {
                Some("--timeout-ms") => {
                    let value = arguments.next().and_then(|value| value.to_str()?.parse().ok());
                    job.timeout = Some(Duration::from_millis(value.ok_or("--timeout-ms wants a number")?));
                }
                Some("--log") => job.log = true,
                Some("--directory") => {
                    job.directory =
                        Some(arguments.next().ok_or("there is no path behind --directory")?.into());
                }
                Some("--variables") => {
                    let value = arguments.next().and_then(|value| value.to_str()?.parse().ok());
                    job.variables = Some(value.ok_or("--variables wants a descriptor")?);
                }
                Some("--bounds") => {
                    let bounds = arguments.next().ok_or("there are no bounds behind --bounds")?;
                    let bounds = serde_json::from_slice(bounds.as_encoded_bytes());
                    job.bounds = bounds.map_err(|error| format!("the bounds cannot be read: {error}"))?;
                }
                Some("--policy") => {
                    let policy = arguments.next().ok_or("there is no policy behind --policy")?;
                    let policy = serde_json::from_slice(policy.as_encoded_bytes());
                    job.policy = Some(policy.map_err(|error| format!("the policy cannot be read: {error}"))?);
                }
                Some("--") => {
                    job.command = arguments.next().ok_or("there is no command behind --")?;
                    return Ok(job);
                }
                _ => return Err(format!("the keeper does not know {argument:?}")),
            }
        }
        Err("there is no command".to_owned())
    }

    /// Keeps the command to its end; `killed` is how many processes did not end by themselves.
    fn keep(&self, killed: &mut usize) -> Result<Report, String> {
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        let cannot = |what: &'static str| move |error: io::Error| format!("cannot {what}: {error}");
        let variables = self.variables.map(Variables::take).transpose();
        let variables = variables.map_err(cannot("read the variables of the command"))?.unwrap_or_default();
        // What the shell that once started the daemon had left open is no business of a command.
        close_inherited(None).map_err(cannot("close what it inherited"))?;
        if let Some(policy) = &self.policy {
            sandbox::prepare(policy).map_err(cannot("make namespaces for the command"))?;
        }
        if self.bounds.memory.is_some() {
            // Before nobody may look into this process, itself included.
            bounds::go_first().map_err(cannot("say that its command goes first"))?;
        }
        become_a_keeper().map_err(cannot("become a keeper"))?;
        let places = self.policy.as_deref().map(sandbox::hold_places).transpose();
        let places = places.map_err(cannot("hold the place of a protected file"))?.unwrap_or_default();
        let ears = Ears::new().map_err(cannot("hear signals"))?;
        if let Some(because) =
            ears.listen(None, Some(Instant::now())).map_err(cannot("look at its lifeline"))?
        {
            return Ok(Report { code: None, signal: None, because, error: None, notes: places.give_up() });
        }
        let Started { process, hearing } = self.start(&variables)?;
        // Beside the command there is the helper, where it stays.
        let stays = self.policy.as_ref().is_some_and(|policy| policy.layers.namespaces != Namespaces::None);
        let most = self.bounds.max_procs.map(|most| most as usize + usize::from(stays));
        let watched = watch(process, &ears, (deadline, most));
        *killed = sweep::count_descendants();
        let ended = end_everything(process).map_err(cannot("end what it started"))?;
        let mut report = Report {
            code: ended.and_then(rustix::process::WaitStatus::exit_status),
            signal: ended.and_then(rustix::process::WaitStatus::terminating_signal),
            because: *watched.as_ref().unwrap_or(&Because::Failed),
            error: watched.err().map(cannot("watch the command")),
            notes: places.give_up(),
        };
        match hearing.and_then(Hearing::verdict) {
            Some(Verdict::Refused(why)) => report.error = Some(why),
            Some(Verdict::Ended { code, signal }) => (report.code, report.signal) = (code, signal),
            None => {}
        }
        if self.log {
            // A full disk must not keep the report from the worker.
            drop(writeln!(io::stderr(), "\n{}", last_line_of_a_log(&report)));
        }
        Ok(report)
    }

    /// Starts the command, in a process group of its own and with no signal blocked: it would inherit that.
    fn start(&self, variables: &Variables) -> Result<Started, String> {
        let Some(policy) = &self.policy else {
            let directory = self.directory.as_deref().unwrap_or(Path::new("/"));
            let process = self.bash(variables, directory).and_then(spawn);
            let process = process.map_err(|error| format!("cannot start bash: {error}"))?;
            return Ok(Started { process, hearing: None });
        };
        let start = || {
            let (helper, hearing) = sandbox::command(policy, (&self.command, &self.bounds), variables)?;
            Ok(Started { process: spawn(helper)?, hearing: Some(hearing) })
        };
        start().map_err(|error: io::Error| format!("cannot start the helper that confines it: {error}"))
    }
}

impl Job {
    /// Returns the command line of a command that no sandbox confines.
    fn bash(&self, variables: &Variables, directory: &Path) -> io::Result<Command> {
        if !self.bounds.is_nothing() {
            return bounds::command(&self.bounds, &self.command, (variables, directory));
        }
        let mut bash = variables.command(&self.command, directory);
        bash.current_dir(directory);
        Ok(bash)
    }
}

/// Starts a program whose output goes where the command's does.
fn spawn(mut command: Command) -> io::Result<Pid> {
    let output = || io::stderr().as_fd().try_clone_to_owned().map(Stdio::from);
    command.stdout(output()?).stderr(output()?).process_group(0);
    // A signal that comes just now ends the keeper as SIGKILL would: the worker sweeps up.
    SigSet::empty().thread_set_mask()?;
    let started = command.spawn();
    SigSet::all().thread_set_mask()?;
    // The command holds the writing end of what the keeper reads to its end: it is closed here.
    drop(command);
    Ok(Pid::from_child(&started?))
}

fn last_line_of_a_log(report: &Report) -> String {
    match (report.because, report.code, report.signal) {
        (Because::Exited, Some(code), _) => format!("[exit code {code}]"),
        (Because::Exited, _, Some(signal)) => format!("[ended by signal {signal}]"),
        (Because::TimedOut, ..) => "[timed out]".to_owned(),
        (Because::TooMany, ..) => "[ended: more processes than it may have]".to_owned(),
        _ => "[ended]".to_owned(),
    }
}

/// Makes this process what a keeper has to be, before it starts anything.
fn become_a_keeper() -> io::Result<()> {
    deny_tracing();
    // For `ps` and `top`: it was started as `/proc/self/exe`.
    set_name(KEEPER)?;
    // No command reaches a terminal, and no key that is pressed there reaches the keeper.
    rustix::process::setsid()?;
    // If the command has stopped its keeper, the worker's death wakes it.
    set_pdeathsig(Signal::SIGCONT)?;
    Ok(set_child_subreaper(true)?)
}

/// What a keeper listens to besides its command.
struct Ears {
    /// All signals. The worker starts a keeper with all of them blocked, so that none is missed.
    signals: SignalFd,
}

impl Ears {
    fn new() -> io::Result<Self> {
        let all = SigSet::all();
        all.thread_block()?;
        let signals = SignalFd::with_flags(&all, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { signals })
    }

    /// Waits until something is heard: the lifeline, a signal, the end of the command, or the deadline. Returns why
    /// the keeper is to end, if that is why.
    fn listen(&self, command: Option<&OwnedFd>, deadline: Option<Instant>) -> io::Result<Option<Because>> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        let lifeline = io::stdout();
        let mut waits =
            vec![PollFd::new(&lifeline, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
        waits.extend(command.map(|command| PollFd::new(command, PollFlags::IN)));
        match poll(&mut waits, left.as_ref()) {
            Err(rustix::io::Errno::INTR) | Ok(0) => return Ok(None),
            other => other?,
        };
        // The worker sends nothing: whatever happens to the lifeline is its end.
        if !waits[0].revents().is_empty() {
            return Ok(Some(Because::Lifeline));
        }
        while let Some(signal) = self.signals.read_signal()? {
            if ends_the_keeper(signal.ssi_signo) {
                return Ok(Some(Because::Signalled));
            }
        }
        Ok(None)
    }
}

/// Waits until the command is over, and returns why. Reaps the orphans that it leaves meanwhile, but not `bash`:
/// its pid names the process group that is killed next, and must not become another's.
fn watch(bash: Pid, ears: &Ears, (deadline, most): (Option<Instant>, Option<usize>)) -> io::Result<Because> {
    let held = pidfd_open(bash, PidfdFlags::empty())?;
    loop {
        let look = most.map(|_| Instant::now() + COUNTED_EVERY);
        let heard = ears.listen(Some(&held), [deadline, look].into_iter().flatten().min())?;
        if has_ended(bash)? {
            return Ok(Because::Exited);
        }
        if let Some(because) = heard {
            return Ok(because);
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Ok(Because::TimedOut);
        }
        if most.is_some_and(|most| sweep::count_descendants() > most) {
            return Ok(Because::TooMany);
        }
        sweep::reap_orphans(bash)?;
    }
}

fn has_ended(bash: Pid) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(rustix::process::waitid(WaitId::Pid(bash), options)?.is_some())
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
    let (mut ended, mut told) = (None, false);
    loop {
        let mut options = match sweep::kill_children(|_| false) {
            Ok(_) => WaitOptions::empty(),
            // Nobody else would end them: no descriptor may be left just now.
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
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
            // One has ended: take in whoever else has, and look again.
            options = WaitOptions::NOHANG;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
