//! The workspace: finds a file beneath it, and never outside it, in a team directory, or where a secret lies.
//!
//! A path is walked one component after the other. Each is opened from the directory before it with `openat2`, and the
//! kernel follows no link; `..` goes back to the directory that the walk came from. A link is read and walked in its
//! turn. So nothing that is renamed or swapped during the walk leads out. Each directory is compared, by device and
//! inode, with those of the team directories: no link and no bind mount hides one.

mod guide;
mod replace;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, mkdirat, openat2, readlinkat};
use rustix::io::Errno;
use teamd_shared::name::Name;
use teamd_shared::register::Register;
use teamd_shared::team_dir::{FOLDERS, TeamDir};

use crate::sandbox::{GIT, is_setting, teams};
pub(crate) use guide::{Guide, Rest};

/// How many links are followed for one path: as many as the kernel follows (`path_resolution(7)`).
const MAX_LINKS: u32 = 40;

/// How a single component is opened: never out of its directory, never through a link.
const RESOLVE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_SYMLINKS);

/// Device and inode.
type Node = (u64, u64);

/// An open workspace. Its errors are texts for the model.
#[derive(Debug)]
pub(super) struct Workspace {
    /// As it was given, for messages.
    path: PathBuf,
    /// Without links.
    real: PathBuf,
    fd: OwnedFd,
    team_dir: Arc<TeamDir>,
    /// What a file is called before it is whole. A member writes one file at a time, so a leftover of a killed worker has
    /// the same name.
    temporary: String,
    /// What holds secrets, without links.
    secrets: Vec<PathBuf>,
    /// The secrets that were there at the start, wherever they have been moved since.
    secret_nodes: Vec<Node>,
    /// The programs of the team, without links.
    programs: Vec<PathBuf>,
    /// Where the team directories of the user are registered.
    registers: Vec<Register>,
}

/// Where a path leads: a name in an open directory, and what is there.
#[derive(Debug)]
pub(super) struct ResolvedPath {
    parent: OwnedFd,
    name: OsString,
    /// None if nothing is there.
    stat: Option<Stat>,
}

/// What a file is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To read it.
    Read,
    /// To change it.
    Change,
    /// To make or replace it. Directories that are missing are made.
    Make,
}

impl Workspace {
    /// Opens a workspace for a member.
    ///
    /// # Errors
    /// If it is no directory that can be opened, or lies in the team directory.
    pub(super) fn open(path: &Path, team_dir: Arc<TeamDir>, name: &Name) -> Result<Self, String> {
        let shown = path.display().to_string();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // It had no link when it was named. A tool that works in a directory around it can have made one since.
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let fd = match openat2(CWD, path, flags, Mode::empty(), resolve) {
            Ok(fd) => fd,
            Err(Errno::LOOP) => {
                return Err(format!(
                    "a symbolic link stands on the way to the workspace {shown}, and none did when it was named, so a \
                     tool can have made it: remove the link, or name the workspace anew (`teamctl spawn NAME --resume \
                     --workspace DIR`)"
                ));
            }
            Err(errno) => return Err(cannot("open the workspace", &shown)(errno)),
        };
        let real = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
            .map_err(cannot("resolve the workspace", &shown))?;
        if real.starts_with(team_dir.root()) {
            return Err(in_team_dir(&shown));
        }
        let team = fstat(&*team_dir).map_err(cannot("look at the team of", &shown))?;
        Ok(Self {
            path: path.to_owned(),
            real,
            fd,
            temporary: format!(".teamd-{:x}-{:x}-{name}.tmp", team.st_dev, team.st_ino),
            team_dir,
            secrets: Vec::new(),
            secret_nodes: Vec::new(),
            programs: Vec::new(),
            registers: Vec::new(),
        })
    }

