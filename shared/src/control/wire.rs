//! Frames over a stream: the only place that knows bincode and interprocess.

use std::io::{self, Cursor};
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use interprocess::local_socket::tokio::{Listener as SocketListener, Stream};
use interprocess::local_socket::traits::tokio::Listener as _;
use interprocess::local_socket::{ConnectOptions, GenericFilePath, ListenerOptions, ToFsName};
use interprocess::os::unix::local_socket::ListenerOptionsExt;
use interprocess::os::unix::uds_local_socket::tokio::Stream as UnixStream;
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, BufReader, Chain, ReadHalf, WriteHalf};
use tokio_util::bytes::Bytes;
use tokio_util::codec::{Framed, LengthDelimitedCodec};

use super::{Greeting, MAX_FRAME};
use crate::team_dir::{TeamDir, TeamPath};

/// What went wrong on a connection.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The system's error.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A frame that this version does not understand.
    #[error("a frame could not be read: {0}")]
    Decode(String),
    /// Something too large to send.
    #[error("a frame could not be written: {0}")]
    Encode(String),
}

/// Who is at the other end, as the kernel says.
#[derive(Debug)]
pub struct Credentials {
    /// The user.
    pub uid: u32,
    /// The process that connected.
    pub pid: u32,
    /// A handle of that process, where the kernel gives one (Linux 6.5): a reused pid cannot take
    /// its place.
    pub pidfd: Option<OwnedFd>,
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    frames: Framed<Stream, LengthDelimitedCodec>,
    credentials: Option<Credentials>,
}

/// A connection that continues with bytes. It is closed when both halves are dropped.
#[derive(Debug)]
pub struct ByteStream {
    /// What the peer says.
    pub reader: BufReader<Chain<Cursor<Bytes>, ReadHalf<Stream>>>,
    /// Takes what the peer is told.
    pub writer: WriteHalf<Stream>,
}

/// The sending half.
#[derive(Debug)]
pub struct Outgoing<T> {
    sink: SplitSink<Framed<Stream, LengthDelimitedCodec>, Bytes>,
    sends: PhantomData<fn(T)>,
}

/// The receiving half.
#[derive(Debug)]
pub struct Incoming<T> {
    stream: SplitStream<Framed<Stream, LengthDelimitedCodec>>,
    receives: PhantomData<fn() -> T>,
}

impl Connection {
    fn new(stream: Stream, credentials: Option<Credentials>) -> Self {
        let codec = LengthDelimitedCodec::builder()
            .max_frame_length(MAX_FRAME)
            .new_codec();
        Self {
            frames: Framed::new(stream, codec),
            credentials,
        }
    }

    /// Takes a connected socket: the one that a worker is born with.
    ///
    /// # Errors
    /// The system's error if it is no stream socket, or no runtime runs.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        let stream = Stream::from(UnixStream::try_from(fd)?);
        Ok(Self::new(stream, None))
    }

    /// Returns who is at the other end of a connection that was accepted; none if the kernel does
    /// not say.
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// [`WireError`].
    pub async fn send<T: Serialize>(&mut self, value: &T) -> Result<(), WireError> {
        Ok(self.frames.send(encode(value)?).await?)
    }

    /// Receives one frame; none at the end of the connection.
    ///
    /// # Errors
    /// [`WireError`]; the connection is of no use then.
    pub async fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>, WireError> {
        decode(self.frames.next().await)
    }

    /// Continues with bytes, without frames.
    pub fn into_bytes(self) -> ByteStream {
        let parts = self.frames.into_parts();
        let (receives, sends) = tokio::io::split(parts.io);
        // The peer may have said more than its greeting.
        let said = Cursor::new(parts.read_buf.freeze());
        ByteStream {
            reader: BufReader::with_capacity(64 << 10, said.chain(receives)),
            writer: sends,
        }
    }

    /// Splits the connection into its two directions.
    pub fn split<Out: Serialize, In: DeserializeOwned>(self) -> (Outgoing<Out>, Incoming<In>) {
        let (sink, stream) = self.frames.split();
        (
            Outgoing {
                sink,
                sends: PhantomData,
            },
            Incoming {
                stream,
                receives: PhantomData,
            },
        )
    }
}

