//! A cache of the user that is copied for commands. The process that copies it is not confined: it
//! must not read for a teammate what that one could not read itself.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, fstat, mkdirat, openat, readlinkat, statat, symlinkat,
};
use rustix::io::Errno;
use teamd_shared::environment::Environment;
use teamd_shared::place::{open_below, open_itself};
use teamd_shared::team_dir::DIR_MODE;

use crate::CommandPlaces;

/// How much of a cache of the user is copied, in bytes. A larger one is not: its tool begins with
/// an empty one.
const MOST: u64 = 256 << 20;

/// In how many files.
const MOST_FILES: u64 = 50_000;

/// A directory below the home, with no link on the way to it, where no teammate writes.
pub(super) struct CacheSource {
    folder: OwnedFd,
    path: PathBuf,
    /// What is left out, by path and as device and inode.
    hidden: Vec<PathBuf>,
    hidden_files: HashSet<(u64, u64)>,
}

impl CacheSource {
    /// Finds what may be copied of a directory that variables name; none if it may not be.
    ///
    /// # Errors
    /// The system's error, or why it cannot be known what is secret.
    pub(super) fn find(
        named: &Path,
        environment: &Environment,
        places: &CommandPlaces,
    ) -> io::Result<Option<Self>> {
        let Some(path) = below_a_home(named, environment, places) else {
            return Ok(None);
        };
        let own = [&places.workspace]
            .into_iter()
            .chain(&places.writable)
            .map(|place| &place.path);
        let mut written = own.chain(&places.territory);
        // A link that is made there leads wherever its maker likes, also between this look and the
        // next.
        let is_written = written.any(|theirs| {
            [named, &path]
                .iter()
                .any(|it| it.starts_with(theirs) || theirs.starts_with(it))
        });
        let hidden = places.secrets.paths().map_err(io::Error::other)?.to_vec();
        if is_written || hidden.iter().any(|hidden| path.starts_with(hidden)) {
            return Ok(None);
        }
        let folder = match open_itself(&path, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(Errno::LOOP) => return Ok(None),
            folder => folder?,
        };
        let hidden_files = places
            .secrets
            .nodes()
            .map_err(io::Error::other)?
            .into_iter()
            .collect();
        Ok(Some(Self {
            folder,
            path,
            hidden,
            hidden_files,
        }))
    }

    /// Tells whether it is small enough to be copied.
    pub(super) fn is_small(&self) -> io::Result<bool> {
        let opened = format!("/proc/self/fd/{}", self.folder.as_raw_fd());
        super::is_smaller(Path::new(&opened), MOST, MOST_FILES)
    }

    /// Copies what is in it: directories, files and links. What is not readable is left out, like
    /// secrets and all else.
    pub(super) fn copy_to(&self, to: &OwnedFd) -> io::Result<()> {
        let mut left = vec![PathBuf::from(".")];
        while let Some(at) = left.pop() {
            let from = match open_below(&self.folder, &at, OFlags::RDONLY | OFlags::DIRECTORY) {
                Err(Errno::ACCESS) => continue,
                from => from?,
            };
            let to = open_below(to, &at, OFlags::PATH | OFlags::DIRECTORY)?;
            for entry in Dir::read_from(&from)? {
                let entry = entry?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                let path = at.join(name);
                if name == "." || name == ".." || self.hidden.contains(&self.path.join(&path)) {
                    continue;
                }
                match self.copy_entry(&from, &to, name) {
                    Ok(true) => left.push(path),
                    Ok(false) => {}
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Copies one name, and tells whether it is that of a directory, which is made empty.
    fn copy_entry(&self, from: &OwnedFd, to: &OwnedFd, name: &OsStr) -> io::Result<bool> {
        let stat = statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                mkdirat(to, name, Mode::from_raw_mode(DIR_MODE))?;
                return Ok(true);
            }
            FileType::Symlink => symlinkat(readlinkat(from, name, Vec::new())?, to, name)?,
            FileType::RegularFile => self.copy_file(from, to, name)?,
            _ => {}
        }
        Ok(false)
    }

    fn copy_file(&self, from: &OwnedFd, to: &OwnedFd, name: &OsStr) -> io::Result<()> {
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mut read = File::from(openat(from, name, OFlags::RDONLY | flags, Mode::empty())?);
        // Another file can have taken its place.
        let stat = fstat(&read)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || self.hidden_files.contains(&(stat.st_dev, stat.st_ino)) {
            return Ok(());
        }
        let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
        let mut written = File::from(openat(to, name, new | flags, mode)?);
        io::copy(&mut read, &mut written).map(drop)
    }
}

/// Returns where a directory lies below a home, whose own path may have links; none for any other
/// directory.
fn below_a_home(
    named: &Path,
    environment: &Environment,
    places: &CommandPlaces,
) -> Option<PathBuf> {
    let mut homes = Vec::new();
    if let Some(home) = environment.path("HOME") {
        homes.extend(home.canonicalize().map(|real| (home, real)));
    }
    homes.extend(places.homes.iter().map(|home| (home.clone(), home.clone())));
    homes.into_iter().find_map(|(home, real)| {
        let below = named.strip_prefix(home).ok()?;
        let is_plain = below
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        (is_plain && below.components().next().is_some()).then(|| real.join(below))
    })
}
