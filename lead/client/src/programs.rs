//! The programs that a daemon starts, each opened once and then always run by its descriptor.
//!
//! Commands of teammates may be able to write where the programs are: what is at a path later
//! is not trusted. So the worker's program is copied into sealed memory, which no later write to
//! the file reaches either (runc does the same, for the same reason: CVE-2019-5736). Shims and
//! sandbox inits start from the worker's own program (`/proc/self/exe`).

use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create, openat};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use teamd_shared::sandbox::{NO_PLACE_FOR_PROBE, Probe};

/// The names of all programs, which are in one directory.
pub const NAMES: [&str; 3] = ["teamd", "teamctl", "team-worker"];

/// The name of the program that carries links over a NATS cluster: only with the feature `nats`.
const NATS: &str = "teamd-nats";

/// How often sealing memory is tried before the machine counts as broken: some seconds.
const SEAL_ATTEMPTS: usize = 20;

/// An open program.
#[derive(Debug)]
pub struct Program {
    /// Where it was found: for messages, and for `ps`.
    path: PathBuf,
    fd: OwnedFd,
}

impl Program {
    /// Opens the worker's program and copies it into sealed memory. It is beside this program,
    /// unless `TEAM_WORKER` names another one (for tests).
    ///
    /// # Errors
    /// What cannot be opened, and why. Fits behind "error: ".
    pub fn worker() -> Result<Self, String> {
        let path = worker_path()?;
        let fd = open(&path).map_err(|error| format!("cannot open {}: {error}", path.display()))?;
        Ok(Self { path, fd })
    }

    /// Takes the program that another process has open under this descriptor number.
    ///
    /// # Errors
    /// The system's error: the process is gone, or may not be inspected.
    pub fn of_process(pid: u32, descriptor: i32, path: &str) -> io::Result<Self> {
        Ok(Self {
            path: path.into(),
            fd: open_link(&format!("/proc/{pid}/fd/{descriptor}"))?,
        })
    }

    /// Takes the program that another process runs.
    ///
    /// # Errors
    /// As [`Program::of_process`].
    pub fn run_by(pid: u32, path: &str) -> io::Result<Self> {
        Ok(Self {
            path: path.into(),
            fd: open_link(&format!("/proc/{pid}/exe"))?,
        })
    }

    /// Takes over what [`Program::inherit`] has handed on.
    ///
    /// # Errors
    /// The system's error.
    pub fn inherited(descriptor: i32) -> Result<Self, String> {
        let path = worker_path()?;
        let cannot = |error: io::Error| format!("cannot take over {}: {error}", path.display());
        let fd = open_link(&format!("/proc/self/fd/{descriptor}")).map_err(cannot)?;
        nix::unistd::close(descriptor).map_err(|errno| cannot(errno.into()))?;
        Ok(Self { path, fd })
    }

    /// Lets what this process starts or becomes next inherit the program. Returns the number of the
    /// descriptor.
    ///
    /// # Errors
    /// The system's error.
    pub fn inherit(&self) -> io::Result<i32> {
        fcntl_setfd(&self.fd, FdFlags::empty())?;
        Ok(self.fd.as_raw_fd())
    }

    /// Returns where it was found.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of its descriptor in this process.
    pub fn descriptor(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Returns a command that runs it. The program must outlive the start.
    pub fn command(&self) -> Command {
        let mut command = Command::new(format!("/proc/self/fd/{}", self.fd.as_raw_fd()));
        command.arg0(&self.path);
        command
    }

    /// Finds out how commands can be confined here, in some milliseconds.
    ///
    /// # Errors
    /// Why nothing was found out. Fits behind "error: ".
    pub fn probe(&self) -> Result<Probe, String> {
        run_probe(self.command().arg("probe"), &self.path)
    }
}

/// As [`Program::probe`], and lets a confined child try to break out, which takes longer. For
/// `doctor`: the child is started by its path, inside the sandbox.
///
/// # Errors
/// Why nothing was found out. Fits behind "error: ".
pub fn attack() -> Result<Probe, String> {
    let path = worker_path()?;
    run_probe(Command::new(&path).args(["probe", "--attack"]), &path)
}

/// Returns the paths of the programs beside this one that exist. Commands of teammates cannot reach
/// them.
pub fn files() -> Vec<PathBuf> {
    let Ok(directory) = directory() else {
        return Vec::new();
    };
    let names = NAMES.into_iter().chain([NATS]);
    names
        .map(|name| directory.join(name))
        .filter(|file| file.exists())
        .collect()
}

/// Returns a program that has another name (a hard link, as `cargo build` makes) in a place where
/// commands write that may write in these directories: no mount protects it by that name. The
/// daemon's own programs are not affected: it has its copy.
pub fn with_another_name<'a>(mut writable: impl Iterator<Item = &'a str>) -> Option<PathBuf> {
    let real = files()
        .into_iter()
        .filter_map(|file| file.canonicalize().ok());
    let linked: Vec<_> = real
        .filter(|file| file.metadata().is_ok_and(|it| it.nlink() > 1))
        .collect();
    writable.find_map(|above| linked.iter().find(|file| file.starts_with(above)).cloned())
}

