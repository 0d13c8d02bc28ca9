//! The folder in which a program is installed before it counts as installed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with, syncfs};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use teamd_shared::installed::{InstallRecord, InstalledProgram, InstalledPrograms, RECORD};
use teamd_shared::team_dir::DIR_MODE;
use uuid::Uuid;

use crate::error::CommandError;
use crate::print::escape;
use crate::print::output::Output;

use super::{failed, refused};

/// The lock of whoever installs, in the folder of all programs.
const LOCK: &str = ".lock";

/// What the name of a folder begins with that is not whole: it does not count.
const UNFINISHED: &str = ".unfinished-";

/// The folder in which packages are kept between download and installation. It is of this
/// installation alone: teammates may have been given the caches of the user to write.
const CACHE: &str = "cache";

/// How many programs of one name and version there may be.
const SAME_NAME: u32 = 100;

/// A folder in which a program is being installed. It is removed if that does not end well.
pub(super) struct Staging {
    root: PathBuf,
    folder: PathBuf,
    /// What is installed, beside the cache.
    content: PathBuf,
    name: String,
    _lock: File,
}

impl Staging {
    /// Makes one, when no other command installs, and removes what killed ones have left.
    pub(super) fn make(
        out: &Output,
        programs: &InstalledPrograms,
        name: &str,
    ) -> Result<Self, CommandError> {
        let root = programs.root().to_owned();
        let cannot = |error: io::Error| {
            let what = format!("cannot install into {}", root.display());
            refused(&what, &error)
        };
        make_folder(&root).map_err(cannot)?;
        let lock = lock(out, &root).map_err(cannot)?;
        for entry in fs::read_dir(&root).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            if is_unfinished(&entry.file_name()) {
                fs::remove_dir_all(entry.path()).map_err(cannot)?;
            }
        }
        let folder = root.join(format!("{UNFINISHED}{}", Uuid::new_v4().simple()));
        let content = folder.join("content");
        make_folder(&content).map_err(cannot)?;
        make_folder(&folder.join(CACHE)).map_err(cannot)?;
        Ok(Self {
            root,
            folder,
            content,
            name: folder_name(name),
            _lock: lock,
        })
    }

    /// Returns the folder to which a package manager installs.
    pub(super) fn path(&self) -> &Path {
        &self.content
    }

    /// Returns the folder of its cache, which is gone when all is done.
    pub(super) fn cache(&self) -> PathBuf {
        self.folder.join(CACHE)
    }

    /// Writes the record, and gives the folder its name: from then on it counts.
    pub(super) fn publish(&self, record: InstallRecord) -> Result<InstalledProgram, CommandError> {
        let version = folder_name(&record.version);
        let folder = self
            .write(&record)
            .and_then(|()| self.rename(&format!("{}-{version}", self.name)))
            .map_err(|error| {
                let what = format!("cannot put the program into {}", self.root.display());
                refused(&what, &error)
            })?;
        Ok(InstalledProgram { folder, record })
    }

    fn write(&self, record: &InstallRecord) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(record)?;
        let mut file = File::create_new(self.content.join(RECORD))?;
        file.write_all(&text)?;
        // A crash of the machine must not leave the name without the content.
        syncfs(&file)?;
        Ok(())
    }

    fn rename(&self, name: &str) -> io::Result<PathBuf> {
        for number in 1..=SAME_NAME {
            let to = match number {
                1 => self.root.join(name),
                _ => self.root.join(format!("{name}-{number}")),
            };
            match renameat_with(CWD, &self.content, CWD, &to, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    File::open(&self.root)?.sync_all()?;
                    return Ok(to);
                }
                Err(Errno::EXIST) if is_damaged(&to) => {
                    let aside = self.folder.join(format!("damaged-{number}"));
                    fs::rename(&to, aside)?;
                    renameat_with(CWD, &self.content, CWD, &to, RenameFlags::NOREPLACE)?;
                    File::open(&self.root)?.sync_all()?;
                    return Ok(to);
                }
                // Another team has another program of that name and version.
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(io::Error::other(format!(
            "there are {SAME_NAME} programs {name}: remove some of them"
        )))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            // The next installation removes it.
            tracing::warn!("{} is left: {error}", self.folder.display());
        }
    }
}

/// Tells whether a folder is no installed program any more, so that another one may take its place.
fn is_damaged(folder: &Path) -> bool {
    !matches!(InstalledProgram::read(folder.to_owned()), Ok(Some(_)))
}

fn is_unfinished(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes())
}

/// Waits until no other command installs. What this one starts inherits the lock: the folder of a
/// killed command is not removed while its package manager still writes there.
fn lock(out: &Output, root: &Path) -> io::Result<File> {
    let path = root.join(LOCK);
    let lock = OpenOptions::new().create(true).append(true).open(&path)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {
            let path = path.to_string_lossy();
            out.note(format_args!(
                "another installation is running, or one that was killed still ends: waiting for it ({})",
                escape::line(&path)
            ));
            flock(&lock, FlockOperation::LockExclusive)?;
        }
        locked => locked?,
    }
    fcntl_setfd(&lock, FdFlags::empty())?;
    Ok(lock)
}

fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .mode(DIR_MODE)
        .recursive(true)
        .create(path)
}

/// Returns a name as that of a folder: neither a path nor hidden.
fn folder_name(name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.+".contains(c) {
            c
        } else {
            '-'
        }
    };
    let name: String = name.chars().map(plain).collect();
    let name = name.trim_start_matches('.');
    if name.is_empty() {
        "program".to_owned()
    } else {
        name.to_owned()
    }
}

/// Makes sure that what was installed is a program.
pub(super) fn require_program(folder: &Path, program: &Path) -> Result<(), CommandError> {
    let path = folder.join(program);
    let found = path.canonicalize().and_then(|real| {
        // A link to elsewhere could lead to something that is written.
        let folder = folder.canonicalize()?;
        Ok(real.starts_with(folder) && crate::read::agents::is_program(&real))
    });
    match found {
        Ok(true) => Ok(()),
        Ok(false) => Err(no_program(program)),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(no_program(program)),
        Err(error) => Err(refused(
            &format!("cannot look at {}", path.display()),
            &error,
        )),
    }
}

fn no_program(program: &Path) -> CommandError {
    failed(format!(
        "the package has no program {} that could be run",
        program.display()
    ))
    .hint("try `--scripts`: the install script of something that it depends on may make it")
}
