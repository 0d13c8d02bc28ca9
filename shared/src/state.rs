//! The state directory of a user, `$XDG_STATE_HOME/teamd` (else `~/.local/state/teamd`): what no tool can read or write.
//!
//! The register ([`crate::register`]) and the trust store ([`crate::trust`]) keep small JSON files in it, one for each thing
//! that they know. **Who writes**: a command that a person runs, by rename, and the file is on the disk before it has its
//! name. **Who reads**: each command, the daemon when it begins, and a worker for each tool call. **When a writer dies**: the
//! old file is there, or none, and a file whose name begins with a dot, which is not read.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, fstat, openat, renameat, unlinkat};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::team_dir::{DIR_MODE, FILE_MODE};

/// The largest file that is read, in bytes: the widening keys of the largest `team.toml`, twice escaped.
const MAX_SIZE: u64 = 8 << 20;

/// What could not be done in the state directory. Fits behind "error: ".
#[derive(Debug, thiserror::Error)]
#[error("cannot {verb} {}: {source}", .path.display())]
pub struct StateError {
    verb: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// The state directory of a user, whether it is there or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir {
    root: PathBuf,
}

impl StateDir {
    /// Finds that of the user whose environment this is; a user without a home in it has the one that the system knows.
    ///
    /// # Errors
    /// If neither says a directory.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> io::Result<Self> {
        let named = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let of_system =
            || nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten().map(|user| user.dir);
        let state = named("XDG_STATE_HOME")
            .or_else(|| named("HOME").or_else(of_system).map(|home| home.join(".local/state")))
            .ok_or_else(|| io::Error::other("neither XDG_STATE_HOME nor HOME names a directory"))?;
        Ok(Self { root: state.join("teamd") })
    }

    /// Finds that of the environment of this process.
    ///
    /// # Errors
    /// As [`StateDir::of`].
    pub fn of_process() -> io::Result<Self> {
        Self::of(|name| std::env::var_os(name))
    }

    /// Returns that of a home directory, unless the environment names another one.
    pub fn of_home(home: &Path) -> Self {
        Self { root: home.join(".local/state/teamd") }
    }

    /// Returns its path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes it, for this user alone.
    ///
    /// # Errors
    /// [`StateError`] if the system refuses.
    pub fn make(&self) -> Result<(), StateError> {
        let made = DirBuilder::new().mode(DIR_MODE).recursive(true).create(&self.root);
        made.map_err(|source| self.error("make", "", source))
    }

    /// Reads a file of a folder; none if it is not there.
    ///
    /// # Errors
    /// [`StateError`] if it cannot be read, makes no sense, or if others than the user may write there.
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        folder: &str,
        name: &str,
    ) -> Result<Option<T>, StateError> {
        let at = format!("{folder}/{name}");
        let Some(folder) = self.open(folder)? else { return Ok(None) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&folder, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.error("open", &at, errno.into())),
        };
        let mut bytes = Vec::new();
        file.take(MAX_SIZE).read_to_end(&mut bytes).map_err(|error| self.error("read", &at, error))?;
        serde_json::from_slice(&bytes).map(Some).map_err(|error| self.error("read", &at, error.into()))
    }

    /// Replaces a file of a folder; it is on the disk when this returns.
    ///
    /// # Errors
    /// [`StateError`] if the system refuses; the old file is then untouched.
    pub(crate) fn put(&self, folder: &str, name: &str, content: &impl Serialize) -> Result<(), StateError> {
        let at = format!("{folder}/{name}");
        let error = |source: io::Error| self.error("write", &at, source);
        let made = DirBuilder::new().mode(DIR_MODE).recursive(true).create(self.root.join(folder));
        made.map_err(|source| self.error("make", folder, source))?;
        let folder = self.open(folder)?.ok_or_else(|| error(io::ErrorKind::NotFound.into()))?;
        let next = format!(".{}", Uuid::new_v4().simple());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let bytes = serde_json::to_vec(content).map_err(|source| error(source.into()))?;
        let written = openat(&folder, &next, flags, Mode::from_raw_mode(FILE_MODE))
            .map_err(io::Error::from)
            .and_then(|file| {
                let mut file = File::from(file);
                file.write_all(&bytes)?;
                file.sync_data()?;
                renameat(&folder, &next, &folder, name)?;
                Ok(rustix::fs::fsync(&folder)?)
            });
        if written.is_err()
            && let Err(errno) = unlinkat(&folder, &next, AtFlags::empty())
            && errno != Errno::NOENT
        {
            tracing::warn!("cannot remove {next} in {}: {errno}", self.root.display());
        }
        written.map_err(error)
    }

    /// Removes a file of a folder; tells whether it was there.
    ///
    /// # Errors
    /// [`StateError`] if the system refuses.
    pub(crate) fn remove(&self, folder: &str, name: &str) -> Result<bool, StateError> {
        let at = format!("{folder}/{name}");
        let Some(folder) = self.open(folder)? else { return Ok(false) };
        match unlinkat(&folder, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.error("remove", &at, errno.into())),
        }
    }

    /// Lists the files of a folder.
    ///
    /// # Errors
    /// As [`StateDir::read`].
    pub(crate) fn names(&self, folder: &str) -> Result<Vec<String>, StateError> {
        let Some(open) = self.open(folder)? else { return Ok(Vec::new()) };
        let error = |errno: Errno| self.error("list", folder, errno.into());
        let entries = Dir::new(open).map_err(error)?;
        let names = entries.map(|entry| Ok(entry.map_err(error)?.file_name().to_string_lossy().into_owned()));
        names.filter(|name| name.as_ref().map_or(true, |name| !name.starts_with('.'))).collect()
    }

    /// Opens a folder; none if it is not there. What others may write, or another user owns, says nothing of this user.
    fn open(&self, folder: &str) -> Result<Option<OwnedFd>, StateError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = match openat(CWD, &self.root, flags, Mode::empty()) {
            Ok(root) => root,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(errno) => return Err(self.error("open", "", errno.into())),
        };
        let stat = fstat(&root).map_err(|errno| self.error("look at", "", errno.into()))?;
        if stat.st_uid != nix::unistd::geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
            let why = format!(
                "it is not this user's alone (owner {}, mode {:o})",
                stat.st_uid,
                stat.st_mode & 0o777
            );
            return Err(self.error("use", "", io::Error::other(why)));
        }
        match openat(&root, folder, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(open) => Ok(Some(open)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.error("open", folder, errno.into())),
        }
    }

    fn error(&self, verb: &'static str, at: &str, source: io::Error) -> StateError {
        let path = if at.is_empty() { self.root.clone() } else { self.root.join(at) };
        StateError { verb, path, source }
    }
}

