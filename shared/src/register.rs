//! The register: which team directories `teamd start` has made for this user. No other directory is
//! trusted.
//!
//! An entry is a file `teams/HASH-ID.json` in the state directory: real path and id
//! ([`TeamDir::id`]) of one team directory. Both must fit, so a directory that a tool has made, or
//! that was copied, moved or extracted, is not registered. **Who writes**: `teamd start`, when it
//! makes or adopts a directory; entries are never changed and never removed. **Who
//! reads**: all commands, the daemon, and workers, which hide every registered directory from
//! tools. **When `teamd start` dies** before the directory has its name, an entry is left that fits
//! no directory, and a directory `.team.new-…` that is not used. (Where a file system knows no time
//! of birth, an id is an inode, and a later directory can have the same.)

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::state::{StateDir, StateError};
use crate::team_dir::{DirError, TeamDir};
use crate::user_dirs::name_of;

/// The folder of the entries.
const FOLDER: &str = "teams";

/// The content of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RegisterEntry {
    /// Where the directory lies, without links.
    path: PathBuf,
    /// Which directory it is.
    id: String,
}

impl RegisterEntry {
    fn of(path: &Path, dir: &TeamDir) -> Result<Self, StateError> {
        let id = dir.id().map_err(StateError::io("look at", path))?;
        Ok(Self {
            path: path.to_owned(),
            id,
        })
    }

    fn name(&self) -> String {
        format!("{}-{}.json", name_of(&self.path), self.id)
    }
}

/// The register of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register(StateDir);

impl Register {
    /// Returns the register in a state directory.
    pub fn new(state: StateDir) -> Self {
        Self(state)
    }

    /// Returns the state directory that it lies in.
    pub fn state(&self) -> &StateDir {
        &self.0
    }

    /// Tells whether a team directory is registered.
    ///
    /// # Errors
    /// [`StateError`] if that cannot be determined; then the directory must not be trusted.
    pub fn knows(&self, dir: &TeamDir) -> Result<bool, StateError> {
        let wanted = RegisterEntry::of(dir.root(), dir)?;
        Ok(self
            .0
            .read::<RegisterEntry>(FOLDER, &wanted.name())?
            .is_some_and(|entry| entry == wanted))
    }

    /// Registers a team directory that is there.
    ///
    /// # Errors
    /// [`StateError`] if the system refuses.
    pub fn enter(&self, dir: &TeamDir) -> Result<(), StateError> {
        let entry = RegisterEntry::of(dir.root(), dir)?;
        self.0.put(FOLDER, &entry.name(), &entry)
    }

    /// Makes a team directory and registers it. It gets its name only once it is registered, so a
    /// directory at its path is always registered. If two processes do this at once, one makes it,
    /// and both find it registered.
    ///
    /// # Errors
    /// [`StateError`] if the system refuses.
    pub fn make(&self, path: &Path) -> Result<(), StateError> {
        let Some(above) = path.parent() else {
            return Err(cannot_make(path, io::ErrorKind::InvalidInput.into()));
        };
        let Some(name) = path.file_name() else {
            return Err(cannot_make(path, io::ErrorKind::InvalidInput.into()));
        };
        let path = above
            .canonicalize()
            .map_err(|error| cannot_make(path, error))?
            .join(name);
        let new = path.with_file_name(format!(".team.new-{}", Uuid::new_v4().simple()));
        let Err(error) = self.make_as(&path, &new) else {
            return Ok(());
        };
        match std::fs::remove_dir_all(&new) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("cannot remove {}: {why}", new.display());
            }
            _ => {}
        }
        let taken =
            TeamDir::open(&path).is_ok_and(|dir| self.knows(&dir).is_ok_and(|is_known| is_known));
        if taken { Ok(()) } else { Err(error) }
    }

    fn make_as(&self, path: &Path, new: &Path) -> Result<(), StateError> {
        let dir = TeamDir::create(new)?;
        let entry = RegisterEntry::of(path, &dir)?;
        self.0.put(FOLDER, &entry.name(), &entry)?;
        // This also replaces an empty directory, even one that its maker holds open.
        if let Err(error) = std::fs::rename(new, path) {
            self.0.remove(FOLDER, &entry.name())?;
            return Err(DirError::io("make", path)(error).into());
        }
        Ok(dir.sync_above()?)
    }

    /// Returns the state directory and all registered team directories, without links, whether they
    /// exist or not, and the entries that could not be read.
    ///
    /// # Errors
    /// [`StateError`] if the entries cannot be listed.
    pub fn all(&self) -> Result<(Vec<PathBuf>, Vec<StateError>), StateError> {
        let mut directories = Vec::new();
        let mut unread = Vec::new();
        match self.0.root().canonicalize() {
            Ok(root) => directories.push(root),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((directories, unread));
            }
            Err(error) => return Err(StateError::io("find", self.0.root())(error)),
        }
        for name in self.0.names(FOLDER)? {
            match self.0.read::<RegisterEntry>(FOLDER, &name) {
                Ok(Some(entry)) => directories.push(entry.path),
                Ok(None) => {}
                Err(error) => unread.push(error),
            }
        }
        directories.sort();
        directories.dedup();
        Ok((directories, unread))
    }
}

