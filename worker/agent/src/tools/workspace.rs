//! The workspace: finds a file beneath it, and never outside it, in a team directory, or where a
//! secret lies.
//!
//! First a path is only a text: its links are read and replaced until none is left, and the text is
//! checked. Then it is opened, one component from the one before it with `openat2`, and the kernel
//! follows no link. So a file that is renamed or swapped meanwhile cannot lead outside. Each
//! directory on the way is compared by device and inode with those that are closed to tools, so
//! that no bind mount hides one.

mod guide;
mod replace;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, mkdirat, openat2, readlinkat};
use rustix::io::Errno;
use teamd_shared::name::Name;
use teamd_shared::place;
use teamd_shared::register::Register;
use teamd_shared::repository::GIT;
use teamd_shared::spawn::can_work;
use teamd_shared::team_dir::{FOLDERS, TeamDir};

pub(crate) use guide::{Guide, Rest};
use teamd_worker_sandbox::{Node, Secrets, is_of_skills, is_setting, teams};

/// How many links are followed for one path: as many as the kernel follows (`path_resolution(7)`).
const MAX_LINKS: u32 = 40;

/// How a single component is opened: never out of its directory, never through a link.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS);

/// An open workspace. Its errors are texts for the model.
#[derive(Debug)]
pub(super) struct Workspace {
    /// Absolute and without links, as it is recorded.
    path: PathBuf,
    fd: OwnedFd,
    team_dir: Arc<TeamDir>,
    /// What a file is called before it is whole. A member writes one file at a time, so a leftover
    /// of a killed worker has the same name.
    temporary: String,
    /// What holds secrets.
    secrets: Secrets,
    /// The programs of the team, and the folders of those that are installed for agents, without
    /// links.
    programs: Vec<PathBuf>,
    /// Where the team directories of the user are registered.
    registers: Vec<Register>,
    /// Where the user's own configuration lies.
    configs: Vec<PathBuf>,
}

/// Where a path leads: a name in an open directory, and what is there.
#[derive(Debug)]
pub(super) struct ResolvedPath {
    parent: OwnedFd,
    name: OsString,
    /// None if nothing is there.
    stat: Option<Stat>,
}

/// The purpose of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileUse {
    /// To read it.
    Read,
    /// To change it.
    Change,
    /// To make or replace it. Directories that are missing are made.
    Make,
}

/// What no tool touches: its identity, and the refusal.
type Closed = Vec<(Node, fn(&str) -> String)>;

fn check(closed: &Closed, path: &str, stat: Stat) -> Result<(), String> {
    match closed.iter().find(|(closed, _)| *closed == node(stat)) {
        Some((_, refusal)) => Err(refusal(path)),
        None => Ok(()),
    }
}

impl Workspace {
    /// Opens a workspace for a member.
    ///
    /// # Errors
    /// If it is not a directory that can be opened, or if it lies in the team directory.
    pub(super) fn open(path: &Path, team_dir: Arc<TeamDir>, name: &Name) -> Result<Self, String> {
        let shown = path.display().to_string();
        // It had no link when it was named. A tool that works in a directory around it can have
        // made one since.
        let fd = place::open_itself(path, OFlags::PATH | OFlags::DIRECTORY).map_err(|errno| {
            can_work(name, path)
                .err()
                .unwrap_or_else(|| cannot("open the workspace", &shown)(errno))
        })?;
        if path.starts_with(team_dir.root()) {
            return Err(in_team_dir(&shown));
        }
        let team = fstat(&*team_dir).map_err(cannot("look at the team of", &shown))?;
        Ok(Self {
            path: path.to_owned(),
            fd,
            temporary: format!(".teamd-{:x}-{:x}-{name}.tmp", team.st_dev, team.st_ino),
            team_dir,
            secrets: Secrets::default(),
            programs: Vec::new(),
            registers: Vec::new(),
            configs: Vec::new(),
        })
    }

