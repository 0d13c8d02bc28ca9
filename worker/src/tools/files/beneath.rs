//! Finding a file beneath the workspace, and never outside it or in the team directory.
//!
//! A path is walked one component after the other, each opened from the directory before it with `openat2` and no
//! link followed by the kernel; `..` goes back to the directory that the walk came from. A link is read and walked
//! in its turn. So nothing that is renamed or swapped during the walk leads out, and each directory is compared, by
//! device and inode, with those of the team directory: no link and no bind mount hides it.

use std::ffi::{OsStr, OsString};
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

/// How many links are followed for one path: as many as the kernel follows (`path_resolution(7)`).
const MAX_LINKS: u32 = 40;

/// How a single component is opened: never out of its directory, never through a link.
const RESOLVE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_SYMLINKS);

/// What could not be done with a file. Fits behind "error: ", and is told to the model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// The path leads out of the workspace.
    #[error("{path} leads out of the workspace {}", .workspace.display())]
    Outside {
        /// As it was given.
        path: String,
        /// The workspace.
        workspace: PathBuf,
    },
    /// The path leads into the team directory.
    #[error("{0} leads into a team directory, which tools do not touch")]
    TeamDir(String),
    /// The path leads to a secret of the user, or to what was named to be hidden.
    #[error("{0} is hidden from tools: it holds a secret of the user, or was named to be hidden")]
    Secret(String),
    /// The path leads to what the user's own programs run or believe.
    #[error(
        "{0} is not changed by tools, since programs of the user run or believe it: tell what to change instead"
    )]
    Protected(String),
    /// The workspace is not where it was any more.
    #[error(
        "a symbolic link stands on the way to the workspace {0}, and none did when it was named, so a tool can have \
         made it: remove the link, or name the workspace anew (`teamctl spawn NAME --resume --workspace DIR`)"
    )]
    Linked(String),
    /// Links lead in a circle.
    #[error("{0} leads through more than {MAX_LINKS} links")]
    Circle(String),
    /// A directory is there.
    #[error("{0} is a directory: list it with bash, or name a file in it")]
    Directory(String),
    /// A pipe, socket or device is there.
    #[error("{0} is not a regular file")]
    NotAFile(String),
    /// The file holds something else than text.
    #[error("{path} is not text ({size} bytes)")]
    NotText {
        /// As it was given.
        path: String,
        /// Bytes.
        size: u64,
    },
    /// The call makes no sense for this file.
    #[error("{0}")]
    Useless(String),
    /// The system refused.
    #[error("cannot {verb} {path}: {source}")]
    Io {
        /// What was tried.
        verb: &'static str,
        /// As it was given.
        path: String,
        /// Why not.
        source: io::Error,
    },
}

impl FileError {
    /// Makes an error of the system's one.
    pub(super) fn io(verb: &'static str, path: &str, source: impl Into<io::Error>) -> Self {
        Self::Io { verb, path: path.to_owned(), source: source.into() }
    }
}

/// An open workspace.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// As it was given, for messages.
    path: PathBuf,
    /// Without links.
    real: PathBuf,
    fd: OwnedFd,
    team_dir: Arc<TeamDir>,
    /// What a file is called before it is whole. One member of one team writes one file at a time: its next life knows the name.
    pub(super) temporary: String,
    /// What holds secrets, without links.
    secrets: Vec<PathBuf>,
    /// The programs of the team, without links.
    programs: Vec<PathBuf>,
    /// Those of them that were there when it was opened, wherever they have been moved since.
    seen: Vec<(u64, u64)>,
    /// Where the team directories of the user are registered.
    registers: Vec<Register>,
}

/// Where a path leads: a name in an open directory, and what is there.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) parent: OwnedFd,
    pub(super) name: OsString,
    /// None if nothing is there.
    pub(super) stat: Option<Stat>,
}

