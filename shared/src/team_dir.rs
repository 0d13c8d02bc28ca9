//! The team directory: where everything lies in it, and the only way to open it.
//!
//! Every file is opened from a descriptor of the team directory, at once or one component after the
//! other, and no link on the way is followed: a symbolic link planted inside is an error. The team
//! directory itself may be reached through a link (it may live in the user's state directory).

mod apart;
mod error;
mod listing;
mod modes;
mod path;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, StatxFlags,
};
use rustix::io::Errno;

pub use apart::place_apart;
pub use error::DirError;
pub use listing::{FileKind, Found};
pub(crate) use path::OLDER_LOG;
pub use path::TeamPath;

/// The mode of directories: only the user.
pub const DIR_MODE: u32 = 0o700;
/// The mode of files: only the user.
pub const FILE_MODE: u32 = 0o600;

/// The folders of a team directory.
pub const FOLDERS: [&str; 6] = ["inbox", "transcript", "archive", "log", "run", "tasks"];

/// Those of them where the files of a teammate lie ([`TeamPath::of_member`]).
pub const MEMBER_FOLDERS: [&str; 3] = ["inbox", "transcript", "log"];

/// The name of a team directory in its workspace, or of the link to it.
pub const TEAM: &str = ".team";

/// The link in a team directory that lies outside its workspace; it says where that is. Nothing
/// follows it.
pub const WORKSPACE_LINK: &str = "workspace";

/// How a folder is opened.
const FOLDER_FLAGS: OFlags = OFlags::DIRECTORY
    .union(OFlags::RDONLY)
    .union(OFlags::CLOEXEC);

/// What distinguishes a file from an earlier one at its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Device and inode.
    identity: (u64, u64),
    /// Bytes.
    size: i64,
    /// Seconds and nanoseconds since 1970.
    modified: (i64, u64),
}

impl Stamp {
    /// Tells whether it is of this file (device and inode), at this length in bytes.
    pub fn is_of(&self, identity: (u64, u64), length: u64) -> bool {
        self.identity == identity && u64::try_from(self.size) == Ok(length)
    }
}

/// An open team directory.
#[derive(Debug)]
pub struct TeamDir {
    root: PathBuf,
    fd: OwnedFd,
}

impl TeamDir {
    /// Opens an existing team directory of this user.
    ///
    /// # Errors
    /// [`DirError`] if it is missing, no directory, or another user's.
    pub fn open(path: &Path) -> Result<Self, DirError> {
        let io = |source: Errno| match source {
            Errno::NOENT => DirError::Missing(path.to_owned()),
            Errno::NOTDIR => DirError::NotADirectory(path.to_owned()),
            other => DirError::io("open", path)(other),
        };
        let fd = rustix::fs::openat(CWD, path, FOLDER_FLAGS, Mode::empty()).map_err(io)?;
        belongs_to_this_user(&rustix::fs::fstat(&fd).map_err(io)?, || path.to_owned())?;
        let root = path.canonicalize().map_err(DirError::io("resolve", path))?;
        apart::check(path, &root)?;
        Ok(Self { root, fd })
    }

    /// Makes a team directory, unless it is there, and furnishes it ([`TeamDir::furnish`]).
    ///
    /// # Errors
    /// [`DirError`] as [`TeamDir::open`], or if something cannot be made.
    pub fn create(path: &Path) -> Result<Self, DirError> {
        make_dir(CWD, path, path)?;
        let dir = Self::open(path)?;
        dir.furnish()?;
        Ok(dir)
    }

    /// Makes the folders that are missing. The directory and its folders are for this user alone
    /// from now on: a process that can write there controls the team.
    ///
    /// # Errors
    /// [`DirError`] if something cannot be made.
    pub fn furnish(&self) -> Result<(), DirError> {
        self.close_to_others(None)?;
        // Its maker may have been killed before it was synced.
        if self.identity(&TeamPath::journal())?.is_none() {
            self.sync_above()?;
        }
        for folder in FOLDERS {
            make_dir(self.fd.as_fd(), Path::new(folder), &self.root.join(folder))?;
            let shown = self.root.join(folder);
            let stat = rustix::fs::fstat(self.open_folder(Some(folder))?);
            belongs_to_this_user(&stat.map_err(DirError::io("look at", &shown))?, || shown)?;
            self.close_to_others(Some(&TeamPath::top(folder)))?;
        }
        self.sync_folder(None)
    }

