//! The connections: accepting them, checking who is there, and carrying frames between them and the dispatcher.
//!
//! Each connection is a leaf: it holds no shared state, and reports by an [`Input`]. Every queue towards a
//! peer is bounded, and a peer that does not read is cut off: nobody waits for another process.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use teamd_shared::control::{
    Connection, Credentials, FromWorker, Greeting, Incoming, Listener, Outgoing, PROTOCOL, Peer, Refusal, RefusalCode,
    Reply, Request, ToWorker, WireError, WorkerState,
};
use teamd_shared::environment::Environment;
use teamd_shared::process::Identity;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::event::{Client, Life};

/// How long a peer may take to say who it is.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// How many frames may wait for a peer that does not read.
const QUEUE: usize = 256;
/// How long accepting pauses when no descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What connections report.
#[derive(Debug)]
pub(super) enum Input {
    /// A command is connected.
    ClientHere { connection: u64, replies: mpsc::Sender<Reply>, writer: JoinHandle<()> },
    /// It wants something.
    ClientAsks { connection: u64, request: Request },
    /// A worker is connected, and says who it is; the dispatcher checks it.
    WorkerHere(Box<WorkerHere>),
    /// A worker says something.
    WorkerSays { connection: u64, life: Life, frame: FromWorker },
    /// A connection is closed.
    Gone { connection: u64 },
}

/// A worker on a connection.
#[derive(Debug)]
pub(super) struct WorkerHere {
    pub(super) connection: u64,
    pub(super) life: Life,
    /// The process at the other end, as the kernel says; none on a connection that it was born with.
    pub(super) process: Option<Identity>,
    pub(super) environment: Option<Environment>,
    pub(super) state: WorkerState,
    pub(super) words: mpsc::Sender<ToWorker>,
}

