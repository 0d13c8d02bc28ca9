//! The caches of commands that may not write the user's. They lie in the state directory, for one
//! teammate or for the checks of a team, and outlast its processes: the second run is warm.
//! Teammates and checks share none: what a teammate has put there could make its check pass.

mod copy;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, mkdirat, renameat};
use rustix::io::Errno;
use teamd_shared::caches::PrivateCaches;
use teamd_shared::environment::Environment;
use teamd_shared::member::{Sandbox, SandboxMode};
use teamd_shared::name::Name;
use teamd_shared::place::{make_below, open_below, open_itself};
use teamd_shared::state::StateDir;
use teamd_shared::team_dir::{DIR_MODE, TeamDir};
use uuid::Uuid;

use crate::CommandPlaces;
use crate::remove::remove;
use copy::CacheSource;

/// How much the caches of one teammate or check may hold when it begins, in bytes: larger ones are
/// removed.
const MOST: u64 = 4 << 30;

/// In how many files.
const MOST_FILES: u64 = 500_000;

/// The name of the directory in which caches lie, below the one that [`Keeps::make`] makes.
/// Commands write both.
const CACHE: &str = "cache";

/// What is added to the name of a directory for the file that says whose work has written there,
/// and is not accepted yet.
const UNPROVEN: &str = ".unproven";

/// Whom commands run for. It says where their caches are.
#[derive(Debug, Clone)]
pub enum Keeps {
    /// They have none: our own `git`.
    Nothing,
    /// For the commands of a teammate, which can do without.
    Member(Name),
    /// For the agent of a teammate, which keeps its sessions there.
    Agent(Name),
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
    pub(crate) fn make(
        &self,
        environment: &Environment,
        team: &TeamDir,
    ) -> anyhow::Result<Option<PathBuf>> {
        let folder = match self {
            Self::Nothing => return Ok(None),
            Self::Member(name) | Self::Agent(name) => {
                StateDir::of_environment(environment)?.make_for_agent(team, name)?
            }
            Self::Checks { folder, of } => {
                forget_unproven(folder, of)?;
                DirBuilder::new()
                    .recursive(true)
                    .mode(DIR_MODE)
                    .create(folder)?;
                folder.clone()
            }
        };
        let folder = folder.canonicalize()?;
        let opened = open_itself(&folder, OFlags::PATH | OFlags::DIRECTORY)?;
        let is_there =
            open_below(&opened, Path::new(CACHE), OFlags::PATH | OFlags::DIRECTORY).is_ok();
        let at = cache_in(&folder);
        if is_there && !is_smaller(&at, MOST, MOST_FILES)? {
            tracing::info!("{} has become too large, and is removed", at.display());
            remove(&at)?;
        }
        // This process is not confined: a link that a command has put there would have it write
        // elsewhere.
        make_below(&opened, Path::new(CACHE), Mode::from_raw_mode(DIR_MODE))?;
        Ok(Some(folder))
    }
}

/// Returns where caches lie in a directory that [`Keeps::make`] has made.
fn cache_in(folder: &Path) -> PathBuf {
    folder.join(CACHE)
}

/// Tells the tools in an environment where the caches in a directory are, and copies those of the
/// user that they begin with.
pub(crate) fn tell(
    environment: &mut Environment,
    sandbox: &Sandbox,
    places: &CommandPlaces,
    folder: &Path,
) {
    let mut writable = sandbox.writable.clone();
    if sandbox.mode == SandboxMode::WorkspaceWrite {
        writable.extend(places.workspace.path.to_str().map(str::to_owned));
    }
    let PrivateCaches { variables, copies } =
        PrivateCaches::plan(environment, &writable, &cache_in(folder));
    for (users, own) in copies {
        if let Err(error) = begin_with(&users, folder, &own, environment, places) {
            tracing::warn!(
                "{} begins empty, and not as {}: {error}",
                own.display(),
                users.display()
            );
        }
    }
    for (name, at) in variables.iter() {
        environment.set(name, &at.to_string_lossy());
    }
}

/// What one check has left is kept for the next if its work was accepted: else a build that failed
/// could make another one pass. A check of the same work continues with what its first attempt has
/// left.
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
        DirBuilder::new()
            .recursive(true)
            .mode(DIR_MODE)
            .create(above)?;
    }
    fs::File::create(&note).and_then(|mut note| io::Write::write_all(&mut note, of.as_bytes()))?;
    Ok(())
}

