//! Finds where things lie when an incarnation begins, and looks at them before each command.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use teamd_shared::environment::Environment;
use teamd_shared::installed::InstalledPrograms;
use teamd_shared::member::{Gate, Sandbox};
use teamd_shared::register::Register;
use teamd_shared::repository::named_by;
use teamd_shared::sandbox::Layers;
use teamd_shared::state::{StateDir, StateError};
use teamd_shared::team_dir::{DIR_MODE, TeamDir};
use teamd_shared::user_dirs::config_dir;

use super::git::{self, Elsewhere};
use super::git_setting_files::GitSettings;
use super::home::{self, Home};
use super::mount_table::{aliases, mounts};
use super::place::{Place, real_path};
use super::places::{CommandPlaces, SeenOfHomes};
use super::policy::{Policy, Present};
use super::secret_paths::Secrets;
use super::secrets;

/// What an incarnation began with, as far as that says where things lie.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    /// The environment of the spawn.
    pub(crate) environment: &'a Environment,
    /// Where commands of the team may or once could write.
    pub(crate) territory: &'a [PathBuf],
    /// What is hidden by name.
    pub(crate) hidden: &'a [String],
    /// What is seen by name.
    pub(crate) visible: &'a [String],
    /// The state directory of an agent.
    pub(crate) state: Option<&'a Path>,
    /// What is seen although it lies in something hidden.
    pub(crate) shown: &'a [PathBuf],
    /// What is not written although it lies in something writable.
    pub(crate) sealed: &'a [PathBuf],
    /// The programs of the team, as the daemon was started.
    pub(crate) programs: &'a [PathBuf],
    /// The configuration of the user as the daemon finds it, which can have another environment.
    pub(crate) config: Option<&'a Path>,
}

