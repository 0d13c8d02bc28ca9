//! Dialling one host: `ssh` is run, and run again when it has ended, as long as the link is wanted.
//!
//! The task of a link remembers nothing of what it carries. It reports by [`Input::Link`].

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use teamd_shared::host::{Host, LinkState, line_there};
use teamd_shared::link::{FromHost, LINK_PROTOCOL, MAGIC, MAX_BANNER, MAX_LINK_FRAME, ToHost};
use teamd_shared::name::Name;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use uuid::Uuid;

use crate::io::connections::{Input, Inputs};

/// How many frames may wait for a link that is slow.
pub(super) const QUEUE: usize = 1024;
/// How long a host may take from the start of `ssh` to its first frame.
const FIRST_FRAME: Duration = Duration::from_secs(20);
/// The pause between two attempts, in the first minute and later.
const PAUSES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
/// How many attempts have the short pause.
const QUICK_ATTEMPTS: u32 = 30;
/// How much a host may have said that is not handled yet, in KiB: one that floods waits.
const MOST_UNHANDLED: u32 = 8 << 10;
/// What each frame counts beside its length, in KiB: handling it can take a search in an inbox.
const OF_EACH_FRAME: u32 = 64;
/// How long an `ssh` may take to end that says nothing more.
const SSH_ENDS: Duration = Duration::from_secs(5);
/// How often it is looked whether the host answers, and how long it may take.
const LOOKS: Duration = Duration::from_secs(5);
const ANSWERS: Duration = Duration::from_secs(10);
/// How much of what `ssh` says is kept, in bytes.
const MAX_STDERR: u64 = 16 << 10;

/// The options of `ssh`. Each link is a connection of its own: through a stalled master a new one
/// would hang. A link that is dead is noticed within 30 s, and no person is asked anything.
const OPTIONS: [&str; 11] = [
    "ControlMaster=no",
    "BatchMode=yes",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=2",
    "ConnectTimeout=10",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "LogLevel=ERROR",
];

/// What a link reports.
#[derive(Debug)]
pub(crate) enum LinkNews {
    /// The host has said who it is.
    Up {
        /// The version of the program there.
        version: String,
        /// Why commands cannot be confined there as promised, if they cannot.
        weakness: Option<String>,
        /// Where frames to it go.
        frames: mpsc::Sender<ToHost>,
        /// Ends the connection.
        cut: Arc<Notify>,
    },
    /// It says something. The permit holds the room that the frame takes, until it is handled.
    Says(Box<FromHost>, OwnedSemaphorePermit),
    /// What was said to it is on its way: there is room for more.
    HasRoom,
    /// The connection has ended, or could not be made.
    Down(LinkState),
}

/// What the task of a link needs.
#[derive(Debug)]
pub(super) struct Dialer {
    pub(super) host: Host,
    /// What the host knows this team by.
    pub(super) home: Uuid,
    pub(super) inputs: Inputs,
    /// Dial now.
    pub(super) now: Arc<Notify>,
    /// The event loop waits for room.
    pub(super) wants_room: Arc<AtomicBool>,
    /// Whether the first connection replaces the host daemon, as this daemon has replaced another.
    pub(super) replaces: bool,
}

impl Dialer {
    /// Dials, until the task is aborted.
    pub(super) async fn run(self) {
        let mut attempts = 0;
        let mut replaces = self.replaces;
        loop {
            let connection = next_number();
            let ended = self.connect(connection, replaces).await;
            if ended.was_up {
                attempts = 0;
                replaces = false;
            }
            attempts += 1;
            let is_final = matches!(ended.state, LinkState::NeedsAttention { .. });
            if !self.report(connection, LinkNews::Down(ended.state)).await {
                return;
            }
            // A refusal is not repeated: a person must do something first.
            if is_final {
                self.now.notified().await;
                continue;
            }
            let pause = if attempts <= QUICK_ATTEMPTS {
                PAUSES.0
            } else {
                PAUSES.1
            };
            drop(tokio::time::timeout(pause, self.now.notified()).await);
        }
    }

    async fn report(&self, connection: u64, news: LinkNews) -> bool {
        let input = Input::Link {
            host: self.host.name.clone(),
            connection,
            news,
        };
        self.inputs.send(input).await.is_ok()
    }

    fn command(&self, replaces: bool) -> Command {
        let weak = if self.host.allow_weak_sandbox {
            " --allow-weak-sandbox"
        } else {
            ""
        };
        let replace = if replaces { " --replace" } else { "" };
        let mut command = ssh(&self.host, self.home, &format!("{weak}{replace}"));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Carries frames until the connection ends. Returns how.
    async fn connect(&self, connection: u64, replaces: bool) -> ConnectionEnd {
        let mut child = match self.command(replaces).spawn() {
            Ok(child) => child,
            Err(error) => {
                return ConnectionEnd::before(unreachable(format!("cannot run ssh: {error}")));
            }
        };
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return ConnectionEnd::before(unreachable("ssh has no pipes".to_owned()));
        };
        let said = tokio::spawn(last_of(stderr));
        let mut reader = BufReader::with_capacity(64 << 10, stdout);
        let mut was_up = false;
        let broken = self
            .carry(connection, (stdin, &mut reader), &mut was_up)
            .await;
        let state = match broken {
            Err(state) => state,
            Ok(()) => {
                drop(reader);
                ended_by_itself(&self.host, &mut child, said).await
            }
        };
        ConnectionEnd { was_up, state }
    }

