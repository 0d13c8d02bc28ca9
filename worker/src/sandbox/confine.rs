//! The helper between keeper and `bash`: `team-worker confine FD POLICY COMMAND BOUNDS`. It restricts itself, and with that
//! all that it starts. It begins in `/` without an environment: that of the command ([`crate::variables`]) is for `bash` alone.
//! Its standard input is the pipe on which the keeper hears its verdict; `bash` gets none.
//!
//! In a pid namespace it is the first process: it stays, reaps, and tells how `bash` ended; with it, everything in the
//! namespace ends. Without one `bash` takes its place. It must never run `bash` when a promised layer fails.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::ExitCode;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use rustix::process::{Pid, WaitOptions};
use teamd_shared::member::Bounds;
use teamd_shared::process::{close_inherited, deny_tracing};
use teamd_shared::sandbox::Namespaces;

use super::policy::Policy;
use super::syscalls::Calls;
use super::{Verdict, files, guarded, identity, mounts, network, syscalls};
use crate::bounds;
use crate::variables::Variables;

/// Processes that the kernel lets be beside those that a command may have: keeper, helper, and some that the keeper still
/// counts before it ends the whole. A program that is refused a fork says less of why.
const SPARE: u32 = 2 + 16;

/// Confines one command: the whole program behind the hidden subcommand.
pub(crate) fn confine_main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(2).collect();
    let verdict = match run(&arguments) {
        Ok(ended) => ended,
        Err(why) => Verdict::Refused(why),
    };
    let text = serde_json::to_vec(&verdict).unwrap_or_default();
    // Who does not hear it sees this process end without a verdict.
    match rustix::io::write(io::stdin(), &text) {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(arguments: &[OsString]) -> Result<Verdict, String> {
    let [descriptor, policy, command, bounds] = arguments else {
        return Err("the helper wants a descriptor, a policy, a command and its bounds".to_owned());
    };
    let descriptor = descriptor.to_str().and_then(|number| number.parse().ok());
    let descriptor = descriptor.ok_or("the helper wants a descriptor first")?;
    let variables = Variables::take(descriptor)
        .map_err(|error| format!("cannot read the variables of the command: {error}"))?;
    let policy: Policy = serde_json::from_slice(policy.as_encoded_bytes())
        .map_err(|error| format!("the helper does not understand its policy: {error}"))?;
    close_inherited(None).map_err(|error| format!("cannot close what it inherited: {error}"))?;
    let bounds: Bounds = serde_json::from_slice(bounds.as_encoded_bytes())
        .map_err(|error| format!("the helper does not understand the bounds: {error}"))?;
    enclose(&policy, bounds.memory)?;
    // In a user namespace of its own the kernel counts the processes of this command alone, with keeper and helper.
    let spare = (policy.layers.namespaces == Namespaces::Own).then_some(SPARE);
    bounds::share_with_the_user().map_err(|error| format!("cannot put limits on it: {error}"))?;
    bounds::put_on(&bounds, spare).map_err(|error| format!("cannot put limits on it: {error}"))?;
    let mut bash = variables.command(command, &policy.workspace);
    let cannot = |error: io::Error| format!("cannot start bash: {error}");
    if policy.layers.namespaces == Namespaces::None {
        return Err(cannot(bash.exec()));
    }
    // Nothing in the sandbox reads the memory or the descriptors of its first process.
    deny_tracing();
    let started = bash.spawn().map_err(cannot)?;
    await_end(Pid::from_child(&started)).map_err(|error| format!("cannot wait for bash: {error}"))
}

/// Puts on every layer, the outermost first.
fn enclose(policy: &Policy, memory: Option<u64>) -> Result<(), String> {
    let cannot = |what: &'static str| {
        move |error: &dyn std::fmt::Display| format!("cannot confine it: {what}: {error}")
    };
    if policy.layers.namespaces == Namespaces::Own {
        // The keeper is the only one that would end it.
        set_pdeathsig(Signal::SIGKILL).map_err(|error| cannot("parent")(&error))?;
        if !policy.network {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
                .map_err(|error| cannot("network")(&error))?;
            network::bring_loopback_up().map_err(|error| cannot("network")(&error))?;
        }
        identity::share_counts();
        mounts::build(policy, memory).map_err(|error| cannot("mounts")(&error))?;
    }
    if policy.layers.namespaces == Namespaces::None {
        rustix::process::chdir(&policy.workspace).map_err(|error| cannot("workspace")(&error))?;
    }
    // In mounts of its own nobody moves anything any more: what is found now is what is written.
    let parted = policy.layers.namespaces != Namespaces::None;
    for known in &policy.known {
        let at_tmp = parted && policy.private_tmp && known.path() == policy.temp;
        known.check(if at_tmp { Path::new("/tmp") } else { known.path() })?;
    }
    if parted {
        guarded::check(policy)?;
    }
    rustix::thread::set_no_new_privs(true).map_err(|error| cannot("no_new_privs")(&error))?;
    identity::drop_capabilities().map_err(|error| cannot("capabilities")(&error))?;
    if policy.layers.landlock > 0 {
        files::restrict(policy).map_err(|error| cannot("Landlock")(&error))?;
    }
    if policy.layers.seccomp {
        let calls = Calls {
            // In a network namespace of its own, a command reaches only itself.
            sockets: policy.network || parted,
            shared: !parted,
            // Without mounts nothing else keeps it from changing modes of files outside.
            metadata: parted || policy.writes(),
        };
        syscalls::restrict(calls).map_err(|error| cannot("seccomp")(&error))?;
    }
    Ok(())
}

/// Reaps all that ends here, until `bash` does.
fn await_end(bash: Pid) -> io::Result<Verdict> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == bash => {
                return Ok(Verdict::Ended {
                    code: status.exit_status(),
                    signal: status.terminating_signal(),
                });
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
