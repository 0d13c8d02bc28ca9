//! The sandbox init: `team-worker init FD WORKSPACE COMMAND`, the process between shim and `bash`.
//! It restricts itself, and with that all that it starts. It begins in `/` without an environment:
//! that of the command is for `bash` alone. Its standard input is the pipe on which the shim reads
//! its report; `bash` gets none.
//!
//! In a pid namespace it is the first process: it stays, reaps, and tells how `bash` ended; with
//! it, everything in the namespace ends. Without one `bash` takes its place. It must never run
//! `bash` when a promised layer fails.

use std::fmt::Display;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use rustix::process::{Pid, WaitOptions};
use teamd_shared::member::Gate;
use teamd_shared::process::{close_inherited, deny_tracing};
use teamd_shared::sandbox::Namespaces;

use super::plan::MountPlan;
use super::policy::Policy;
use super::seccomp::AllowedCalls;
use super::{gate, identity, landlock, loopback, mounts, seccomp};
use crate::agent_stdio::AgentStdio;
use crate::bounds;
use crate::shim::{Report, ShimJob, ShimOrder, ShimProgram};

/// The hidden subcommand under which the worker's program is the sandbox init.
pub const SUBCOMMAND: &str = "init";

/// Processes that the kernel lets be beside those that a command may have: shim, sandbox init, and
/// some that the shim still counts before it ends the whole. A program that is refused a fork says
/// less of why.
const SPARE: u32 = 2 + 16;