impl CommandPlaces {
    /// Finds out where things lie for commands that work in a directory, may write these places,
    /// and have `temp` for temporary files. The paths are without links.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn find(
        workspace: &Path,
        team_dir: &TeamDir,
        writable: Vec<Place>,
        temp: &Path,
        Origin {
            environment,
            territory,
            hidden,
            visible,
            state,
            shown,
            sealed,
            programs,
            config,
        }: Origin<'_>,
    ) -> io::Result<Self> {
        let mut places = Self {
            workspace: Place::learn(workspace)?,
            team_dir: team_dir.root().to_owned(),
            temp: Place::learn(temp)?,
            state: state.map(Place::learn).transpose()?,
            writable,
            territory: territory.to_vec(),
            homes: homes(environment),
            shown: shown
                .iter()
                .cloned()
                .chain(state.map(Path::to_owned))
                .collect(),
            sealed: sealed.to_vec(),
            elsewhere: Elsewhere::find(workspace),
            ..Self::default()
        };
        places.seen = SeenOfHomes {
            visible: visible.iter().map(PathBuf::from).collect(),
            tools: home::tools(environment, &places.homes),
            git: GitSettings::of(environment, &places.homes),
        };
        places.registers = registers(environment, &places.homes);
        let states = places.registers.iter().map(Register::state);
        for state in states.filter(|state| places.is_writable(state.root())) {
            // A command could make one that is missing, and forge its content.
            match state.make() {
                // Where this user may not, a command may not either.
                Err(StateError::Io { source, .. }) if is_refused(source.kind()) => {}
                made => made.map_err(io::Error::other)?,
            }
        }
        places.configs = configs(environment, &places.homes);
        places.configs.extend(
            config
                .map(Path::to_owned)
                .filter(|config| !places.configs.contains(config)),
        );
        for config in places
            .configs
            .iter()
            .filter(|config| places.is_writable(config))
        {
            make(config)?;
        }
        let installed = installed(environment, &places.homes);
        for folder in installed.iter().filter(|it| places.is_writable(it)) {
            // A command could make one that is missing, and put programs of its own into it.
            make(folder)?;
        }
        let installed: Vec<_> = installed
            .iter()
            .filter_map(|it| it.canonicalize().ok())
            .collect();
        places.shown.extend(installed.iter().cloned());
        places.secrets = Secrets::of(places.clone(), environment.clone(), hidden);
        let mounts = mounts()?;
        let programs = programs.iter().filter_map(|it| it.canonicalize().ok());
        let programs = programs.chain(installed);
        places.programs = programs
            .flat_map(|path| {
                let aliases = aliases(&path, &mounts);
                [path].into_iter().chain(aliases)
            })
            .collect();
        Ok(places)
    }

    /// Returns what a command may do now; none: all that the user may. `weak`: it runs even where
    /// the layers do not keep all that a sandbox promises.
    ///
    /// # Errors
    /// Why no command is run, for the model.
    pub fn policy(
        &self,
        sandbox: &Sandbox,
        gate: Gate,
        (layers, weak): (Layers, bool),
    ) -> Result<Option<Policy>, String> {
        let present = self.present()?;
        let Some(policy) = Policy::of(sandbox, gate, self, present, layers) else {
            return Ok(None);
        };
        policy
            .all_writable()
            .try_for_each(|it| it.place.check(&it.place.path))?;
        if gate == Gate::Open {
            sandbox
                .is_kept_by(layers)
                .map_err(|why| format!("not run: {why}"))?;
        }
        let temp = &self.temp.path;
        let is_shown = policy.shown.iter().any(|shown| temp.starts_with(shown));
        if let Some(hidden) = policy
            .hidden
            .iter()
            .find(|it| temp.starts_with(&it.path) && !is_shown)
        {
            return Err(format!(
                "not run: its temporary directory {} lies in {}, which is hidden: spawn it with another TMPDIR",
                temp.display(),
                hidden.path.display()
            ));
        }
        match if !weak {
            policy.weakness(&self.programs)
        } else {
            None
        } {
            Some(why) => Err(format!("not run: it cannot be confined as promised: {why}")),
            None => Ok(Some(policy)),
        }
    }

    /// Looks at what lies where now.
    fn present(&self) -> Result<Present, String> {
        let mut inside = Vec::new();
        let mut git_files = Vec::new();
        for place in [&self.workspace].into_iter().chain(&self.writable) {
            let named = named_by(&place.path);
            inside.extend(named.filter(|it| self.is_repository_inside(it)));
            let file = place.path.join(git::GIT);
            if git::is_git_file(&file) {
                git_files.push(file);
            }
        }
        let (known, seen) = self.secrets.look()?;
        let settings = self.seen.git.read(self, known);
        let home = Home::look(self, &self.needed(settings.paths));
        let secrets = secrets::present(known, &seen, self, &home)?;
        let mut shown = home.seen;
        for link in settings.links {
            if home.hidden.iter().any(|hidden| link.starts_with(hidden)) {
                shown.push(link);
            }
        }
        Ok(Present {
            secrets,
            shown,
            teams: self.present_teams()?,
            elsewhere: Elsewhere::find(&self.workspace.path)
                .filter(|it| self.elsewhere.as_ref() == Some(it) && !self.is_writable(&it.own)),
            inside,
            git_files,
        })
    }

    /// Tells whether a directory is a repository by itself that a command may write.
    fn is_repository_inside(&self, folder: &Path) -> bool {
        self.is_writable(folder)
            && folder.join("HEAD").exists()
            && !folder.join("commondir").exists()
    }

    /// Returns what commands see although it can lie in a dot folder of a home. `settings`: what
    /// the settings of `git` lead to.
    fn needed(&self, settings: Vec<PathBuf>) -> Vec<PathBuf> {
        let own = [&self.workspace, &self.temp]
            .into_iter()
            .chain(&self.state)
            .chain(&self.writable);
        let own = own.map(|place| &place.path).chain(&self.shown);
        let of_git = self
            .elsewhere
            .iter()
            .flat_map(|tree| [&tree.own, &tree.common]);
        own.chain(&self.seen.visible)
            .chain(&self.seen.tools)
            .chain(of_git)
            .cloned()
            .chain(settings)
            .collect()
    }

    /// Returns where team directories of the user, this one and others, and their registers lie
    /// now, by every path.
    fn present_teams(&self) -> Result<Vec<PathBuf>, String> {
        let mut paths = teams(&self.registers)?;
        paths.push(self.team_dir.clone());
        paths.extend(self.configs.iter().filter(|path| path.is_dir()).cloned());
        for path in &mut paths {
            // The user can have moved a directory above it, and put a link in its place.
            if let Ok(real) = real_path(path) {
                *path = real;
            }
        }
        let mounts =
            mounts().map_err(|error| format!("cannot look up what is mounted: {error}"))?;
        let elsewhere: Vec<_> = paths
            .iter()
            .flat_map(|path| aliases(path, &mounts))
            .collect();
        paths.extend(elsewhere);
        paths.sort();
        paths.dedup();
        Ok(paths)
    }
}

