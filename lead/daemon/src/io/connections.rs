//! The connections: accepting them, checking the peer, and carrying frames between them and the
//! event loop.
//!
//! Each connection is a leaf: it holds no shared state, and reports by an [`Input`]. Every queue
//! towards a peer is bounded ([`Outbound`]), and a peer that does not read is cut off: no process
//! waits for another.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use teamd_shared::control::{
    ConnectedLead, Connection, FromWorker, Greeting, Incoming, Listener, McpServerReport,
    MemberServers, PROTOCOL, Peer, Refusal, RefusalCode, Reply, TaggedCommand, ToWorker, WireError,
};
use teamd_shared::process::Identity;
use tokio::sync::oneshot;

use crate::core::caller::ReplyTo;
use crate::core::incarnation::Incarnation;
use crate::io::input::{ConnectedClient, ConnectedWorker, DialledIn, Input, Inputs};
use crate::io::known_leads::KnownLeads;
use crate::io::links::{self, LinkedWorker};
use crate::io::mcp_leads::{self, LeadRecords};
use crate::io::outbound::{Closed, Outbound};
use crate::io::peer::{self, PeerState};

/// How long a peer may take to greet.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// How long accepting pauses when no descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Numbers the connections of this process.
fn next_connection() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Accepts connections until the listener is dropped.
pub(crate) async fn accept(listener: Listener, inputs: Inputs) {
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

/// Serves the connection that a worker inherits; returns its number, and where to say something.
pub(crate) fn serve_inherited(
    fd: OwnedFd,
    incarnation: Incarnation,
    inputs: &Inputs,
) -> std::io::Result<(u64, Outbound<ToWorker>)> {
    let stream = Connection::from_fd(fd)?;
    let connection = next_connection();
    let (out, mut incoming) = stream.split::<ToWorker, Greeting>();
    let (outbound, closed) = Outbound::start(out);
    let inputs = inputs.clone();
    tokio::spawn(async move {
        match incoming.receive().await {
            Ok(Some(Greeting {
                peer: Peer::Worker { .. },
                ..
            })) => {
                let greeted = Input::WorkerGreeted {
                    incarnation: incarnation.clone(),
                };
                let says = of_worker(connection, incarnation);
                listen(
                    greeted,
                    (incoming.cast(), closed),
                    (connection, inputs),
                    says,
                )
                .await;
            }
            Ok(Some(Greeting {
                peer: Peer::Unable { why },
                ..
            })) => {
                let frame = FromWorker::Unable { why };
                tell_last(
                    &inputs,
                    Input::WorkerSays {
                        connection,
                        incarnation,
                        frame,
                    },
                )
                .await;
                tell_last(&inputs, Input::Gone { connection }).await;
            }
            other => {
                let name = incarnation.name;
                tracing::debug!(
                    "{name} did not greet on the connection that it inherited: {other:?}"
                );
                tell_last(&inputs, Input::Gone { connection }).await;
            }
        }
    });
    Ok((connection, outbound))
}

/// Identifies the peer, and serves it.
async fn greet(mut stream: Connection, connection: u64, inputs: Inputs) {
    let user = nix::unistd::geteuid().as_raw();
    let Some(credentials) = stream.credentials().filter(|peer| peer.uid == user) else {
        tracing::warn!("refused a connection of another user");
        return;
    };
    let pid = credentials.pid;
    let peer_state = match peer::look(credentials) {
        Ok(peer_state) => peer_state,
        Err(error) => {
            // A worker connects again. This daemon cannot see the process, which is no reason to
            // leave.
            tracing::warn!("cannot see who process {pid} is: {error}");
            return;
        }
    };
    let greeting = tokio::time::timeout(GREETING_TIMEOUT, stream.receive::<Greeting>());
    let greeting = match greeting.await {
        Ok(Ok(Some(greeting))) => greeting,
        Ok(Ok(None)) => return,
        Ok(Err(error)) => {
            return tracing::warn!("process {pid} sent an unreadable frame: {error}");
        }
        Err(_) => return tracing::warn!("process {pid} did not greet"),
    };
    let (process, is_confined) = match peer_state {
        PeerState::Free(process) => (process, false),
        PeerState::Confined(process) => (process, true),
        PeerState::Gone => return tracing::warn!("refused process {pid}: it is gone"),
    };
    match greeting.peer {
        Peer::Dialled { host, key, file } => {
            let stream = stream.into_bytes();
            if is_confined {
                return links::refuse(stream, confined().message);
            }
            if greeting.protocol != PROTOCOL {
                return links::refuse(stream, other_version(greeting.protocol).message);
            }
            let dialled = DialledIn {
                host,
                key,
                file,
                stream,
            };
            tell_last(&inputs, Input::Dialled(Box::new(dialled))).await;
        }
        Peer::Client | Peer::Lead { .. } | Peer::Link { .. } if is_confined => {
            tracing::warn!("refused process {pid}: it is confined, as a tool is");
            refuse(stream, confined()).await
        }
        Peer::Client | Peer::Lead { .. } | Peer::Link { .. } if greeting.protocol != PROTOCOL => {
            refuse(stream, other_version(greeting.protocol)).await
        }
        Peer::Client => serve_client(stream, connection, inputs, process, None).await,
        Peer::Lead { run_by } => match mcp_leads::of_peer(&process, run_by) {
            Ok(lead) => serve_client(stream, connection, inputs, process, Some(lead)).await,
            Err(why) => {
                tracing::warn!("refused process {pid}: it is not the server of a lead: {why}");
                refuse(stream, not_a_lead(&why)).await
            }
        },
        Peer::Link { dials } => {
            let (out, incoming) = stream.split::<String, String>();
            let (outbound, closed) = Outbound::start(out);
            let connected = Input::LinkConnected {
                connection,
                outbound,
                dials,
            };
            let says = |line| Input::LinkSays { connection, line };
            listen(connected, (incoming, closed), (connection, inputs), says).await;
        }
        Peer::Unable { .. } => tracing::warn!("process {pid} is no worker that was started here"),
        // A confined worker is served too: it must be the process of the journal, and no tool can
        // be that.
        Peer::Worker {
            name,
            incarnation,
            environment,
            state,
        } => {
            let (out, incoming) = stream.split::<ToWorker, FromWorker>();
            let (outbound, closed) = Outbound::start(out);
            let incarnation = Incarnation {
                name,
                number: incarnation,
            };
            let says = of_worker(connection, incarnation.clone());
            let worker = ConnectedWorker {
                connection,
                incarnation,
                environment,
                state: *state,
                process,
                outbound,
            };
            let connected = Input::WorkerConnected(Box::new(worker));
            listen(connected, (incoming, closed), (connection, inputs), says).await;
        }
    }
}

fn of_worker(connection: u64, incarnation: Incarnation) -> impl Fn(FromWorker) -> Input {
    move |frame| Input::WorkerSays {
        connection,
        incarnation: incarnation.clone(),
        frame,
    }
}

/// Answers the one request that a peer may make.
async fn refuse(stream: Connection, refusal: Refusal) {
    let (mut out, mut incoming) = stream.split::<Reply, TaggedCommand>();
    if let Ok(Some(request)) = incoming.receive().await {
        let sent = out
            .send(&Reply {
                tag: request.tag,
                result: Err(refusal),
            })
            .await;
        tracing::debug!("refused to serve a peer: {sent:?}");
    }
}

fn confined() -> Refusal {
    let message = "this process is confined (no_new_privs or seccomp) more than the daemon: it may be a tool, and \
                   a tool gives no commands";
    Refusal::new(RefusalCode::Failed, message.to_owned())
        .hint("give the command in a shell that is not confined")
}

fn not_a_lead(why: &str) -> Refusal {
    let message = format!("this process is not the server of a lead: {why}");
    Refusal::new(RefusalCode::Failed, message).hint("let the client start `teamctl mcp` itself")
}

fn other_version(protocol: u16) -> Refusal {
    let message = format!(
        "the daemon speaks version {PROTOCOL} on its socket, this command version {protocol}"
    );
    Refusal::new(RefusalCode::Failed, message).hint("use teamd and teamctl of one version")
}

async fn serve_client(
    stream: Connection,
    connection: u64,
    inputs: Inputs,
    process: Identity,
    lead: Option<ConnectedLead>,
) {
    let (out, incoming) = stream.split::<Reply, TaggedCommand>();
    let (replies, closed) = Outbound::start(out);
    let client = ConnectedClient {
        replies,
        process,
        lead,
    };
    let connected = Input::ClientConnected {
        connection,
        client: Box::new(client),
    };
    listen(
        connected,
        (incoming, closed),
        (connection, inputs),
        |request| Input::ClientAsks {
            connection,
            request,
        },
    )
    .await;
}

/// Reports a connection, what the peer says on it, and its end.
async fn listen<T: serde::de::DeserializeOwned>(
    connected: Input,
    (mut incoming, mut closed): (Incoming<T>, Closed),
    (connection, inputs): (u64, Inputs),
    says: impl Fn(T) -> Input,
) {
    let mut input = connected;
    while inputs.send(input).await.is_ok() {
        let received = tokio::select! {
            biased;
            () = closed.cut_off.notified() => Ok(None),
            received = incoming.receive() => received,
            _ = &mut closed.ended => Ok(None),
        };
        input = match received {
            Ok(Some(frame)) => says(frame),
            Ok(None) => break,
            // It ended with something of ours unread.
            Err(WireError::Io(error)) => {
                tracing::debug!("connection {connection} broke: {error}");
                break;
            }
            Err(error) => {
                tracing::warn!(
                    "a peer sent an unreadable frame on connection {connection}: {error}"
                );
                break;
            }
        };
    }
    tell_last(&inputs, Input::Gone { connection }).await;
}

async fn tell_last(inputs: &Inputs, input: Input) {
    if inputs.send(input).await.is_err() {
        tracing::debug!("the event loop has ended before a connection");
    }
}

/// The present connection of a worker.
#[derive(Debug)]
struct WorkerConnection {
    number: u64,
    outbound: WorkerOutbound,
    /// What the worker reports of its MCP servers on it.
    servers: Vec<McpServerReport>,
}

/// The way to a worker.
#[derive(Debug)]
enum WorkerOutbound {
    /// It is on this machine.
    Socket(Outbound<ToWorker>),
    /// It is on a host.
    Link(LinkedWorker),
}

impl WorkerOutbound {
    fn say(&self, frame: ToWorker) {
        match self {
            Self::Socket(outbound) => outbound.say(frame),
            Self::Link(worker) => worker.say(frame),
        }
    }
}

/// The event loop's side of the connections: where to send what.
#[derive(Debug)]
pub(crate) struct Connections {
    clients: HashMap<u64, ConnectedClient>,
    known_leads: KnownLeads,
    lead_records: LeadRecords,
    workers: HashMap<Incarnation, WorkerConnection>,
    /// The incarnation of each worker connection, with the older ones that are not closed yet.
    owners: HashMap<u64, Incarnation>,
    /// Who waits until the connection of an incarnation is closed.
    closing: HashMap<Incarnation, oneshot::Sender<()>>,
}

impl Connections {
    /// Has no connection yet.
    pub(crate) fn new(known_leads: KnownLeads) -> Self {
        Self {
            clients: HashMap::new(),
            known_leads,
            lead_records: LeadRecords::default(),
            workers: HashMap::new(),
            owners: HashMap::new(),
            closing: HashMap::new(),
        }
    }

    pub(crate) fn add_client(&mut self, connection: u64, client: ConnectedClient) {
        if let Some(lead) = &client.lead {
            self.known_leads.record(lead);
        }
        self.clients.insert(connection, client);
    }

    /// Tells whether a client is a lead that is connected by MCP.
    pub(crate) fn is_lead(&self, connection: u64) -> bool {
        self.clients
            .get(&connection)
            .is_some_and(|client| client.lead.is_some())
    }

    /// Returns the leads that are connected by MCP, each once.
    pub(crate) fn leads(&self) -> Vec<ConnectedLead> {
        let mut leads: Vec<ConnectedLead> = self
            .clients
            .values()
            .filter_map(|client| client.lead.clone())
            .map(|lead| ConnectedLead {
                read: self.lead_records.read(&lead.process),
                ..lead
            })
            .collect();
        leads.sort_by_key(|lead| (lead.process.start_ticks, lead.process.pid));
        leads.dedup_by(|one, other| one.process == other.process);
        leads
    }

    /// Returns the lead that runs a client, connected or not.
    pub(crate) fn lead_above(&self, connection: u64) -> Option<&ConnectedLead> {
        let client = self.clients.get(&connection)?;
        self.known_leads.above(&client.process)
    }

    /// Tells whether a program runs that has led the team, connected or not.
    pub(crate) fn is_led(&self) -> bool {
        self.known_leads.one_runs()
    }

    /// Returns the connected lead that runs a client.
    fn connected_lead_above(&self, connection: u64) -> Option<ConnectedLead> {
        let process = &self.clients.get(&connection)?.process;
        mcp_leads::above(process, &self.leads()).cloned()
    }

    /// Describes the lead that a client is.
    pub(crate) fn described_lead(&self, connection: u64) -> Option<String> {
        let lead = self.clients.get(&connection)?.lead.as_ref()?;
        Some(lead.shown())
    }

    /// Describes the process of a client.
    pub(crate) fn described(&self, connection: u64) -> String {
        let client = self.clients.get(&connection);
        client.map_or_else(String::new, |client| mcp_leads::described(&client.process))
    }

    /// Records how far a lead has got its inbox: a client that it runs says so. Returns whether that
    /// was not known; none if no lead runs the client.
    pub(crate) fn record_read(&mut self, connection: u64, place: u64) -> Option<bool> {
        let lead = self.connected_lead_above(connection)?;
        Some(self.lead_records.record_read(&lead.process, place))
    }

    /// Lets a command wait until something comes for the lead that runs it. Returns whether one does;
    /// the command that has waited until now is answered.
    pub(crate) fn let_wait_for_lead(&mut self, client: ReplyTo) -> bool {
        let Some(lead) = self.connected_lead_above(client.connection) else {
            return false;
        };
        if let Some(earlier) = self.lead_records.let_wait(&lead.process, client) {
            let refusal = Refusal::new(RefusalCode::Conflict, "another command waits for it now");
            self.reply(earlier, Err(refusal));
        }
        true
    }

    /// Ends the waits for leads that are not connected any more.
    pub(crate) fn end_waits(&mut self, closed: u64) {
        let connected = self.leads();
        for client in self.lead_records.retain(&connected, closed) {
            let refusal = Refusal::new(RefusalCode::Conflict, "the server of the lead has ended");
            self.reply(client, Err(refusal));
        }
    }

    /// Remembers where a worker is; an older connection of the same incarnation is dropped.
    pub(crate) fn add_worker(
        &mut self,
        incarnation: Incarnation,
        connection: u64,
        outbound: Outbound<ToWorker>,
    ) {
        self.put_worker(incarnation, connection, WorkerOutbound::Socket(outbound));
    }

    /// Remembers that a worker is reached over a link. Returns the number of that connection.
    pub(crate) fn add_linked(&mut self, incarnation: Incarnation, worker: LinkedWorker) -> u64 {
        let connection = next_connection();
        self.put_worker(incarnation, connection, WorkerOutbound::Link(worker));
        connection
    }

    fn put_worker(&mut self, incarnation: Incarnation, connection: u64, outbound: WorkerOutbound) {
        self.owners.insert(connection, incarnation.clone());
        let present = WorkerConnection {
            number: connection,
            outbound,
            servers: Vec::new(),
        };
        let before = self.workers.insert(incarnation, present);
        self.forget_linked(before);
    }

    /// Forgets the number of a connection over a link: no end of it is reported.
    fn forget_linked(&mut self, before: Option<WorkerConnection>) {
        if let Some(before) = before
            && matches!(before.outbound, WorkerOutbound::Link(_))
        {
            self.owners.remove(&before.number);
        }
    }

    /// Returns the number of the present connection of an incarnation.
    pub(crate) fn number_of(&self, incarnation: &Incarnation) -> Option<u64> {
        Some(self.workers.get(incarnation)?.number)
    }

    /// Records what the worker of an incarnation reports of its MCP servers.
    pub(crate) fn record_servers(
        &mut self,
        incarnation: &Incarnation,
        servers: Vec<McpServerReport>,
    ) {
        if let Some(worker) = self.workers.get_mut(incarnation) {
            worker.servers = servers;
        }
    }

    /// Returns what the connected workers report of their MCP servers, by the names of the members.
    pub(crate) fn mcp_servers(&self) -> Vec<MemberServers> {
        let mut members = Vec::new();
        for (incarnation, worker) in &self.workers {
            if !worker.servers.is_empty() {
                members.push(MemberServers {
                    name: incarnation.name.clone(),
                    servers: worker.servers.clone(),
                });
            }
        }
        members.sort_by(|one, other| one.name.cmp(&other.name));
        members
    }

    /// Returns the present connection of the worker that this one belongs to.
    fn worker_on(&self, connection: u64) -> Option<(&Incarnation, &WorkerOutbound)> {
        let incarnation = self.owners.get(&connection)?;
        let present = self.workers.get(incarnation)?;
        (present.number == connection).then_some((incarnation, &present.outbound))
    }

    /// Tells whether this is the present connection of an incarnation: what an older one still says
    /// counts for nothing.
    pub(crate) fn is_present(&self, incarnation: &Incarnation, connection: u64) -> bool {
        self.workers
            .get(incarnation)
            .is_some_and(|present| present.number == connection)
    }

    /// Tells whether the client that gave a command still waits for its answer.
    pub(crate) fn waits(&self, client: ReplyTo) -> bool {
        let ReplyTo {
            connection, agent, ..
        } = client;
        self.clients.contains_key(&connection) || agent && self.worker_on(connection).is_some()
    }

    /// Answers a command; one that is gone or does not read is cut off.
    pub(crate) fn reply(
        &mut self,
        client: ReplyTo,
        result: Result<teamd_shared::control::Done, Refusal>,
    ) {
        let reply = Reply {
            tag: client.tag,
            result,
        };
        if let Some(connected) = self.clients.get(&client.connection) {
            connected.replies.say(reply);
        } else if client.agent
            && let Some((_, outbound)) = self.worker_on(client.connection)
        {
            outbound.say(ToWorker::Reply(reply));
        }
    }

    /// Says something to a worker; one that does not read is cut off, and hears all again when it
    /// reconnects.
    pub(crate) fn say(&mut self, incarnation: &Incarnation, frame: ToWorker) {
        if let Some(worker) = self.workers.get(incarnation) {
            worker.outbound.say(frame);
        }
    }

    /// Forgets a closed connection; returns the worker that it belonged to, if it was its present
    /// one.
    pub(crate) fn remove(&mut self, connection: u64) -> Option<Incarnation> {
        self.clients.remove(&connection);
        let incarnation = self
            .worker_on(connection)
            .map(|(incarnation, _)| incarnation.clone());
        self.owners.remove(&connection);
        self.forget(incarnation.as_ref()?);
        incarnation
    }

    /// Forgets the connection of an incarnation that is over.
    pub(crate) fn forget(&mut self, incarnation: &Incarnation) {
        let before = self.workers.remove(incarnation);
        self.forget_linked(before);
        self.closing.remove(incarnation);
    }

    /// Returns what ends when all frames of an incarnation were received; none if it has no
    /// connection.
    pub(crate) fn closed(&mut self, incarnation: &Incarnation) -> Option<oneshot::Receiver<()>> {
        self.workers.contains_key(incarnation).then(|| {
            let (sender, closed) = oneshot::channel();
            self.closing.insert(incarnation.clone(), sender);
            closed
        })
    }

    /// Waits until everything that was said is on its way, or a second is over.
    pub(crate) async fn drain(&mut self) {
        let last = tokio::time::Instant::now() + Duration::from_secs(1);
        let clients = self
            .clients
            .drain()
            .map(|(_, client)| ("a command", client.replies.writer));
        let workers = self
            .workers
            .drain()
            .filter_map(|(_, worker)| match worker.outbound {
                WorkerOutbound::Socket(outbound) => Some(("a worker", outbound.writer)),
                WorkerOutbound::Link(_) => None,
            });
        for (who, writer) in clients.chain(workers).collect::<Vec<_>>() {
            if tokio::time::timeout_at(last, writer).await.is_err() {
                tracing::warn!("{who} did not read the last frames");
            }
        }
    }
}