    /// Lets no tool touch secrets, change the programs of the team, or enter a registered team directory.
    ///
    /// # Errors
    /// If the workspace lies in such a directory.
    pub(super) fn protect(
        &mut self,
        secrets: Vec<PathBuf>,
        programs: Vec<PathBuf>,
        registers: Vec<Register>,
    ) -> Result<(), String> {
        self.secret_nodes = secrets.iter().filter_map(|path| rustix::fs::stat(path).ok()).map(node).collect();
        (self.secrets, self.programs, self.registers) = (secrets, programs, registers);
        let is_inside = teams(&self.registers)?.iter().any(|team| self.real.starts_with(team));
        if is_inside { Err(in_team_dir(&self.path.display().to_string())) } else { Ok(()) }
    }

    /// Returns where it lies, without links.
    pub(super) fn real(&self) -> &Path {
        &self.real
    }

    /// Finds where a path leads.
    pub(super) fn find(&self, path: &str, purpose: Purpose) -> Result<ResolvedPath, String> {
        let (ahead, behind, forbidden) = (Vec::new(), Vec::new(), self.forbidden()?);
        let mut walk = Walk { workspace: self, path, ahead, behind, links: 0, purpose, forbidden };
        walk.enter(Path::new(path))?;
        walk.run()
    }

    /// Opens a regular file for reading.
    pub(super) fn open_file(&self, path: &str) -> Result<(File, Stat), String> {
        self.find(path, Purpose::Read)?.open(path)
    }

    /// Returns the team directories of the user, their folders and the registers. Each time anew: a folder that was deleted
    /// is made again, as another inode.
    fn forbidden(&self) -> Result<Vec<Node>, String> {
        let mut teams = teams(&self.registers)?;
        // By its descriptor: it may have been moved.
        teams.push(format!("/proc/self/fd/{}/.", self.team_dir.as_fd().as_raw_fd()).into());
        let folders = teams.iter().flat_map(|team| FOLDERS.iter().map(|folder| team.join(folder)));
        let found = teams.iter().cloned().chain(folders).filter_map(|path| rustix::fs::lstat(&path).ok());
        Ok(found.map(node).collect())
    }

    /// Tells whether something is a secret, by its way or by what it is.
    fn is_secret(&self, way: &Path, found: Option<Node>) -> bool {
        let is_it = |path: &PathBuf| {
            *path == self.real.join(way)
                || found.is_some_and(|found| rustix::fs::stat(path).is_ok_and(|stat| node(stat) == found))
        };
        found.is_some_and(|found| self.secret_nodes.contains(&found)) || self.secrets.iter().any(is_it)
    }

    /// Tells whether a program of the user runs or believes what lies there.
    fn is_protected(&self, way: &Path, is_last: bool) -> bool {
        // As a file, `.git` says where a repository is.
        let is_git = is_last && way == Path::new(GIT);
        is_git || is_setting(way) || self.programs.contains(&self.real.join(way))
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

/// The way to a file.
struct Walk<'a> {
    workspace: &'a Workspace,
    /// As it was given, for messages.
    path: &'a str,
    /// The components that are still to be walked, the next one last.
    ahead: Vec<OsString>,
    /// The directories below the workspace that the walk has come through, with their names.
    behind: Vec<(OwnedFd, OsString)>,
    links: u32,
    purpose: Purpose,
    /// The directories that no tool touches.
    forbidden: Vec<Node>,
}

impl Walk<'_> {
    /// Puts the components of a path, given by the caller or by a link, before those that are still ahead.
    fn enter(&mut self, path: &Path) -> Result<(), String> {
        let mut relative = path;
        if path.is_absolute() {
            if path.starts_with(self.workspace.team_dir.root()) {
                return Err(in_team_dir(self.path));
            }
            let inside = path.strip_prefix(&self.workspace.path).or(path.strip_prefix(&self.workspace.real));
            relative = inside.map_err(|_| self.workspace.outside(self.path))?;
            self.behind.clear();
        }
        let named = relative.components().filter(|component| *component != Component::CurDir);
        self.ahead.extend(named.map(|component| component.as_os_str().to_owned()).rev());
        Ok(())
    }

