//! The mounts of a command, made by the sandbox init itself: all of the machine, read-only but for
//! what the plan says.
//!
//! Works on a mount namespace that no other process shares. Nothing here touches a file: what is
//! protected is mounted on itself, so that it cannot be renamed or replaced, and what is hidden is
//! covered.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags, open, statx, symlink};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_remount,
};

use super::mount_table::{Mount, mounts};
use super::place::{find_itself, is_dir, open_itself, path_of};
use super::plan::{MountAccess, MountPlan};

/// The devices of a command: those that hold nothing of the machine.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// What says to `git` that nothing in a directory is its concern.
pub(super) const IGNORE: &str = ".gitignore";

type Done = Result<(), String>;

/// Makes the error of a step that the system refused. Fits behind "error: ".
fn cannot<E: Display>(verb: &'static str, path: impl AsRef<Path>) -> impl FnOnce(E) -> String {
    move |error| format!("cannot {verb} {}: {error}", path.as_ref().display())
}

/// Builds the file system of a command in a mount namespace of its own, and enters the workspace
/// there. Its shared memory holds at most `memory` bytes.
///
/// # Errors
/// The first step that the system refuses.
pub(super) fn build(plan: &MountPlan, workspace: &Path, memory: Option<u64>) -> Done {
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC)
        .map_err(cannot("make a mount namespace for", "/"))?;
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .map_err(cannot("part", "/"))?;
    let devices = open_devices()?;
    let find = |path| find_itself(path).map_err(cannot("look at", path));
    let covered = plan
        .mounts()
        .map(|(path, _)| path)
        .filter(|path| plan.is_covered(path));
    let mut covered: BTreeMap<_, _> = covered
        .map(|path| Ok((path, find(path)?)))
        .collect::<Result<_, String>>()?;
    let mut empty = None;
    for (path, access) in plan.mounts() {
        let source = access.source(path);
        if let Some(found) = covered.remove(path) {
            if let Some((found, stat)) = found {
                // Only what covers it is there by now.
                make_place(path, is_dir(&stat))?;
                mount_descriptor(&found, path)?;
            }
            continue;
        }
        let Some((found, stat)) = find(source)? else {
            continue;
        };
        // By its descriptor: no rename in between leads elsewhere.
        let itself = PathBuf::from(path_of(&found));
        match access {
            MountAccess::Write { .. } if source != path => mount_descriptor(&found, path),
            MountAccess::Write { .. } | MountAccess::Read => mount_descriptor(&found, &itself),
            MountAccess::Nothing { for_git }
                if is_dir(&stat) && (*for_git || plan.has_below(path)) =>
            {
                cover(&itself, path, *for_git)
            }
            MountAccess::Nothing { .. } if is_dir(&stat) => cover_with(&mut empty, &itself, path),
            MountAccess::Nothing { .. } => devices
                .first()
                .map_or(Ok(()), |null| mount_descriptor(null, &itself)),
        }?;
    }
    // Once for all: to list the mounts costs more than to make them.
    make_read_only(|mounted| !plan.is_writable(mounted))?;
    build_devices(&devices, memory)?;
    // Not even root writes to the kernel there, and only processes of the command are seen.
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(cannot("mount", "/proc"))?;
    // This process still stands in the file system as it was before.
    let entered =
        open_itself(workspace).and_then(|(workspace, _)| rustix::process::fchdir(workspace));
    entered.map_err(cannot("enter", workspace))
}

/// Makes an empty directory or file, on which another can be mounted.
fn make_place(path: &Path, is_dir: bool) -> Done {
    let folder = if is_dir { Some(path) } else { path.parent() };
    folder
        .map_or(Ok(()), std::fs::create_dir_all)
        .map_err(cannot("make", path))?;
    if is_dir {
        return Ok(());
    }
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    open(path, flags, Mode::from_raw_mode(0o600))
        .map(drop)
        .map_err(cannot("make", path))
}

fn open_devices() -> Result<Vec<OwnedFd>, String> {
    DEVICES
        .iter()
        .map(|name| {
            let path = Path::new("/dev").join(name);
            open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(cannot("open", path))
        })
        .collect()
}

/// Mounts what a descriptor stands for, whatever covers its path by now. Mounted on itself, it is
/// neither renamed nor replaced.
fn mount_descriptor(from: &OwnedFd, at: &Path) -> Done {
    mount_bind_recursive(path_of(from), at).map_err(cannot("mount", at))
}

/// Covers a directory with an empty one, which is made read-only with all the rest. `for_git`:
/// `git` is told to leave it alone, since `git clean` would fail to remove what it takes for an
/// empty directory.
fn cover(found: &Path, path: &Path, for_git: bool) -> Done {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("hidden", found, "tmpfs", flags, Some(c"size=4k,mode=0700"))
        .map_err(cannot("hide", path))?;
    if for_git {
        let ignore = path.join(IGNORE);
        let made = open(
            &ignore,
            OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o400),
        );
        made.and_then(|file| rustix::io::write(file, b"*\n"))
            .map_err(cannot("make", ignore))?;
    }
    Ok(())
}

