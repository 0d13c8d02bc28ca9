//! The socket at which programs of the user ask for what a teammate serves on a localhost of its
//! own.
//!
//! A connection carries one question of three bytes and its answer. A connection to a port is
//! handed over by its descriptor: none of its bytes goes through the process that is asked.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use rustix::fs::{AtFlags, Mode, chmodat};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::name::Name;
use crate::team_dir::{TeamDir, TeamPath};

/// How long each side waits for the other.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a view waits for a list of ports, which it can do without.
const GLANCE: Duration = Duration::from_millis(200);

/// How many ports a list names at most.
const MOST_PORTS: usize = 512;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalhostQuestion {
    /// For a connection to a port.
    Connect(u16),
    /// Which ports something listens on.
    Ports,
}

impl LocalhostQuestion {
    fn to_bytes(self) -> [u8; 3] {
        let (what, port) = match self {
            Self::Connect(port) => (b'c', port),
            Self::Ports => (b'p', 0),
        };
        let [high, low] = port.to_be_bytes();
        [what, high, low]
    }

    fn from_bytes(bytes: [u8; 3]) -> Option<Self> {
        let [what, high, low] = bytes;
        match what {
            b'c' => Some(Self::Connect(u16::from_be_bytes([high, low]))),
            b'p' => Some(Self::Ports),
            _ => None,
        }
    }
}

/// Listens for a member, in the place of what listened before. Dropping it leaves the file.
///
/// # Errors
/// The system's error.
pub fn listen(dir: &TeamDir, name: &Name) -> io::Result<UnixListener> {
    let at = TeamPath::localhost(name);
    let folder = dir.open_folder(Some("run")).map_err(io::Error::other)?;
    dir.remove(&at).map_err(io::Error::other)?;
    let listener = UnixListener::bind(short_path(&folder, &at))?;
    // No other user can enter the folder meanwhile.
    let mode = Mode::RUSR | Mode::WUSR;
    chmodat(&folder, at.file_name(), mode, AtFlags::empty())?;
    Ok(listener)
}

