//! The cgroup of one life: who is in it, killing them, and the kernel's word that nobody is.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use teamd_shared::cgroup::{DAEMON, is_populated, populated, remove, tree};
use teamd_shared::member::Cgroup;
use teamd_shared::process::is_gone;

use super::limits::write;
use crate::daemon::core::event::Incarnation;

/// How long the kernel is waited for in one go: the end of the daemon waits for no longer.
const LOOK: Duration = Duration::from_millis(500);
/// How long after what could not be read or written it is tried again.
const PAUSE: Duration = Duration::from_millis(20);
/// For how long that is tried, before the end is told without the kernel's word.
const PATIENCE: Duration = Duration::from_secs(30);

/// The cgroup of one life.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    record: Cgroup,
    /// The cgroup in which this daemon makes those of the team.
    team: Option<PathBuf>,
}

impl Group {
    /// Names the cgroup of a life.
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

    /// Kills all that is in it, in one step that no fork outruns; where that is refused (the file system may be mounted
    /// for reading only), one process after the other.
    ///
    /// # Errors
    /// The system's error; `NotFound` if there is no such cgroup any more.
    pub(crate) fn kill(&self) -> io::Result<()> {
        if let Err(refused) = write(&self.folder().join("cgroup.kill"), "1") {
            tracing::debug!("cannot kill {} in one step: {refused}", self.record.path);
            kill_each(self.folder())?;
        }
        Ok(())
    }

    /// Kills what is left until the kernel says that nobody is in it, and removes it. False if the kernel cannot be asked; as
    /// long as it says that somebody is, that is waited for, whatever refuses the kill.
    pub(crate) async fn empty(&self, life: &Incarnation) -> bool {
        let began = Instant::now();
        let mut failing: Option<Instant> = None;
        loop {
            let looked = match self.step() {
                Ok(true) => return true,
                Ok(false) => self.changed().await,
                Err(error) => Err(error),
            };
            let Err(error) = looked else {
                if began.elapsed() > LOOK {
                    let left = running(self.folder()).unwrap_or_default();
                    tracing::warn!("{} has ended, but {left:?} in its cgroup cannot be killed", life.name);
                }
                failing = None;
                continue;
            };
            let since = *failing.get_or_insert_with(Instant::now);
            if is_gone(&error) || since.elapsed() > PATIENCE {
                tracing::error!("cannot see that the cgroup {} is empty: {error}", self.record.path);
                return false;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Removes it if nobody is in it, and tells whether that is so; else kills who is.
    fn step(&self) -> io::Result<bool> {
        if is_populated(self.folder())? {
            // The kernel has answered: a life that cannot be killed is not over.
            if let Err(error) = self.kill() {
                tracing::warn!("cannot kill what is in the cgroup {}: {error}", self.record.path);
            }
            return Ok(false);
        }
        remove_empty(self.folder());
        // The team's that another daemon had made is of no use without lives.
        if let Some(team) = self.folder().parent().filter(|it| Some(*it) != self.team.as_deref())
            && let Err(error) = remove_team(team)
        {
            tracing::debug!("the cgroup above {} stays: {error}", self.record.path);
        }
        Ok(true)
    }

    /// Waits until its `cgroup.events` change, or for a while.
    async fn changed(&self) -> io::Result<()> {
        let events = self.folder().join("cgroup.events");
        tokio::task::spawn_blocking(move || wait_for_change(&events)).await.map_err(io::Error::other)?
    }
}

/// Removes the cgroup of the team that an earlier daemon had made, with what is left of its making way. Those of lives
/// stay, also empty ones: whoever sees such a life off is to see that.
fn remove_team(team: &Path) -> io::Result<()> {
    remove(&team.join(DAEMON))?;
    fs::remove_dir(team)
}

/// Kills the processes in a cgroup and below it, each held by its pidfd: a pid that is another's by now is not touched. Who is
/// begun meanwhile is left to the next call.
///
/// # Errors
/// The first error of the system, after all were tried.
fn kill_each(folder: &Path) -> io::Result<()> {
    let mut done = Ok(());
    for folder in tree(folder) {
        let pids = listed(&folder).unwrap_or_else(|error| {
            keep_first(&mut done, Err(error));
            Vec::new()
        });
        pids.into_iter().for_each(|pid| keep_first(&mut done, kill_one(&folder, pid)));
    }
    done
}

/// Keeps the first error.
fn keep_first(done: &mut io::Result<()>, next: io::Result<()>) {
    if done.is_ok() {
        *done = next;
    }
}

/// Kills a process, if it is in a cgroup once it is held.
fn kill_one(folder: &Path, pid: u32) -> io::Result<()> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let raw = raw.ok_or_else(|| io::Error::other(format!("process {pid} is not of this pid namespace")))?;
    let killed = pidfd_open(raw, PidfdFlags::empty()).map_err(io::Error::from).and_then(|held| {
        if listed(folder)?.contains(&pid) {
            pidfd_send_signal(&held, Signal::KILL)?;
        }
        Ok(())
    });
    killed.or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) })
}

/// What changes after the file was read ends the wait (`cgroups(7)`: `poll(2)` says `POLLPRI`).
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

/// Lists the processes in a cgroup and below it.
///
/// # Errors
/// The system's error if it, or one below it, cannot be read.
pub(super) fn running(folder: &Path) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for folder in tree(folder) {
        found.extend(listed(&folder)?);
    }
    Ok(found)
}

/// Lists the processes in a cgroup.
fn listed(folder: &Path) -> io::Result<Vec<u32>> {
    let listed = fs::read_to_string(folder.join("cgroup.procs"))?;
    Ok(listed.lines().filter_map(|pid| pid.parse().ok()).collect())
}

/// Removes a cgroup with those below it. What is not empty stays, and is of no use to anybody: that is said in the log alone.
pub(super) fn remove_empty(folder: &Path) {
    if let Err(error) = remove(folder) {
        tracing::info!("cannot remove the cgroup {}: {error}", folder.display());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command};

    use rustix::process::kill_process;

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    /// Its pid may have been another's when it was listed.
    #[test]
    fn a_process_that_is_not_in_the_cgroup_once_it_is_held_lives() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = sleeper();
        let lists = |pid: u32| {
            let mut procs = File::create(folder.path().join("cgroup.procs")).unwrap();
            writeln!(procs, "{pid}").unwrap();
        };
        lists(std::process::id());
        kill_one(folder.path(), child.id()).unwrap();
        // A SIGKILL on its way would come first.
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
        let mut child = sleeper();
        lists(child.id());
        kill_one(folder.path(), child.id()).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
    }
}