    /// Reads the first frame, and carries all others. Returns when the host says nothing more.
    async fn carry(
        &self,
        connection: u64,
        (stdin, reader): (ChildStdin, &mut BufReader<ChildStdout>),
        was_up: &mut bool,
    ) -> Result<(), LinkState> {
        let first = tokio::time::timeout(FIRST_FRAME, first_frame(reader)).await;
        let hello = match first {
            Err(_) => return Err(unreachable("it does not answer".to_owned())),
            Ok(Err(why)) => return Err(unreachable(why)),
            // Why it has ended is to be seen at the end of ssh.
            Ok(Ok(None)) => return Ok(()),
            Ok(Ok(Some((FromHost::Hello(hello), _)))) => hello,
            Ok(Ok(Some(_))) => return Err(unreachable("it does not say who it is".to_owned())),
        };
        if hello.protocol != LINK_PROTOCOL {
            return Err(LinkState::NeedsAttention {
                why: format!(
                    "teamd {} there speaks version {} of the link, this one version {LINK_PROTOCOL}",
                    hello.version, hello.protocol
                ),
                hint: format!(
                    "`teamctl host add {} --install` installs teamd {} there",
                    self.host.name,
                    env!("CARGO_PKG_VERSION")
                ),
            });
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
        let writer = tokio::spawn(write(stdin, queue, (room, Arc::clone(&pulse))));
        *was_up = true;
        let cut = Arc::new(Notify::new());
        let asks = frames.downgrade();
        let up = LinkNews::Up {
            version: shown(&hello.version),
            weakness: hello.weakness.as_deref().map(shown),
            frames,
            cut: Arc::clone(&cut),
        };
        if !self.report(connection, up).await {
            return Ok(());
        }
        let read = tokio::select! {
            read = self.pass_on(connection, reader, &pulse) => read,
            () = until_dead(&pulse, &asks) => {
                Err(unreachable("it does not answer".to_owned()))
            }
            () = cut.notified() => {
                Err(unreachable("it does not take what it is told".to_owned()))
            }
        };
        writer.abort();
        read
    }

    /// Passes on what the host says, until it says nothing more.
    async fn pass_on(
        &self,
        connection: u64,
        reader: &mut BufReader<ChildStdout>,
        pulse: &Pulse,
    ) -> Result<(), LinkState> {
        let room = Arc::new(Semaphore::new(MOST_UNHANDLED as usize));
        while let Some((frame, length)) = read_frame(reader).await.map_err(unreachable)? {
            pulse
                .heard
                .store(pulse.sent.load(Ordering::Relaxed), Ordering::Relaxed);
            pulse.hears.notify_one();
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

/// Returns the command that runs `teamd host` on a host, with these further arguments.
pub(super) fn ssh(host: &Host, home: Uuid, more: &str) -> Command {
    let mut command = Command::new("ssh");
    command.args(["-T", "-S", "none"]);
    for option in OPTIONS {
        command.args(["-o", option]);
    }
    let line = line_there(&format!("host {home}{more}"));
    command.args(["--", &host.ssh, &line]).kill_on_drop(true);
    command
}

/// How a connection has ended.
struct ConnectionEnd {
    /// Whether the host had said who it is.
    was_up: bool,
    state: LinkState,
}

impl ConnectionEnd {
    fn before(state: LinkState) -> Self {
        Self {
            was_up: false,
            state,
        }
    }
}

fn unreachable(why: String) -> LinkState {
    LinkState::Unreachable { why }
}

/// Reads what a login shell prints, then the line with which the stream begins, then one frame.
async fn first_frame(
    reader: &mut BufReader<ChildStdout>,
) -> Result<Option<(FromHost, usize)>, String> {
    let mut printed = 0;
    loop {
        let left = MAX_BANNER.saturating_sub(printed);
        let Some(line) = read_line(reader, left).await? else {
            return Ok(None);
        };
        if line == MAGIC.as_bytes() {
            break;
        }
        printed += line.len() + 1;
        let text = String::from_utf8_lossy(&line).into_owned();
        tracing::warn!("the login shell of a host prints: {}", shown(&text));
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

/// Returns a text of another machine as one short line of visible characters.
pub(super) fn shown(text: &str) -> String {
    text.escape_debug().take(MOST_OF_A_TEXT).collect()
}

/// How much of a text of another machine is shown, in characters.
const MOST_OF_A_TEXT: usize = 300;

/// Numbers the connections with hosts.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Reads one line of at most so many bytes, without its newline; none at the end, also behind a
/// line that is not whole.
async fn read_line(
    reader: &mut (impl AsyncBufRead + Unpin),
    most: usize,
) -> Result<Option<Vec<u8>>, String> {
    let mut line = Vec::new();
    let mut limited = reader.take(most as u64 + 1);
    limited
        .read_until(b'\n', &mut line)
        .await
        .map_err(|error| format!("the connection broke: {error}"))?;
    if line.pop() == Some(b'\n') {
        return Ok(Some(line));
    }
    if line.len() >= most {
        return Err(format!("it says more than {most} bytes without an end"));
    }
    Ok(None)
}

/// What passes on a connection.
#[derive(Debug, Default)]
struct Pulse {
    /// How many frames were sent.
    sent: AtomicU64,
    /// How many of them had been sent when the host said something last.
    heard: AtomicU64,
    hears: Notify,
}

impl Pulse {
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

/// Tells the event loop that there is room.
struct RoomReport {
    host: Host,
    connection: u64,
    inputs: Inputs,
    wants_room: Arc<AtomicBool>,
}

/// Writes frames, until the connection breaks or no more can come.
async fn write(
    mut stdin: ChildStdin,
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
        if let Err(error) = stdin.write_all(&line).await {
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

/// Returns the error of `teamd` there, else the last line that `ssh` or the shell there says.
pub(super) async fn last_of(stderr: ChildStderr) -> String {
    let mut text = Vec::new();
    let mut reader = stderr;
    let mut block = [0; 4096];
    while let Ok(read @ 1..) = reader.read(&mut block).await {
        text.extend_from_slice(&block[..read]);
        if text.len() as u64 > MAX_STDERR {
            text.drain(..text.len() / 2);
        }
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let error = text.lines().rfind(|line| line.starts_with("error: "));
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    let said = error.or(last).unwrap_or_default().trim();
    said.strip_prefix("error: ").unwrap_or(said).to_owned()
}

/// Returns what the end of `ssh` says.
async fn ended_by_itself(
    host: &Host,
    child: &mut Child,
    said: tokio::task::JoinHandle<String>,
) -> LinkState {
    let ended = tokio::time::timeout(SSH_ENDS, async {
        let status = child.wait().await;
        (status, said.await.unwrap_or_default())
    });
    let Ok((status, said)) = ended.await else {
        return unreachable("it says nothing more, and ssh does not end".to_owned());
    };
    let code = status.ok().and_then(|status| status.code());
    state_of_end(&host.name, code, &said)
}

/// Says whether trying again can help. The texts are those of OpenSSH 9 (`sshconnect2.c`,
/// `sshconnect.c`) and of shells.
fn state_of_end(name: &Name, code: Option<i32>, said: &str) -> LinkState {
    let attention = |why: &str, hint: String| LinkState::NeedsAttention {
        why: why.to_owned(),
        hint,
    };
    if said.contains("Permission denied") {
        return attention(
            "ssh could not log in without a question",
            format!("`teamctl host login {name}` asks you what ssh needs"),
        );
    }
    if said.contains("Host key verification failed") || said.contains("IDENTIFICATION HAS CHANGED")
    {
        return attention(
            "ssh does not know its host key, or knows another one",
            format!("`teamctl host login {name}` shows it"),
        );
    }
    if code == Some(127) {
        return attention(
            "there is no teamd on the PATH of its login",
            format!("`teamctl host add {name} --install` installs it"),
        );
    }
    let why = match (said, code) {
        ("", Some(code)) => format!("ssh ended with code {code}"),
        ("", None) => "ssh was killed".to_owned(),
        (said, _) => said.to_owned(),
    };
    unreachable(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_person_can_mend_is_not_dialled_again() {
        let name = Name::new("box").unwrap();
        let denied = "user@box: Permission denied (publickey,password).";
        let needs = |state| matches!(state, LinkState::NeedsAttention { .. });
        assert!(needs(state_of_end(&name, Some(255), denied)));
        assert!(needs(state_of_end(
            &name,
            Some(255),
            "Host key verification failed."
        )));
        assert!(needs(state_of_end(
            &name,
            Some(127),
            "sh: teamd: not found"
        )));
        let refused = "ssh: connect to host box port 22: Connection refused";
        assert!(!needs(state_of_end(&name, Some(255), refused)));
        assert!(!needs(state_of_end(&name, None, "")));
    }

    #[tokio::test]
    async fn a_line_without_an_end_is_cut_off() {
        let mut endless: &[u8] = b"0123456789";
        assert!(read_line(&mut endless, 8).await.is_err());
        let mut whole: &[u8] = b"one\ntw";
        assert_eq!(read_line(&mut whole, 8).await, Ok(Some(b"one".to_vec())));
        assert_eq!(read_line(&mut whole, 8).await, Ok(None));
    }
}