/// Returns a name of 16 hex digits for a path (FNV-1a). Two paths can have the same one: what is stored under it says which
/// path it is for.
pub(crate) fn name_of(path: &Path) -> String {
    let hash = path.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn it_lies_where_the_environment_says_else_in_the_home() {
        let with = |set: &'static [(&str, &str)]| {
            let found = StateDir::of(|name| Some(set.iter().find(|(known, _)| *known == name)?.1.into()));
            found.unwrap().root
        };
        assert_eq!(with(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]), Path::new("/s/teamd"));
        assert_eq!(
            with(&[("XDG_STATE_HOME", "relative"), ("HOME", "/h")]),
            Path::new("/h/.local/state/teamd")
        );
        assert!(with(&[]).ends_with(".local/state/teamd"), "the system knows a home");
    }

    #[test]
    fn what_is_put_is_read_and_what_is_torn_or_written_by_others_is_not() {
        let scratch = tempfile::tempdir().unwrap();
        let state = StateDir { root: scratch.path().join("a/teamd") };
        assert_eq!(state.read::<String>("f", "x").unwrap(), None);
        state.put("f", "x", &"one").unwrap();
        state.put("f", "x", &"two").unwrap();
        assert_eq!(state.read::<String>("f", "x").unwrap().as_deref(), Some("two"));
        assert_eq!(state.names("f").unwrap(), ["x"]);
        let mode = |path: &str| scratch.path().join(path).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("a/teamd"), mode("a/teamd/f"), mode("a/teamd/f/x")), (0o700, 0o700, 0o600));
        File::create(scratch.path().join("a/teamd/f/torn")).unwrap().write_all(b"\"tw").unwrap();
        let told = state.read::<String>("f", "torn").unwrap_err().to_string();
        assert!(told.contains("a/teamd/f/torn: "), "{told}");
        std::fs::set_permissions(&state.root, PermissionsExt::from_mode(0o720)).unwrap();
        let told = state.read::<String>("f", "x").unwrap_err().to_string();
        assert!(told.contains("not this user's alone"), "{told}");
        std::fs::set_permissions(&state.root, PermissionsExt::from_mode(0o700)).unwrap();
        assert!(state.remove("f", "x").unwrap() && !state.remove("f", "x").unwrap());
    }
}
