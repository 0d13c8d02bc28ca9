//! Killing what descends from this process. Used by keepers, and by a worker whose keeper was killed.
//!
//! It must never signal a process that could be a stranger: a child that nobody has reaped keeps its pid, and what
//! is further down is held by a pidfd and looked at again before it is killed.

use std::fs;
use std::io;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpgid, kill_process, kill_process_group, pidfd_open, pidfd_send_signal,
};

/// Kills every child of this process but the spared ones, and what descends from them, in one round. Returns the
/// children that it found, which are not reaped.
///
/// What was forked during the round can be missed: its parent is gone then, so that it is a child the next time.
///
/// # Errors
/// The system's error if the children cannot be listed.
pub(crate) fn kill_children(spared: impl Fn(Pid) -> bool) -> io::Result<Vec<Pid>> {
    let mut children = children_of("self")?;
    children.retain(|&child| !spared(child));
    for &child in &children {
        // One step for the whole group: a fork in it fails while the signal is on its way.
        if getpgid(Some(child)) == Ok(child) {
            ignore_gone(kill_process_group(child, Signal::KILL));
        }
    }
    for &child in &children {
        kill_descendants(child);
        ignore_gone(kill_process(child, Signal::KILL));
    }
    Ok(children)
}

/// Reaps the children that have ended, but not one.
///
/// # Errors
/// The system's error if the children cannot be listed.
pub(crate) fn reap_orphans(but: Pid) -> io::Result<()> {
    for child in children_of("self")? {
        if child != but {
            ignore_gone(rustix::process::waitpid(Some(child), WaitOptions::NOHANG));
        }
    }
    Ok(())
}

/// Kills what descends from a process that is not reaped.
fn kill_descendants(ancestor: Pid) {
    let mut parents = vec![ancestor];
    while let Some(parent) = parents.pop() {
        // A parent that is gone meanwhile has left its children to this process.
        for child in children_of(&parent.as_raw_pid().to_string()).unwrap_or_default() {
            let Ok(held) = pidfd_open(child, PidfdFlags::empty()) else { continue };
            if parent_of(child) == Some(parent) {
                parents.push(child);
                ignore_gone(pidfd_send_signal(held, Signal::KILL));
            }
        }
    }
}

/// Lists the children of a process, those of all its threads: `/proc/PID/task/TID/children` (`proc_pid_task(5)`).
fn children_of(process: &str) -> io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread that has ended meanwhile has left its children to another one.
        let listed = fs::read_to_string(thread?.path().join("children")).unwrap_or_default();
        children.extend(listed.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    Ok(children)
}

/// The name (field 2) may hold spaces and parentheses: fields count from the last one.
fn parent_of(process: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid())).ok()?;
    Pid::from_raw(stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()?)
}

/// That a process is gone already is what is wanted; one that may not be signalled is waited for instead.
fn ignore_gone<T>(result: rustix::io::Result<T>) {
    if let Err(errno) = result
        && !matches!(errno, rustix::io::Errno::SRCH | rustix::io::Errno::CHILD)
    {
        tracing::warn!("cannot end a process: {errno}");
    }
}
