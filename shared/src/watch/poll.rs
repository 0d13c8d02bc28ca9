//! Looking on a timer, where the file system makes no events.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use tokio::time::Instant;

use super::{POLL_EVERY, WatchTarget};

/// The last state, and when to look next. There is no thread: a waiting task looks.
#[derive(Debug)]
pub(super) struct Poll {
    /// Kept here, so that a future that is dropped and made again does not put it off.
    due: Instant,
    seen: BTreeMap<String, FileState>,
}

/// What distinguishes two states of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    identity: (u64, u64),
    length: u64,
    modified: Option<SystemTime>,
}

impl Poll {
    /// Looks for the first time.
    pub(super) fn start(target: &WatchTarget) -> Self {
        Self {
            due: Instant::now() + POLL_EVERY,
            seen: look_at(target),
        }
    }

    /// Returns when to look next.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Looks once, and returns the names of the files that have changed.
    pub(super) fn look(&mut self, target: &WatchTarget) -> BTreeSet<String> {
        self.due = Instant::now() + POLL_EVERY;
        let before = std::mem::replace(&mut self.seen, look_at(target));
        before
            .keys()
            .chain(self.seen.keys())
            .filter(|name| before.get(*name) != self.seen.get(*name))
            .cloned()
            .collect()
    }
}

impl FileState {
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::symlink_metadata(path).ok()?;
        Some(Self {
            identity: (metadata.dev(), metadata.ino()),
            length: metadata.len(),
            modified: metadata.modified().ok(),
        })
    }
}

fn named_state(path: &Path) -> Option<(String, FileState)> {
    let name = path.file_name()?.to_str()?;
    Some((name.to_owned(), FileState::of(path)?))
}

/// Looks at all that is watched. A file that cannot be read counts as missing, and its return is
/// noticed.
fn look_at(target: &WatchTarget) -> BTreeMap<String, FileState> {
    if !target.folder {
        return named_state(&target.path).into_iter().collect();
    }
    let Ok(entries) = std::fs::read_dir(&target.path) else {
        return BTreeMap::new();
    };
    entries
        .filter_map(|entry| named_state(&entry.ok()?.path()))
        .collect()
}

/// File systems whose files others (another machine, the host of a virtual one) change without an
/// event here, by the magic number that `statfs` gives: `include/uapi/linux/magic.h`, statfs(2),
/// and for those out of tree the list of gnulib's `file-remote.c`.
const WITHOUT_EVENTS: [i128; 19] = [
    0x6969,      // NFS
    0x517B,      // SMB
    0xFE53_4D42, // SMB 2
    0xFF53_4D42, // CIFS
    0x0102_1997, // 9p: WSL 2, virtual machines, gVisor
    0x6573_5546, // FUSE: sshfs, virtiofs, Docker Desktop
    0x7375_7245, // Coda
    0x5346_414F, // OpenAFS
    0x6B41_4653, // AFS
    0x00C3_6400, // Ceph
    0x564C,      // NCP
    0x0116_1970, // GFS 2
    0x7461_636F, // OCFS 2
    0x0BD0_0BD0, // Lustre
    0x4750_4653, // GPFS
    0x1983_0326, // BeeGFS
    0x786F_4256, // VirtualBox shared folder
    0xBACB_ACBC, // VMware shared folder
    0x7C7C_6673, // Parallels shared folder
];

/// Tells whether the file system of a path makes no events for what others do.
pub fn lacks_events(path: &Path) -> bool {
    // The numbers have 32 bits, in a field whose type differs between architectures and may be
    // signed.
    rustix::fs::statfs(path)
        .is_ok_and(|it| WITHOUT_EVENTS.contains(&(i128::from(it.f_type) & 0xFFFF_FFFF)))
}
