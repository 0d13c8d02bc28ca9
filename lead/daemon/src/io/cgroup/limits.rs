//! The limits that hold for all processes of an incarnation together, where the daemon can delegate
//! the kernel's controllers.
//!
//! A cgroup that delegates a controller may hold no process of its own (but the topmost one). So
//! the daemon moves into a cgroup of its own, if it is alone in its cgroup. In a service it does
//! not: the service manager could not start the next daemon there while workers live. No error here
//! fails a spawn: a limit that is not held here is held for each process.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::retry_on_intr;
use teamd_shared::cgroup::{CgroupPlace, CgroupRights, DAEMON, path_in};
use teamd_shared::member::Bounds;

/// Memory beyond the limit, in bytes: for the worker itself and its shims.
const SPARE_MEMORY: u64 = 128 << 20;
/// Threads and processes beyond the limit: the worker's, its shims and their helpers.
const SPARE_PROCS: u32 = 64;

/// How much of the processors a check gets beside a teammate, which has 100.
const WEIGHT_OF_CHECK: u32 = 1000;

/// The controllers that may be delegated.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

/// Returns how many bytes of memory all processes together may have. (The kernel ends a process
/// that takes too much alone: `memory.oom.group` is 0 in a new cgroup.)
pub(super) fn memory(bounds: &Bounds) -> Option<u64> {
    bounds.memory.map(|most| most.saturating_add(SPARE_MEMORY))
}

/// Returns how many threads and processes there may be.
pub(super) fn procs(bounds: &Bounds) -> Option<u64> {
    bounds
        .max_procs
        .map(|most| most.saturating_add(SPARE_PROCS).into())
}

/// Sets the limits of a new cgroup, and tells which of them hold: memory, processes.
pub(super) fn hold(
    place: &CgroupPlace,
    team: &Path,
    folder: &Path,
    bounds: &Bounds,
) -> (bool, bool) {
    let set = |controller: &str, file: &str, most: u64| {
        let set = delegate(place, team, controller).and_then(|is_delegated| {
            if is_delegated {
                write(&folder.join(file), &most.to_string())?;
            }
            Ok(is_delegated)
        });
        set.unwrap_or_else(|error| {
            tracing::info!("no cgroup holds the limit of {controller}: {error}");
            false
        })
    };
    let memory =
        memory(bounds).is_some_and(|most| set("memory", "memory.max", most) && no_swap(folder));
    (
        memory,
        procs(bounds).is_some_and(|most| set("pids", "pids.max", most)),
    )
}

/// Lets the processes of a check run before those of teammates, where more want the processors than
/// there are.
pub(super) fn prefer(place: &CgroupPlace, team: &Path, folder: &Path) {
    let preferred = delegate(place, team, "cpu").and_then(|is_delegated| {
        if is_delegated {
            write(&folder.join("cpu.weight"), &WEIGHT_OF_CHECK.to_string())?;
        }
        Ok(())
    });
    if let Err(error) = preferred {
        tracing::info!("checks run beside teammates, and not before them: {error}");
    }
}

/// Lets a cgroup use no swap, so that the limit of its memory is the limit of the sum. Tells
/// whether that holds.
fn no_swap(folder: &Path) -> bool {
    match write(&folder.join("memory.swap.max"), "0") {
        Ok(()) => true,
        // The kernel does not account for swap.
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => {
            tracing::info!("no cgroup holds the limit of memory: {error}");
            false
        }
    }
}

/// Delegates a controller to the cgroups of incarnations. Returns false if the daemon may not.
fn delegate(place: &CgroupPlace, team: &Path, controller: &str) -> io::Result<bool> {
    if lists(&fs::read_to_string(subtree_control(team))?, controller) {
        return Ok(true);
    }
    let ours = place.standing == CgroupRights::Delegated && !place.is_a_service();
    if !ours || !lists(&place.controllers, controller) {
        return Ok(false);
    }
    let order = format!("+{controller}");
    match write(&subtree_control(&place.folder), &order) {
        Err(error) if is_busy(&error) => {
            if !make_way(place, team)? {
                return Ok(false);
            }
            write(&subtree_control(&place.folder), &order)?;
        }
        other => other?,
    }
    write(&subtree_control(team), &order)?;
    Ok(true)
}

fn lists(controllers: &str, controller: &str) -> bool {
    controllers
        .split_ascii_whitespace()
        .any(|it| it == controller)
}

fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error())
}

/// Moves this process into a cgroup of its own, if it is alone in its cgroup.
fn make_way(place: &CgroupPlace, team: &Path) -> io::Result<bool> {
    let own = std::process::id().to_string();
    if !fs::read_to_string(place.folder.join("cgroup.procs"))?
        .lines()
        .eq([own.as_str()])
    {
        return Ok(false);
    }
    let daemon = team.join(DAEMON);
    match fs::create_dir(&daemon) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    write(&daemon.join("cgroup.procs"), &own)?;
    Ok(true)
}

/// Moves this process back to its first cgroup, if it had made way, so that the cgroup of the team
/// can be removed.
pub(super) fn come_back(place: &CgroupPlace, team: &Path) -> io::Result<()> {
    let stands = fs::read_to_string("/proc/self/cgroup")?;
    let away = team.file_name().map(|name| Path::new(name).join(DAEMON));
    if !path_in(&stands).is_some_and(|path| {
        away.as_ref()
            .is_some_and(|away| Path::new(path).ends_with(away))
    }) {
        return Ok(());
    }
    for folder in [team, &place.folder] {
        for controller in CONTROLLERS {
            // The kernel refuses this for a controller that is not delegated.
            if let Err(error) = write(
                &folder.join("cgroup.subtree_control"),
                &format!("-{controller}"),
            ) {
                tracing::debug!(
                    "{controller} stays delegated below {}: {error}",
                    folder.display()
                );
            }
        }
    }
    write(
        &place.folder.join("cgroup.procs"),
        &std::process::id().to_string(),
    )
}

/// Writes to a file of a cgroup, in one write: each write is an order to the kernel, and the rest
/// of one would be another order (half a pid is the pid of another process). No file is made.
///
/// # Errors
/// The system's error, or that the kernel took only a part.
pub(super) fn write(file: &Path, order: &str) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(file)?;
    let taken = retry_on_intr(|| rustix::io::write(&file, order.as_bytes()))?;
    if taken == order.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

fn subtree_control(folder: &Path) -> PathBuf {
    folder.join("cgroup.subtree_control")
}
