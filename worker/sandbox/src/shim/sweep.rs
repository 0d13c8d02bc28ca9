//! Killing what descends from this process. Used by shims, and by a worker whose shim was killed.
//!
//! It must never signal a process that could be a stranger: a child that is not reaped keeps its
//! pid, and what is further down is held by a pidfd and looked at again before it is killed.

use std::io;
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, getpgid, kill_process,
    kill_process_group, pidfd_open, pidfd_send_signal, waitid,
};
use teamd_shared::process::{Stat, children_by_parent};

/// How soon a look at the children that failed is repeated: to give up would leave them behind.
pub(crate) const AGAIN: Duration = Duration::from_millis(50);

/// Waits for as long, where nothing else is to be done.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells when a descriptor is free again"
)]
pub(crate) fn pause() {
    std::thread::sleep(AGAIN);
}

/// Kills every child of this process but the spared ones, and what descends from them, in one
/// round. Returns the children that it found, which are not reaped.
///
/// All of it is stopped first, from the top down, and then killed from the bottom up: what is
/// stopped no longer forks, whereas each process that is killed makes room for one more of those
/// that fork as fast as they can. What loses its parent during the round can be missed: it is a
/// child of this process then, and found the next time. So nothing is left when a round finds no
/// child.
///
/// # Errors
/// The system's error if the children cannot be listed.
pub(crate) fn kill_children(spared: impl Fn(Pid) -> bool) -> io::Result<Vec<Pid>> {
    let mut children = children_of(rustix::process::getpid())?;
    children.retain(|&child| !spared(child));
    for &child in &children {
        // One step for a whole group: a fork in it fails while the signal is on its way.
        if getpgid(Some(child)) == Ok(child) {
            ignore_gone(kill_process_group(child, Signal::KILL));
        }
    }
    let mut descendants: Vec<Descendant> = children
        .iter()
        .map(|&pid| Descendant { pid, parent: None })
        .collect();
    let mut next = 0;
    while let Some(process) = descendants.get(next).copied() {
        // A process that is gone meanwhile has left its children to this one, and its pid is free.
        if process.signal(Signal::STOP) {
            // What is missed here comes to this process when its parent is killed, and is found the
            // next time.
            let below = children_of(process.pid).unwrap_or_default();
            descendants.extend(below.into_iter().map(|pid| Descendant {
                pid,
                parent: Some(process.pid),
            }));
        }
        next += 1;
    }
    for process in descendants.iter().rev() {
        process.signal(Signal::KILL);
    }
    Ok(children)
}

/// Counts what descends from this process and has not ended, as far as it can be seen.
pub(crate) fn count_descendants() -> usize {
    descendants(rustix::process::getpid())
        .into_iter()
        .filter(|&process| runs(process))
        .count()
}

/// Lists what descends from a process, as far as it can be seen: parents before their children.
pub(crate) fn descendants(of: Pid) -> Vec<Pid> {
    let mut all = children_of(of).unwrap_or_default();
    let mut next = 0;
    while let Some(&process) = all.get(next) {
        let below = children_of(process).unwrap_or_default();
        all.extend(below);
        next += 1;
    }
    all
}

/// Tells whether a process is there and has not ended.
fn runs(process: Pid) -> bool {
    Stat::of(process.as_raw_pid().unsigned_abs()).is_ok_and(|stat| !stat.has_ended())
}

/// Tells whether this process has a child at all, ended ones that are not reaped among them. Reaps
/// none.
pub(crate) fn has_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, options), Err(rustix::io::Errno::CHILD))
}

/// Tells whether this process has a child that is not spared, by looking at every process there is.
///
/// The list that the kernel keeps can leave one out if another is reaped while it is read
/// (`proc_pid_task(5)`). Where no child is to be spared no second look is needed: `wait` says when
/// there is none.
///
/// # Errors
/// The system's error if the processes cannot be listed.
pub(crate) fn has_child(spared: impl Fn(Pid) -> bool) -> io::Result<bool> {
    Ok(pids(children_by_parent(std::process::id())?).any(|child| !spared(child)))
}

/// Reaps the children that have ended, but not one.
///
/// # Errors
/// The system's error if the children cannot be listed.
pub(crate) fn reap_orphans(but: Pid) -> io::Result<()> {
    for child in children_of(rustix::process::getpid())? {
        if child != but {
            ignore_gone(rustix::process::waitpid(Some(child), WaitOptions::NOHANG));
        }
    }
    Ok(())
}

/// A process that is to be killed.
#[derive(Debug, Clone, Copy)]
struct Descendant {
    pid: Pid,
    /// None: this process, whose children keep their pids until it reaps them.
    parent: Option<Pid>,
}

impl Descendant {
    /// Sends a signal, unless the process is another one now; tells which.
    fn signal(self, signal: Signal) -> bool {
        let Some(parent) = self.parent else {
            ignore_gone(kill_process(self.pid, signal));
            return true;
        };
        let Ok(held) = pidfd_open(self.pid, PidfdFlags::empty()) else {
            return false;
        };
        let is_it = parent_of(self.pid) == Some(parent);
        if is_it {
            ignore_gone(pidfd_send_signal(held, signal));
        }
        is_it
    }
}

/// Lists the children of a process, the eldest first.
///
/// # Errors
/// The system's error.
pub(crate) fn children_of(process: Pid) -> io::Result<Vec<Pid>> {
    let children = teamd_shared::process::children_of(process.as_raw_pid().unsigned_abs())?;
    Ok(pids(children).collect())
}

fn pids(raw: Vec<u32>) -> impl Iterator<Item = Pid> {
    raw.into_iter()
        .filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
}

fn parent_of(process: Pid) -> Option<Pid> {
    let parent = Stat::of(process.as_raw_pid().unsigned_abs()).ok()?.parent;
    Pid::from_raw(i32::try_from(parent).ok()?)
}

/// That a process is gone already is what is wanted; one that may not be signalled is waited for
/// instead.
fn ignore_gone<T>(result: rustix::io::Result<T>) {
    if let Err(errno) = result
        && !matches!(errno, rustix::io::Errno::SRCH | rustix::io::Errno::CHILD)
    {
        tracing::warn!("cannot end a process: {errno}");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};

    use super::*;

    #[test]
    fn a_child_is_there_until_it_is_reaped_and_is_not_reaped_by_a_look() {
        // By its name, no test that sweeps takes it for an orphan.
        let mut child = std::process::Command::new("/proc/self/exe");
        let mut child = child
            .args(["--exact", "no-such-test"])
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        )
        .unwrap();
        assert!(has_children() && has_children());
        assert!(child.wait().unwrap().success());
    }

    /// Its parent is gone by now, and the pid is another process's.
    #[test]
    fn a_process_of_another_parent_than_it_was_found_under_is_not_signalled() {
        let folder = tempfile::tempdir().unwrap();
        // By its name, no test that sweeps takes it for an orphan.
        let program = folder.path().join("exe");
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(program)
            .arg0("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        let own = rustix::process::getpid();
        assert!(
            !Descendant {
                pid,
                parent: Some(pid)
            }
            .signal(Signal::KILL)
        );
        // A SIGKILL on its way would come first.
        assert!(
            Descendant {
                pid,
                parent: Some(own)
            }
            .signal(Signal::TERM)
        );
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    }
}