    /// Lets no tool touch secrets, change the programs of the team, or enter a registered team
    /// directory.
    ///
    /// # Errors
    /// If the workspace lies in such a directory.
    pub(super) fn protect(
        &mut self,
        secrets: Secrets,
        programs: Vec<PathBuf>,
        registers: Vec<Register>,
        (configs, shown): (Vec<PathBuf>, &[PathBuf]),
    ) -> Result<(), String> {
        self.secrets = secrets;
        self.programs = programs;
        self.registers = registers;
        self.configs = configs;
        let is_inside = teams(&self.registers)?
            .iter()
            .any(|team| self.path.starts_with(team));
        let is_shown = shown.iter().any(|shown| self.path.starts_with(shown));
        if is_inside && !is_shown {
            Err(in_team_dir(&self.path.display().to_string()))
        } else {
            Ok(())
        }
    }

    /// Returns its path: absolute, and without links.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Finds where a path leads.
    pub(super) fn find(&self, path: &str, purpose: FileUse) -> Result<ResolvedPath, String> {
        let (way, protected) = self.resolve(path)?;
        let Some(above) = way.parent() else {
            return Err(is_directory(path));
        };
        let Some(name) = way.file_name() else {
            return Err(is_directory(path));
        };
        // Whether it is there or not, and before a directory is made.
        if purpose != FileUse::Read && (protected || self.is_protected(&way)) {
            return Err(format!(
                "{path} is not changed by tools, since programs of the user run or believe it: tell what to change instead"
            ));
        }
        let mut inside = way.ancestors().filter(|part| part.file_name().is_some());
        let secrets = self.secrets.paths()?;
        if inside.any(|part| secrets.contains(&self.path.join(part))) {
            return Err(secret(path));
        }
        let closed = self.closed()?;
        let mut parent = self
            .fd
            .try_clone()
            .map_err(cannot("open the workspace of", path))?;
        for folder in above {
            parent = match open_in(&parent, folder) {
                Err(Errno::NOENT) if purpose == FileUse::Make => make_in(&parent, folder),
                other => other,
            }
            .map_err(cannot("open", path))?;
            check(
                &closed,
                path,
                fstat(&parent).map_err(cannot("look at", path))?,
            )?;
        }
        let stat = match open_in(&parent, name) {
            Err(Errno::NOENT) => None,
            found => Some(found.and_then(fstat).map_err(cannot("open", path))?),
        };
        stat.map_or(Ok(()), |stat| check(&closed, path, stat))?;
        Ok(ResolvedPath {
            parent,
            name: name.to_owned(),
            stat,
        })
    }

    /// Returns where a path leads, as a path below the workspace without links, whether something
    /// is there or not; and whether the path leads through a link that is protected.
    fn resolve(&self, path: &str) -> Result<(PathBuf, bool), String> {
        let mut way = PathBuf::new();
        let mut links = 0;
        let mut protected = false;
        // The components that are still to be walked, the next one last.
        let mut ahead = self.components(path, Path::new(path))?;
        while let Some(name) = ahead.pop() {
            if name == ".." {
                // From the workspace itself, there is no way up.
                way.pop().then_some(()).ok_or_else(|| self.outside(path))?;
                continue;
            }
            way.push(&name);
            let target = match readlinkat(&self.fd, &way, Vec::new()) {
                // It is not a link, or not there.
                Err(Errno::INVAL | Errno::NOENT) => continue,
                other => other.map_err(cannot("open", path))?,
            };
            protected |= self.is_protected(&way);
            links += 1;
            if links > MAX_LINKS {
                return Err(format!("{path} leads through more than {MAX_LINKS} links"));
            }
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            if target.is_absolute() {
                way.clear();
            } else {
                way.pop();
            }
            ahead.extend(self.components(path, &target)?);
        }
        Ok((way, protected))
    }

    /// Returns the components of a path that the caller or a link gave, the first one last.
    fn components(&self, path: &str, given: &Path) -> Result<Vec<OsString>, String> {
        if given.starts_with(self.team_dir.root()) {
            return Err(in_team_dir(path));
        }
        let relative = if given.is_absolute() {
            given.strip_prefix(&self.path)
        } else {
            Ok(given)
        };
        let relative = relative.map_err(|_| self.outside(path))?;
        let named = relative
            .components()
            .filter(|component| *component != Component::CurDir);
        Ok(named
            .map(|component| component.as_os_str().to_owned())
            .rev()
            .collect())
    }

