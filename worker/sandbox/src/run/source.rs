//! Where the output of a command comes from: a pipe, or for an agent a socket, which no program
//! that it starts can open.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// The worker's end.
#[derive(Debug)]
pub(super) enum OutputSource {
    Pipe(pipe::Receiver),
    Socket(UnixStream),
}

impl OutputSource {
    /// Makes a pipe; returns also the end that is written to.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn pipe() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = io::pipe()?;
        let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
        Ok((Self::Pipe(reader), writer.into()))
    }

    /// Reads some bytes; 0: it has ended. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The system's error.
    pub(super) async fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.read(piece).await,
            Self::Socket(socket) => socket.read(piece).await,
        }
    }
}

impl AsFd for OutputSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Pipe(pipe) => pipe.as_fd(),
            Self::Socket(socket) => socket.as_fd(),
        }
    }
}

/// Makes a pair of sockets: the worker's end, and that of an agent.
///
/// # Errors
/// The system's error.
pub(super) fn pair() -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, theirs.into()))
}
