//! The caches of commands that may not write the user's. They lie in the state directory, for one teammate or for the checks of a
//! team, and outlast its processes: the second run is warm. Teammates and checks share none: what a teammate has put there
//! could make its check pass.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use teamd_shared::environment::Environment;
use teamd_shared::member::Sandbox;
use teamd_shared::name::Name;
use teamd_shared::state::StateDir;
use teamd_shared::team_dir::{DIR_MODE, TeamDir};
use teamd_shared::terms::caches::PrivateCaches;
use uuid::Uuid;

/// How much the caches of one teammate or check may hold when it begins, in bytes: larger ones are removed.
const MOST: u64 = 4 << 30;

/// In how many files.
const MOST_FILES: u64 = 500_000;

/// How much of a cache of the user is copied, in bytes. A larger one is not: its tool begins with an empty one.
const MOST_COPIED: u64 = 256 << 20;

/// In how many files.
const MOST_FILES_COPIED: u64 = 50_000;

/// What is added to the name of a directory for the file that says whose work has written there, and is not accepted yet.
const UNPROVEN: &str = ".unproven";

/// For what commands run, which says where their caches are.
#[derive(Debug, Clone)]
pub(crate) enum Keeps {
    /// They have none: git of ours.
    Nothing,
    /// For a teammate.
    Member(Name),
    /// To check work.
    Checks {
        /// The directory.
        folder: PathBuf,
        /// Which work.
        of: String,
    },
}

impl Keeps {
    /// Makes the directory; none if nothing is kept.
    ///
    /// # Errors
    /// The system's error, or what the state directory says.
    pub(crate) fn make(&self, environment: &Environment, team: &TeamDir) -> anyhow::Result<Option<PathBuf>> {
        let folder = match self {
            Self::Nothing => return Ok(None),
            Self::Member(name) => StateDir::of_environment(environment)?.make_for_agent(team, name)?,
            Self::Checks { folder, of } => {
                forget_unproven(folder, of)?;
                DirBuilder::new().recursive(true).mode(DIR_MODE).create(folder)?;
                folder.clone()
            }
        };
        let folder = folder.canonicalize()?;
        let at = cache_in(&folder);
        if at.exists() && !is_smaller(&at, MOST, MOST_FILES)? {
            tracing::info!("{} has become too large, and is removed", at.display());
            remove(&at)?;
        }
        DirBuilder::new().recursive(true).mode(DIR_MODE).create(&at)?;
        Ok(Some(folder))
    }
}

/// Returns where caches lie in a directory that [`Keeps::make`] has made.
fn cache_in(folder: &Path) -> PathBuf {
    folder.join("cache")
}

/// Tells the tools in an environment where the caches in a directory are, and copies those of the user that they begin with.
pub(crate) fn tell(environment: &mut Environment, sandbox: &Sandbox, folder: &Path) {
    let PrivateCaches { variables, copies } =
        PrivateCaches::plan(environment, &sandbox.writable, &cache_in(folder));
    for (users, own) in copies {
        if let Err(error) = begin_with(&users, &own) {
            tracing::warn!("{} begins empty, and not as {}: {error}", own.display(), users.display());
        }
    }
    variables.iter().for_each(|(name, at)| environment.set(name, &at.to_string_lossy()));
}

