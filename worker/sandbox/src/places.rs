//! Where things lie around the commands of one incarnation.

use std::path::PathBuf;

use teamd_shared::register::Register;

use super::git::Elsewhere;
use super::git_setting_files::GitSettings;
use super::place::Place;
use super::secret_paths::Secrets;

/// Where things lie. All paths are absolute and without links.
#[derive(Debug, Clone, Default)]
pub struct CommandPlaces {
    /// The directory that commands work in.
    pub(crate) workspace: Place,
    /// The team directory.
    pub(crate) team_dir: PathBuf,
    /// The directory that commands may always write, as long as the incarnation lasts.
    pub temp: Place,
    /// The state directory of an agent, which it may always write, too.
    pub state: Option<Place>,
    /// What else may be written, by name.
    pub(crate) writable: Vec<Place>,
    /// Where commands of the team may or once could write. A link there can be theirs: to follow it
    /// would show them what is hidden, or hide from all teammates what they need.
    pub(crate) territory: Vec<PathBuf>,
    /// The home directories of the user: what the environment says, and what the system says.
    pub(crate) homes: Vec<PathBuf>,
    /// The programs of the team, and the folders of those that are installed for agents, by every
    /// path.
    pub programs: Vec<PathBuf>,
    /// Where secrets of the user lie.
    pub secrets: Secrets,
    /// Where the team directories of the user are registered.
    pub registers: Vec<Register>,
    /// Where the user's own configuration lies: the daemon runs the hooks in it.
    pub configs: Vec<PathBuf>,
    /// What commands see although it lies in something hidden.
    pub shown: Vec<PathBuf>,
    /// What commands may not write although it lies where they may write.
    pub(crate) sealed: Vec<PathBuf>,
    /// The repository of the workspace, if that lay elsewhere when the incarnation began. A file
    /// that a command has made since does not count.
    pub(crate) elsewhere: Option<Elsewhere>,
    /// What they see of a home.
    pub(crate) seen: SeenOfHomes,
}

/// What commands see of the homes of the user, although all else that begins with a dot is hidden.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeenOfHomes {
    /// What the user has named.
    pub(crate) visible: Vec<PathBuf>,
    /// The folders of the tools that the environment names.
    pub(crate) tools: Vec<PathBuf>,
    /// Where the user's settings of `git` begin.
    pub(crate) git: GitSettings,
}

/// Where a path of the user leads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UsersPath {
    /// The path without links.
    pub(crate) path: PathBuf,
    /// The links on the way.
    pub(crate) links: Vec<PathBuf>,
}