    /// Makes what was made, moved or removed in one of [`FOLDERS`], or at the top, survive a loss
    /// of power.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn sync_folder(&self, folder: Option<&'static str>) -> Result<(), DirError> {
        let opened = self.open_folder(folder)?;
        let path = self.root.join(folder.unwrap_or_default());
        rustix::fs::fsync(opened).map_err(DirError::io("sync", &path))
    }

    /// The same for the directory itself.
    pub(crate) fn sync_above(&self) -> Result<(), DirError> {
        let synced = match rustix::fs::openat(&self.fd, "..", FOLDER_FLAGS, Mode::empty()) {
            Ok(above) => rustix::fs::fsync(above),
            // A user who may make something there need not be allowed to read it.
            Err(Errno::ACCESS) => rustix::fs::syncfs(&self.fd),
            Err(errno) => Err(errno),
        };
        synced.map_err(DirError::io("sync what holds", &self.root))
    }

    /// Tells whether the directory still is where it was opened, neither moved nor replaced.
    pub fn is_at_its_path(&self) -> bool {
        let opened = rustix::fs::fstat(&self.fd).map(|stat| (stat.st_dev, stat.st_ino));
        let at_path = rustix::fs::stat(&self.root).map(|stat| (stat.st_dev, stat.st_ino));
        opened.is_ok() && opened == at_path
    }

    /// Returns what distinguishes this directory from a copy of it, and from one that gets the same
    /// inode later: inode and time of birth (0 if the file system has none), in hex digits. The
    /// device does not count: it changes when the file system is mounted again.
    ///
    /// # Errors
    /// The system's error if the directory cannot be looked at.
    pub fn id(&self) -> io::Result<String> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let stat = rustix::fs::statx(&self.fd, "", AtFlags::EMPTY_PATH, wanted)?;
        let has_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
        let born = if has_birth {
            (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)
        } else {
            (0, 0)
        };
        Ok(format!("{:x}-{:x}.{:x}", stat.stx_ino, born.0, born.1))
    }

    /// Returns the path of the team directory, without links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the workspace by default: the directory that holds the team directory, or the link
    /// to it (then a link in the team directory, where no tool can make one, says where that is).
    pub fn workspace(&self) -> PathBuf {
        rustix::fs::readlinkat(&self.fd, WORKSPACE_LINK, Vec::new()).map_or_else(
            |_| self.root.parent().unwrap_or(Path::new("/")).to_owned(),
            |link| PathBuf::from(OsString::from_vec(link.into_bytes())),
        )
    }

    /// Returns the full path of a file, for messages to people and for watches.
    pub fn path(&self, at: &TeamPath) -> PathBuf {
        self.root.join(at.relative())
    }

    /// Opens a regular file. `O_NOFOLLOW`, `O_CLOEXEC` and `O_NONBLOCK` are always added (a FIFO
    /// planted there is refused, and does not block); a new file gets mode 0600.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses, or something else than a regular file is there.
    pub fn open_file(&self, at: &TeamPath, flags: OFlags) -> Result<File, DirError> {
        Ok(self.open_and_look(at, flags)?.0)
    }

    /// As [`TeamDir::open_file`], with the file's metadata.
    pub(crate) fn open_and_look(
        &self,
        at: &TeamPath,
        flags: OFlags,
    ) -> Result<(File, Stat), DirError> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = match self.open_at_once(at, flags) {
            Some(fd) => fd,
            None => {
                let folder = self.open_folder(at.folder)?;
                let mode = Mode::from_raw_mode(FILE_MODE);
                rustix::fs::openat(folder, at.file.as_str(), flags, mode)
                    .map_err(|errno| self.explain("open", at, errno))?
            }
        };
        let stat = rustix::fs::fstat(&fd).map_err(|errno| self.explain("look at", at, errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(DirError::NotAFile(self.path(at)));
        }
        belongs_to_this_user(&stat, || self.path(at))?;
        Ok((File::from(fd), stat))
    }

    /// Opens folder and file with one system call that follows no link (`openat2(2)`, Linux 5.6);
    /// none if that fails, for whatever reason: then opening them one after the other works, or
    /// gives the reason.
    fn open_at_once(&self, at: &TeamPath, flags: OFlags) -> Option<OwnedFd> {
        let mode = if flags.contains(OFlags::CREATE) {
            FILE_MODE
        } else {
            0
        };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(
            &self.fd,
            at.relative(),
            flags,
            Mode::from_raw_mode(mode),
            resolve,
        )
        .ok()
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// As [`TeamDir::open_file`].
    pub fn read(&self, at: &TeamPath) -> Result<Vec<u8>, DirError> {
        let mut file = self.open_file(at, OFlags::RDONLY)?;
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut file, &mut bytes).map_err(self.cannot("read", at))?;
        Ok(bytes)
    }

    /// Returns device and inode of what is at the path, if anything is.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses to look.
    pub fn identity(&self, at: &TeamPath) -> Result<Option<(u64, u64)>, DirError> {
        Ok(self.stamp(at)?.map(|stamp| stamp.identity))
    }

    /// Returns what distinguishes a file from an earlier one at the path, if there is one. It takes
    /// one system call, because it is made for every message. It opens nothing, so a link in the
    /// place of a folder is followed and harmless.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses to look.
    pub fn stamp(&self, at: &TeamPath) -> Result<Option<Stamp>, DirError> {
        match rustix::fs::statat(&self.fd, at.relative(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Stamp {
                identity: (stat.st_dev, stat.st_ino),
                size: stat.st_size,
                modified: (stat.st_mtime, stat.st_mtime_nsec),
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.explain("look at", at, errno)),
        }
    }

    /// Moves a file inside the team directory, over whatever is there.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn rename(&self, from: &TeamPath, to: &TeamPath) -> Result<(), DirError> {
        let old = self.open_folder(from.folder)?;
        let new = self.open_folder(to.folder)?;
        rustix::fs::renameat(old, &*from.file, new, &*to.file)
            .map_err(|errno| self.explain("rename", from, errno))
    }

    /// Exchanges two files or folders in the team directory in one step (`renameat2(2)`, Linux
    /// 3.15).
    ///
    /// # Errors
    /// [`DirError`] if the system refuses, or cannot.
    pub fn exchange(&self, one: &TeamPath, other: &TeamPath) -> Result<(), DirError> {
        let from = self.open_folder(one.folder)?;
        let to = self.open_folder(other.folder)?;
        rustix::fs::renameat_with(from, &*one.file, to, &*other.file, RenameFlags::EXCHANGE)
            .map_err(|errno| self.explain("exchange", other, errno))
    }

    /// Removes a file; one that is not there is no error.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn remove(&self, at: &TeamPath) -> Result<(), DirError> {
        match rustix::fs::unlinkat(
            self.open_folder(at.folder)?,
            at.file.as_str(),
            AtFlags::empty(),
        ) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.explain("remove", at, errno)),
        }
    }

    /// Opens one of [`FOLDERS`], or the directory itself, as a descriptor; makes a folder again
    /// that was deleted.
    ///
    /// # Errors
    /// [`DirError`] if it is a link, or the system refuses.
    pub fn open_folder(&self, folder: Option<&'static str>) -> Result<OwnedFd, DirError> {
        let mut opened = self.try_open_folder(folder);
        if let (Err(Errno::NOENT), Some(name)) = (&opened, folder) {
            make_dir(self.fd.as_fd(), Path::new(name), &self.root.join(name))?;
            self.sync_folder(None)?;
            opened = self.try_open_folder(folder);
        }
        opened.map_err(|errno| self.explain("open", &TeamPath::top(folder.unwrap_or(".")), errno))
    }

    fn try_open_folder(&self, folder: Option<&'static str>) -> rustix::io::Result<OwnedFd> {
        rustix::fs::openat(
            &self.fd,
            folder.unwrap_or("."),
            FOLDER_FLAGS | OFlags::NOFOLLOW,
            Mode::empty(),
        )
    }

    /// Explains an error of the system.
    pub fn cannot<E: Into<io::Error>>(
        &self,
        verb: &'static str,
        at: &TeamPath,
    ) -> impl FnOnce(E) -> DirError {
        move |source| DirError::io(verb, &self.path(at))(source)
    }

    fn explain(&self, verb: &'static str, at: &TeamPath, errno: Errno) -> DirError {
        let path = self.path(at);
        match errno {
            Errno::LOOP => DirError::Link(path),
            // O_DIRECTORY with O_NOFOLLOW on a link says ENOTDIR.
            Errno::NOTDIR if path.is_symlink() => DirError::Link(path),
            // O_NONBLOCK and O_WRONLY on a FIFO without a reader, or a socket.
            Errno::NXIO => DirError::NotAFile(path),
            other => DirError::io(verb, &path)(other),
        }
    }
}

