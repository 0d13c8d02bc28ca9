//! The limits that hold for all processes of a teammate together, where the kernel's controllers for them can be handed on.
//!
//! A cgroup that hands a controller on may hold no process of its own (but the topmost one): so the daemon, which stands there,
//! makes way, into a cgroup of its own, if it is alone. In a service it does not: the service manager could not start the
//! next daemon there while workers live. Nothing here may fail a life: what is not held here, each process is held to.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use rustix::io::retry_on_intr;
use teamd_shared::cgroup::{DAEMON, Place, Standing, path_in};
use teamd_shared::member::Bounds;

/// Memory beyond the limit, in bytes: for the worker itself and its keepers.
const SPARE_MEMORY: u64 = 128 << 20;
/// Threads and processes beyond the limit: the worker's, its keepers and their helpers.
const SPARE_PROCS: u32 = 64;

/// What is written to hold a life to a limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Limit {
    controller: &'static str,
    /// File and value, in this order. What is not there where it says so, the kernel does not know.
    files: Vec<(&'static str, String, Needed)>,
}

/// Whether a limit is held without a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needed {
    Yes,
    IfThere,
}

/// Says what is to be written for a limit of memory: its sum without swap. (A process that takes too much is ended
/// alone: `memory.oom.group` is 0 in a new cgroup.)
pub(super) fn memory(bounds: &Bounds) -> Option<Limit> {
    let most = bounds.memory?.saturating_add(SPARE_MEMORY).to_string();
    let files = vec![("memory.swap.max", "0".to_owned(), Needed::IfThere), ("memory.max", most, Needed::Yes)];
    Some(Limit { controller: "memory", files })
}

/// Says what is to be written for a limit of processes.
pub(super) fn procs(bounds: &Bounds) -> Option<Limit> {
    let most = bounds.max_procs?.saturating_add(SPARE_PROCS).to_string();
    Some(Limit { controller: "pids", files: vec![("pids.max", most, Needed::Yes)] })
}

/// Holds a life, whose cgroup is made and empty, to its limits as a whole; tells which are held: memory, processes.
pub(super) fn hold(place: &Place, team: &Path, folder: &Path, bounds: &Bounds) -> (bool, bool) {
    let held = |limit: Option<Limit>| {
        let Some(limit) = limit else { return false };
        let held = hand_on(place, team, limit.controller)
            .and_then(|handed| if handed { limit.write(folder).map(|()| true) } else { Ok(false) });
        held.unwrap_or_else(|error| {
            tracing::info!("no cgroup holds the limit of {}: {error}", limit.controller);
            false
        })
    };
    (held(memory(bounds)), held(procs(bounds)))
}

impl Limit {
    fn write(&self, folder: &Path) -> io::Result<()> {
        for (file, value, needed) in &self.files {
            match write(&folder.join(file), value) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && *needed == Needed::IfThere => {}
                other => other?,
            }
        }
        Ok(())
    }
}

/// Hands a controller on to the lives of the team; false if it is not this daemon's to give.
fn hand_on(place: &Place, team: &Path, controller: &str) -> io::Result<bool> {
    let control = |folder: &Path| folder.join("cgroup.subtree_control");
    if lists(&fs::read_to_string(control(team))?, controller) {
        return Ok(true);
    }
    let ours = place.standing == Standing::Delegated && !place.is_a_service();
    if !ours || !lists(&place.controllers, controller) {
        return Ok(false);
    }
    let order = format!("+{controller}");
    match write(&control(&place.folder), &order) {
        Err(error) if is_busy(&error) => {
            if !make_way(place, team)? {
                return Ok(false);
            }
            write(&control(&place.folder), &order)?;
        }
        other => other?,
    }
    write(&control(team), &order)?;
    Ok(true)
}

fn lists(controllers: &str, controller: &str) -> bool {
    controllers.split_ascii_whitespace().any(|it| it == controller)
}

fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error())
}

/// Has this process go into a cgroup of its own, if it is alone where it stands.
fn make_way(place: &Place, team: &Path) -> io::Result<bool> {
    let own = std::process::id().to_string();
    if !fs::read_to_string(place.folder.join("cgroup.procs"))?.lines().eq([own.as_str()]) {
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

/// Has this process go back to where it stood, if it had made way: so that the cgroup of the team can be removed.
pub(super) fn come_back(place: &Place, team: &Path) -> io::Result<()> {
    let stands = fs::read_to_string("/proc/self/cgroup")?;
    let away = team.file_name().map(|name| Path::new(name).join(DAEMON));
    let is_away = |path: &str| away.as_ref().is_some_and(|away| Path::new(path).ends_with(away));
    if !path_in(&stands).is_some_and(is_away) {
        return Ok(());
    }
    for folder in [team, &place.folder] {
        for controller in ["memory", "pids"] {
            // One that is not handed on is refused, and need not be taken back.
            if let Err(error) = write(&folder.join("cgroup.subtree_control"), &format!("-{controller}")) {
                tracing::debug!("{controller} stays with what is below {}: {error}", folder.display());
            }
        }
    }
    write(&place.folder.join("cgroup.procs"), &std::process::id().to_string())
}

/// Writes to a file of a cgroup, in one write: each is an order to the kernel, and the rest of one would be another (half a
/// pid is somebody's). No file is made.
///
/// # Errors
/// The system's error, or that the kernel took only a part.
pub(super) fn write(file: &Path, order: &str) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(file)?;
    let taken = retry_on_intr(|| rustix::io::write(&file, order.as_bytes()))?;
    if taken == order.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