/// Asks for a connection to a port of a member's own localhost.
///
/// # Errors
/// `NotFound` or `ConnectionRefused` by the first error if no process answers for the member; the
/// second error is what the port itself answered.
pub fn connect(dir: &TeamDir, name: &Name, port: u16) -> io::Result<io::Result<TcpStream>> {
    let mut asked = ask(dir, name, LocalhostQuestion::Connect(port))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let mut code = [0; 4];
    let read = recvmsg(
        &asked,
        &mut [IoSliceMut::new(&mut code)],
        &mut with,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    asked.read_exact(code.get_mut(read.bytes..).unwrap_or_default())?;
    let mut descriptors = with.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(match descriptors.next() {
        Some(descriptor) => Ok(TcpStream::from(descriptor)),
        None => Err(io::Error::from_raw_os_error(i32::from_be_bytes(code))),
    })
}

/// Asks which ports something listens on, on a member's own localhost.
///
/// # Errors
/// `NotFound` or `ConnectionRefused` if no process answers for the member, or the system's error.
pub fn ports(dir: &TeamDir, name: &Name) -> io::Result<Vec<u16>> {
    let asked = ask(dir, name, LocalhostQuestion::Ports)?;
    asked.set_read_timeout(Some(GLANCE))?;
    let mut bytes = Vec::new();
    asked.take(2 * MOST_PORTS as u64).read_to_end(&mut bytes)?;
    Ok(ports_in(&bytes))
}

/// Asks the same without holding the caller up. Must be called within the runtime.
///
/// # Errors
/// As [`ports`].
pub async fn ports_soon(dir: &TeamDir, name: &Name) -> io::Result<Vec<u16>> {
    let folder = dir.open_folder(Some("run")).map_err(io::Error::other)?;
    let at = short_path(&folder, &TeamPath::localhost(name));
    let asking = async {
        let mut asked = tokio::net::UnixStream::connect(at).await?;
        asked
            .write_all(&LocalhostQuestion::Ports.to_bytes())
            .await?;
        let mut bytes = Vec::new();
        let mut answer = asked.take(2 * MOST_PORTS as u64);
        answer.read_to_end(&mut bytes).await?;
        Ok(ports_in(&bytes))
    };
    timeout(PATIENCE, asking).await?
}

fn ports_in(bytes: &[u8]) -> Vec<u16> {
    let pairs = bytes.chunks_exact(2);
    pairs
        .filter_map(|pair| pair.try_into().ok())
        .map(u16::from_be_bytes)
        .collect()
}

fn ask(dir: &TeamDir, name: &Name, question: LocalhostQuestion) -> io::Result<UnixStream> {
    let folder = dir.open_folder(Some("run")).map_err(io::Error::other)?;
    let mut asked = UnixStream::connect(short_path(&folder, &TeamPath::localhost(name)))?;
    be_patient(&asked)?;
    asked.write_all(&question.to_bytes())?;
    Ok(asked)
}

fn be_patient(stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

/// Returns the address of a socket, which may lie deeper than the 107 bytes of an address.
fn short_path(folder: &OwnedFd, at: &TeamPath) -> String {
    format!("/proc/self/fd/{}/{}", folder.as_raw_fd(), at.file_name())
}

/// Reads what is asked on a connection; none if it is no question.
///
/// # Errors
/// The system's error.
pub fn read_question(stream: &mut UnixStream) -> io::Result<Option<LocalhostQuestion>> {
    be_patient(stream)?;
    let mut bytes = [0; 3];
    stream.read_exact(&mut bytes)?;
    Ok(LocalhostQuestion::from_bytes(bytes))
}

/// Hands a connection over, or says why there is none.
///
/// # Errors
/// The system's error.
pub fn answer_connection(stream: &UnixStream, connected: io::Result<TcpStream>) -> io::Result<()> {
    let code = match &connected {
        Ok(_) => 0,
        Err(error) => error.raw_os_error().unwrap_or(nix::libc::ECONNREFUSED),
    };
    let descriptors: Vec<_> = connected.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let with: &[ControlMessage<'_>] = if descriptors.is_empty() { &[] } else { &rights };
    let bytes = code.to_be_bytes();
    let said = [IoSlice::new(&bytes)];
    sendmsg::<()>(
        stream.as_raw_fd(),
        &said,
        with,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(())
}

/// Says which ports something listens on.
///
/// # Errors
/// The system's error.
pub fn answer_ports(mut stream: &UnixStream, ports: &[u16]) -> io::Result<()> {
    let bytes: Vec<u8> = ports
        .iter()
        .take(MOST_PORTS)
        .flat_map(|port| port.to_be_bytes())
        .collect();
    stream.write_all(&bytes)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn a_connection_is_handed_over_and_a_refusal_is_told() {
        let scratch = tempfile::tempdir().unwrap();
        let deep = scratch.path().join("x".repeat(150)).join(".team");
        std::fs::create_dir_all(deep.parent().unwrap()).unwrap();
        let dir = TeamDir::create(&deep).unwrap();
        let name = Name::new("alice").unwrap();
        let error = connect(&dir, &name, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let served = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = served.local_addr().unwrap().port();
        let listener = listen(&dir, &name).unwrap();
        let answers = std::thread::spawn(move || {
            for _ in 0..3 {
                let (mut stream, _) = listener.accept().unwrap();
                match read_question(&mut stream).unwrap().unwrap() {
                    LocalhostQuestion::Connect(port) => {
                        let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
                        answer_connection(&stream, connected).unwrap();
                    }
                    LocalhostQuestion::Ports => answer_ports(&stream, &[22, 3000]).unwrap(),
                }
            }
        });
        let mut there = connect(&dir, &name, port).unwrap().unwrap();
        let (mut here, _) = served.accept().unwrap();
        here.write_all(b"hello").unwrap();
        drop((here, served));
        let mut heard = String::new();
        there.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "hello");
        let refused = connect(&dir, &name, port).unwrap().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(ports(&dir, &name).unwrap(), [22, 3000]);
        answers.join().unwrap();
        let gone = connect(&dir, &name, port).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test]
    async fn what_is_asked_soon_is_answered_as_well() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let name = Name::new("alice").unwrap();
        let listener = listen(&dir, &name).unwrap();
        let answers = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let asked = read_question(&mut stream).unwrap();
            assert_eq!(asked, Some(LocalhostQuestion::Ports));
            answer_ports(&stream, &[22, 3000]).unwrap();
        });
        assert_eq!(ports_soon(&dir, &name).await.unwrap(), [22, 3000]);
        answers.join().unwrap();
        let gone = ports_soon(&dir, &name).await.unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn only_a_question_is_one() {
        for question in [LocalhostQuestion::Connect(3000), LocalhostQuestion::Ports] {
            let read = LocalhostQuestion::from_bytes(question.to_bytes());
            assert_eq!(read, Some(question));
        }
        assert_eq!(LocalhostQuestion::from_bytes(*b"GET"), None);
    }
}