impl AsFd for TeamDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Only the user who owns the team directory is served: files of another one are not even read.
fn belongs_to_this_user(stat: &Stat, path: impl FnOnce() -> PathBuf) -> Result<(), DirError> {
    let owner = stat.st_uid;
    let user = nix::unistd::geteuid().as_raw();
    if owner == user {
        Ok(())
    } else {
        Err(DirError::Foreign {
            path: path(),
            owner,
            user,
        })
    }
}

/// Makes a directory, unless it is there already.
fn make_dir(parent: BorrowedFd<'_>, path: &Path, shown: &Path) -> Result<(), DirError> {
    match rustix::fs::mkdirat(parent, path, Mode::from_raw_mode(DIR_MODE)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(DirError::io("make", shown)(errno)),
    }
}

/// Where the team directory is, and which directories were skipped on the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The team directory, whether it is there or not.
    pub path: PathBuf,
    /// The nearer directories that have the name and are not registered.
    pub passed_over: Vec<PathBuf>,
}

/// Finds the team directory: the flag (or `$TEAM_DIR`), else the nearest registered `.team` here or
/// above, else the nearest `.team`, else `./.team`.
pub fn locate(flag: Option<&Path>, here: &Path, is_registered: impl Fn(&Path) -> bool) -> Located {
    if let Some(flag) = flag {
        return Located {
            path: here.join(flag),
            passed_over: Vec::new(),
        };
    }
    let above = here
        .ancestors()
        .map(|folder| folder.join(TEAM))
        .filter(|path| path.is_dir());
    let mut passed_over = Vec::new();
    for path in above {
        if is_registered(&path) {
            return Located { path, passed_over };
        }
        passed_over.push(path);
    }
    let path = passed_over
        .into_iter()
        .next()
        .unwrap_or_else(|| here.join(TEAM));
    Located {
        path,
        passed_over: Vec::new(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::name::Name;
    use std::os::unix::fs::{PermissionsExt, symlink};

    pub(crate) fn scratch() -> (tempfile::TempDir, TeamDir) {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        (scratch, dir)
    }

    #[test]
    fn everything_is_made_for_the_user_alone() {
        let (_scratch, dir) = scratch();
        let mode = |path: PathBuf| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(dir.root().to_owned()), 0o700);
        for folder in FOLDERS {
            assert_eq!(mode(dir.root().join(folder)), 0o700, "{folder}");
        }
        drop(
            dir.open_file(&TeamPath::journal(), OFlags::CREATE | OFlags::WRONLY)
                .unwrap(),
        );
        assert_eq!(mode(dir.path(&TeamPath::journal())), 0o600);
    }

    #[test]
    fn no_link_inside_is_followed() {
        let (scratch, dir) = scratch();
        let inbox = TeamPath::inbox(&Name::lead());
        symlink(scratch.path().join("elsewhere"), dir.path(&inbox)).unwrap();
        let error = dir
            .open_file(&inbox, OFlags::CREATE | OFlags::WRONLY)
            .unwrap_err();
        assert!(matches!(error, DirError::Link(_)), "{error}");
        std::fs::remove_dir(dir.root().join("log")).unwrap();
        symlink(scratch.path(), dir.root().join("log")).unwrap();
        let error = dir
            .open_file(&TeamPath::log("alice"), OFlags::CREATE | OFlags::WRONLY)
            .unwrap_err();
        assert!(matches!(error, DirError::Link(_)), "{error}");
        assert!(!scratch.path().join("elsewhere").exists());
    }

    #[test]
    fn a_fifo_in_the_place_of_a_file_blocks_no_reader() {
        let (_scratch, dir) = scratch();
        let inbox = TeamPath::inbox(&Name::lead());
        nix::unistd::mkfifo(&dir.path(&inbox), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for flags in [OFlags::WRONLY | OFlags::APPEND, OFlags::RDONLY] {
            assert!(matches!(
                dir.open_file(&inbox, flags).unwrap_err(),
                DirError::NotAFile(_)
            ));
        }
    }

    #[test]
    fn a_deleted_folder_is_made_again() {
        let (_scratch, dir) = scratch();
        std::fs::remove_dir_all(dir.root().join("run")).unwrap();
        drop(
            dir.open_file(&TeamPath::pid(), OFlags::CREATE | OFlags::WRONLY)
                .unwrap(),
        );
        assert!(dir.path(&TeamPath::pid()).exists());
    }

    #[test]
    fn the_nearest_registered_team_directory_above_is_found() {
        let (scratch, dir) = scratch();
        let deep = scratch.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::create_dir(scratch.path().join("a/.team")).unwrap();
        let forged = scratch.path().join("a/.team");
        let known = scratch.path().join(".team");
        assert_eq!(known.canonicalize().unwrap(), dir.root());
        let at = |path: &Path| Located {
            path: path.to_owned(),
            passed_over: Vec::new(),
        };
        let beyond = Located {
            passed_over: vec![forged.clone()],
            ..at(&known)
        };
        assert_eq!(locate(None, &deep, |path| *path == known), beyond);
        assert_eq!(locate(None, &deep, |_| true), at(&forged));
        assert_eq!(
            locate(None, &deep, |_| false),
            at(&forged),
            "what is there is named"
        );
        assert_eq!(
            locate(Some(Path::new("x")), &deep, |_| false),
            at(&deep.join("x"))
        );
    }
}
