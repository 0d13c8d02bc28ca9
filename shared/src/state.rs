//! The state directory of a user, `$XDG_STATE_HOME/teamd` (else `~/.local/state/teamd`): what no
//! tool can read or write.
//!
//! The register ([`crate::register`]) and the trust store ([`crate::spawn::Widening`]) keep small
//! JSON files in it, one for each thing that they record. **Who writes**: a command that a person
//! runs, by rename, and the file is on the disk before it has its name. **Who reads**: each
//! command, and a worker for each tool call. **When a writer dies**: the old file is there, or
//! none, and a file whose name begins with a dot, which is not read.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::environment::Environment;
use crate::name::Name;
use crate::team_dir::{DIR_MODE, DirError, FILE_MODE, TeamDir};
use crate::user_dirs::{name_of, state_dir};

/// What could not be done with the state directory, or with the subject of an entry. Fits behind
/// "error: ".
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The system refused, or an entry is malformed.
    #[error("cannot {verb} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The team directory.
    #[error(transparent)]
    Dir(#[from] DirError),
}

impl StateError {
    /// Explains an error of the system.
    pub(crate) fn io(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            verb,
            path: path.to_owned(),
            source,
        }
    }
}

/// What the name of an agent's directory begins with while it is removed: no teammate has such a
/// name.
const FORGOTTEN: &str = ".forgotten-";

/// The state directory of a user, whether it is there or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir {
    root: PathBuf,
}

