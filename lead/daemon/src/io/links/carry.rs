//! Carrying frames on a connection with a host daemon, whichever side has dialled.
//!
//! A connection remembers nothing of what it carries. It reports by [`Input::Link`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use teamd_shared::host::{Host, HostWay, LinkState};
use teamd_shared::link::{FromHost, HostHello, LINK_PROTOCOL, MAX_LINK_FRAME, REFUSED, ToHost};
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::io::input::{Input, Inputs, LinkNews};
use crate::io::stream::{read_line, shown, until_magic};

/// How many frames may wait for a link that is slow.
pub(super) const QUEUE: usize = 1024;
/// How long a host may take from the beginning of a connection to its first frame.
const FIRST_FRAME: Duration = Duration::from_secs(20);
/// How much a host may have said that is not handled yet, in KiB: one that floods waits.
const MOST_UNHANDLED: u32 = 8 << 10;
/// What each frame counts beside its length, in KiB: handling it can take a search in an inbox.
const OF_EACH_FRAME: u32 = 64;
/// How often it is looked whether the host answers, and how long it may take.
const LOOKS: Duration = Duration::from_secs(5);
const ANSWERS: Duration = Duration::from_secs(10);
/// How long a host may take to answer on a connection while it waits with another one.
pub(super) const CHALLENGE: Duration = Duration::from_secs(3);

/// What the task of a link needs, whichever side dials.
#[derive(Debug)]
pub(super) struct LinkTask {
    pub(super) host: Host,
    /// What the host knows this team by.
    pub(super) home: Uuid,
    pub(super) inputs: Inputs,
    /// The event loop waits for room.
    pub(super) wants_room: Arc<AtomicBool>,
    /// Whether the first connection replaces the host daemon, as this daemon has replaced another.
    pub(super) replaces: bool,
    /// Another connection of the host wants to know whether the present one lives.
    pub(super) challenge: Notify,
}

impl LinkTask {
    pub(super) async fn report(&self, connection: u64, news: LinkNews) -> bool {
        let input = Input::Link {
            host: self.host.name.clone(),
            connection,
            news,
        };
        self.inputs.send(input).await.is_ok()
    }