/// Returns the next step where the worker's program had no place for the files of its trial.
pub fn place_for_probe(why: &str) -> Option<&'static str> {
    why.contains(NO_PLACE_FOR_PROBE).then_some(
        "set TMPDIR to a directory that is there, has space, and can be written; or unset it, for /tmp",
    )
}

/// What is to be done about it.
pub const INSTALL_ELSEWHERE: &str =
    "install the programs elsewhere (`cargo install --path .`), and use those";

/// Returns where the daemon's program is.
///
/// # Errors
/// The system's error.
pub fn teamd() -> io::Result<PathBuf> {
    directory().map(|directory| directory.join("teamd"))
}

/// Finds the program that carries links over a NATS cluster. Programs that were built without it run
/// none, whatever has come to lie beside them: only what was there with them is kept from teammates.
///
/// # Errors
/// Why there is none. Fits behind "error: ".
pub fn nats() -> Result<PathBuf, String> {
    if !cfg!(feature = "nats") {
        return Err("this teamd was built without its feature `nats`".to_owned());
    }
    let directory = directory().map_err(|error| format!("cannot find {NATS}: {error}"))?;
    let path = directory.join(NATS);
    if path.exists() {
        return Ok(path);
    }
    Err(format!("there is no {}", path.display()))
}

fn directory() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().unwrap_or(Path::new("/")).to_owned())
}

fn worker_path() -> Result<PathBuf, String> {
    match std::env::var_os("TEAM_WORKER") {
        Some(path) => Ok(PathBuf::from(path)),
        None => directory()
            .map(|directory| directory.join("team-worker"))
            .map_err(|error| format!("cannot find the worker's program: {error}")),
    }
}

fn run_probe(command: &mut Command, path: &Path) -> Result<Probe, String> {
    let output = command
        .output()
        .map_err(|error| format!("cannot run {}: {error}", path.display()))?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        format!(
            "{} does not report how commands can be confined: {}",
            path.display(),
            stderr.trim()
        )
    })
}

/// Opens a program as a sealed copy. Where the machine runs nothing from memory
/// (`vm.memfd_noexec=2`), the file itself is held: then only the mounts of the sandbox keep it from
/// being written.
fn open(path: &Path) -> io::Result<OwnedFd> {
    let mut file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let memory = match memfd_create(
        "team-worker",
        MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC | MemfdFlags::EXEC,
    ) {
        // The flag is of Linux 6.3; before, each such file can be run.
        Err(Errno::INVAL) => memfd_create(
            "team-worker",
            MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC,
        ),
        other => other,
    };
    let mut memory = match memory {
        Ok(memory) => File::from(memory),
        Err(errno) => {
            tracing::warn!(
                "cannot copy {} into memory ({errno}): the file itself is run",
                path.display()
            );
            return Ok(file.into());
        }
    };
    file.rewind()?;
    io::copy(&mut file, &mut memory)?;
    seal(&memory)?;
    // Another description: one that can write keeps the kernel from running it.
    open_link(&format!("/proc/self/fd/{}", memory.as_raw_fd()))
}

/// Seals memory that was written. While the kernel itself holds a page of it, as on a machine under
/// load, it waits 150 ms and then returns EBUSY (`memfd_wait_for_pins` in `mm/memfd.c`).
fn seal(memory: &File) -> io::Result<()> {
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    let mut sealed = Err(Errno::BUSY);
    for _ in 0..SEAL_ATTEMPTS {
        sealed = fcntl_add_seals(memory, seals);
        if sealed != Err(Errno::BUSY) {
            break;
        }
    }
    Ok(sealed?)
}

/// Opens the target of a link of the kernel, to run it.
fn open_link(link: &str) -> io::Result<OwnedFd> {
    Ok(openat(
        CWD,
        link,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}
