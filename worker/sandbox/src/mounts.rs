//! The mounts of a command, made by the sandbox init itself: all of the machine, read-only except
//! for what the plan says.
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
use rustix::fs::{
    AtFlags, Mode, OFlags, Stat, StatVfsMountFlags, StatxAttributes, StatxFlags, fstatvfs, open,
    statx, symlink,
};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_remount,
};

use super::mount_table::{Mount, mounts};
use super::place::{find_itself, find_link, is_dir, open_itself, path_of};
use super::plan::{MountAccess, MountPlan};

/// The devices of a command: those that hold nothing of the machine.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// What says to `git` that nothing in a directory is its concern.
pub(super) const IGNORE: &str = ".gitignore";

type Done = Result<(), String>;

/// Makes the error of a step that the system refused. Fits behind "error: ".
fn cannot<E: Display>(verb: &'static str, path: impl AsRef<Path>) -> impl Fn(E) -> String {
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
    let mut covered = BTreeMap::new();
    for (path, _) in plan.mounts().filter(|(path, _)| plan.is_covered(path)) {
        covered.insert(path, Covered::find(path)?);
    }
    let null = devices.first().ok_or("there is no /dev/null")?;
    let mut covers = Covers {
        null,
        folder: None,
        file: None,
    };
    for (path, access) in plan.mounts() {
        let source = access.source(path);
        if let Some(covered) = covered.remove(path) {
            covered.show(path)?;
            continue;
        }
        let Some((opened, stat)) = find_itself(source).map_err(cannot("look at", source))? else {
            continue;
        };
        // By its descriptor: no rename in between leads elsewhere.
        let itself = PathBuf::from(path_of(&opened));
        match access {
            MountAccess::Write { .. } if source != path => mount_descriptor(&opened, path),
            MountAccess::Write { .. } | MountAccess::Read => mount_descriptor(&opened, &itself),
            MountAccess::Nothing { for_git }
                if is_dir(&stat) && (*for_git || plan.has_below(path)) =>
            {
                cover(&itself, path, *for_git)
            }
            MountAccess::Nothing { .. } if is_dir(&stat) => covers.cover_folder(&itself, path),
            MountAccess::Nothing { .. } => covers.cover_file(&itself, path),
        }?;
    }
    // Once for all: to list the mounts costs more than to make them.
    make_read_only(|mounted| !plan.is_writable(mounted))?;
    build_devices(&devices, memory)?;
    // Not even root writes to the kernel there, and only processes of the command are seen.
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(cannot("mount", "/proc"))?;
    // The working directory of this process is still in the file system as it was before.
    let entered =
        open_itself(workspace).and_then(|(workspace, _)| rustix::process::fchdir(workspace));
    entered.map_err(cannot("enter", workspace))
}

/// What lies at a path that is shown, found before what it lies in is covered.
enum Covered {
    Nothing,
    /// A link of the user: it leads where the command may look, or nowhere.
    Link(CString),
    Itself(OwnedFd, Stat),
}

impl Covered {
    fn find(path: &Path) -> Result<Self, String> {
        let look = cannot("look at", path);
        if let Some((itself, stat)) = find_itself(path).map_err(&look)? {
            return Ok(Self::Itself(itself, stat));
        }
        let link = find_link(path).map_err(&look)?;
        Ok(link.map_or(Self::Nothing, Self::Link))
    }

    /// Puts it at its path, where only what covers it is by now.
    fn show(self, path: &Path) -> Done {
        match self {
            Self::Nothing => Ok(()),
            Self::Link(target) => {
                let above = path.parent().unwrap_or(path);
                std::fs::create_dir_all(above).map_err(cannot("make", above))?;
                symlink(target, path).map_err(cannot("make", path))
            }
            Self::Itself(itself, stat) => {
                make_place(path, is_dir(&stat))?;
                mount_descriptor(&itself, path)
            }
        }
    }
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

/// Mounts what a descriptor refers to, even if something covers its path by now. What is mounted on
/// itself can be neither renamed nor replaced.
fn mount_descriptor(from: &OwnedFd, at: &Path) -> Done {
    mount_bind_recursive(path_of(from), at).map_err(cannot("mount", at))
}

/// Covers a directory with an empty one, which is made read-only with all the rest. `for_git`: a
/// file in it lets `git` ignore it, since `git clean` would fail to remove an empty directory.
fn cover(itself: &Path, path: &Path, for_git: bool) -> Done {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(
        "hidden",
        itself,
        "tmpfs",
        flags,
        Some(c"size=64k,mode=0700"),
    )
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

/// What covers what is hidden. The first cover of each kind serves for all: to make one, and to
/// make it read-only, costs more than to mount it again.
struct Covers<'a> {
    null: &'a OwnedFd,
    folder: Option<OwnedFd>,
    file: Option<OwnedFd>,
}

impl Covers<'_> {
    /// Covers a directory with an empty one.
    fn cover_folder(&mut self, itself: &Path, path: &Path) -> Done {
        if let Some(folder) = &self.folder {
            return mount_descriptor(folder, itself);
        }
        cover(itself, path, false)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        self.folder = made_read_only(path, flags);
        Ok(())
    }

    /// Covers a file with one that is empty.
    fn cover_file(&mut self, itself: &Path, path: &Path) -> Done {
        if let Some(file) = &self.file {
            return mount_descriptor(file, itself);
        }
        mount_descriptor(self.null, itself)?;
        self.file = flags_of(self.null).and_then(|flags| made_read_only(path, flags));
        Ok(())
    }
}

/// Makes a cover read-only and opens it: where it is mounted again, it is so from the beginning.
/// None if that fails: then each is made read-only with all the rest.
fn made_read_only(path: &Path, flags: MountFlags) -> Option<OwnedFd> {
    set_read_only(path, flags, true).ok()?;
    // Another command can have moved it meanwhile: then each has its own.
    let (covering, _) = open_itself(path).ok()?;
    is_top_of_mount(&covering).then_some(covering)
}

/// Returns the flags of a mount that must not be lost when it is mounted again.
fn flags_of(mounted: &OwnedFd) -> Option<MountFlags> {
    let set = fstatvfs(mounted).ok()?.f_flag;
    let mut flags = MountFlags::empty();
    for (is_set, flag) in [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    ] {
        if set.contains(is_set) {
            flags |= flag;
        }
    }
    Some(flags)
}

fn is_top_of_mount(covering: &OwnedFd) -> bool {
    statx(covering, "", AtFlags::EMPTY_PATH, StatxFlags::empty())
        .is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
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