/// Confines one command: the whole program behind the hidden subcommand.
pub fn init_main() -> ExitCode {
    let report = ShimJob::inherited(SUBCOMMAND)
        .and_then(run)
        .unwrap_or_else(Report::failed);
    // A shim that does not read it sees this process end without a report.
    match report.send(io::stdin()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(job: ShimJob) -> Result<Report, String> {
    let ShimJob {
        order,
        variables,
        workspace,
        command,
        ..
    } = &job;
    let stdio = order
        .agent()
        .map(|_| AgentStdio::receive(io::stdout()))
        .transpose();
    let stdio =
        stdio.map_err(|error| format!("cannot take what the agent reads and writes: {error}"))?;
    let opened = stdio
        .iter()
        .flat_map(|stdio| [stdio.input.as_raw_fd(), stdio.errors.as_raw_fd()]);
    let mut kept = job.descriptors();
    kept.extend(opened);
    close_inherited(&kept).map_err(|error| format!("cannot close what it inherited: {error}"))?;
    let namespaces = order
        .policy
        .as_ref()
        .map_or(Namespaces::None, |policy| policy.layers.namespaces);
    // Open until this process ends.
    let mut held = None;
    if let Some(policy) = &order.policy {
        held = enclose(policy, workspace, order)?;
        bounds::share_with_the_user().map_err(cannot_limit)?;
    }
    // In a user namespace of its own the kernel counts the processes of this command alone, with
    // shim and sandbox init.
    let spare = (namespaces == Namespaces::Own).then_some(SPARE);
    bounds::put_on(&order.bounds, spare).map_err(cannot_limit)?;
    let (mut bash, what) = match (&order.program, stdio) {
        (ShimProgram::Agent(agent), Some(stdio)) => (
            variables.agent(&agent.command, stdio),
            agent.command[0].as_str(),
        ),
        (ShimProgram::Own(arguments), _) => (own_program(arguments), "team-worker"),
        _ => (variables.command(command, workspace), "bash"),
    };
    if namespaces == Namespaces::None {
        let error = bash.current_dir(workspace).exec();
        return Err(format!("cannot start {what}: {error}"));
    }
    // Nothing in the sandbox reads the memory or the descriptors of its first process.
    deny_tracing();
    let started = bash.spawn();
    let started = started.map_err(|error| format!("cannot start {what}: {error}"))?;
    // Its own copies of what an agent reads and writes are closed.
    drop(bash);
    if order.agent().is_some() {
        // What the agent writes to ends when the agent closes it.
        let nothing =
            File::open("/dev/null").map_err(|error| format!("cannot open /dev/null: {error}"))?;
        let given_up = rustix::stdio::dup2_stdout(&nothing)
            .and_then(|()| rustix::stdio::dup2_stderr(&nothing));
        given_up.map_err(|errno| format!("cannot close the output of the agent: {errno}"))?;
        // The report is read behind it: the shim only sees that something is there, and that the
        // mounts stand.
        rustix::io::write(io::stdin(), b"\n")
            .map_err(|errno| format!("cannot tell the shim: {errno}"))?;
    }
    let ended = await_end(Pid::from_child(&started))
        .map_err(|error| format!("cannot wait for bash: {error}"));
    drop(held);
    ended
}

/// Makes the command line of this program under a hidden subcommand, without variables and input.
fn own_program(arguments: &[String]) -> Command {
    let mut own = Command::new("/proc/self/exe");
    own.args(arguments).env_clear().stdin(Stdio::null());
    own
}

/// Where a program of Node listens for a debugger when it gets SIGUSR1.
const DEBUGGER: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 9229);

/// Puts on every layer, the outermost first. Returns what must be held open as long as the command
/// runs.
fn enclose(
    policy: &Policy,
    workspace: &Path,
    order: &ShimOrder,
) -> Result<Option<TcpListener>, String> {
    let plan = MountPlan::of(policy);
    if policy.layers.namespaces == Namespaces::Own {
        // The shim is the only process that would end it.
        set_pdeathsig(Signal::SIGKILL).map_err(cannot("parent"))?;
        if !policy.network {
            if order.localhost.is_none() {
                unshare(CloneFlags::CLONE_NEWNET).map_err(cannot("network"))?;
                loopback::bring_up().map_err(cannot("network"))?;
            }
            order
                .listen
                .as_ref()
                .map_or(Ok(()), loopback::listen)
                .map_err(cannot("network"))?;
        }
        identity::share_counts();
        mounts::build(&plan, workspace, order.bounds.memory).map_err(cannot("mounts"))?;
        if order
            .agent()
            .is_some_and(|agent| agent.live_gate == Some(Gate::Closed))
        {
            gate::begin_closed(&plan, policy).map_err(cannot("gate"))?;
        }
    }
    // What an agent has started could debug it, and speak as the agent. Where it has a network of
    // its own, no program can listen there.
    let mut held = None;
    if order.agent().is_some() && policy.has_mounts() && !policy.network {
        held = hold_debugger().map_err(cannot("network"))?;
    }
    // No other process moves anything in these mounts: what is found now is what is written.
    policy
        .all_writable()
        .try_for_each(|writable| writable.place.check(&writable.at))?;
    if policy.has_mounts() {
        plan.check()?;
    }
    rustix::thread::set_no_new_privs(true).map_err(cannot("no_new_privs"))?;
    identity::drop_capabilities().map_err(cannot("capabilities"))?;
    if policy.layers.landlock > 0 {
        landlock::restrict(policy).map_err(cannot("Landlock"))?;
    }
    if policy.layers.seccomp {
        let calls = AllowedCalls {
            // In a network namespace of its own, a command reaches only itself.
            sockets: policy.network || policy.has_mounts(),
            shared: !policy.has_mounts(),
            // Without mounts nothing else keeps it from changing modes of files outside.
            metadata: policy.has_mounts() || !policy.writable.is_empty(),
            // Databases use that signal: it is refused only where nothing else helps.
            debugs: order.agent().is_none() || held.is_some(),
        };
        seccomp::restrict(calls).map_err(cannot("seccomp"))?;
    }
    Ok(held)
}

fn cannot_limit(error: io::Error) -> String {
    format!("cannot put limits on it: {error}")
}

/// Listens there itself; none if the gateway does, for a port that the user has listed.
fn hold_debugger() -> io::Result<Option<TcpListener>> {
    match TcpListener::bind(DEBUGGER) {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

fn cannot<E: Display>(what: &'static str) -> impl FnOnce(E) -> String {
    move |error| format!("cannot confine it: {what}: {error}")
}

/// Reaps all that ends here, until `bash` does.
fn await_end(bash: Pid) -> io::Result<Report> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == bash => {
                return Ok(Report::exited(Some(status)));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