impl Workspace {
    /// Opens a workspace for a member.
    ///
    /// # Errors
    /// [`FileError`] if it is no directory that can be opened, or lies in the team directory.
    pub(crate) fn open(path: &Path, team_dir: Arc<TeamDir>, name: &Name) -> Result<Self, FileError> {
        let shown = path.display().to_string();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // It had no link when it was named: who works in a directory around it can have made one since, to anywhere.
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let fd = match openat2(CWD, path, flags, Mode::empty(), resolve) {
            Ok(fd) => fd,
            Err(Errno::LOOP) => return Err(FileError::Linked(shown)),
            Err(errno) => return Err(FileError::io("open the workspace", &shown, errno)),
        };
        let real = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
            .map_err(|error| FileError::io("resolve the workspace", &shown, error))?;
        if real.starts_with(team_dir.root()) {
            return Err(FileError::TeamDir(shown));
        }
        let team = fstat(&*team_dir).map_err(|errno| FileError::io("look at the team of", &shown, errno))?;
        let temporary = format!(".teamd-{:x}-{:x}-{name}.tmp", team.st_dev, team.st_ino);
        let (path, secrets, programs, seen) = (path.to_owned(), Vec::new(), Vec::new(), Vec::new());
        Ok(Self { path, real, fd, team_dir, temporary, secrets, programs, seen, registers: Vec::new() })
    }

    /// Lets no tool touch what is registered there, now or later.
    ///
    /// # Errors
    /// [`FileError::TeamDir`] if the workspace lies in such a directory.
    pub(crate) fn apart_from(self, registers: Vec<Register>) -> Result<Self, FileError> {
        let shown = self.path.display().to_string();
        let teams = teams(&registers).map_err(FileError::Useless)?;
        match teams.iter().any(|team| self.real.starts_with(team)) {
            true => Err(FileError::TeamDir(shown)),
            false => Ok(Self { registers, ..self }),
        }
    }

    /// Returns device and inode of the team directories of the user, of their folders and of the registers. They are looked at
    /// anew each time: a folder that was deleted is made again, as another inode.
    fn forbidden(&self) -> Result<Vec<(u64, u64)>, FileError> {
        let mut teams = teams(&self.registers).map_err(FileError::Useless)?;
        // By its descriptor: it may have been moved.
        teams.push(format!("/proc/self/fd/{}/.", self.team_dir.as_fd().as_raw_fd()).into());
        let folders = teams.iter().flat_map(|team| FOLDERS.iter().map(|folder| team.join(folder)));
        let found = teams.iter().cloned().chain(folders).filter_map(|path| rustix::fs::lstat(&path).ok());
        Ok(found.map(|stat| (stat.st_dev, stat.st_ino)).collect())
    }

    /// Lets no tool read or change files and directories that hold secrets, nor change the programs of the team.
    pub(crate) fn without(mut self, secrets: Vec<PathBuf>, programs: Vec<PathBuf>) -> Self {
        self.programs = programs;
        let found = secrets.iter().filter_map(|path| rustix::fs::stat(path).ok());
        self.seen = found.map(|stat| (stat.st_dev, stat.st_ino)).collect();
        self.secrets = secrets;
        self
    }

    /// Tells whether something is a secret, by its way or by what it is.
    fn is_secret(&self, way: &Path, stat: Option<&Stat>) -> bool {
        let found = stat.map(|stat| (stat.st_dev, stat.st_ino));
        let is_it = |path: &PathBuf| {
            let now = rustix::fs::stat(path).ok().map(|stat| (stat.st_dev, stat.st_ino));
            *path == self.real.join(way) || (now.is_some() && now == found)
        };
        found.is_some_and(|found| self.seen.contains(&found)) || self.secrets.iter().any(is_it)
    }

    /// Returns where it lies, without links.
    pub(crate) fn real(&self) -> &Path {
        &self.real
    }

    /// Finds where a path leads.
    pub(super) fn find(&self, path: &str) -> Result<Place, FileError> {
        Walk::begin(self, path, Purpose::Read)?.run()
    }

    /// Finds where a path leads that is to be changed. With `make`, directories that are missing on the way are made.
    pub(super) fn find_to_change(&self, path: &str, make: bool) -> Result<Place, FileError> {
        Walk::begin(self, path, if make { Purpose::Make } else { Purpose::Change })?.run()
    }

    fn outside(&self, path: &str) -> FileError {
        FileError::Outside { path: path.to_owned(), workspace: self.path.clone() }
    }
}

/// What a file is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Read,
    Change,
    /// As `Change`, and directories that are missing are made.
    Make,
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
    /// Device and inode of what no tool touches.
    forbidden: Vec<(u64, u64)>,
}