/// Returns where registered team directories and their registers lie that are there, without links.
///
/// # Errors
/// A text for the model, if a register cannot be read.
pub fn teams(registers: &[Register]) -> Result<Vec<PathBuf>, String> {
    let mut teams = Vec::new();
    for register in registers
        .iter()
        .filter(|register| !register.state().is_foreign())
    {
        let (paths, unread) = register
            .all()
            .map_err(|error| format!("cannot see which teams there are: {error}"))?;
        // `teamctl doctor` names it as well.
        for why in unread.iter() {
            tracing::warn!("a team is not hidden: {why}");
        }
        // Only a directory can be the one that was registered.
        teams.extend(
            paths
                .into_iter()
                .filter(|path| path.symlink_metadata().is_ok_and(|it| it.is_dir())),
        );
    }
    Ok(teams)
}

/// Returns the registers of the user: where the environment says, and in each home.
fn registers(environment: &Environment, homes: &[PathBuf]) -> Vec<Register> {
    let named = StateDir::of_environment(environment).into_iter();
    let mut all: Vec<_> = named
        .chain(homes.iter().map(|home| StateDir::of_home(home)))
        .collect();
    all.dedup();
    all.into_iter().map(Register::new).collect()
}

/// Returns where the configuration of the user lies: where the environment says, and in each home.
fn configs(environment: &Environment, homes: &[PathBuf]) -> Vec<PathBuf> {
    let named = config_dir(|name| environment.path(name).map(PathBuf::into_os_string)).into_iter();
    let mut all: Vec<_> = named
        .chain(homes.iter().map(|home| home.join(".config/teamd")))
        .collect();
    all.dedup();
    all
}

/// Returns where the programs lie that the user has installed for agents: where the environment
/// says, and in each home.
fn installed(environment: &Environment, homes: &[PathBuf]) -> Vec<PathBuf> {
    let named = InstalledPrograms::of_environment(environment).into_iter();
    let of_homes = homes.iter().map(|home| InstalledPrograms::of_home(home));
    let mut all: Vec<_> = named
        .chain(of_homes)
        .map(|programs| programs.root().to_owned())
        .collect();
    all.dedup();
    all
}

/// Makes a folder of the user, unless this user may not: then a command may not, either.
fn make(folder: &Path) -> io::Result<()> {
    let made = DirBuilder::new()
        .recursive(true)
        .mode(DIR_MODE)
        .create(folder);
    match made {
        Err(error) if is_refused(error.kind()) => Ok(()),
        made => made,
    }
}

fn is_refused(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    )
}

/// Returns the home that the environment of the spawn names, and that of the user: secrets lie in
/// both.
fn homes(environment: &Environment) -> Vec<PathBuf> {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid())
        .ok()
        .flatten();
    let named = environment
        .path("HOME")
        .into_iter()
        .chain(user.map(|user| user.dir));
    let mut homes: Vec<_> = named.filter_map(|home| home.canonicalize().ok()).collect();
    homes.dedup();
    homes
}

