//! What is mounted where, as the kernel lists it (`proc_pid_mountinfo(5)`).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::mount::MountFlags;
use rustix::process::Pid;

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Its number.
    pub(super) id: u64,
    /// The file system, as the number of its device.
    device: Vec<u8>,
    /// What of that file system is mounted.
    root: PathBuf,
    /// Where.
    pub(super) at: PathBuf,
    /// The flags that must not be lost when it is mounted again. The kernel itself keeps those of
    /// access times (`mount(2)`).
    pub(super) flags: MountFlags,
    /// Whether nothing can be written there.
    pub(super) is_read_only: bool,
}

/// Lists the mounts that this process sees, in the order in which they were made.
///
/// # Errors
/// The system's error.
pub(crate) fn mounts() -> io::Result<Vec<Mount>> {
    list("/proc/self/mountinfo")
}

/// Lists the mounts that another process sees.
///
/// # Errors
/// The system's error, or that it is about to end.
pub(super) fn mounts_of(process: Pid) -> io::Result<Vec<Mount>> {
    match list(&format!("/proc/{process}/mountinfo"))? {
        // A process that ends has left its mounts.
        listed if listed.is_empty() => Err(io::ErrorKind::NotFound.into()),
        listed => Ok(listed),
    }
}

fn list(file: &str) -> io::Result<Vec<Mount>> {
    let listed = std::fs::read(file)?;
    Ok(listed
        .split(|&byte| byte == b'\n')
        .filter_map(parse)
        .collect())
}

/// Returns the other paths at which the same lies: what is mounted in two places has two paths.
pub(crate) fn aliases(path: &Path, mounts: &[Mount]) -> Vec<PathBuf> {
    // Mostly nothing above it is mounted twice, and then nothing need be looked up.
    let mut above = mounts.iter().filter(|mount| path.starts_with(&mount.at));
    if !above.any(|mount| is_twice(mount, mounts)) {
        return Vec::new();
    }
    // What is not there yet will lie where what is above it does.
    let id = path.ancestors().find_map(mount_of).or_else(|| {
        let above = mounts.iter().filter(|mount| path.starts_with(&mount.at));
        Some(above.max_by_key(|mount| mount.at.components().count())?.id)
    });
    id.map_or_else(Vec::new, |id| aliases_within(path, id, mounts))
}

/// Tells whether another mount is of the same file system.
fn is_twice(mount: &Mount, mounts: &[Mount]) -> bool {
    let same = mounts.iter().filter(|other| other.device == mount.device);
    same.count() > 1
}

/// Returns the number of the mount that a path leads to: several can be mounted at one
/// path, or one above it can cover another.
fn mount_of(path: &Path) -> Option<u64> {
    let stat = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
}

fn aliases_within(path: &Path, id: u64, mounts: &[Mount]) -> Vec<PathBuf> {
    let Some(mount) = mounts.iter().find(|mount| mount.id == id) else {
        return Vec::new();
    };
    let Ok(rest) = path.strip_prefix(&mount.at) else {
        return Vec::new();
    };
    let inside = mount.root.join(rest);
    let same = mounts.iter().filter(|other| other.device == mount.device);
    same.filter_map(|other| Some(join(&other.at, inside.strip_prefix(&other.root).ok()?)))
        .filter(|other| other != path)
        .collect()
}

/// Joins two paths. If the second is empty, no slash is added.
pub(super) fn join(at: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() {
        at.to_owned()
    } else {
        at.join(rest)
    }
}

/// Fields 1 and 3 to 6: number, device, root, where, options.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = fields.nth(1)?.to_vec();
    let mut path = || Some(PathBuf::from(OsString::from_vec(unescape(fields.next()?))));
    let root = path()?;
    let at = path()?;
    let mut flags = MountFlags::empty();
    let mut is_read_only = false;
    for option in fields.next()?.split(|&byte| byte == b',') {
        is_read_only |= option == b"ro";
        flags |= match option {
            b"nosuid" => MountFlags::NOSUID,
            b"nodev" => MountFlags::NODEV,
            b"noexec" => MountFlags::NOEXEC,
            _ => MountFlags::empty(),
        };
    }
    Some(Mount {
        id,
        device,
        root,
        at,
        flags,
        is_read_only,
    })
}

/// The kernel writes spaces, tabs, newlines and backslashes as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, behind)) = rest.split_first() {
        let digits = if first == b'\\' {
            behind
                .get(..3)
                .and_then(|digits| std::str::from_utf8(digits).ok())
        } else {
            None
        };
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn any_line_of_mountinfo_is_a_mount_or_none(line in "([0-9]{1,25} ){0,3}([0-9]+:[0-9]+ )?[^\n]{0,120}", noise: Vec<u8>) {
            drop((parse(line.as_bytes()), parse(&noise)));
            let mounts: Vec<Mount> = [parse(line.as_bytes()), parse(&noise)].into_iter().flatten().collect();
            drop(mounts.iter().map(|mount| aliases_within(&mount.at, mount.id, &mounts)).collect::<Vec<_>>());
            proptest::prop_assert!(unescape(&noise).len() <= noise.len());
        }
    }

    #[test]
    fn a_line_of_mountinfo_is_read() {
        let line =
            b"36 35 98:0 /mnt1 /mnt/a\\040b ro,nosuid,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let mount = parse(line).unwrap();
        assert_eq!(
            (mount.root.as_path(), mount.at.as_path()),
            (Path::new("/mnt1"), Path::new("/mnt/a b"))
        );
        assert_eq!(mount.flags, MountFlags::NOSUID);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn what_only_looks_escaped_stays() {
        assert_eq!(unescape(b"a\\134b\\9z\\"), b"a\\b\\9z\\");
    }

    #[test]
    fn what_is_mounted_in_two_places_has_two_paths() {
        let lines = [
            "1 0 8:1 / / rw - ext4 /dev/a rw",
            "2 1 8:2 / /home rw - ext4 /dev/b rw",
            "3 1 8:2 /u/web /workspaces/web rw - ext4 /dev/b rw",
            "4 1 8:2 /u/web/.team /team rw - ext4 /dev/b rw",
            "5 1 8:2 /other /other rw - ext4 /dev/b rw",
            "6 1 8:1 / /host rw - ext4 /dev/a rw",
            "7 1 8:3 / /covered rw - ext4 /dev/c rw",
            "8 7 8:1 /under /covered rw - ext4 /dev/a rw",
        ];
        let mounts: Vec<_> = lines
            .iter()
            .filter_map(|line| parse(line.as_bytes()))
            .collect();
        let of = |path: &str, id| aliases_within(Path::new(path), id, &mounts);
        assert_eq!(
            of("/home/u/web/.team", 2),
            [Path::new("/workspaces/web/.team"), Path::new("/team")]
        );
        assert_eq!(
            of("/workspaces/web/.team", 3),
            [Path::new("/home/u/web/.team"), Path::new("/team")]
        );
        assert_eq!(of("/etc", 1), [Path::new("/host/etc")]);
        assert!(of("/other/x", 5).contains(&"/home/other/x".into()));
        assert_eq!(
            of("/covered/x", 8),
            [Path::new("/under/x"), Path::new("/host/under/x")]
        );
    }

    #[test]
    fn the_mount_of_a_path_is_one_of_those_listed() {
        let id = mount_of(Path::new("/proc/self")).unwrap();
        assert!(
            mounts()
                .unwrap()
                .iter()
                .any(|mount| mount.id == id && mount.at == Path::new("/proc"))
        );
    }
}
