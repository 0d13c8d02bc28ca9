//! `team.toml`: what a user has settled for a team, beside the team directory. What it may say, and where.
//!
//! Reading is pure but for [`TeamFile::load`]; what the file means for one teammate is worked out in [`resolve`].
//! **Who reads**: whoever starts something, `teamd start` and whoever spawns. A daemon and a worker never do: what the
//! file says reaches them in the order to spawn or as the variables of the same meaning, so a file that is broken
//! later stops nobody who runs. Nothing in here writes the file, and no key to a model's service is read from it.

mod error;
mod keys;
mod read;
pub mod resolve;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags};

pub use error::{Place, TeamFileError};
pub use keys::{KEYS, Key, Table};

use crate::cgroup;
use crate::inbox::Durability;
use crate::member::{ApproveBy, Bounds, Restart, SandboxMode};
use crate::model_spec::ModelSpec;
use crate::name::Name;

/// Its name.
pub const FILE: &str = "team.toml";
/// The variable that names another file than the one beside the team directory.
pub const VARIABLE: &str = "TEAM_FILE";
/// The largest file that is read, in bytes.
pub const MAX_SIZE: u64 = 1 << 20;

/// All that the file says. What it does not say is none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TeamFile {
    /// The file; empty where there is none.
    pub path: PathBuf,
    /// When a message counts as written.
    pub durability: Option<Durability>,
    /// Time between the steps of the termination ladder.
    pub grace: Option<Duration>,
    /// Whether files are looked at on a timer.
    pub poll: Option<bool>,
    /// How long a model may take to answer a shutdown.
    pub decide_within: Option<Duration>,
    /// How long `teamctl shutdown` waits.
    pub shutdown_timeout: Option<Duration>,
    /// How often a worker that crashed is started again within the period.
    pub restart_max: Option<u32>,
    /// The period in which that is counted.
    pub restart_period: Option<Duration>,
    /// How long a worker that should answer may be silent; none in it: as long as it likes.
    pub watchdog: Option<Option<Duration>>,
    /// Whether lives get a cgroup each.
    pub cgroup: Option<cgroup::Use>,
    /// How the models' services are reached.
    pub service: Service,
    /// What holds for everybody, unless a role or a member says otherwise.
    pub everybody: Profile,
    /// What holds for a role, by what the role is called.
    pub roles: BTreeMap<String, Profile>,
    /// What holds for a member.
    pub members: BTreeMap<Name, Profile>,
    /// What holds for the lead agent.
    pub lead: Profile,
}

/// How the models' services are reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Service {
    /// Which certificate authorities are trusted: `platform`, `embedded`, or a file.
    pub ca: Option<String>,
    /// The longest silence in an answer.
    pub timeout: Option<Duration>,
    /// How many tokens a prompt and its answer may have together.
    pub context_window: Option<u64>,
}

/// What is settled for a member, a role, the lead, or everybody.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    /// What it is for.
    pub role: Option<String>,
    /// A member: what it shall do first. A role and the lead: what is added to its system prompt.
    pub prompt: Option<String>,
    /// The model.
    pub model: Option<ModelSpec>,
    /// The directory to work in, as it is written.
    pub workspace: Option<String>,
    /// Whether it must submit a plan first.
    pub plan: Option<bool>,
    /// Who answers its plans.
    pub approve_by: Option<ApproveBy>,
    /// When it is started again.
    pub restart: Option<Restart>,
    /// Model calls for one piece of work.
    pub max_turns: Option<u32>,
    /// Tokens for one piece of work.
    pub max_tokens: Option<u64>,
    /// What one life may use.
    pub bounds: Bounds,
    /// How its commands are confined.
    pub sandbox: SandboxProfile,
}

/// How commands are confined.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SandboxProfile {
    /// What they may write.
    pub mode: Option<SandboxMode>,
    /// Whether they may reach the network.
    pub network: Option<bool>,
    /// What they may write besides, as it is written.
    pub writable: Vec<String>,
    /// What they may not read, as it is written.
    pub hidden: Vec<String>,
    /// Variables that they are given although their names say that they hold a key.
    pub env: Vec<String>,
}

impl TeamFile {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// [`TeamFileError::Wrong`] for the first mistake, with its place.
    pub fn parse(text: &str) -> Result<Self, TeamFileError> {
        read::read(text)
    }

    /// Returns where the file of a team is: where the variable [`VARIABLE`] says, else beside the team directory as the
    /// user names it (beside the link, where it is reached through one).
    pub fn locate(team_dir: &Path, lookup: impl Fn(&str) -> Option<String>) -> PathBuf {
        if let Some(named) = lookup(VARIABLE).filter(|path| !path.is_empty()) {
            return PathBuf::from(named);
        }
        // A path such as `..` does not tell what is beside it.
        let resolved = team_dir.file_name().is_none().then(|| team_dir.canonicalize().ok()).flatten();
        let team_dir = resolved.as_deref().unwrap_or(team_dir);
        team_dir.parent().unwrap_or(team_dir).join(FILE)
    }

    /// Reads a file; one that is not there says nothing.
    ///
    /// # Errors
    /// [`TeamFileError`] if it cannot be read, is not the user's, or has a mistake.
    pub fn load(path: &Path) -> Result<Self, TeamFileError> {
        let Some(bytes) = bytes_of(path)? else { return Ok(Self::default()) };
        let read = match std::str::from_utf8(&bytes) {
            Ok(text) => Self::parse(text),
            Err(error) => Err(TeamFileError::not_utf8(&bytes, error.valid_up_to())),
        };
        match read {
            Ok(file) => Ok(Self { path: path.to_owned(), ..file }),
            Err(error) => Err(error.in_file(path)),
        }
    }
}

/// Reads a file of bounded size; none if there is none.
fn bytes_of(path: &Path) -> Result<Option<Vec<u8>>, TeamFileError> {
    let io = |verb| {
        move |error: std::io::Error| TeamFileError::Io { verb, path: path.to_owned(), why: error.kind() }
    };
    // A FIFO in its place must not hold anybody up.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(io("open")(errno.into())),
    };
    let stat = rustix::fs::fstat(&fd).map_err(|errno| io("look at")(errno.into()))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind != FileType::RegularFile {
        return Err(TeamFileError::NotAFile(path.to_owned()));
    }
    // Whoever settles what a teammate runs commands the user's account.
    if ![0, nix::unistd::geteuid().as_raw()].contains(&stat.st_uid) {
        return Err(TeamFileError::Foreign { path: path.to_owned(), owner: stat.st_uid });
    }
    let mut bytes = Vec::new();
    File::from(fd).take(MAX_SIZE + 1).read_to_end(&mut bytes).map_err(io("read"))?;
    if bytes.len() as u64 > MAX_SIZE {
        return Err(TeamFileError::TooLarge(path.to_owned()));
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests;