/// What one check has left is kept for the next if its work was accepted: else a build that failed could make another one pass.
/// A check of the same work goes on with what its first attempt has left.
fn forget_unproven(folder: &Path, of: &str) -> anyhow::Result<()> {
    let note = note_of(folder);
    let before = match fs::read_to_string(&note) {
        Ok(before) => Some(before),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    if before.as_deref().is_some_and(|before| before != of) && folder.exists() {
        remove(folder)?;
    }
    if let Some(above) = note.parent() {
        DirBuilder::new().recursive(true).mode(DIR_MODE).create(above)?;
    }
    fs::File::create(&note).and_then(|mut note| io::Write::write_all(&mut note, of.as_bytes()))?;
    Ok(())
}

/// Takes in that work is accepted: what its check has left is kept.
pub(crate) fn accept(folder: &Path, of: &str) {
    let note = note_of(folder);
    if fs::read_to_string(&note).is_ok_and(|before| before == of)
        && let Err(error) = fs::remove_file(&note)
    {
        tracing::warn!("the next check begins with empty caches: {error}");
    }
}

fn note_of(folder: &Path) -> PathBuf {
    let mut name = folder.as_os_str().to_owned();
    name.push(UNPROVEN);
    name.into()
}

/// Copies a cache of the user, unless there is one already, or it is too large to be copied.
fn begin_with(users: &Path, own: &Path) -> io::Result<()> {
    if own.exists() {
        return Ok(());
    }
    let Some(above) = own.parent() else { return Ok(()) };
    fs::create_dir_all(above)?;
    // What is copied by half never has that name.
    let begun = above.join(format!(".begun-{}", Uuid::new_v4().simple()));
    fs::create_dir(&begun)?;
    let mut done = Ok(());
    if is_smaller(users, MOST_COPIED, MOST_FILES_COPIED)? {
        done = copy(users, &begun);
    }
    match done {
        Ok(()) => fs::rename(&begun, own),
        Err(error) => {
            remove(&begun)?;
            Err(error)
        }
    }
}

/// Copies what is in a directory: directories, files and links. What is not readable is left out, like all else.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut left = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = left.pop() {
        for entry in fs::read_dir(&from)? {
            let entry = entry?;
            let (path, copy, kind) = (entry.path(), to.join(entry.file_name()), entry.file_type()?);
            let copied = if kind.is_dir() {
                fs::create_dir(&copy)?;
                left.push((path, copy));
                Ok(())
            } else if kind.is_symlink() {
                std::os::unix::fs::symlink(fs::read_link(&path)?, &copy)
            } else if kind.is_file() {
                fs::copy(&path, &copy).map(drop)
            } else {
                Ok(())
            };
            match copied {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                copied => copied?,
            }
        }
    }
    Ok(())
}

/// Tells whether a directory takes less room than this. Commands may write there meanwhile.
fn is_smaller(folder: &Path, bytes: u64, files: u64) -> io::Result<bool> {
    let (mut room, mut names, mut left) = (bytes, files, vec![folder.to_owned()]);
    while let Some(at) = left.pop() {
        let entries = match fs::read_dir(&at) {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) =>
            {
                continue;
            }
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let Ok(found) = entry.metadata() else { continue };
            let taken = found.blocks().saturating_mul(512);
            let (Some(less), Some(fewer)) = (room.checked_sub(taken), names.checked_sub(1)) else {
                return Ok(false);
            };
            (room, names) = (less, fewer);
            if found.is_dir() {
                left.push(entry.path());
            }
        }
    }
    Ok(true)
}

fn remove(folder: &Path) -> io::Result<()> {
    crate::git::remove(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_begins_as_a_copy_once_and_a_large_one_empty() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        fs::create_dir_all(root.join("users/deep")).unwrap();
        let write = |at: &str, text: &str| {
            io::Write::write_all(&mut fs::File::create(root.join(at)).unwrap(), text.as_bytes()).unwrap();
        };
        write("users/deep/file", "one");
        std::os::unix::fs::symlink("/etc/passwd", root.join("users/link")).unwrap();
        let own = root.join("own/tool");
        begin_with(&root.join("users"), &own).unwrap();
        assert_eq!(fs::read_to_string(own.join("deep/file")).unwrap(), "one");
        assert!(own.join("link").is_symlink());
        write("users/deep/file", "two");
        begin_with(&root.join("users"), &own).unwrap();
        assert_eq!(fs::read_to_string(own.join("deep/file")).unwrap(), "one", "it is its own by now");
        assert!(!is_smaller(&root.join("users"), 1, 100).unwrap());
        assert!(!is_smaller(&root.join("users"), 1 << 20, 1).unwrap());
        assert!(is_smaller(&root.join("users"), 1 << 20, 100).unwrap());
        assert_eq!(fs::read_dir(root.join("own")).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn what_the_check_of_refused_work_has_left_is_gone_before_another_check() {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir(scratch.path().join("team")).unwrap();
        let team = TeamDir::open(&scratch.path().join("team")).unwrap();
        let folder = scratch.path().join("checks");
        let begin = |of: &str| {
            let keeps = Keeps::Checks { folder: folder.clone(), of: of.to_owned() };
            let folder = keeps.make(&Environment::default(), &team).unwrap().unwrap();
            let left = cache_in(&folder).join("left");
            let before = left.exists();
            fs::File::create(left).unwrap();
            before
        };
        assert!(!begin("1 1"));
        assert!(begin("1 1"), "the same work");
        assert!(!begin("1 2"), "it has failed");
        accept(&folder, "1 1");
        assert!(!begin("1 3"), "what was accepted is older");
        accept(&folder, "1 3");
        assert!(begin("2 1"), "it was accepted");
    }
}
