//! The identity of a command: a user of the same number in a user namespace of its own, without any
//! capability.

use std::fs::OpenOptions;
use std::io::{self, Write};

use nix::sched::{CloneFlags, unshare};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
};

/// What the sandbox init needs to build the sandbox, and the helper of a live gate to change it.
/// All of it is gone when `bash` begins.
const NEEDED: [CapabilitySet; 7] = [
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::NET_ADMIN,
    // For the listeners of an agent, which can have a port below 1024.
    CapabilitySet::NET_BIND_SERVICE,
    CapabilitySet::SETPCAP,
    // A command may have closed a directory, which another one opens again: what is in it is
    // protected all the same.
    CapabilitySet::DAC_READ_SEARCH,
    // To enter the mount namespace of the sandbox again, for the gate of an agent.
    CapabilitySet::SYS_CHROOT,
    // For the counts of this user namespace.
    CapabilitySet::SYS_RESOURCE,
];

/// Enters a user namespace in which the user keeps its number, and lets the next child be the first
/// process of a pid namespace. That child has the capabilities to build its sandbox, within that
/// user namespace only.
///
/// # Errors
/// The system's error: namespaces are not to be had, or the maps may not be written.
pub(super) fn enter_user_and_pid_namespace() -> io::Result<()> {
    enter_user_namespace(CloneFlags::CLONE_NEWPID)?;
    let sets = capabilities(None)?;
    set_capabilities(
        None,
        CapabilitySets {
            inheritable: sets.permitted,
            ..sets
        },
    )?;
    // A user whose number is not 0 would lose them at `exec`.
    NEEDED
        .into_iter()
        .try_for_each(|capability| configure_capability_in_ambient_set(capability, true))?;
    Ok(())
}

/// Enters a user namespace in which the user keeps its number, and such other ones with it.
///
/// # Errors
/// The system's error: namespaces are not to be had, or the maps may not be written.
pub(super) fn enter_user_namespace(others: CloneFlags) -> io::Result<()> {
    let user = geteuid().as_raw();
    let group = getegid().as_raw();
    unshare(CloneFlags::CLONE_NEWUSER | others)?;
    // `user_namespaces(7)`: without this an unprivileged process may not map its group.
    put("/proc/self/setgroups", "deny")?;
    put("/proc/self/gid_map", &format!("{group} {group} 1"))?;
    put("/proc/self/uid_map", &format!("{user} {user} 1"))?;
    Ok(())
}

/// What the kernel counts for a user over all its programs (`user_namespaces(7)`, `inotify(7)`),
/// with the file that says how much of it a user may have, where there is one.
const COUNTED: [(&str, &str); 3] = [
    (
        "max_inotify_instances",
        "/proc/sys/fs/inotify/max_user_instances",
    ),
    (
        "max_inotify_watches",
        "/proc/sys/fs/inotify/max_user_watches",
    ),
    (
        "max_fanotify_groups",
        "/proc/sys/fs/fanotify/max_user_groups",
    ),
];

/// The share of that which one command may have.
const SHARE: u64 = 4;

/// Leaves the user's other programs most of what the kernel counts for all of them together. Where
/// `/proc/sys` cannot be written (in containers), nothing is changed.
pub(super) fn share_counts() {
    for (name, most) in COUNTED {
        let most = std::fs::read_to_string(most)
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok());
        if let Some(most) = most
            && let Err(error) = put(
                &format!("/proc/sys/user/{name}"),
                &(most / SHARE).max(1).to_string(),
            )
        {
            tracing::debug!("cannot limit {name} for a command: {error}");
        }
    }
}

/// Writes a setting of the kernel.
///
/// # Errors
/// The system's error.
pub(super) fn put(file: &str, text: &str) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .open(file)?
        .write_all(text.as_bytes())
}

/// Gives up every capability for good. Root is then only a user that owns many files.
///
/// # Errors
/// The system's error.
pub(super) fn drop_capabilities() -> io::Result<()> {
    // An unprivileged user outside a namespace may not, and has none to gain: `no_new_privs` sees
    // to that.
    if capabilities(None)?
        .effective
        .contains(CapabilitySet::SETPCAP)
    {
        for number in 0..64 {
            let capability = CapabilitySet::from_bits_retain(1 << number);
            match remove_capability_from_bounding_set(capability) {
                // It is the last one that the kernel knows.
                Err(Errno::INVAL) => break,
                removed => removed?,
            }
        }
    }
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    Ok(set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?)
}