impl StateDir {
    /// Finds the state directory of the user of this environment.
    ///
    /// # Errors
    /// If no directory is named.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> io::Result<Self> {
        Ok(Self {
            root: state_dir(variable)?,
        })
    }

    /// Finds that of the environment of this process.
    ///
    /// # Errors
    /// As [`StateDir::of`].
    pub fn of_process() -> io::Result<Self> {
        Self::of(|name| std::env::var_os(name))
    }

    /// Finds that of the environment of a teammate.
    ///
    /// # Errors
    /// As [`StateDir::of`].
    pub fn of_environment(environment: &Environment) -> io::Result<Self> {
        Self::of(|name| environment.path(name).map(PathBuf::into_os_string))
    }

    /// Returns that of a home directory, unless the environment names another one.
    pub fn of_home(home: &Path) -> Self {
        Self {
            root: home.join(".local/state/teamd"),
        }
    }

    /// Returns the one at a path.
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// Returns the name under which what belongs to a team directory is kept: from its path and its
    /// id.
    pub fn name_of_team(dir: &TeamDir) -> String {
        format!("{}-{}", name_of(dir.root()), dir.id().unwrap_or_default())
    }

    /// Returns it by its real path, if it is there.
    #[must_use]
    pub fn real(self) -> Self {
        Self {
            root: self.root.canonicalize().unwrap_or(self.root),
        }
    }

    /// Returns its path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Tells whether it is another user's: the home of one can be in the environment of another
    /// (`sudo`).
    pub fn is_foreign(&self) -> bool {
        fs::metadata(&self.root).is_ok_and(|metadata| is_foreign(&metadata))
    }

    /// Makes it, for this user alone.
    ///
    /// # Errors
    /// [`StateError`] if the system refuses.
    pub fn make(&self) -> Result<(), StateError> {
        make(&self.root)
    }

    /// Returns where the daemon keeps the repositories of a team.
    pub fn of_git(&self, team: &TeamDir) -> PathBuf {
        self.root
            .join("repositories")
            .join(Self::name_of_team(team))
    }

    /// Returns where an agent keeps its own files, for one teammate of one team.
    pub fn of_agent(&self, team: &TeamDir, member: &Name) -> PathBuf {
        self.root
            .join("agents")
            .join(Self::name_of_team(team))
            .join(member.as_str())
    }

    /// Makes that directory, for this user alone.
    ///
    /// # Errors
    /// [`StateError`] if the system refuses.
    pub fn make_for_agent(&self, team: &TeamDir, member: &Name) -> Result<PathBuf, StateError> {
        let path = self.of_agent(team, member);
        make(&path).map(|()| path)
    }

    /// Returns where the checks of a team in place keep their caches: no teammate has a dot in its
    /// name.
    pub fn of_checks(&self, team: &TeamDir) -> PathBuf {
        self.root
            .join("agents")
            .join(Self::name_of_team(team))
            .join(".checks")
    }

    /// Returns the file whose bytes are the slots of the user on this machine: a home directory can
    /// be shared by several.
    pub(crate) fn slots_file(&self) -> PathBuf {
        let machine = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .replace('/', "-");
        self.root.join("slots").join(machine)
    }

    /// Removes that directory with its content, and what an earlier removal has left.
    ///
    /// # Errors
    /// The system's error. Another teammate of that name finds nothing there if only the removal
    /// failed.
    pub fn remove_of_agent(&self, team: &TeamDir, member: &Name) -> io::Result<()> {
        let path = self.of_agent(team, member);
        if !path.is_dir() {
            return Ok(());
        }
        let Some(folder) = path.parent() else {
            return Ok(());
        };
        fs::rename(&path, folder.join(format!("{FORGOTTEN}{}", Uuid::now_v7())))?;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry
                .file_name()
                .as_bytes()
                .starts_with(FORGOTTEN.as_bytes())
            {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    /// Reads a file of a folder; none if it is not there.
    ///
    /// # Errors
    /// [`StateError`] if it cannot be read or parsed, or is another user's.
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        folder: &str,
        name: &str,
    ) -> Result<Option<T>, StateError> {
        let path = self.folder(folder)?.join(name);
        if_there(read_own(&path)).map_err(StateError::io("read", &path))
    }

    /// Replaces a file of a folder; it is on the disk when this returns.
    ///
    /// # Errors
    /// [`StateError`] if the system refuses; the old file is then untouched.
    pub(crate) fn put(
        &self,
        folder: &str,
        name: &str,
        content: &impl Serialize,
    ) -> Result<(), StateError> {
        let folder = self.folder(folder)?;
        make(&folder)?;
        let path = folder.join(name);
        let next = folder.join(format!(".{}", Uuid::new_v4().simple()));
        let written = serde_json::to_vec(content)
            .map_err(io::Error::from)
            .and_then(|content| write_new(&folder, &next, &path, &content));
        written.map_err(StateError::io("write", &path))
    }

    /// Removes a file of a folder; tells whether it was there.
    ///
    /// # Errors
    /// [`StateError`] if the system refuses.
    pub(crate) fn remove(&self, folder: &str, name: &str) -> Result<bool, StateError> {
        let path = self.folder(folder)?.join(name);
        let removed = if_there(fs::remove_file(&path)).map_err(StateError::io("remove", &path))?;
        Ok(removed.is_some())
    }

    /// Lists the files of a folder.
    ///
    /// # Errors
    /// As [`StateDir::read`].
    pub(crate) fn names(&self, folder: &str) -> Result<Vec<String>, StateError> {
        let folder = self.folder(folder)?;
        let listed = if_there(fs::read_dir(&folder)).map_err(StateError::io("list", &folder))?;
        let entries = listed.into_iter().flatten();
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let names: io::Result<Vec<_>> = names.collect();
        let mut names = names.map_err(StateError::io("list", &folder))?;
        names.retain(|name| !name.starts_with('.'));
        Ok(names)
    }

    /// Closes the directory to others, and opens it to this user, if it is there: without
    /// namespaces a command of a teammate can change its mode.
    ///
    /// # Errors
    /// [`StateError`] if it is another user's, or the system refuses.
    pub fn restore_mode(&self) -> Result<(), StateError> {
        restore_mode(&self.root)
    }

    /// Returns the path of a folder, which is this user's alone: entries of another user do not
    /// count for this one.
    fn folder(&self, folder: &str) -> Result<PathBuf, StateError> {
        self.restore_mode()?;
        let folder = self.root.join(folder);
        restore_mode(&folder)?;
        Ok(folder)
    }
}