impl<T: Serialize> Outgoing<T> {
    /// Sends one frame.
    ///
    /// # Errors
    /// [`WireError`].
    pub async fn send(&mut self, value: &T) -> Result<(), WireError> {
        Ok(self.sink.send(encode(value)?).await?)
    }
}

impl<T: DeserializeOwned> Incoming<T> {
    /// Continues with frames of another type, after the greeting.
    pub fn cast<U: DeserializeOwned>(self) -> Incoming<U> {
        Incoming {
            stream: self.stream,
            receives: PhantomData,
        }
    }

    /// Receives one frame; none at the end of the connection.
    ///
    /// # Errors
    /// [`WireError`]; the connection is of no use then.
    pub async fn receive(&mut self) -> Result<Option<T>, WireError> {
        decode(self.stream.next().await)
    }
}

/// Sends one frame without a runtime, for when no runtime can be made. It fails if the peer does
/// not read.
///
/// # Errors
/// [`WireError`].
pub fn send_now<T: Serialize>(connection: impl AsFd, value: &T) -> Result<(), WireError> {
    let content = encode(value)?;
    let length =
        u32::try_from(content.len()).map_err(|error| WireError::Encode(error.to_string()))?;
    let frame = [&length.to_be_bytes()[..], &content].concat();
    let sent = rustix::net::send(
        connection,
        &frame,
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    );
    match sent.map_err(io::Error::from)? {
        sent if sent == frame.len() => Ok(()),
        _ => Err(io::Error::from(io::ErrorKind::WouldBlock).into()),
    }
}

const BINCODE: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Varint,
    bincode::config::Limit<MAX_FRAME>,
> = bincode::config::standard().with_limit::<MAX_FRAME>();

fn encode<T: Serialize>(value: &T) -> Result<Bytes, WireError> {
    let bytes = bincode::serde::encode_to_vec(value, BINCODE)
        .map_err(|e| WireError::Encode(e.to_string()))?;
    if bytes.len() > MAX_FRAME {
        return Err(WireError::Encode(format!(
            "{} bytes, the limit is {MAX_FRAME}",
            bytes.len()
        )));
    }
    Ok(Bytes::from(bytes))
}

fn decode<T: DeserializeOwned>(
    frame: Option<io::Result<tokio_util::bytes::BytesMut>>,
) -> Result<Option<T>, WireError> {
    let Some(frame) = frame.transpose()? else {
        return Ok(None);
    };
    let (value, used) = bincode::serde::decode_from_slice(&frame, BINCODE)
        .map_err(|e| WireError::Decode(e.to_string()))?;
    if used != frame.len() {
        return Err(WireError::Decode(format!(
            "{} bytes too many",
            frame.len() - used
        )));
    }
    Ok(Some(value))
}

/// The listening control socket. Dropping it does not remove the file: its owner does, while it
/// holds the lock.
#[derive(Debug)]
pub struct Listener(SocketListener);

impl Listener {
    /// Binds the control socket, over a stale one. The caller holds the team's lock: no daemon
    /// listens there.
    ///
    /// The address is reached through the descriptor of its folder: a team directory may lie deeper
    /// than the 107 bytes of a socket address.
    ///
    /// # Errors
    /// The system's error.
    pub fn bind(dir: &TeamDir) -> io::Result<Self> {
        let folder = dir.open_folder(Some("run")).map_err(io::Error::other)?;
        dir.remove(&TeamPath::socket()).map_err(io::Error::other)?;
        let path = short_path(&folder);
        let options = ListenerOptions::new().name(path.to_fs_name::<GenericFilePath>()?);
        Ok(Self(
            options.mode(0o600).reclaim_name(false).create_tokio()?,
        ))
    }

    /// Accepts one connection.
    ///
    /// # Errors
    /// The system's error.
    pub async fn accept(&self) -> io::Result<Connection> {
        let stream = self.0.accept().await?;
        let credentials = credentials_of(&stream).ok();
        Ok(Connection::new(stream, credentials))
    }
}