/// Numbers the connections of this process.
fn next_connection() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Accepts connections until the listener is dropped.
pub(super) async fn accept(listener: Listener, inputs: mpsc::Sender<Input>) {
    loop {
        match listener.accept().await {
            Ok(stream) => {
                tokio::spawn(greet(stream, next_connection(), inputs.clone()));
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves the connection that a worker is born with; returns its number, and where to say something.
pub(super) fn serve_born(
    fd: OwnedFd,
    life: Life,
    inputs: &mpsc::Sender<Input>,
) -> std::io::Result<(u64, mpsc::Sender<ToWorker>)> {
    let stream = Connection::from_fd(fd)?;
    let connection = next_connection();
    let (words, queue) = mpsc::channel(QUEUE);
    let inputs = inputs.clone();
    let here = words.clone();
    tokio::spawn(async move {
        let (out, mut incoming) = stream.split::<ToWorker, Greeting>();
        tokio::spawn(write(out, queue));
        match incoming.receive().await {
            Ok(Some(Greeting { peer: Peer::Worker { environment, state, .. }, .. })) => {
                let worker = WorkerHere { connection, life: life.clone(), process: None, environment, state, words: here };
                listen_to_worker(worker, incoming.cast(), inputs).await;
            }
            other => tracing::debug!("{} said nothing at its birth: {other:?}", life.name),
        }
    });
    Ok((connection, words))
}

/// Learns who is at the other end, and serves it.
async fn greet(mut stream: Connection, connection: u64, inputs: mpsc::Sender<Input>) {
    let user = nix::unistd::geteuid().as_raw();
    let Some(pid) = stream.credentials().filter(|peer| peer.uid == user).map(|peer| peer.pid) else {
        tracing::warn!("refused a connection of another user");
        return;
    };
    let process = stream.credentials().and_then(process_of);
    let greeting = match tokio::time::timeout(GREETING_TIMEOUT, stream.receive::<Greeting>()).await {
        Ok(Ok(Some(greeting))) => greeting,
        Ok(Ok(None)) => return,
        Ok(Err(error)) => {
            tracing::warn!("process {pid} said something unreadable: {error}");
            return;
        }
        Err(_) => {
            tracing::warn!("process {pid} did not say who it is");
            return;
        }
    };
    match greeting.peer {
        Peer::Client => serve_client(stream, connection, greeting.protocol, inputs).await,
        Peer::Worker { name, incarnation, environment, state } => {
            let (out, incoming) = stream.split::<ToWorker, FromWorker>();
            let (words, queue) = mpsc::channel(QUEUE);
            tokio::spawn(write(out, queue));
            let life = Life { name, incarnation };
            let worker = WorkerHere { connection, life, process, environment, state, words };
            listen_to_worker(worker, incoming, inputs).await;
        }
    }
}

/// Identifies the peer through its pidfd, looked at again after reading `/proc`: a reused pid is refused.
fn process_of(peer: &Credentials) -> Option<Identity> {
    let identity = Identity::of(peer.pid).ok()?;
    if let Some(pidfd) = &peer.pidfd {
        // A pidfd is readable once its process has ended.
        let mut ended = [PollFd::new(pidfd, PollFlags::IN)];
        if poll(&mut ended, Some(&Timespec::default())).ok()? > 0 {
            return None;
        }
    }
    Some(identity)
}

async fn serve_client(stream: Connection, connection: u64, protocol: u16, inputs: mpsc::Sender<Input>) {
    let (mut out, mut incoming) = stream.split::<Reply, Request>();
    if protocol != PROTOCOL {
        let message = format!("the daemon speaks version {PROTOCOL} on its socket, this command version {protocol}");
        let refusal = Refusal::new(RefusalCode::Failed, message).hint("use teamd and teamctl of one version");
        if let Ok(Some(request)) = incoming.receive().await {
            let told = out.send(&Reply { tag: request.tag, result: Err(refusal) }).await;
            tracing::debug!("told a command of another version: {told:?}");
        }
        return;
    }
    let (replies, queue) = mpsc::channel(QUEUE);
    let writer = tokio::spawn(write(out, queue));
    let here = Input::ClientHere { connection, replies, writer };
    if inputs.send(here).await.is_err() {
        return;
    }
    loop {
        match incoming.receive().await {
            Ok(Some(request)) => {
                if inputs.send(Input::ClientAsks { connection, request }).await.is_err() {
                    return;
                }
            }
            Ok(None) => break,
            Err(error) => {
                tracing::warn!("a command said something unreadable: {error}");
                break;
            }
        }
    }
    send_last(&inputs, Input::Gone { connection }).await;
}

async fn listen_to_worker(here: WorkerHere, mut incoming: Incoming<FromWorker>, inputs: mpsc::Sender<Input>) {
    let (connection, life) = (here.connection, here.life.clone());
    if inputs.send(Input::WorkerHere(Box::new(here))).await.is_err() {
        return;
    }
    loop {
        match incoming.receive().await {
            Ok(Some(frame)) => {
                let input = Input::WorkerSays { connection, life: life.clone(), frame };
                if inputs.send(input).await.is_err() {
                    return;
                }
            }
            Ok(None) => break,
            // It ended with something of ours unread.
            Err(WireError::Io(error)) => {
                tracing::debug!("the connection of {} broke: {error}", life.name);
                break;
            }
            Err(error) => {
                tracing::warn!("{} said something unreadable: {error}", life.name);
                break;
            }
        }
    }
    send_last(&inputs, Input::Gone { connection }).await;
}

async fn send_last(inputs: &mpsc::Sender<Input>, input: Input) {
    if inputs.send(input).await.is_err() {
        tracing::debug!("the dispatcher has ended before a connection");
    }
}

async fn write<T: serde::Serialize>(mut out: Outgoing<T>, mut queue: mpsc::Receiver<T>) {
    while let Some(frame) = queue.recv().await {
        if let Err(error) = out.send(&frame).await {
            tracing::debug!("a peer does not listen: {error}");
            return;
        }
    }
}

/// The dispatcher's side of the connections: where to send what.
#[derive(Debug, Default)]
pub(super) struct Connections {
    clients: HashMap<u64, (mpsc::Sender<Reply>, JoinHandle<()>)>,
    workers: HashMap<Life, (u64, mpsc::Sender<ToWorker>)>,
}

impl Connections {
    pub(super) fn add_client(&mut self, connection: u64, replies: mpsc::Sender<Reply>, writer: JoinHandle<()>) {
        self.clients.insert(connection, (replies, writer));
    }

    /// Remembers where a worker is; an older connection of the same life is dropped.
    pub(super) fn add_worker(&mut self, life: Life, connection: u64, words: mpsc::Sender<ToWorker>) {
        self.workers.insert(life, (connection, words));
    }

    /// Tells whether this is the present connection of a life: what an older one still says counts for nothing.
    pub(super) fn is_present(&self, life: &Life, connection: u64) -> bool {
        self.workers.get(life).is_some_and(|(present, _)| *present == connection)
    }

    /// Answers a command; one that is gone or does not read is cut off.
    pub(super) fn reply(&mut self, client: Client, result: Result<teamd_shared::control::Done, Refusal>) {
        let Some((replies, _)) = self.clients.get(&client.connection) else { return };
        if replies.try_send(Reply { tag: client.tag, result }).is_err() {
            self.clients.remove(&client.connection);
        }
    }

    /// Says something to a worker; one that does not read is cut off, and hears all again when it reconnects.
    pub(super) fn say(&mut self, life: &Life, frame: ToWorker) {
        let Some((_, words)) = self.workers.get(life) else { return };
        if words.try_send(frame).is_err() {
            tracing::warn!("{} does not listen: its connection is closed", life.name);
            self.workers.remove(life);
        }
    }

    /// Forgets a closed connection; returns the worker that it belonged to, if it was its present one.
    pub(super) fn remove(&mut self, connection: u64) -> Option<Life> {
        self.clients.remove(&connection);
        let life = self.workers.iter().find(|(_, (number, _))| *number == connection).map(|(life, _)| life.clone())?;
        self.workers.remove(&life);
        Some(life)
    }

    /// Forgets the connection of a life that is over.
    pub(super) fn forget(&mut self, life: &Life) {
        self.workers.remove(life);
    }

    /// Waits until every reply is on its way.
    pub(super) async fn drain(&mut self) {
        for (_, (replies, writer)) in self.clients.drain() {
            drop(replies);
            if tokio::time::timeout(Duration::from_secs(1), writer).await.is_err() {
                tracing::warn!("a command did not take its last reply");
            }
        }
    }
}
