//! The gate of an agent that runs: each mount that the gate lets be written is made read-only, or
//! writable, by itself.
//!
//! The shim does it, from outside: it is in the user namespace of the sandbox. It starts
//! `team-worker gate`, which enters the mount namespace, does that, and ends (a process whose
//! children get a pid namespace of their own has no threads). The kernel refuses to close a mount
//! while any file of it is open for writing, and lists how each mount is: so a success is exact.
//! Nothing is ever mounted over what is there: a process that works below it could still write.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::MountFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::mount_table::{Mount, mounts, mounts_of};
use super::mounts::{reached, set_read_only};
use super::plan::MountPlan;
use super::policy::Policy;
use crate::shim::sweep;

/// The hidden subcommand under which the worker's program sets mounts.
pub const SUBCOMMAND: &str = "gate";

/// What it is told to do.
const CLOSE: &str = "close";
const OPEN: &str = "open";

/// How often a gate is tried to be closed, before the agent itself is in its way for good: an open
/// file of a shell that appends a line is closed again at once.
const TRIES: u32 = 50;

/// How long the end of one process is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Closes the gate of a sandbox that is being built: no program runs in it yet.
///
/// # Errors
/// The system's error.
pub(super) fn begin_closed(plan: &MountPlan, policy: &Policy) -> io::Result<()> {
    let listed = mounts()?;
    for (path, mounted) in reached(&listed, |path| plan.is_gated(policy, path)) {
        set_read_only(path, mounted.flags, true)?;
    }
    Ok(())
}

/// The gate of a sandbox that runs.
#[derive(Debug)]
pub(crate) struct LiveGate<'a> {
    plan: MountPlan,
    policy: &'a Policy,
    /// The first process of the sandbox; its first child is the agent.
    init: Pid,
}

impl<'a> LiveGate<'a> {
    /// Makes the gate of a sandbox whose mounts are made.
    pub(crate) fn new(policy: &'a Policy, init: Pid) -> Self {
        Self {
            plan: MountPlan::of(policy),
            policy,
            init,
        }
    }

    /// Opens it. What the machine itself does not let be written stays closed.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn open(&self) -> io::Result<()> {
        let listed = mounts_of(self.init)?;
        let gated = reached(&listed, |path| self.plan.is_gated(self.policy, path));
        let closed = gated.iter().filter(|(_, mounted)| mounted.is_read_only);
        self.set(closed, false)
    }

    /// Closes it: ends the processes that hold files open for writing, but for the agent. Returns
    /// whether it is closed; it is not if the agent itself holds one, and then the agent has to
    /// end.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn close(&self) -> io::Result<bool> {
        for _ in 0..TRIES {
            let listed = mounts_of(self.init)?;
            let gated = reached(&listed, |path| self.plan.is_gated(self.policy, path));
            let open: Vec<_> = gated
                .iter()
                .filter(|(_, mounted)| !mounted.is_read_only)
                .collect();
            if open.is_empty() {
                return Ok(true);
            }
            // The agent can move what is above a mount meanwhile: what counts is how the next round
            // finds it.
            self.set(open.into_iter(), true)?;
            let listed = mounts_of(self.init)?;
            let gated = reached(&listed, |path| self.plan.is_gated(self.policy, path));
            let busy = gated.iter().filter(|(_, mounted)| !mounted.is_read_only);
            let busy: Vec<_> = busy
                .map(|(path, mounted)| (mounted.id, path.to_path_buf()))
                .collect();
            self.end_writers(&busy)?;
        }
        Ok(false)
    }

    /// Has mounts of the sandbox made read-only, or writable, as far as the kernel does that now.
    fn set<'m>(
        &self,
        which: impl Iterator<Item = (&'m &'m Path, &'m Mount)>,
        is_read_only: bool,
    ) -> io::Result<()> {
        let mut program = Command::new("/proc/self/exe");
        // For `ps`: it is started by a path in `/proc`.
        program
            .arg0("team-worker")
            .arg(SUBCOMMAND)
            .env_clear()
            .current_dir("/");
        program.arg(if is_read_only { CLOSE } else { OPEN });
        for (path, mounted) in which {
            program.arg(mounted.flags.bits().to_string()).arg(path);
        }
        program
            .stdin(File::open(format!("/proc/{}/ns/mnt", self.init))?)
            .status()
            .map(drop)
    }

    /// Ends all that hold a file of these mounts open for writing, but for the agent, and waits for
    /// their end.
    fn end_writers(&self, busy: &[(u64, PathBuf)]) -> io::Result<()> {
        if busy.is_empty() {
            return Ok(());
        }
        let agent = sweep::children_of(self.init)?.first().copied();
        for process in sweep::descendants(self.init)
            .into_iter()
            .filter(|it| Some(*it) != agent)
        {
            // What is gone holds nothing; it is looked at after its descriptor is there, so it is
            // the one that is killed.
            let Ok(held) = pidfd_open(process, PidfdFlags::empty()) else {
                continue;
            };
            if !writes(process, busy) || pidfd_send_signal(&held, Signal::KILL).is_err() {
                continue;
            }
            tracing::info!(
                "process {process} is ended: it held a file open for writing when the gate closed"
            );
            let patience = Timespec::try_from(PATIENCE).map_err(io::Error::other)?;
            poll(&mut [PollFd::new(&held, PollFlags::IN)], Some(&patience))?;
        }
        Ok(())
    }
}

/// Sets mounts: the whole program behind the hidden subcommand. Its standard input is the mount
/// namespace.
pub fn gate_main() -> ExitCode {
    let mut arguments = std::env::args_os()
        .skip_while(|argument| argument != SUBCOMMAND)
        .skip(1);
    let closes = arguments.next().is_some_and(|order| order == CLOSE);
    if setns(io::stdin(), CloneFlags::CLONE_NEWNS).is_err() {
        return ExitCode::FAILURE;
    }
    let mut all = ExitCode::SUCCESS;
    while let (Some(flags), Some(path)) = (arguments.next(), arguments.next()) {
        let flags = flags
            .to_str()
            .and_then(|flags| flags.parse().ok())
            .map(MountFlags::from_bits_retain);
        let is_set =
            flags.is_some_and(|flags| set_read_only(Path::new(&path), flags, closes).is_ok());
        if !is_set {
            all = ExitCode::FAILURE;
        }
    }
    all
}

/// Tells whether a process holds a file of these mounts open for writing, by a descriptor or a
/// shared mapping.
fn writes(process: Pid, busy: &[(u64, PathBuf)]) -> bool {
    let described = fs::read_dir(format!("/proc/{process}/fdinfo"))
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let mut described = described.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    described.any(|info| {
        let flags = field(&info, "flags:")
            .and_then(|flags| u32::from_str_radix(flags, 8).ok())
            .unwrap_or_default();
        let mount = field(&info, "mnt_id:").and_then(|id| id.parse::<u64>().ok());
        flags & 3 != 0 && busy.iter().any(|(id, _)| Some(*id) == mount)
    }) || maps(process, busy)
}

/// Returns a field of what describes a descriptor.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let value = info.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim())
}

/// The fields of a mapping (`proc_pid_maps(5)`): addresses, rights, offset, device, inode, path.
fn maps(process: Pid, busy: &[(u64, PathBuf)]) -> bool {
    let mapped = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    mapped.lines().any(|line| {
        let rights = line.split(' ').nth(1).unwrap_or_default();
        let path = line.find('/').map(|at| &line[at..]);
        rights.ends_with('s')
            && path.is_some_and(|path| busy.iter().any(|(_, at)| Path::new(path).starts_with(at)))
    })
}
