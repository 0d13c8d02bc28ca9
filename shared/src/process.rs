//! Which process: boot id, pid and start ticks, held by a pidfd. Never a name, a parent or a time of day.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// What tells one process from every other one, on this machine, since it was made.
///
/// The kernel gives the same pid again, but not with the same start; start ticks begin anew at a boot, and
/// the boot id tells that. (`/proc/PID/stat` field 22, see `proc_pid_stat(5)`; `random(4)` for the boot id.)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The process id.
    pub pid: u32,
    /// Clock ticks between the boot and the start of the process.
    pub start_ticks: u64,
    /// The boot that both belong to.
    pub boot_id: String,
}

impl Identity {
    /// Returns the identity of this process.
    ///
    /// # Errors
    /// The system's error if `/proc` cannot be read.
    pub fn of_self() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// Returns the identity of the process that has this pid now.
    ///
    /// # Errors
    /// `NotFound` if there is none (or only a zombie), or the system's error.
    pub fn of(pid: u32) -> io::Result<Self> {
        Ok(Self { pid, start_ticks: start_ticks(pid)?, boot_id: boot_id()? })
    }

    /// Tells whether exactly this process still runs (a zombie does not).
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).is_ok_and(|now| now == *self)
    }
}

/// Returns the id of this boot of the machine.
///
/// # Errors
/// The system's error if `/proc` cannot be read.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

fn start_ticks(pid: u32) -> io::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_stat(&stat)
        .filter(|(state, _)| !matches!(state, 'Z' | 'X' | 'x'))
        .map(|(_, ticks)| ticks)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("process {pid} has ended")))
}

/// Returns state and start ticks. The name (field 2) may hold spaces and parentheses: fields count from the last one.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let ticks = fields.nth(18)?.parse().ok()?;
    Some((state, ticks))
}

/// A process that is held: a signal through it reaches that process or nobody.
#[derive(Debug)]
pub struct ProcessHandle {
    identity: Identity,
    pidfd: OwnedFd,
}

impl ProcessHandle {
    /// Holds the process with this identity.
    ///
    /// The pidfd is opened first and the identity read after, so that it cannot be another's.
    ///
    /// # Errors
    /// `NotFound` if that process has ended, or the system's error.
    pub fn open(identity: Identity) -> io::Result<Self> {
        let handle = Self::open_pid(identity.pid)?;
        if handle.identity == identity {
            return Ok(handle);
        }
        Err(io::Error::new(io::ErrorKind::NotFound, format!("process {} is another one now", identity.pid)))
    }

    /// Holds the process that has this pid now.
    ///
    /// # Errors
    /// `NotFound` if there is none, or the system's error.
    pub fn open_pid(pid: u32) -> io::Result<Self> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let raw = raw.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "not a pid"))?;
        let pidfd = pidfd_open(raw, PidfdFlags::empty()).map_err(|errno| match errno {
            rustix::io::Errno::SRCH => io::Error::new(io::ErrorKind::NotFound, format!("no process {pid}")),
            other => other.into(),
        })?;
        Ok(Self { identity: Identity::of(pid)?, pidfd })
    }

    /// Returns which process it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Sends a signal; one that has ended already is no error.
    ///
    /// # Errors
    /// The system's error.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns another descriptor of the same process, to wait on: it is readable when the process has ended.
    ///
    /// # Errors
    /// The system's error if no descriptor is left.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.pidfd.try_clone()
    }
}

impl AsFd for ProcessHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// Returns the children of this process, ended ones that nobody has reaped among them.
///
/// # Errors
/// The system's error if `/proc` cannot be read (or the kernel does not list children).
pub fn children() -> io::Result<Vec<u32>> {
    let mut children = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task")? {
        // A thread may end while its folder is read: it has no children then.
        let listed = std::fs::read_to_string(thread?.path().join("children")).unwrap_or_default();
        children.extend(listed.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    Ok(children)
}

/// Kills a child of this process, and reaps it if it has ended. One that is no child is left alone by the reaping.
pub fn kill_child(pid: u32) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    if let Err(errno) = rustix::process::kill_process(pid, Signal::KILL) {
        tracing::debug!("cannot kill the stray process {}: {errno}", pid.as_raw_nonzero());
    }
    if let Err(errno) = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG) {
        tracing::debug!("cannot reap the stray process {}: {errno}", pid.as_raw_nonzero());
    }
}

/// Closes all descriptors but 0, 1 and 2: what whoever started this process had left open (a lock, a pipe, a
/// jobserver) is none of its business. Comes before anything else is opened.
///
/// # Errors
/// The system's error if `/proc` cannot be read.
pub fn close_inherited() -> io::Result<()> {
    let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for descriptor in open.into_iter().filter(|&descriptor| descriptor > 2) {
        match nix::unistd::close(descriptor) {
            // One of them was that of the listing.
            Ok(()) | Err(nix::errno::Errno::EBADF) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Makes this process the one to whom everything comes that its descendants leave behind, so that it can end it.
/// Elsewhere than on Linux nothing is done.
pub fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    if let Err(errno) = nix::sys::prctl::set_child_subreaper(true) {
        tracing::warn!("cannot become the subreaper of what is started: {errno}");
    }
}

/// Makes this process unreadable for other processes of the user: no trace, no look into its memory,
/// environment or descriptors (root excepted). Elsewhere than on Linux nothing is done.
pub fn deny_tracing() {
    #[cfg(target_os = "linux")]
    if let Err(errno) = nix::sys::prctl::set_dumpable(false) {
        tracing::warn!("cannot deny tracing: {errno}");
    }
}

/// Makes a write beyond the limit of a file's size (`RLIMIT_FSIZE`) an error instead of the end of the process.
///
/// # Errors
/// The system's error, or that no runtime runs.
pub fn survive_file_limit() -> io::Result<()> {
    let raw = nix::sys::signal::Signal::SIGXFSZ as i32;
    tokio::signal::unix::signal(tokio::signal::unix::SignalKind::from_raw(raw)).map(drop)
}

#[cfg(test)]
mod tests {
    proptest::proptest! {
        #[test]
        fn any_stat_has_a_start_or_none(text in "[0-9]{0,8} ?\\(?.{0,20}\\)?( [A-Z])?( -?[0-9]{1,25}){0,30}", noise: String) {
            proptest::prop_assert!(parse_stat(&text).is_none_or(|(state, _)| !state.is_whitespace()));
            proptest::prop_assert!(parse_stat(&noise).is_none_or(|(state, _)| !state.is_whitespace()));
        }
    }

    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 81991 1 2";
        assert_eq!(parse_stat(stat), Some(('S', 81991)));
        assert_eq!(parse_stat("7 (x"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn this_process_is_alive_and_another_start_is_another_process() {
        let me = Identity::of_self().unwrap();
        assert!(me.is_alive());
        let other = Identity { start_ticks: me.start_ticks + 1, ..me.clone() };
        assert!(!other.is_alive());
        assert_eq!(ProcessHandle::open(other).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(ProcessHandle::open(me.clone()).unwrap().identity(), &me);
    }

    #[test]
    fn an_ended_process_cannot_be_held() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert_eq!(ProcessHandle::open_pid(pid).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