fn cannot_make(path: &Path, error: io::Error) -> StateError {
    DirError::io("make", path)(error).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::io::Write;

    fn scene() -> (tempfile::TempDir, Register, PathBuf) {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let state = OsString::from(root.join("state"));
        let state = StateDir::of(|name| (name == "XDG_STATE_HOME").then(|| state.clone())).unwrap();
        (scratch, Register::new(state), root)
    }

    fn knows(register: &Register, path: &Path) -> bool {
        register.knows(&TeamDir::open(path).unwrap()).unwrap()
    }

    #[test]
    fn a_directory_is_known_that_was_made_and_no_other_at_its_path_or_elsewhere() {
        let (_scratch, register, root) = scene();
        let team = root.join(".team");
        let moved = root.join("moved");
        TeamDir::create(&root.join("forged")).unwrap();
        assert!(!knows(&register, &root.join("forged")));
        register.make(&team).unwrap();
        assert!(knows(&register, &team));
        assert_eq!(
            register.all().unwrap().0,
            [team.clone(), root.join("state/teamd")]
        );
        std::fs::rename(&team, &moved).unwrap();
        assert!(!knows(&register, &moved), "moved");
        TeamDir::create(&team).unwrap();
        assert!(!knows(&register, &team), "another at its path");
        register.enter(&TeamDir::open(&team).unwrap()).unwrap();
        assert!(knows(&register, &team), "adopted");
    }

    #[test]
    fn of_many_that_make_it_at_once_one_does_and_all_find_it() {
        let (_scratch, register, root) = scene();
        let team = root.join(".team");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| register.make(&team).unwrap());
            }
        });
        assert!(knows(&register, &team));
        let mut left: Vec<_> = std::fs::read_dir(&root)
            .unwrap()
            .map(|it| it.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, [".team", "state"]);
        assert_eq!(
            std::fs::read_dir(root.join("state/teamd/teams"))
                .unwrap()
                .count(),
            1
        );
    }

    #[test]
    fn an_entry_that_makes_no_sense_is_not_believed_but_named() {
        let (_scratch, register, root) = scene();
        let team = root.join(".team");
        register.make(&team).unwrap();
        let entries = root.join("state/teamd/teams");
        let entry = std::fs::read_dir(&entries)
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        for bytes in [
            &b""[..],
            b"{\"path\":",
            b"\xff",
            b"{\"path\":7,\"id\":\"x\"}",
        ] {
            std::fs::File::create(&entry)
                .unwrap()
                .write_all(bytes)
                .unwrap();
            let told = register
                .knows(&TeamDir::open(&team).unwrap())
                .unwrap_err()
                .to_string();
            assert!(told.contains(entry.to_str().unwrap()), "{told}");
            assert_eq!(register.all().unwrap().1.len(), 1);
        }
        // It says something, but of another directory.
        std::fs::File::create(&entry)
            .unwrap()
            .write_all(br#"{"path":"/other","id":"1-0.0"}"#)
            .unwrap();
        assert!(!knows(&register, &team));
    }
}