    fn run(mut self) -> Result<ResolvedPath, String> {
        let Self { workspace, path, purpose, .. } = self;
        while let Some(name) = self.ahead.pop() {
            if name == ".." {
                // From the workspace itself, there is no way up.
                self.behind.pop().ok_or_else(|| workspace.outside(path))?;
                continue;
            }
            let is_last = self.ahead.is_empty();
            // The path below the workspace, without links.
            let way: PathBuf =
                self.behind.iter().map(|(_, name)| name.as_os_str()).chain([name.as_os_str()]).collect();
            // Whether it is there or not, and before a directory is made.
            if purpose != Purpose::Read && workspace.is_protected(&way, is_last) {
                return Err(format!(
                    "{path} is not changed by tools, since programs of the user run or believe it: tell what to change instead"
                ));
            }
            let found = match self.open(&name) {
                Err(Errno::NOENT) if workspace.is_secret(&way, None) => return Err(secret(path)),
                Err(Errno::NOENT) if is_last => return self.place(name, None),
                Err(Errno::NOENT) if purpose == Purpose::Make => {
                    self.make(&name).and_then(|()| self.open(&name))
                }
                other => other,
            };
            let found = found.map_err(cannot("open", path))?;
            let stat = fstat(&found).map_err(cannot("look at", path))?;
            if workspace.is_secret(&way, Some(node(stat))) {
                return Err(secret(path));
            }
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => self.follow(&found)?,
                FileType::Directory if self.forbidden.contains(&node(stat)) => return Err(in_team_dir(path)),
                FileType::Directory => self.behind.push((found, name)),
                _ if is_last => return self.place(name, Some(stat)),
                _ => return Err(cannot("open", path)(Errno::NOTDIR)),
            }
        }
        Err(is_directory(path))
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.behind.last().map_or(&self.workspace.fd, |(directory, _)| directory).as_fd()
    }

    fn open(&self, name: &OsStr) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat2(self.here(), name, flags, Mode::empty(), RESOLVE)
    }

    fn make(&self, name: &OsStr) -> rustix::io::Result<()> {
        match mkdirat(self.here(), name, Mode::from_raw_mode(0o777)) {
            Err(Errno::EXIST) => Ok(()),
            other => other,
        }
    }

    fn follow(&mut self, link: &OwnedFd) -> Result<(), String> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(format!("{} leads through more than {MAX_LINKS} links", self.path));
        }
        let target = readlinkat(link, "", Vec::new()).map_err(cannot("read the link", self.path))?;
        self.enter(&PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    fn place(mut self, name: OsString, stat: Option<Stat>) -> Result<ResolvedPath, String> {
        let parent = match self.behind.pop() {
            Some((parent, _)) => parent,
            None => self.workspace.fd.try_clone().map_err(cannot("open the workspace of", self.path))?,
        };
        Ok(ResolvedPath { parent, name, stat })
    }
}

fn secret(path: &str) -> String {
    format!("{path} is hidden from tools: it holds a secret of the user, or was named to be hidden")
}

fn is_directory(path: &str) -> String {
    format!("{path} is a directory: list it with bash, or name a file in it")
}

impl ResolvedPath {
    /// Opens the regular file that is there, for reading.
    pub(super) fn open(&self, path: &str) -> Result<(File, Stat), String> {
        let found = self.stat.as_ref().ok_or_else(|| cannot("open", path)(Errno::NOENT))?;
        must_be_file(path, found)?;
        // It can have become a link or a pipe since, or another file.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file =
            openat2(&self.parent, &self.name, flags, Mode::empty(), RESOLVE).map_err(cannot("open", path))?;
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

/// Makes the error of a file that holds something else than text.
pub(super) fn not_text(path: &str, stat: &Stat) -> String {
    format!("{path} is not text ({} bytes)", size(stat))
}

#[cfg(test)]
mod tests;
