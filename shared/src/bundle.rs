//! What crosses between home and a host of the work: files in the folder `bundles` beside the team
//! repository of either side. Each has a name of its own, which home makes up.
//!
//! **Who writes** such a file: a job, on the side that sends; on the other side the channel that takes
//! it. **Who reads**: that channel, and the job that takes its contents in. **Who removes it**: the
//! last one that reads it. **When one dies**: the file counts for nothing, since the next job makes
//! one anew. What is left is removed when a daemon starts, and on a host with each new link. A file is
//! compared with the hash that the link has said.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::id::TaskId;

/// How large such a file may be, in bytes: what a process of a job may write.
pub const MAX_BULK: u64 = 8 << 30;

/// Returns the folder of such files, below the directory of the team repository.
pub fn folder(home: &Path) -> PathBuf {
    home.join("bundles")
}

/// Returns where such a file is.
pub fn file(home: &Path, name: Uuid) -> PathBuf {
    folder(home).join(name.to_string())
}

/// Removes what earlier jobs have left. None runs now.
///
/// # Errors
/// If something cannot be removed.
pub fn tidy(home: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder(home)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        remove(&entry?.path())?;
    }
    Ok(())
}

/// Removes such a file, if it is there.
///
/// # Errors
/// If it cannot be removed.
pub fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Tells whether a text is the id of a commit: what another machine says becomes an argument of
/// `git`.
pub fn is_commit_id(id: &str) -> bool {
    matches!(id.len(), 40 | 64) && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A file that crosses from one machine to the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkFile {
    /// Its name.
    pub name: Uuid,
    /// Its SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// In bytes.
    pub length: u64,
}

/// Copies a file to one that is sent or taken in, and says what it is.
///
/// # Errors
/// If one cannot be read or written. Of one that is larger than [`MAX_BULK`], a byte more is copied.
pub fn copy(from: impl Read, home: &Path, name: Uuid) -> io::Result<BulkFile> {
    let mut hashed = HashedFile {
        file: File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(file(home, name))?,
        hash: Sha256::new(),
    };
    let length = io::copy(&mut from.take(MAX_BULK + 1), &mut hashed)?;
    let hash = hashed.hash.finalize();
    Ok(BulkFile {
        name,
        sha256: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
        length,
    })
}

/// A file whose hash is known when it is written.
struct HashedFile {
    file: File,
    hash: Sha256,
}

impl Write for HashedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// What the copy of a team repository has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownCommits {
    /// The SHA-256 of all its names; none if there is no copy yet.
    pub names: Option<String>,
    /// Some of the commits under them, newest first: what they contain need not be sent.
    pub commits: Vec<String>,
}

/// How a bundle for a host is made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BundleOrder {
    /// What the file is called.
    pub name: Uuid,
    /// What the copy of the host has.
    pub known: KnownCommits,
    /// Where the teammate would work at home, if the team repository is made first.
    pub source: Option<String>,
    /// A commit that is under no name, and is sent, too.
    pub also: Option<String>,
}

/// What the copy of a host lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundled {
    /// The file; none if the copy lacks nothing.
    pub bundle: Option<Bundle>,
    /// What was seen of the user's repository.
    pub seen: SeenAtHome,
}

/// What is known at home alone of the repository that a checkout on a host is of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenAtHome {
    /// The directory in it that the team works in; empty at its top.
    pub prefix: String,
    /// Notes about it, which are shown once.
    pub notes: Vec<String>,
}

/// A file that makes a copy of the team repository what it is at home. It begins with a line for
/// each name (`OBJECT NAME TARGET`) and for each commit where history is cut off
/// (`shallow OBJECT`); a pack follows behind an empty line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    /// The file.
    pub file: BulkFile,
    /// How objects are named: `sha1` or `sha256`.
    pub object_format: String,
    /// A commit in it that is under no name.
    pub also: Option<String>,
}

/// What a teammate on a host has committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packed {
    /// The commit.
    pub commit: String,
    /// The work that is in a file; none if nothing is added, or it belongs to no task.
    pub pack: Option<Pack>,
}

/// A file with the objects of a commit which home lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pack {
    /// The commit.
    pub commit: String,
    /// The task that it is work on.
    pub task: TaskId,
    /// The file.
    pub file: BulkFile,
}
