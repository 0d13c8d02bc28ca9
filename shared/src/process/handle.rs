//! A process that is held by a pidfd, to signal it, to wait for it and to reap it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::process::{
    PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use crate::thread::in_thread;

use super::{Identity, Stat, boot_id, gone, pid_of};

/// How a process ended, as far as that could be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct How {
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it was a child of this process: then this process inherits its children.
    pub ours: bool,
}

/// A process that is held: a signal through it reaches that process or none.
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
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("process {} is another one now", identity.pid),
        ))
    }

    pub(super) fn open_pid(pid: u32) -> io::Result<Self> {
        let pidfd = open_pidfd(pid)?;
        Ok(Self {
            identity: Identity::of(pid)?,
            pidfd,
        })
    }

    /// Holds a child of this process that is not reaped, also one that has ended already: no other
    /// process has its pid.
    ///
    /// # Errors
    /// `NotFound` if there is none, or the system's error.
    pub fn open_child(pid: u32) -> io::Result<Self> {
        let pidfd = open_pidfd(pid)?;
        let start_ticks = Stat::of(pid)?.start_ticks;
        Ok(Self {
            identity: Identity {
                pid,
                start_ticks,
                boot_id: boot_id()?,
            },
            pidfd,
        })
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

    /// Reaps the process if it has ended and is a child of this one, and returns how. Of the child
    /// of another process nothing can be known.
    ///
    /// # Errors
    /// The system's error.
    pub fn reap(&self) -> io::Result<How> {
        match waitid(
            WaitId::PidFd(self.pidfd.as_fd()),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        ) {
            Ok(Some(ended)) => Ok(How {
                code: ended.exit_status(),
                signal: ended.terminating_signal(),
                ours: true,
            }),
            Ok(None) => Ok(How {
                ours: true,
                ..How::default()
            }),
            Err(rustix::io::Errno::CHILD) => Ok(How::default()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits until the process has ended. It need not be a child of this one.
    ///
    /// # Errors
    /// The system's error.
    pub async fn ended(self) -> io::Result<()> {
        in_thread(move || {
            let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
            retry_on_intr(|| poll(&mut polled, None))?;
            Ok(())
        })
        .await
    }

    /// Returns another descriptor of the same process, to wait on: it is readable when the process
    /// has ended.
    ///
    /// # Errors
    /// The system's error if no descriptor is left.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.pidfd.try_clone()
    }
}

fn open_pidfd(pid: u32) -> io::Result<OwnedFd> {
    let raw = pid_of(pid).ok_or_else(|| gone(pid))?;
    pidfd_open(raw, PidfdFlags::empty()).map_err(|errno| match errno {
        rustix::io::Errno::SRCH => gone(pid),
        other => other.into(),
    })
}

impl AsFd for ProcessHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}
