//! Notices that a path is replaced, even if it is put back: a directory that is exchanged for
//! another one, and exchanged again, leaves no trace in the files below it. The kernel reports it
//! (`inotify(7)`), for the names that matter alone.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::open_beneath;

/// How much is read at once, in bytes: many events.
const PIECE: usize = 16 << 10;

/// Looks out for changes of what is at some paths.
#[derive(Debug)]
pub struct Lookout {
    queue: OwnedFd,
    /// The directories by the numbers of their watches, with the names in them that matter.
    folders: BTreeMap<i32, (PathBuf, BTreeSet<OsString>)>,
}

impl Lookout {
    /// Begins to look out for what is at paths below a directory, and on the way to them. None
    /// need be there.
    ///
    /// # Errors
    /// The system's error: then nothing is known.
    pub(super) fn begin<'a>(
        root: BorrowedFd<'_>,
        paths: impl Iterator<Item = &'a Path>,
    ) -> io::Result<Option<Self>> {
        let mut names: BTreeMap<&Path, BTreeSet<OsString>> = BTreeMap::new();
        for path in paths {
            for at in path.ancestors() {
                let Some(folder) = at.parent() else { break };
                let Some(name) = at.file_name() else { break };
                let is_new = names.entry(folder).or_default().insert(name.to_owned());
                // The way to it is watched already.
                if !is_new {
                    break;
                }
            }
        }
        // A user has few queues, so an empty lookout makes none.
        if names.is_empty() {
            return Ok(None);
        }
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let mut lookout = Self {
            queue,
            folders: BTreeMap::new(),
        };
        for (folder, names) in names {
            lookout.watch(root, folder, names)?;
        }
        Ok(Some(lookout))
    }

    fn watch(
        &mut self,
        root: BorrowedFd<'_>,
        folder: &Path,
        names: BTreeSet<OsString>,
    ) -> io::Result<()> {
        let opened = match open_beneath(root, folder, OFlags::PATH | OFlags::DIRECTORY) {
            // The watch in the directory above reports it when it is made.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            opened => opened?,
        };
        let changes =
            WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO;
        // By its descriptor, so that no rename in between leads elsewhere.
        let at = format!("/proc/self/fd/{}", opened.as_raw_fd());
        let number = inotify::add_watch(&self.queue, at, changes)?;
        self.folders.insert(number, (folder.to_owned(), names));
        Ok(())
    }

    /// Returns the paths at which something was made, removed or renamed since.
    ///
    /// # Errors
    /// The system's error, or that the queue overflowed: then nothing is known.
    pub fn seen(&self) -> io::Result<BTreeSet<PathBuf>> {
        let mut piece = [MaybeUninit::uninit(); PIECE];
        let mut events = Reader::new(&self.queue, &mut piece);
        let mut seen = BTreeSet::new();
        loop {
            let event = match events.next() {
                Err(Errno::WOULDBLOCK) => return Ok(seen),
                Err(Errno::INTR) => continue,
                event => event?,
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                return Err(io::Error::other("too much was changed beside them"));
            }
            let name = event
                .file_name()
                .map(|name| OsStr::from_bytes(name.to_bytes()));
            let Some((folder, names)) = self.folders.get(&event.wd()) else {
                continue;
            };
            let Some(name) = name else { continue };
            // A file system may not tell names apart that differ by case alone.
            if names.iter().any(|other| other.eq_ignore_ascii_case(name)) {
                seen.insert(folder.join(name));
            }
        }
    }
}