/// Covers a directory with an empty one that serves for all: to make a file system costs more than
/// to mount one again.
fn cover_with(empty: &mut Option<OwnedFd>, found: &Path, path: &Path) -> Done {
    if let Some(empty) = empty {
        return mount_descriptor(empty, found);
    }
    cover(found, path, false)?;
    // Where it is mounted again, it is read-only from the beginning. If that fails, it is made so
    // with all the rest.
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    if set_read_only(path, flags, true).is_ok() {
        // Another command can have moved it meanwhile: then each has its own.
        *empty = open_itself(path)
            .ok()
            .map(|(covering, _)| covering)
            .filter(is_top_of_mount);
    }
    Ok(())
}

fn is_top_of_mount(covering: &OwnedFd) -> bool {
    let known = statx(covering, "", AtFlags::EMPTY_PATH, StatxFlags::empty());
    known.is_ok_and(|known| known.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Makes everything read-only that is mounted at certain paths.
fn make_read_only(at: impl Fn(&Path) -> bool) -> Done {
    let listed = mounts().map_err(cannot("read", "/proc/self/mountinfo"))?;
    for (path, mounted) in reached(&listed, at)
        .into_iter()
        .filter(|(_, mounted)| !mounted.is_read_only)
    {
        match set_read_only(path, mounted.flags, true) {
            // No path leads there: something covers it, or this user may not.
            Ok(())
            | Err(Errno::INVAL | Errno::ACCESS | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => return Err(cannot("make read-only", path)(errno)),
        }
    }
    Ok(())
}

/// Returns what is mounted at certain paths, with the flags that must stay. Of several at one path
/// only the last is reached, and a flag of it that is locked must stay: one too many does not hurt.
pub(super) fn reached(listed: &[Mount], at: impl Fn(&Path) -> bool) -> BTreeMap<&Path, Mount> {
    let mut reached: BTreeMap<&Path, Mount> = BTreeMap::new();
    for mounted in listed.iter().filter(|mounted| at(&mounted.at)) {
        let mut top = mounted.clone();
        top.flags |= reached
            .get(mounted.at.as_path())
            .map_or(MountFlags::empty(), |below| below.flags);
        reached.insert(&mounted.at, top);
    }
    reached
}

/// Lets what is mounted at a path be written, or not. The kernel refuses with `EBUSY` while a file
/// there is open for writing.
pub(super) fn set_read_only(
    path: &Path,
    flags: MountFlags,
    is_read_only: bool,
) -> rustix::io::Result<()> {
    let read_only = if is_read_only {
        MountFlags::RDONLY
    } else {
        MountFlags::empty()
    };
    mount_remount(path, flags | MountFlags::BIND | read_only, c"")
}

/// A `/dev` with the devices that every program expects, terminals and shared memory of its own,
/// and nothing else: root could write to a disk by its device.
fn build_devices(devices: &[OwnedFd], memory: Option<u64>) -> Done {
    let dev = Path::new("/dev");
    let tmpfs = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("dev", dev, "tmpfs", tmpfs, Some(c"mode=0755,size=64k")).map_err(cannot("mount", dev))?;
    for (name, device) in DEVICES.iter().zip(devices) {
        let path = dev.join(name);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        drop(open(&path, flags, Mode::from_raw_mode(0o600)).map_err(cannot("make", &path))?);
        mount_descriptor(device, &path)?;
    }
    for (target, name) in [
        ("/proc/self/fd", "fd"),
        ("fd/0", "stdin"),
        ("fd/1", "stdout"),
        ("fd/2", "stderr"),
        ("pts/ptmx", "ptmx"),
    ] {
        symlink(target, dev.join(name)).map_err(cannot("make", dev.join(name)))?;
    }
    let own = MountFlags::NOSUID | MountFlags::NODEV;
    let shared = memory.map_or_else(
        || "mode=1777".to_owned(),
        |most| format!("mode=1777,size={most}"),
    );
    let folders = [
        (
            "pts",
            "devpts",
            MountFlags::NOSUID | MountFlags::NOEXEC,
            "newinstance,ptmxmode=0666,mode=0620",
        ),
        ("shm", "tmpfs", own, &shared),
    ];
    for (name, kind, flags, options) in folders {
        let path = dev.join(name);
        rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755)).map_err(cannot("make", &path))?;
        let options = CString::new(options).unwrap_or_default();
        mount(kind, &path, kind, flags, Some(options.as_c_str())).map_err(cannot("mount", path))?;
    }
    mount_remount(dev, tmpfs | MountFlags::BIND | MountFlags::RDONLY, c"")
        .map_err(cannot("make read-only", dev))
}