fn restore_mode(path: &Path) -> Result<(), StateError> {
    let Some(found) = if_there(fs::metadata(path)).map_err(StateError::io("look at", path))? else {
        return Ok(());
    };
    if is_foreign(&found) {
        return Err(StateError::io("use", path)(io::Error::other(
            "it belongs to another user",
        )));
    }
    if found.mode() & 0o777 == DIR_MODE {
        return Ok(());
    }
    tracing::warn!(
        "{} had the mode {:04o}, and is this user's alone again",
        path.display(),
        found.mode() & 0o7777
    );
    fs::set_permissions(path, fs::Permissions::from_mode(DIR_MODE))
        .map_err(StateError::io("close", path))
}

fn is_foreign(found: &fs::Metadata) -> bool {
    found.uid() != nix::unistd::geteuid().as_raw()
}

fn make(path: &Path) -> Result<(), StateError> {
    DirBuilder::new()
        .mode(DIR_MODE)
        .recursive(true)
        .create(path)
        .map_err(StateError::io("make", path))
}

/// Returns none for a file that does not exist.
fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// Reads a file of this user.
fn read_own<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let mut file = File::open(path)?;
    if is_foreign(&file.metadata()?) {
        return Err(io::Error::other("it belongs to another user"));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// Writes a file under a new name, and gives it its own name when its content is on the disk.
fn write_new(folder: &Path, next: &Path, path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(next)?;
    file.write_all(content)?;
    file.sync_data()?;
    fs::rename(next, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lies_where_the_environment_says_else_in_the_home() {
        let with = |set: &'static [(&str, &str)]| {
            let found =
                StateDir::of(|name| Some(set.iter().find(|(known, _)| *known == name)?.1.into()));
            found.unwrap().root
        };
        assert_eq!(
            with(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]),
            Path::new("/s/teamd")
        );
        assert_eq!(
            with(&[("XDG_STATE_HOME", "relative"), ("HOME", "/h")]),
            Path::new("/h/.local/state/teamd")
        );
        assert!(
            with(&[]).ends_with(".local/state/teamd"),
            "the system knows a home"
        );
    }

    #[test]
    fn what_is_put_is_read_and_what_is_torn_is_not_and_modes_are_put_back() {
        let scratch = tempfile::tempdir().unwrap();
        let state = StateDir {
            root: scratch.path().join("a/teamd"),
        };
        assert_eq!(state.read::<String>("f", "x").unwrap(), None);
        state.put("f", "x", &"one").unwrap();
        state.put("f", "x", &"two").unwrap();
        assert_eq!(
            state.read::<String>("f", "x").unwrap().as_deref(),
            Some("two")
        );
        assert_eq!(state.names("f").unwrap(), ["x"]);
        let mode = |path: &str| {
            scratch
                .path()
                .join(path)
                .metadata()
                .unwrap()
                .permissions()
                .mode()
                & 0o777
        };
        assert_eq!(
            (mode("a/teamd"), mode("a/teamd/f"), mode("a/teamd/f/x")),
            (0o700, 0o700, 0o600)
        );
        File::create(scratch.path().join("a/teamd/f/torn"))
            .unwrap()
            .write_all(b"\"tw")
            .unwrap();
        let told = state.read::<String>("f", "torn").unwrap_err().to_string();
        assert!(told.contains("a/teamd/f/torn: "), "{told}");
        fs::set_permissions(&state.root, PermissionsExt::from_mode(0o720)).unwrap();
        fs::set_permissions(state.root.join("f"), PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(
            state.read::<String>("f", "x").unwrap().as_deref(),
            Some("two")
        );
        assert_eq!(
            (mode("a/teamd"), mode("a/teamd/f")),
            (0o700, 0o700),
            "closed again"
        );
        assert!(state.remove("f", "x").unwrap() && !state.remove("f", "x").unwrap());
    }
}