/// Records that work is accepted: what its check has left is kept.
pub fn accept(folder: &Path, of: &str) {
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

/// Copies a cache of the user below a directory that commands write, unless there is one already.
/// It begins empty if that of the user is too large to be copied, or is nothing that may be copied.
fn begin_with(
    users: &Path,
    folder: &Path,
    own: &Path,
    environment: &Environment,
    places: &CommandPlaces,
) -> io::Result<()> {
    let opened = open_itself(folder, OFlags::PATH | OFlags::DIRECTORY)?;
    let below = own.strip_prefix(folder).map_err(io::Error::other)?;
    let Some(above) = below.parent() else {
        return Ok(());
    };
    let Some(name) = below.file_name() else {
        return Ok(());
    };
    match open_below(&opened, below, OFlags::PATH) {
        Err(Errno::NOENT) => {}
        // Commands have put something there, of any kind.
        Ok(_) | Err(Errno::LOOP | Errno::NOTDIR) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    }
    let mode = Mode::from_raw_mode(DIR_MODE);
    let parent = make_below(&opened, above, mode)?;
    // What is copied by half never has that name.
    let begun = format!(".begun-{}", Uuid::new_v4().simple());
    mkdirat(&parent, &begun, mode)?;
    match fill(
        &parent,
        &begun,
        CacheSource::find(users, environment, places),
    ) {
        Ok(()) => Ok(renameat(&parent, &begun, &parent, name)?),
        Err(error) => {
            remove(&folder.join(above).join(&begun))?;
            Err(error)
        }
    }
}

fn fill(parent: &OwnedFd, begun: &str, source: io::Result<Option<CacheSource>>) -> io::Result<()> {
    let Some(source) = source? else { return Ok(()) };
    if !source.is_small()? {
        return Ok(());
    }
    source.copy_to(&open_below(
        parent,
        Path::new(begun),
        OFlags::PATH | OFlags::DIRECTORY,
    )?)
}

/// Tells whether a directory takes less room than this. Commands may write there meanwhile.
fn is_smaller(folder: &Path, bytes: u64, files: u64) -> io::Result<bool> {
    let mut room = bytes;
    let mut names = files;
    let mut left = vec![folder.to_owned()];
    while let Some(at) = left.pop() {
        let entries = match fs::read_dir(&at) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
                ) =>
            {
                continue;
            }
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            let taken = metadata.blocks().saturating_mul(512);
            let Some(less) = room.checked_sub(taken) else {
                return Ok(false);
            };
            let Some(fewer) = names.checked_sub(1) else {
                return Ok(false);
            };
            room = less;
            names = fewer;
            if metadata.is_dir() {
                left.push(entry.path());
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::Place;

    fn write(at: &Path, text: &str) {
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        io::Write::write_all(&mut fs::File::create(at).unwrap(), text.as_bytes()).unwrap();
    }

    /// A home with a cache of uv, a secret, and the directory of a teammate that works in
    /// `home/web`.
    struct Scene {
        _scratch: tempfile::TempDir,
        root: PathBuf,
        places: CommandPlaces,
    }

    impl Scene {
        fn new() -> Self {
            let scratch = tempfile::tempdir().unwrap();
            let root = scratch.path().canonicalize().unwrap();
            write(&root.join("home/.cache/uv/deep/file"), "one");
            write(&root.join("home/.ssh/id"), "key");
            fs::create_dir_all(root.join("home/web")).unwrap();
            fs::create_dir_all(root.join("own/cache")).unwrap();
            let places = CommandPlaces {
                workspace: Place::of_this_call(root.join("home/web")),
                homes: vec![root.join("home")],
                secrets: vec![
                    root.join("home/.ssh"),
                    root.join("home/.cache/uv/deep/hidden"),
                ]
                .into(),
                ..CommandPlaces::default()
            };
            Self {
                _scratch: scratch,
                root,
                places,
            }
        }

        /// Begins again, with a variable or more.
        fn tell(&self, variables: &[(&str, &str)]) -> Environment {
            let mut environment = Environment::default();
            environment.set("HOME", &self.root.join("home").to_string_lossy());
            for (name, value) in variables {
                environment.set(name, &self.root.join(value).to_string_lossy());
            }
            let sandbox = Sandbox {
                mode: SandboxMode::WorkspaceWrite,
                ..Sandbox::default()
            };
            tell(
                &mut environment,
                &sandbox,
                &self.places,
                &self.root.join("own"),
            );
            environment
        }

        fn own(&self, path: &str) -> Option<String> {
            fs::read_to_string(self.root.join("own/cache").join(path)).ok()
        }
    }

    #[test]
    fn a_cache_begins_as_a_copy_once_without_secrets_and_no_link_is_followed() {
        let scene = Scene::new();
        let users = scene.root.join("home/.cache/uv");
        write(&users.join("deep/hidden"), "key");
        fs::hard_link(scene.root.join("home/.ssh/id"), users.join("deep/other")).unwrap();
        symlink(scene.root.join("home/.ssh/id"), users.join("link")).unwrap();
        let mut scene = scene;
        scene.places.secrets =
            vec![scene.root.join("home/.ssh/id"), users.join("deep/hidden")].into();
        scene.tell(&[]);
        assert_eq!(scene.own("uv/deep/file").as_deref(), Some("one"));
        assert!(scene.root.join("own/cache/uv/link").is_symlink());
        assert_eq!(
            (scene.own("uv/deep/hidden"), scene.own("uv/deep/other")),
            (None, None)
        );
        write(&users.join("deep/file"), "two");
        scene.tell(&[]);
        assert_eq!(
            scene.own("uv/deep/file").as_deref(),
            Some("one"),
            "it is its own by now"
        );
        assert_eq!(
            fs::read_dir(scene.root.join("own/cache")).unwrap().count(),
            1,
            "nothing else is left"
        );
        assert!(!is_smaller(&users, 1, 100).unwrap());
        assert!(!is_smaller(&users, 1 << 20, 1).unwrap());
        assert!(is_smaller(&users, 1 << 20, 100).unwrap());
    }

    #[test]
    fn nothing_is_copied_from_where_a_teammate_writes_or_from_behind_a_link() {
        let mut scene = Scene::new();
        let work = scene.root.join("home/web");
        fs::create_dir_all(work.join(".cache")).unwrap();
        symlink(scene.root.join("home/.ssh"), work.join(".cache/pip")).unwrap();
        let environment = scene.tell(&[("PIP_CACHE_DIR", "home/web/.cache/pip")]);
        assert_eq!(
            environment.path("PIP_CACHE_DIR"),
            Some(work.join(".cache/pip")),
            "it is used as it is"
        );
        assert_eq!(scene.own("pip/id"), None);
        // Of another teammate, of the user, outside of the home, and around where a teammate
        // writes.
        fs::create_dir_all(scene.root.join("home/api")).unwrap();
        symlink("../.ssh", scene.root.join("home/api/npm")).unwrap();
        write(&scene.root.join("home/lib/yarn/in/file"), "x");
        scene.places.territory = vec![
            scene.root.join("home/api"),
            scene.root.join("home/lib/yarn/in"),
        ];
        symlink(".ssh", scene.root.join("home/linked")).unwrap();
        write(&scene.root.join("outside/file"), "x");
        scene.tell(&[
            ("npm_config_cache", "home/api/npm"),
            ("YARN_CACHE_FOLDER", "home/lib/yarn"),
            ("DENO_DIR", "home/linked"),
            ("PDM_CACHE_DIR", "outside"),
            ("PRE_COMMIT_HOME", "home/.ssh"),
            ("COMPOSER_CACHE_DIR", "home/api/../.ssh"),
        ]);
        for tool in ["npm", "yarn", "deno", "pdm", "pre-commit", "composer"] {
            let begun = scene.root.join("own/cache").join(tool);
            assert_eq!(
                fs::read_dir(&begun).map(Iterator::count).ok(),
                Some(0),
                "{tool}"
            );
        }
        assert_eq!(scene.own("uv/deep/file").as_deref(), Some("one"));
    }

    #[test]
    fn a_link_that_a_command_has_put_in_the_place_of_a_cache_leads_nowhere() {
        let scene = Scene::new();
        let target = scene.root.join("home/target");
        fs::create_dir_all(target.join("node")).unwrap();
        write(&scene.root.join("home/.cache/node/corepack/file"), "x");
        let folder = scene.root.join("own");
        let keeps = Keeps::Checks {
            folder: folder.clone(),
            of: "1 1".to_owned(),
        };
        let team = TeamDir::open(&scene.root.join("home/web")).unwrap();
        fs::remove_dir(folder.join("cache")).unwrap();
        symlink(&target, folder.join("cache")).unwrap();
        keeps.make(&Environment::default(), &team).unwrap();
        assert!(!folder.join("cache").is_symlink());
        symlink(target.join("node"), folder.join("cache/node")).unwrap();
        symlink(target.join("uv"), folder.join("cache/uv")).unwrap();
        scene.tell(&[]);
        assert_eq!(fs::read_dir(&target).unwrap().count(), 1);
        assert_eq!(fs::read_dir(target.join("node")).unwrap().count(), 0);
    }

    #[test]
    fn what_the_check_of_refused_work_has_left_is_gone_before_another_check() {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir(scratch.path().join("team")).unwrap();
        let team = TeamDir::open(&scratch.path().join("team")).unwrap();
        let folder = scratch.path().join("checks");
        let begin = |of: &str| {
            let keeps = Keeps::Checks {
                folder: folder.clone(),
                of: of.to_owned(),
            };
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
