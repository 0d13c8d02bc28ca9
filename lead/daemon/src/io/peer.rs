//! The peer of a connection through the control socket, as the kernel says: a live process, and
//! whether it is confined.
//!
//! Where a process comes from proves nothing: what a tool handed to a program elsewhere does not
//! descend from a worker. But what a sandbox puts on a process, that process cannot take off.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use teamd_shared::control::Credentials;
use teamd_shared::process::{Identity, SandboxFlags, is_gone};

/// What a peer turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PeerState {
    /// A process like this one.
    Free(Identity),
    /// A process in a sandbox: a tool, or a worker of a daemon that was confined itself.
    Confined(Identity),
    /// It is gone.
    Gone,
}

/// Examines a peer. The pidfd is examined last: what `/proc` said before was of that process, and
/// of no other that has its pid by now.
///
/// # Errors
/// The system's error if the peer cannot be identified: no descriptor is left, for example.
pub(crate) fn look(peer: &Credentials) -> io::Result<PeerState> {
    let both =
        Identity::of(peer.pid).and_then(|it| Ok((it, SandboxFlags::of(&peer.pid.to_string())?)));
    let (identity, flags) = match both {
        Ok(both) => both,
        Err(error) if is_gone(&error) => return Ok(PeerState::Gone),
        Err(error) => return Err(error),
    };
    let still_there = match &peer.pidfd {
        Some(pidfd) => !has_ended(pidfd)?,
        // Before Linux 6.5: another process with this pid would have begun later.
        None => identity.runs()?,
    };
    Ok(match SandboxFlags::of_self()? {
        _ if !still_there => PeerState::Gone,
        own if !flags.exceed(own) => PeerState::Free(identity),
        _ => PeerState::Confined(identity),
    })
}

/// Tells whether the process of a pidfd has ended: then it is readable.
fn has_ended(pidfd: &OwnedFd) -> io::Result<bool> {
    loop {
        match poll(
            &mut [PollFd::new(pidfd, PollFlags::IN)],
            Some(&Timespec::default()),
        ) {
            Ok(ready) => return Ok(ready > 0),
            // A signal came to this process: that says nothing of the peer.
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    #[test]
    fn this_process_is_free_and_a_dead_one_is_gone() {
        let peer = |pid| Credentials {
            uid: 0,
            pid,
            pidfd: None,
        };
        assert_eq!(
            look(&peer(std::process::id())).unwrap(),
            PeerState::Free(Identity::of_self().unwrap())
        );
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(look(&peer(child.id())).unwrap(), PeerState::Gone);
    }

    #[test]
    fn a_reused_pid_is_not_the_process_before() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        child.wait().unwrap();
        let peer = Credentials {
            uid: 0,
            pid: std::process::id(),
            pidfd: Some(pidfd),
        };
        assert_eq!(look(&peer).unwrap(), PeerState::Gone);
    }
}