    /// Returns the command of `teamctl host` that adds the host.
    fn verb(&self) -> &'static str {
        match self.host.way {
            HostWay::Ssh(_) => "add",
            HostWay::Invited(_) | HostWay::Nats(_) => "invite",
        }
    }

    fn how_to_install(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let name = &self.host.name;
        match self.host.way {
            HostWay::Ssh(_) => {
                format!("`teamctl host add {name} --install` installs teamd {version} there")
            }
            HostWay::Invited(_) | HostWay::Nats(_) => {
                format!("install teamd {version} on {name}")
            }
        }
    }

    /// Says why a host that says this of itself gets no link, and the next step; none if it does.
    fn refusal(&self, hello: &HostHello) -> Option<(String, String)> {
        if hello.protocol != LINK_PROTOCOL {
            let why = format!(
                "teamd {} there speaks version {} of the link, this one version {LINK_PROTOCOL}",
                shown(&hello.version),
                hello.protocol
            );
            return Some((why, self.how_to_install()));
        }
        let weakness = hello.weakness.as_deref()?;
        if self.host.allow_weak_sandbox {
            return None;
        }
        let why = format!("commands there cannot be confined: {}", shown(weakness));
        let hint = format!(
            "`teamctl host {} {} --allow-weak-sandbox` accepts that",
            self.verb(),
            self.host.name
        );
        Some((why, hint))
    }

    /// Reads the first frame, and carries all others. Returns when the host says nothing more;
    /// `version` is that of its program, once it has said who it is.
    pub(super) async fn carry<R: AsyncBufRead + Unpin>(
        &self,
        connection: u64,
        stream: (impl AsyncWrite + Unpin + Send + 'static, &mut R),
        version: &mut Option<String>,
    ) -> Result<(), LinkState> {
        let (mut sends, reader) = stream;
        let first = tokio::time::timeout(FIRST_FRAME, first_frame(reader)).await;
        let hello = match first {
            Err(_) => return Err(unreachable("it does not answer".to_owned())),
            Ok(Err(why)) => return Err(unreachable(why)),
            // Why it has ended is to be seen at the end of ssh.
            Ok(Ok(None)) => return Ok(()),
            Ok(Ok(Some((FromHost::Hello(hello), _)))) => hello,
            Ok(Ok(Some(_))) => return Err(unreachable("it does not say who it is".to_owned())),
        };
        let version = version.insert(shown(&hello.version)).clone();
        if let Some((why, hint)) = self.refusal(&hello) {
            if self.host.way.dials_home() {
                // A frame is an object: the host takes another line for the reason.
                let line = format!("{REFUSED}{why}\n");
                let said = sends.write_all(line.as_bytes()).await;
                tracing::debug!("{} was told why it is refused: {said:?}", self.host.name);
            }
            return Err(LinkState::NeedsAttention { why, hint });
        }
        let (frames, queue) = mpsc::channel(QUEUE);
        let wants_room = Arc::clone(&self.wants_room);
        let room = RoomReport {
            host: self.host.clone(),
            connection,
            inputs: self.inputs.clone(),
            wants_room,
        };
        let pulse = Arc::new(Pulse::default());
        let writes = write(sends, queue, (room, Arc::clone(&pulse)));
        let _writer = AbortedWhenDropped(tokio::spawn(writes));
        let cut = Arc::new(Notify::new());
        let asks = frames.downgrade();
        let up = LinkNews::Up {
            version,
            weakness: hello.weakness.as_deref().map(shown),
            frames,
            cut: Arc::clone(&cut),
        };
        if !self.report(connection, up).await {
            return Ok(());
        }
        tokio::select! {
            read = self.pass_on(connection, reader, &pulse) => read,
            () = until_dead(&pulse, &asks) => {
                Err(unreachable("it does not answer".to_owned()))
            }
            () = cut.notified() => {
                Err(unreachable("it does not take what it is told".to_owned()))
            }
            () = until_challenge_fails(&self.challenge, &pulse, &asks) => {
                Err(unreachable("it has dialled again".to_owned()))
            }
        }
    }

    /// Passes on what the host says, until it says nothing more.
    async fn pass_on(
        &self,
        connection: u64,
        reader: &mut (impl AsyncBufRead + Unpin),
        pulse: &Pulse,
    ) -> Result<(), LinkState> {
        let room = Arc::new(Semaphore::new(MOST_UNHANDLED as usize));
        while let Some((frame, length)) = read_frame(reader).await.map_err(unreachable)? {
            pulse
                .heard
                .store(pulse.sent.load(Ordering::Relaxed), Ordering::Relaxed);
            pulse.words.fetch_add(1, Ordering::Relaxed);
            pulse.hears.notify_waiters();
            let size = u32::try_from(length >> 10).unwrap_or(MOST_UNHANDLED) + OF_EACH_FRAME;
            let permit = Arc::clone(&room).acquire_many_owned(size.min(MOST_UNHANDLED));
            let Ok(permit) = permit.await else {
                break;
            };
            let news = LinkNews::Says(Box::new(frame), permit);
            if !self.report(connection, news).await {
                break;
            }
        }
        Ok(())
    }
}

/// A task that ends with what has started it.
#[derive(Debug)]
pub(super) struct AbortedWhenDropped(pub(super) JoinHandle<()>);