/// Takes the paths that may be written by name, as the daemon has recorded them: without links when
/// they were named. A link on the way now was made since, and would decide what its maker may
/// write. Returns the places that can be written, and those that cannot, with the reason in words
/// for the model. What is only missing is in neither.
pub(crate) fn take_writable(named: &[String], team_dir: &Path) -> (Vec<Place>, Vec<String>) {
    let mut taken = Vec::new();
    let mut lost = Vec::new();
    for name in named {
        let path = Path::new(name);
        let why = match Place::learn(path).map_err(|error| (Errno::from_io_error(&error), error)) {
            _ if !path.is_absolute() => "it is not absolute".to_owned(),
            _ if path.starts_with(team_dir) => "it lies in the team directory".to_owned(),
            Ok(place) => {
                taken.push(place);
                continue;
            }
            Err((Some(Errno::LOOP), _)) => {
                "there is a symbolic link on the way to it, and there was none when it was named"
                    .to_owned()
            }
            Err((Some(Errno::NOENT), _)) => {
                tracing::warn!(
                    "commands will not write {name}, which is allowed by name: it is not there"
                );
                continue;
            }
            Err((_, error)) => error.to_string(),
        };
        tracing::warn!("commands will not write {name}, which is allowed by name: {why}");
        lost.push(format!("{name} ({why})"));
    }
    (taken, lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use teamd_shared::sandbox::Namespaces;

    #[test]
    fn what_is_itself_is_taken_and_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = folder.path().canonicalize().unwrap();
        for name in ["cache/sub", "home", "apart/team/run"] {
            fs::create_dir_all(scratch.join(name)).unwrap();
        }
        fs::File::create(scratch.join("file")).unwrap();
        symlink("cache", scratch.join("link")).unwrap();
        symlink(scratch.join("home"), scratch.join("cache/planted")).unwrap();
        let take = |named: &[&str]| {
            let named: Vec<_> = named
                .iter()
                .map(|path| format!("{}/{path}", scratch.display()))
                .collect();
            take_writable(&named, &scratch.join("apart/team"))
        };
        let (taken, lost) = take(&["cache/sub", "file", "missing", "apart"]);
        let paths: Vec<_> = taken.into_iter().map(|it| it.path).collect();
        assert_eq!(
            paths,
            ["cache/sub", "file", "apart"].map(|path| scratch.join(path))
        );
        assert_eq!(lost, [""; 0], "what is missing is nothing to tell");
        for (bad, why) in [
            ("link", "a symbolic link"),
            ("link/sub", "a symbolic link"),
            ("cache/planted", "a symbolic link"),
            ("apart/team", "in the team directory"),
            ("apart/team/run", "in the team directory"),
        ] {
            let (taken, lost) = take(&[bad]);
            assert!(taken.is_empty() && lost[0].contains(why), "{bad} {lost:?}");
        }
        let (_, lost) = take_writable(&["relative".to_owned()], &scratch);
        assert_eq!(lost, ["relative (it is not absolute)"]);
    }
    /// A person may allow a weak sandbox, but trusts a list of hosts nevertheless.
    #[test]
    fn no_command_is_run_with_a_list_of_hosts_that_nothing_can_hold() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Place::of_this_call(folder.path().canonicalize().unwrap());
        let team_dir = workspace.path.join("team");
        let places = CommandPlaces {
            workspace: workspace.clone(),
            temp: workspace,
            team_dir,
            ..CommandPlaces::default()
        };
        let listed = Sandbox {
            hosts: vec!["example.org".to_owned()],
            ..Sandbox::default()
        };
        let policy = |sandbox: &Sandbox, gate, namespaces| {
            let layers = Layers {
                namespaces,
                landlock: 7,
                seccomp: true,
            };
            places
                .policy(sandbox, gate, (layers, true))
                .map(|policy| policy.unwrap().network)
        };
        for namespaces in [Namespaces::None, Namespaces::Bubblewrap] {
            let refused = policy(&listed, Gate::Open, namespaces).unwrap_err();
            assert!(refused.contains("`network` lists hosts"), "{refused}");
            assert_eq!(policy(&listed, Gate::Closed, namespaces), Ok(false));
            assert_eq!(
                policy(&Sandbox::default(), Gate::Open, namespaces),
                Ok(true)
            );
        }
        assert_eq!(
            policy(&listed, Gate::Open, Namespaces::Own),
            Ok(false),
            "it is not that of the machine"
        );
    }
}
