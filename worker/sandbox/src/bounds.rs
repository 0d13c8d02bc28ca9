//! What the processes of one command may use: limits that the kernel holds for each of them, put on
//! just before `bash` begins, and what the model gets to read when a command has reached one.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use teamd_shared::amount::{format_duration, format_size};
use teamd_shared::member::Bounds;

/// Above 0, with which a worker begins; up to 1,000, and only root goes down again
/// (`proc_pid_oom_score_adj(5)`).
const GOES_FIRST: &[u8] = b"500";

/// Processes and threads that a command may have at once, unless the teammate's limit says
/// otherwise. It is put on where the kernel counts those of one command alone.
const MOST_PROCESSES: u32 = 4096;

/// Signals that may be queued for the processes of a command; a user has some ten thousand.
const MOST_SIGNALS: u64 = 1024;

/// Bytes in POSIX message queues; a user has 819,200 (`getrlimit(2)`).
const MOST_QUEUED: u64 = 81_920;

/// Makes this process, and all that it starts, the first to go where the kernel has to kill for
/// memory: not the worker, with which all of them would go.
///
/// # Errors
/// The system's error, unless this may not be said, or has been said already: the limit holds all
/// the same.
pub(crate) fn go_first() -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .open("/proc/self/oom_score_adj");
    match file.and_then(|mut file| file.write_all(GOES_FIRST)) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// Puts the limits on this process, and so on all that it starts. `spare`: how many processes
/// beside those of the command the kernel counts with them, where it counts those of a command
/// alone.
///
/// # Errors
/// The system's error.
pub(crate) fn put_on(bounds: &Bounds, spare: Option<u32>) -> io::Result<()> {
    if let Some(most) = bounds.memory {
        // Not the address space: many programs reserve far more of that than they ever use.
        setrlimit(Resource::RLIMIT_DATA, most, most)?;
    }
    if let Some(most) = bounds.cpu_time {
        // A process that continues after SIGXCPU is killed a second later.
        setrlimit(Resource::RLIMIT_CPU, most, most.saturating_add(1))?;
    }
    let most = bounds
        .max_procs
        .or_else(|| counts_by_namespace().then_some(MOST_PROCESSES));
    if let Some((most, spare)) = most.zip(spare) {
        lower(Resource::RLIMIT_NPROC, u64::from(most) + u64::from(spare))?;
    }
    Ok(())
}

/// Leaves the user's other programs most of what the kernel counts for all of them together.
///
/// # Errors
/// The system's error.
pub(crate) fn share_with_the_user() -> io::Result<()> {
    lower(Resource::RLIMIT_SIGPENDING, MOST_SIGNALS)?;
    lower(Resource::RLIMIT_MSGQUEUE, MOST_QUEUED)
}

/// Tells whether the kernel counts the processes of a user namespace by themselves (Linux 5.14):
/// before, all those of the user count against the limit of each.
fn counts_by_namespace() -> bool {
    let uname = rustix::system::uname();
    let mut numbers = uname
        .release()
        .to_str()
        .unwrap_or_default()
        .split('.')
        .map(str::parse::<u32>);
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (5, 14))
}

/// Lowers a limit; one that is lower already stays as it is.
fn lower(limit: Resource, most: u64) -> io::Result<()> {
    let most = getrlimit(limit)?.1.min(most);
    Ok(setrlimit(limit, most, most)?)
}

/// Says which limit a command has reached, as far as its end and its output show that.
pub(crate) fn reached(
    bounds: &Bounds,
    (code, signal): (Option<i32>, Option<i32>),
    output: &str,
) -> Option<String> {
    if let Some(most) = bounds
        .cpu_time
        .map(|most| format_duration(Duration::from_secs(most)))
    {
        if is_ended_by(Signal::SIGXCPU, code, signal) {
            return Some(format!(
                "SIGXCPU: a process reached its limit of {most} of CPU time (rlimit)"
            ));
        }
        if is_ended_by(Signal::SIGKILL, code, signal) {
            return Some(format!(
                "SIGKILL: a process may have gone beyond its limit of {most} of CPU time (rlimit)"
            ));
        }
    }
    if is_ended_by(Signal::SIGKILL, code, signal)
        && let Some(most) = bounds.memory.map(format_size)
    {
        // The kernel's choice where a cgroup is full; nothing tells it from any other SIGKILL.
        return Some(format!(
            "SIGKILL: where a cgroup holds the limit of {most} of memory, all processes of this teammate together \
             may have gone beyond it"
        ));
    }
    let failed = code != Some(0);
    let no_memory = [
        "annot allocate",
        "memory exhausted",
        "MemoryError",
        "ut of memory",
        "bad_alloc",
        "memory allocation of",
    ];
    if !failed || !no_memory.iter().any(|words| output.contains(words)) {
        return None;
    }
    let memory = bounds.memory?;
    Some(format!(
        "each process may use at most {} of memory (rlimit)",
        format_size(memory)
    ))
}

/// Tells whether this signal ended a command. A shell says so by 128 and the number of the signal.
pub(crate) fn is_ended_by(which: Signal, code: Option<i32>, signal: Option<i32>) -> bool {
    signal == Some(which as i32) || code == Some(128 + which as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_ended_a_command_is_named_where_its_end_shows_it() {
        let bounds = Bounds {
            cpu_time: Some(90),
            memory: Some(2 << 30),
            ..Bounds::default()
        };
        for end in [(None, Some(24)), (Some(152), None)] {
            let told = reached(&bounds, end, "").unwrap();
            assert_eq!(
                told,
                "SIGXCPU: a process reached its limit of 1m30s of CPU time (rlimit)"
            );
            assert_eq!(reached(&Bounds::default(), end, ""), None);
        }
        assert!(
            reached(&bounds, (Some(137), None), "")
                .unwrap()
                .starts_with("SIGKILL: a process may")
        );
        let memory = Bounds {
            cpu_time: None,
            ..bounds
        };
        let killed = reached(&memory, (None, Some(9)), "").unwrap();
        assert!(
            killed.contains("holds the limit of 2G of memory"),
            "{killed}"
        );
        let text = "x: Cannot allocate memory";
        assert_eq!(
            reached(&bounds, (Some(1), None), text).unwrap(),
            "each process may use at most 2G of memory (rlimit)"
        );
        assert_eq!(reached(&bounds, (Some(0), None), text), None);
        assert_eq!(reached(&bounds, (Some(1), None), "no such file"), None);
    }
}
