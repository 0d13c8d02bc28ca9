//! Where things lie around the commands of one life, found out when it begins.

use std::io;
use std::path::{Path, PathBuf};

use teamd_shared::environment::Environment;
use teamd_shared::register::Register;
use teamd_shared::state::{StateDir, StateError};
use teamd_shared::team_dir::TeamDir;

use super::Known;
use super::linked::LinkedTree;
use super::mountinfo::{aliases, mounts};
use super::policy::Present;
use super::secrets::{self, Needed};
use super::writable::Writable;

/// Where things lie. All paths are absolute and without links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Surroundings {
    /// The directory that commands work in.
    pub(crate) workspace: PathBuf,
    /// The team directory.
    pub(crate) team_dir: PathBuf,
    /// The directory that commands may always write, as long as the life lasts.
    pub(crate) temp: PathBuf,
    /// What is allowed by name to be written.
    pub(crate) writable: Vec<PathBuf>,
    /// What stood where something may be written when the life began.
    pub(crate) known: Vec<Known>,
    /// The home directories of the user: what the environment says, and what the system says.
    pub(crate) homes: Vec<PathBuf>,
    /// The programs of the team, by every path.
    pub(crate) programs: Vec<PathBuf>,
    /// Where that is what nobody but the user reads, by every path, whether it is there or not.
    pub(crate) secrets: Vec<PathBuf>,
    /// Where the team directories of the user are registered.
    pub(crate) registers: Vec<Register>,
}

/// What a life was begun with, as far as it says where things lie.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    /// The environment of whoever asked for it.
    pub(crate) environment: &'a Environment,
    /// Where commands of the team may or once could write.
    pub(crate) territory: &'a [PathBuf],
    /// What is hidden by name.
    pub(crate) hidden: &'a [String],
    /// The programs of the team, as the daemon was started.
    pub(crate) programs: &'a [PathBuf],
}

impl Surroundings {
    /// Finds out where things lie for commands that work in this directory, without links, and have this one for what is
    /// temporary.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn find(
        workspace: PathBuf,
        team_dir: &TeamDir,
        Writable { paths: writable, mut known, .. }: Writable,
        temp: &Path,
        Origin { environment, territory, hidden, programs }: Origin<'_>,
    ) -> io::Result<Self> {
        for path in [workspace.as_path(), temp] {
            known.extend(Known::learn(path)?);
        }
        let homes = homes(environment);
        let registers = registers(environment, &homes);
        for state in registers.iter().map(Register::state) {
            // A command could make one that is missing, and forge what stands in it.
            let is_writable = |above: &PathBuf| state.root().starts_with(above);
            if is_writable(&workspace) || writable.iter().any(is_writable) {
                match state.make() {
                    // Where this user may not, a command may not either.
                    Err(StateError::Io { source, .. }) if is_refused(source.kind()) => {}
                    made => made.map_err(io::Error::other)?,
                }
            }
        }
        let needed = Needed { homes: &homes, workspace: &workspace, writable: &writable, territory };
        let mut secrets = secrets::known(&needed, environment);
        secrets.extend(hidden.iter().map(PathBuf::from));
        // A link that leads there now can be taken away by a command.
        secrets.extend(secrets::led_to(&secrets, &needed).map_err(io::Error::other)?);
        let mounts = mounts()?;
        // What is hidden by one path could be read by another.
        let by_every_path = |path: PathBuf| {
            let aliases = aliases(&path, &mounts);
            [path].into_iter().chain(aliases)
        };
        Ok(Self {
            known,
            team_dir: team_dir.root().to_owned(),
            temp: temp.to_owned(),
            programs: programs
                .iter()
                .filter_map(|it| it.canonicalize().ok())
                .flat_map(by_every_path)
                .collect(),
            secrets: secrets.into_iter().flat_map(by_every_path).collect(),
            workspace,
            writable,
            homes,
            registers,
        })
    }

    /// Returns where team directories of the user, this one and others, and their registers lie now, by every path.
    fn present_teams(&self) -> Result<Vec<PathBuf>, String> {
        let mut found = teams(&self.registers)?;
        found.push(self.team_dir.clone());
        let mounts = mounts().map_err(|error| format!("cannot look up what is mounted: {error}"))?;
        let elsewhere: Vec<_> = found.iter().flat_map(|path| aliases(path, &mounts)).collect();
        found.extend(elsewhere);
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// Looks at what lies where now.
    ///
    /// # Errors
    /// What the model is told, if that cannot be seen.
    pub(crate) fn present(&self) -> Result<Present, String> {
        let Self { homes, workspace, writable, .. } = self;
        let needed = Needed { homes, workspace, writable, territory: &[] };
        let is_foreign = |tree: &LinkedTree| !needed.is_writable(&tree.own);
        Ok(Present {
            secrets: secrets::present(&self.secrets, &needed)?,
            teams: self.present_teams()?,
            linked: LinkedTree::find(workspace).filter(is_foreign),
        })
    }
}

/// Returns where registered team directories and their registers lie that are there, without links.
///
/// # Errors
/// What the model is told, if a register cannot be read.
pub(crate) fn teams(registers: &[Register]) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for register in registers.iter().filter(|register| !register.state().is_foreign()) {
        let (paths, unread) =
            register.all().map_err(|error| format!("cannot see which teams there are: {error}"))?;
        // `teamctl doctor` names it as well.
        unread.iter().for_each(|why| tracing::warn!("a team is not hidden: {why}"));
        // What something else stands for is not the team directory any more.
        found.extend(paths.into_iter().filter(|path| path.symlink_metadata().is_ok_and(|it| it.is_dir())));
    }
    Ok(found)
}

/// Returns the registers of the user: where the environment says, and in each home.
fn registers(environment: &Environment, homes: &[PathBuf]) -> Vec<Register> {
    let named = StateDir::of_environment(environment).into_iter();
    let mut all: Vec<_> = named.chain(homes.iter().map(|home| StateDir::of_home(home))).collect();
    all.dedup();
    all.into_iter().map(Register::new).collect()
}

fn is_refused(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// The home of whoever asked for the teammate, and that of the user: secrets lie in both.
fn homes(environment: &Environment) -> Vec<PathBuf> {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
    let named = environment.path("HOME").into_iter().chain(user.map(|user| user.dir));
    let mut homes: Vec<_> = named.filter_map(|home| home.canonicalize().ok()).collect();
    homes.dedup();
    homes
}