/// Connects to the daemon of a team directory.
///
/// # Errors
/// `NotFound` or `ConnectionRefused` if none listens, or the system's error.
pub async fn connect(dir: &TeamDir) -> io::Result<Connection> {
    let folder = dir.open_folder(Some("run")).map_err(io::Error::other)?;
    let path = short_path(&folder);
    let options = ConnectOptions::new().name(path.to_fs_name::<GenericFilePath>()?);
    let stream = options.connect_tokio().await?;
    Ok(Connection::new(stream, None))
}

/// Connects without a runtime, and greets. What follows are bytes without frames.
///
/// # Errors
/// [`WireError`]; `NotFound` or `ConnectionRefused` where no daemon listens.
pub fn connect_bytes(dir: &TeamDir, greeting: &Greeting) -> Result<StdStream, WireError> {
    let folder = dir.open_folder(Some("run")).map_err(io::Error::other)?;
    let stream = StdStream::connect(short_path(&folder))?;
    send_now(&stream, greeting)?;
    Ok(stream)
}

/// Makes two connected ends: the daemon keeps one, the worker is born with the other.
///
/// # Errors
/// The system's error.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

fn short_path(folder: &OwnedFd) -> String {
    format!(
        "/proc/self/fd/{}/{}",
        folder.as_raw_fd(),
        TeamPath::socket().file_name()
    )
}

