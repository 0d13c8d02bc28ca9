//! What an agent reads and writes. All that it starts runs as the same user in the same sandbox,
//! and finds the descriptors of the agent in `/proc`: a pipe could be opened there, read and
//! written, and what is written there would pass for the agent's own word. A socket cannot
//! (`ENXIO`). So standard input and output are ends of socket pairs.
//!
//! No path leads to a socket, so its number is of no use to a program that is started: the
//! descriptors come as a message, through the socket that is the output.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// How many descriptors there are.
const COUNT: usize = 2;

/// The standard input and the error output of an agent.
#[derive(Debug)]
pub(crate) struct AgentStdio {
    pub(crate) input: OwnedFd,
    pub(crate) errors: OwnedFd,
}

impl AgentStdio {
    /// Sends them to the sandbox init, through the worker's end of the agent's output.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn send(self, output: impl AsFd) -> io::Result<()> {
        let descriptors = [self.input.as_fd(), self.errors.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(COUNT))];
        let mut with = SendAncillaryBuffer::new(&mut space);
        with.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(
            output,
            &[IoSlice::new(b"\n")],
            &mut with,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }

    /// Takes them out of the agent's end of its output: nothing is left there for the agent.
    ///
    /// # Errors
    /// The system's error, or that they are not there.
    pub(crate) fn receive(output: impl AsFd) -> io::Result<Self> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(COUNT))];
        let mut with = RecvAncillaryBuffer::new(&mut space);
        // They were sent before this process was started.
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        recvmsg(output, &mut [IoSliceMut::new(&mut [0])], &mut with, flags)?;
        let mut descriptors = Vec::new();
        for message in with.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        let [input, errors] = <[OwnedFd; COUNT]>::try_from(descriptors)
            .map_err(|_| io::Error::other("its input and its error output are missing"))?;
        Ok(Self { input, errors })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_is_sent_is_received_and_nothing_is_left() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let (input, mut writes) = UnixStream::pair().unwrap();
        let (errors, mut reads) = UnixStream::pair().unwrap();
        AgentStdio {
            input: input.into(),
            errors: errors.into(),
        }
        .send(&ours)
        .unwrap();
        let received = AgentStdio::receive(&theirs).unwrap();
        writes.write_all(b"to it").unwrap();
        drop(writes);
        let mut heard = String::new();
        UnixStream::from(received.input)
            .read_to_string(&mut heard)
            .unwrap();
        UnixStream::from(received.errors)
            .write_all(b"from it")
            .unwrap();
        assert_eq!(heard, "to it");
        heard.clear();
        reads.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "from it");
        drop(theirs);
        assert_eq!(
            ours.read(&mut [0]).unwrap(),
            0,
            "the byte that came with them was taken"
        );
    }

    #[test]
    fn what_was_not_sent_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert_eq!(
            AgentStdio::receive(&theirs).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        drop(ours);
        assert!(AgentStdio::receive(&theirs).is_err());
    }
}