impl Drop for AbortedWhenDropped {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Makes the state of a link that is tried again.
pub(super) fn unreachable(why: String) -> LinkState {
    LinkState::Unreachable { why }
}

/// Reads what a login shell prints, then the line with which the stream begins, then one frame.
async fn first_frame(
    reader: &mut (impl AsyncBufRead + Unpin),
) -> Result<Option<(FromHost, usize)>, String> {
    if !until_magic(reader).await? {
        return Ok(None);
    }
    read_frame(reader).await
}

/// Reads one frame, with its length in bytes; none at the end.
async fn read_frame(
    reader: &mut (impl AsyncBufRead + Unpin),
) -> Result<Option<(FromHost, usize)>, String> {
    let Some(line) = read_line(reader, MAX_LINK_FRAME).await? else {
        return Ok(None);
    };
    let frame = serde_json::from_slice(&line)
        .map_err(|error| format!("it says something that is no frame: {error}"))?;
    Ok(Some((frame, line.len())))
}

/// Numbers the connections with hosts.
pub(super) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What passes on a connection.
#[derive(Debug, Default)]
struct Pulse {
    /// How many frames were sent.
    sent: AtomicU64,
    /// How many of them had been sent when the host said something last.
    heard: AtomicU64,
    /// How many frames the host has said.
    words: AtomicU64,
    hears: Notify,
}

impl Pulse {
    /// Waits until the host says something.
    async fn next_word(&self) {
        let words = self.words.load(Ordering::Relaxed);
        while self.words.load(Ordering::Relaxed) == words {
            self.hears.notified().await;
        }
    }

    fn is_answered(&self) -> bool {
        self.heard.load(Ordering::Relaxed) >= self.sent.load(Ordering::Relaxed)
    }
}

/// Waits until the host does not answer. It is asked only when something that it was told was not
/// followed by anything: an idle link is silent.
async fn until_dead(pulse: &Pulse, frames: &mpsc::WeakSender<ToHost>) {
    let mut number = 0;
    loop {
        tokio::time::sleep(LOOKS).await;
        if pulse.is_answered() {
            continue;
        }
        number += 1;
        if let Some(frames) = frames.upgrade() {
            // A full queue is no answer either.
            drop(frames.try_send(ToHost::Ping { number }));
        }
        let answered = async {
            while !pulse.is_answered() {
                pulse.hears.notified().await;
            }
        };
        if tokio::time::timeout(ANSWERS, answered).await.is_err() {
            return;
        }
    }
}

/// Waits until the host does not answer although another connection asks whether this one lives.
async fn until_challenge_fails(
    challenge: &Notify,
    pulse: &Pulse,
    frames: &mpsc::WeakSender<ToHost>,
) {
    loop {
        challenge.notified().await;
        if let Some(frames) = frames.upgrade() {
            // The frame may wait for room; what was sent before wants an answer, too.
            drop(frames.try_send(ToHost::Ping { number: 0 }));
        }
        if tokio::time::timeout(CHALLENGE, pulse.next_word())
            .await
            .is_err()
        {
            return;
        }
    }
}

/// Tells the event loop that there is room.
struct RoomReport {
    host: Host,
    connection: u64,
    inputs: Inputs,
    wants_room: Arc<AtomicBool>,
}

/// Writes frames, until the connection breaks or no more can come.
async fn write(
    mut sends: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<ToHost>,
    (room, pulse): (RoomReport, Arc<Pulse>),
) {
    while let Some(frame) = queue.recv().await {
        pulse.sent.fetch_add(1, Ordering::Relaxed);
        let mut line = match serde_json::to_vec(&frame) {
            Ok(line) => line,
            Err(error) => {
                tracing::error!("a frame for {} cannot be written: {error}", room.host.name);
                return;
            }
        };
        if line.len() > MAX_LINK_FRAME {
            let length = line.len();
            tracing::error!(
                "a frame of {length} bytes for {} is too long",
                room.host.name
            );
            continue;
        }
        line.push(b'\n');
        if let Err(error) = sends.write_all(&line).await {
            tracing::debug!("{} does not listen: {error}", room.host.name);
            return;
        }
        if queue.len() < QUEUE / 4 && room.wants_room.swap(false, Ordering::Relaxed) {
            let input = Input::Link {
                host: room.host.name.clone(),
                connection: room.connection,
                news: LinkNews::HasRoom,
            };
            if room.inputs.send(input).await.is_err() {
                return;
            }
        }
    }
}
