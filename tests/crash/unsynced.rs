//! The files that the traced processes of a victim have written to, and not synced since.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::Pid;

/// Which file a descriptor of a traced process is.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// Device and inode.
    identity: (u64, u64),
    /// Where it stood when it was looked up.
    path: PathBuf,
}

impl File {
    /// Looks it up.
    ///
    /// # Errors
    /// The process is gone, or cannot be looked into.
    pub(crate) fn of(pid: Pid, descriptor: u64) -> io::Result<Self> {
        let link = PathBuf::from(format!("/proc/{pid}/fd/{descriptor}"));
        Ok(Self {
            identity: identity(&link)?,
            path: link.read_link()?,
        })
    }

    /// What stands at a path.
    ///
    /// # Errors
    /// Nothing does.
    pub(crate) fn at(path: PathBuf) -> io::Result<Self> {
        Ok(Self {
            identity: identity(&path)?,
            path,
        })
    }

    /// What is in it.
    ///
    /// # Errors
    /// It is gone, or cannot be read.
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        std::fs::read(&self.path)
    }

    /// Whether this path names it.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        identity(path).is_ok_and(|found| found == self.identity)
    }

    /// Whether it is an inbox, and not what was set aside from one.
    pub(crate) fn is_inbox(&self) -> bool {
        let aside = self.path.to_string_lossy().contains(".rejected");
        self.path
            .parent()
            .is_some_and(|folder| folder.ends_with("inbox"))
            && !aside
    }

    /// Whether it stands beside another one, under a name that begins as that one's does.
    pub(crate) fn is_beside(&self, other: &Path) -> bool {
        let stem = other
            .file_stem()
            .map(|stem| format!("{}.", stem.to_string_lossy()));
        let name = self.path.file_name().map(|name| name.to_string_lossy());
        let begins = stem
            .zip(name)
            .is_some_and(|(stem, name)| name.starts_with(&stem));
        begins && self.path.parent() == other.parent()
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    path.metadata().map(|found| (found.dev(), found.ino()))
}

/// A write that is not known to last.
#[derive(Debug)]
struct Write {
    file: File,
    /// The number of the write.
    number: u64,
    /// The last line of the journal then.
    seq: u64,
}

/// What was written, and not synced.
#[derive(Debug, Default)]
pub(crate) struct Unsynced {
    writes: Vec<Write>,
    count: u64,
    /// The threads that sync, and how many writes there were when each began: what is written
    /// later, it may miss.
    syncing: HashMap<Pid, u64>,
}

impl Unsynced {
    /// A file was written to; this is the last line of the journal.
    pub(crate) fn wrote(&mut self, file: File, seq: u64) {
        self.count += 1;
        self.writes.push(Write {
            file,
            number: self.count,
            seq,
        });
    }

    /// A thread begins to sync a file.
    pub(crate) fn begin(&mut self, pid: Pid) {
        self.syncing.insert(pid, self.count);
    }

    /// It has synced this one.
    pub(crate) fn synced(&mut self, pid: Pid, file: &File) {
        let before = self.syncing.remove(&pid).unwrap_or_default();
        self.writes
            .retain(|write| write.file.identity != file.identity || write.number > before);
    }

    /// A file that is not synced, if there is one.
    pub(crate) fn any(&self) -> Option<&Path> {
        self.writes.first().map(|write| &*write.file.path)
    }

    /// Whether this file is not synced.
    pub(crate) fn has(&self, file: &File) -> bool {
        self.writes
            .iter()
            .any(|write| write.file.identity == file.identity)
    }

    /// An inbox that is not synced, and was written to for a line of the journal up to this one.
    /// One that was moved away since, with its owner, need not last.
    pub(crate) fn up_to(&self, seq: u64) -> Option<&Path> {
        let found = self
            .writes
            .iter()
            .find(|write| write.seq <= seq && write.file.is_at(&write.file.path))?;
        Some(&found.file.path)
    }
}

/// The files of a folder that are new to it: one that is not synced with its folder can lose its
/// name.
#[derive(Debug)]
pub(crate) struct Folder {
    at: PathBuf,
    known: HashSet<(u64, u64)>,
    new: Vec<File>,
}

impl Folder {
    /// Nothing stands there yet.
    pub(crate) fn new(at: PathBuf) -> Self {
        Self {
            at,
            known: HashSet::new(),
            new: Vec::new(),
        }
    }

    /// A process begins: what stands there is known; what the one before has made stays new.
    pub(crate) fn look(&mut self) {
        let files = std::fs::read_dir(&self.at).into_iter().flatten().flatten();
        self.known
            .extend(files.filter_map(|file| identity(&file.path()).ok()));
    }

    /// A file was opened.
    pub(crate) fn opened(&mut self, file: &File) {
        if file.path.parent() == Some(&self.at) && self.known.insert(file.identity) {
            self.new.push(file.clone());
        }
    }

    /// A file or a folder was synced.
    pub(crate) fn synced(&mut self, file: &File) {
        if file.is_at(&self.at) {
            self.new.clear();
        }
    }

    /// Whether this file can lose its name.
    pub(crate) fn has(&self, file: &File) -> bool {
        self.new.iter().any(|new| new.identity == file.identity)
    }

    /// A file that can lose its name, if there is one.
    pub(crate) fn any(&self) -> Option<&Path> {
        self.new
            .iter()
            .map(|file| &*file.path)
            .find(|path| path.exists())
    }
}