    /// Opens a regular file for reading.
    pub(super) fn open_file(&self, path: &str) -> Result<(File, Stat), String> {
        self.find(path, FileUse::Read)?.open(path)
    }

    /// Returns what no tool touches. It looks each time: a folder that was deleted is made again,
    /// as another inode.
    fn closed(&self) -> Result<Closed, String> {
        let mut teams = teams(&self.registers)?;
        // By its descriptor: it may have been moved.
        teams.push(format!("/proc/self/fd/{}/.", self.team_dir.as_fd().as_raw_fd()).into());
        let folders = teams
            .iter()
            .flat_map(|team| FOLDERS.iter().map(|folder| team.join(folder)));
        let teams = teams
            .iter()
            .cloned()
            .chain(folders)
            .filter_map(|path| rustix::fs::lstat(&path).ok());
        let secrets = self
            .secrets
            .nodes()?
            .into_iter()
            .map(|node| (node, secret as _));
        let configs = self
            .configs
            .iter()
            .filter_map(|path| rustix::fs::stat(path).ok());
        let configs = configs.map(|stat| (node(stat), secret as _));
        Ok(teams
            .map(|stat| (node(stat), in_team_dir as _))
            .chain(secrets)
            .chain(configs)
            .collect())
    }

    /// Tells whether a program of the user runs or believes what lies there.
    fn is_protected(&self, way: &Path) -> bool {
        // As a file, `.git` says where a repository is.
        let path = self.path.join(way);
        let is_config = self.configs.iter().any(|config| path.starts_with(config));
        let is_program = self
            .programs
            .iter()
            .any(|program| path.starts_with(program));
        way == Path::new(GIT) || is_setting(way) || is_of_skills(way) || is_config || is_program
    }

    fn outside(&self, path: &str) -> String {
        format!("{path} leads out of the workspace {}", self.path.display())
    }
}

fn node(stat: Stat) -> Node {
    (stat.st_dev, stat.st_ino)
}

/// Makes the error of something that the system refused.
fn cannot<E: Into<io::Error>>(verb: &str, path: &str) -> impl Fn(E) -> String {
    move |error| format!("cannot {verb} {path}: {}", error.into())
}

fn in_team_dir(path: &str) -> String {
    format!("{path} leads into a team directory, which tools do not touch")
}

fn secret(path: &str) -> String {
    format!("{path} is hidden from tools: it holds a secret of the user, or was named to be hidden")
}

fn is_directory(path: &str) -> String {
    format!("{path} is a directory: list it with bash, or name a file in it")
}

fn open_in(folder: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(folder, name, flags, Mode::empty(), RESOLVE)
}

fn make_in(folder: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    match mkdirat(folder, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => open_in(folder, name),
        Err(errno) => Err(errno),
    }
}

impl ResolvedPath {
    /// Opens the regular file that is there, for reading.
    pub(super) fn open(&self, path: &str) -> Result<(File, Stat), String> {
        let stat = self
            .stat
            .as_ref()
            .ok_or_else(|| cannot("open", path)(Errno::NOENT))?;
        must_be_file(path, stat)?;
        // It can have become a link or a pipe since, or another file.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat2(&self.parent, &self.name, flags, Mode::empty(), RESOLVE)
            .map_err(cannot("open", path))?;
        let stat = fstat(&file).map_err(cannot("look at", path))?;
        must_be_file(path, &stat)?;
        Ok((File::from(file), stat))
    }
}

fn must_be_file(path: &str, stat: &Stat) -> Result<(), String> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(is_directory(path)),
        _ => Err(format!("{path} is not a regular file")),
    }
}

/// Returns the size of a file, in bytes.
pub(super) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Makes the error of a file that is not text.
pub(super) fn not_text(path: &str, stat: &Stat) -> String {
    format!("{path} is not text ({} bytes)", size(stat))
}

#[cfg(test)]
mod tests;