impl<'a> Walk<'a> {
    fn begin(workspace: &'a Workspace, path: &'a str, purpose: Purpose) -> Result<Self, FileError> {
        let (ahead, behind) = (Vec::new(), Vec::new());
        let forbidden = workspace.forbidden()?;
        let mut walk = Self { workspace, path, ahead, behind, links: 0, purpose, forbidden };
        walk.enter(Path::new(path))?;
        Ok(walk)
    }

    /// Puts the components of a path, given by the caller or by a link, before those that are still ahead.
    fn enter(&mut self, path: &Path) -> Result<(), FileError> {
        let mut relative = path;
        if path.is_absolute() {
            if path.starts_with(self.workspace.team_dir.root()) {
                return Err(FileError::TeamDir(self.path.to_owned()));
            }
            let inside = [&self.workspace.path, &self.workspace.real]
                .into_iter()
                .find_map(|root| path.strip_prefix(root).ok());
            relative = inside.ok_or_else(|| self.workspace.outside(self.path))?;
            self.behind.clear();
        }
        let named = relative.components().filter(|component| *component != Component::CurDir);
        self.ahead.extend(named.map(|component| component.as_os_str().to_owned()).rev());
        Ok(())
    }

    /// The path below the workspace, without links, of a name in the directory where the walk is.
    fn way_to(&self, name: &OsStr) -> PathBuf {
        self.behind.iter().map(|(_, name)| name.as_os_str()).chain([name]).collect()
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.behind.last().map_or(&self.workspace.fd, |(directory, _)| directory).as_fd()
    }

    fn run(mut self) -> Result<Place, FileError> {
        while let Some(name) = self.ahead.pop() {
            if name == ".." {
                // From the workspace itself, there is no way up.
                self.behind.pop().ok_or_else(|| self.workspace.outside(self.path))?;
                continue;
            }
            let is_last = self.ahead.is_empty();
            // Whether it is there or not; before a directory is made.
            let way = self.way_to(&name);
            // As a file it says where a repository is.
            let is_git = is_last && way == Path::new(GIT);
            let is_program = || self.workspace.programs.contains(&self.workspace.real.join(&way));
            if self.purpose != Purpose::Read && (is_git || is_setting(&way) || is_program()) {
                return Err(FileError::Protected(self.path.to_owned()));
            }
            let found = match self.open(&name) {
                Err(Errno::NOENT) if self.workspace.is_secret(&self.way_to(&name), None) => {
                    return Err(FileError::Secret(self.path.to_owned()));
                }
                Err(Errno::NOENT) if is_last => return self.place(name, None),
                Err(Errno::NOENT) if self.purpose == Purpose::Make => {
                    self.make(&name).and_then(|()| self.open(&name))
                }
                other => other,
            };
            let found = found.map_err(|errno| self.io("open", errno))?;
            let stat = fstat(&found).map_err(|errno| self.io("look at", errno))?;
            if self.workspace.is_secret(&self.way_to(&name), Some(&stat)) {
                return Err(FileError::Secret(self.path.to_owned()));
            }
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => self.follow(&found)?,
                FileType::Directory => {
                    if self.forbidden.contains(&(stat.st_dev, stat.st_ino)) {
                        return Err(FileError::TeamDir(self.path.to_owned()));
                    }
                    self.behind.push((found, name));
                }
                _ if is_last => return self.place(name, Some(stat)),
                _ => return Err(self.io("open", Errno::NOTDIR)),
            }
        }
        Err(FileError::Directory(self.path.to_owned()))
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

    fn follow(&mut self, link: &OwnedFd) -> Result<(), FileError> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(FileError::Circle(self.path.to_owned()));
        }
        let target = readlinkat(link, "", Vec::new()).map_err(|errno| self.io("read the link", errno))?;
        self.enter(&PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    fn place(mut self, name: OsString, stat: Option<Stat>) -> Result<Place, FileError> {
        let parent = match self.behind.pop() {
            Some((parent, _)) => parent,
            None => self.workspace.fd.try_clone().map_err(|error| self.io("open", error))?,
        };
        Ok(Place { parent, name, stat })
    }

    fn io(&self, verb: &'static str, source: impl Into<io::Error>) -> FileError {
        FileError::io(verb, self.path, source)
    }
}

impl Place {
    /// Opens the file that is there, unless it has become a link; does not wait for a pipe that has become it.
    pub(super) fn open(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        openat2(&self.parent, &self.name, flags, Mode::empty(), RESOLVE)
    }
}
