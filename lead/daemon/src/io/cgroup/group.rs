//! The cgroup of one incarnation or check: killing all that is in it, and waiting until the kernel
//! says that it is empty.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use teamd_shared::cgroup::{DAEMON, is_populated, populated, remove};
use teamd_shared::member::Cgroup;
use teamd_shared::process::is_gone;

use super::limits::write;

/// How long the daemon waits for the kernel at once: the end of the daemon waits for no longer.
const LOOK: Duration = Duration::from_millis(500);
/// The pause after a file of the cgroup could not be read.
const PAUSE: Duration = Duration::from_millis(20);
/// How long the daemon tries to read a cgroup that cannot be read.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The cgroup of one incarnation or check.
#[derive(Debug, Clone)]
pub(crate) struct CgroupHandle {
    record: Cgroup,
    /// The cgroup of the team, as this daemon makes it.
    team: Option<PathBuf>,
}

/// What a cgroup tells of the end of what runs in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Emptiness {
    /// The kernel says that it is empty.
    Empty,
    /// There is no such cgroup any more: it tells nothing.
    Gone,
    /// It could not be read.
    Unknown,
}

impl CgroupHandle {
    /// Returns the cgroup with this record.
    pub(super) fn new(record: Cgroup, team: Option<PathBuf>) -> Self {
        Self { record, team }
    }

    /// Returns what the journal says of it.
    pub(crate) fn record(&self) -> &Cgroup {
        &self.record
    }

    fn folder(&self) -> &Path {
        Path::new(&self.record.path)
    }

    /// Kills all that is in it, in one step that no fork outruns.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn kill(&self) -> io::Result<()> {
        write(&self.folder().join("cgroup.kill"), "1")
    }

    /// Kills what is in it, waits until the kernel says that it is empty, and removes it. As long
    /// as the kernel says that a process is in it, what ran there is not over, whatever refuses the
    /// kill. `of` says for the log what that is.
    pub(crate) async fn empty(&self, of: &str) -> Emptiness {
        let path = &self.record.path;
        let mut unreadable: Option<Instant> = None;
        loop {
            match self.kill_once().await {
                Ok(true) => {
                    self.remove();
                    return Emptiness::Empty;
                }
                Ok(false) => unreadable = None,
                Err(error) if is_gone(&error) => {
                    tracing::info!("the cgroup {path} of {of} is gone");
                    return Emptiness::Gone;
                }
                // No descriptor may be left just now.
                Err(error) => {
                    if unreadable.get_or_insert_with(Instant::now).elapsed() > TIMEOUT {
                        tracing::error!("cannot see whether the cgroup {path} is empty: {error}");
                        return Emptiness::Unknown;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Tells whether it is empty; else kills what is in it, and waits for a change.
    async fn kill_once(&self) -> io::Result<bool> {
        if !is_populated(self.folder())? {
            return Ok(true);
        }
        if let Err(error) = self.kill() {
            tracing::debug!(
                "cannot kill what is in the cgroup {}: {error}",
                self.record.path
            );
        }
        let events = self.folder().join("cgroup.events");
        tokio::task::spawn_blocking(move || wait_for_change(&events))
            .await
            .map_err(io::Error::other)??;
        Ok(false)
    }

    /// Removes it, and the team's above it if another daemon had made that, and it holds no other
    /// incarnation.
    pub(crate) fn remove(&self) {
        remove_empty(self.folder());
        if let Some(team) = self
            .folder()
            .parent()
            .filter(|it| Some(*it) != self.team.as_deref())
            && let Err(error) = remove(&team.join(DAEMON)).and_then(|()| fs::remove_dir(team))
        {
            tracing::debug!("the cgroup above {} stays: {error}", self.record.path);
        }
    }
}

/// Waits until a `cgroup.events` file of a populated cgroup changes (`cgroups(7)`: `poll(2)` says
/// `POLLPRI`), or for a while.
fn wait_for_change(events: &Path) -> io::Result<()> {
    let mut file = File::open(events)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    if populated(&text) != Some(false) {
        let timeout = Timespec::try_from(LOOK).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&file, PollFlags::PRI)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Removes a cgroup with those below it. One that is not empty stays, and only the log says so.
pub(super) fn remove_empty(folder: &Path) {
    if let Err(error) = remove(folder) {
        tracing::info!("cannot remove the cgroup {}: {error}", folder.display());
    }
}