fn credentials_of(stream: &Stream) -> io::Result<Credentials> {
    let Stream::UdSocket(socket) = stream;
    let fd = socket.as_fd();
    let peer = nix::sys::socket::getsockopt(&fd, PeerCredentials)?;
    let pidfd = nix::sys::socket::getsockopt(&fd, PeerPidfd).ok();
    Ok(Credentials {
        uid: peer.uid(),
        pid: u32::try_from(peer.pid()).unwrap_or(0),
        pidfd,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Command, Done, Greeting, Peer, Reply, SpawnOrder, TaggedCommand};
    use super::*;
    use crate::control::PROTOCOL;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    #[test]
    fn a_deep_directory_is_reached_all_the_same() {
        let scratch = tempfile::tempdir().unwrap();
        let deep = scratch.path().join("x".repeat(200)).join(".team");
        std::fs::create_dir_all(deep.parent().unwrap()).unwrap();
        let dir = TeamDir::create(&deep).unwrap();
        runtime().block_on(async {
            let listener = Listener::bind(&dir).unwrap();
            let (client, server) = tokio::join!(connect(&dir), listener.accept());
            let mut client = client.unwrap();
            let mut server = server.unwrap();
            let peer = server.credentials().unwrap();
            assert_eq!(
                (peer.pid, peer.uid),
                (std::process::id(), nix::unistd::geteuid().as_raw())
            );
            let greeting = Greeting {
                protocol: PROTOCOL,
                peer: Peer::Client,
            };
            client.send(&greeting).await.unwrap();
            assert_eq!(server.receive::<Greeting>().await.unwrap(), Some(greeting));
            drop(client);
            assert_eq!(server.receive::<TaggedCommand>().await.unwrap(), None);
        });
    }

    #[test]
    fn a_hostile_frame_is_an_error_and_costs_nothing() {
        let bytes = |frame: &[u8]| Some(Ok(tokio_util::bytes::BytesMut::from(frame)));
        // An enum tag and a length of 2^45: without a limit this aborts the process.
        let huge = [&[1, 253][..], &(1u64 << 45).to_le_bytes()].concat();
        for frame in [&b""[..], b"\xff\xff\xff\xff", &huge, &[7; 300]] {
            assert!(decode::<TaggedCommand>(bytes(frame)).is_err(), "{frame:?}");
            assert!(decode::<Greeting>(bytes(frame)).is_err(), "{frame:?}");
        }
    }

    #[test]
    fn a_giant_length_ends_the_connection() {
        runtime().block_on(async {
            let (ours, theirs) = pair().unwrap();
            let mut connection = Connection::from_fd(ours).unwrap();
            rustix::io::write(&theirs, &u32::MAX.to_be_bytes()).unwrap();
            assert!(connection.receive::<TaggedCommand>().await.is_err());
        });
    }

    /// A frame, as it comes from the socket.
    fn frame(bytes: &[u8]) -> Option<io::Result<tokio_util::bytes::BytesMut>> {
        Some(Ok(tokio_util::bytes::BytesMut::from(bytes)))
    }

    /// Reads a frame as everything that can come; what can be read says the same when it is sent
    /// again.
    fn reads<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
        if let Ok(Some(value)) = decode::<T>(frame(bytes)) {
            let again = decode::<T>(frame(&encode(&value).unwrap())).unwrap();
            // Not a number is not itself.
            assert_eq!(format!("{again:?}"), format!("{:?}", Some(value)));
        }
    }

    fn some_frames() -> Vec<Vec<u8>> {
        let name = crate::name::Name::new("alice").unwrap();
        let commands = [
            Command::Ping,
            Command::Stop { force: true },
            Command::Spawn {
                id: crate::id::RequestId::from_bits(7),
                order: Box::new(SpawnOrder::new(name.clone(), Default::default())),
            },
            Command::Forget {
                name: name.clone(),
                discard: true,
            },
        ];
        let requests =
            commands.map(|command| encode(&TaggedCommand { tag: 7, command }).unwrap().to_vec());
        let state = Box::new(super::super::WorkerState::default());
        let peer = Peer::Worker {
            name,
            incarnation: 3,
            environment: Some(Default::default()),
            state,
        };
        let greeting = encode(&Greeting {
            protocol: PROTOCOL,
            peer,
        })
        .unwrap()
        .to_vec();
        let reply = Reply {
            tag: 7,
            result: Ok(Done::Answered { repeated: false }),
        };
        requests
            .into_iter()
            .chain([greeting, encode(&reply).unwrap().to_vec()])
            .collect()
    }

    proptest::proptest! {
        #[test]
        fn any_frame_is_read_or_refused(
            valid in proptest::sample::select(some_frames()),
            edits in proptest::collection::vec((proptest::prelude::any::<usize>(), proptest::prelude::any::<u8>(), 0_u8..4), 0..8),
            noise in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
            edit in proptest::bool::weighted(0.7),
        ) {
            let mut bytes = if edit { valid } else { noise };
            for (at, byte, what) in edits {
                let at = at % (bytes.len() + 1);
                match what {
                    0 => bytes.insert(at, byte),
                    1 => bytes.truncate(at.max(1)),
                    _ => bytes.iter_mut().skip(at).take(1).for_each(|it| *it = byte),
                }
            }
            reads::<Greeting>(&bytes);
            reads::<TaggedCommand>(&bytes);
            reads::<Reply>(&bytes);
            reads::<super::super::FromWorker>(&bytes);
            reads::<super::super::ToWorker>(&bytes);
        }
    }

    /// `teamd start --replace` meets workers of the version before.
    #[test]
    fn the_greeting_of_a_worker_keeps_its_form() {
        let peer = Peer::Worker {
            name: crate::name::Name::new("alice").unwrap(),
            incarnation: 3,
            environment: None,
            state: Box::default(),
        };
        let greeting = encode(&Greeting {
            protocol: PROTOCOL,
            peer,
        });
        let mut expected = vec![1, 1, 5];
        expected.extend(b"alice");
        expected.extend([3, 0]);
        expected.extend([0; 13]);
        assert_eq!(greeting.unwrap(), expected);
    }

    #[test]
    fn what_is_sent_is_received() {
        let request = TaggedCommand {
            tag: 7,
            command: Command::Stop { force: true },
        };
        let frame = tokio_util::bytes::BytesMut::from(&encode(&request).unwrap()[..]);
        assert_eq!(
            decode::<TaggedCommand>(Some(Ok(frame))).unwrap(),
            Some(request)
        );
        let reply = Reply {
            tag: 7,
            result: Ok(Done::Answered { repeated: false }),
        };
        let frame = tokio_util::bytes::BytesMut::from(&encode(&reply).unwrap()[..]);
        assert_eq!(decode::<Reply>(Some(Ok(frame))).unwrap(), Some(reply));
    }
}
