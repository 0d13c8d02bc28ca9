//! The connection to an MCP server: the handshake, its tools, and its end.

use std::error::Error;
use std::time::Duration;

use rmcp::ClientHandler;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, JsonObject, ProtocolVersion};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, NotificationContext, Peer,
    RoleClient, RunningService,
};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport};
use serde_json::{Value, json};
use teamd_shared::mcp_tools::ServerTool;
use teamd_shared::terms::McpServer;
use teamd_worker_core::secret::{Secret, hide_all};

use tokio::net::UnixStream;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::known_tools::KnownTools;
use super::reports::ServerReporter;

/// How long a server may take at most for each step until it can be called.
const START: Duration = Duration::from_secs(30);

/// A connection, which several calls may share.
#[derive(Debug, Clone)]
pub(super) struct McpConnection {
    state: watch::Receiver<State>,
    /// What no text of the server may show.
    pub(super) secrets: Vec<Secret>,
}

/// A server that is being connected.
pub(super) struct Connecting {
    /// How it is defined.
    pub(super) server: McpServer,
    /// What no text of it may show.
    pub(super) secrets: Vec<Secret>,
    /// Where its tools are kept.
    pub(super) known: KnownTools,
    /// Where it is reported.
    pub(super) reporter: ServerReporter,
}

impl Connecting {
    /// Returns how long each step may take until the server can be called.
    fn within(&self) -> Duration {
        START.min(Duration::from_secs(self.server.timeout))
    }
}

/// How far a connection has come.
#[derive(Debug, Clone)]
pub(super) enum State {
    /// Its handshake is made.
    Starting,
    /// It takes calls.
    Ready {
        peer: Peer<RoleClient>,
        tools: Vec<ServerTool>,
    },
    /// How it has ended.
    Ended(String),
}

impl McpConnection {
    /// Returns how it has ended, if it has.
    pub(super) fn has_ended(&self) -> Option<String> {
        match &*self.state.borrow() {
            State::Ended(how) => Some(how.clone()),
            State::Starting | State::Ready { .. } => None,
        }
    }

    /// Waits until it takes calls.
    ///
    /// # Errors
    /// How it has ended.
    pub(super) async fn ready(&mut self) -> Result<Peer<RoleClient>, String> {
        match self.begun().await {
            State::Ready { peer, .. } => Ok(peer),
            State::Ended(_) => Err(self.ended().await),
            State::Starting => Err("has not started".to_owned()),
        }
    }

    /// Waits until its tools are known.
    ///
    /// # Errors
    /// How it has ended.
    pub(super) async fn tools(&mut self) -> Result<Vec<ServerTool>, String> {
        match self.begun().await {
            State::Ready { tools, .. } => Ok(tools),
            State::Ended(_) => Err(self.ended().await),
            State::Starting => Err("has not started".to_owned()),
        }
    }

    /// Tells whether it has a tool of this name now, as far as that is known.
    pub(super) fn has_tool(&self, name: &str) -> bool {
        match &*self.state.borrow() {
            State::Ready { tools, .. } => tools.iter().any(|tool| tool.name == name),
            State::Starting | State::Ended(_) => true,
        }
    }

    /// Waits until it has ended; returns how, in the words of its process if that says so soon.
    pub(super) async fn ended(&mut self) -> String {
        let how = self.next_end(|_| true).await;
        if how != CLOSED {
            return how;
        }
        let described = self.next_end(|how| how != CLOSED);
        timeout(LAST_WORDS, described).await.unwrap_or(how)
    }

    async fn next_end(&mut self, counts: impl Fn(&str) -> bool) -> String {
        let ended = self
            .state
            .wait_for(|state| matches!(state, State::Ended(how) if counts(how)))
            .await
            .map(|state| state.clone());
        match ended {
            Ok(State::Ended(how)) => how,
            // It was ended: what served it is gone.
            _ => "was ended".to_owned(),
        }
    }

    async fn begun(&mut self) -> State {
        let begun = self
            .state
            .wait_for(|state| !matches!(state, State::Starting))
            .await
            .map(|state| state.clone());
        begun.unwrap_or_else(|_| State::Ended("was ended".to_owned()))
    }
}

/// What this client is to a server: it offers nothing, and notes that the tools have changed.
#[derive(Debug)]
struct McpClient {
    changed: watch::Sender<()>,
}

impl ClientHandler for McpClient {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("teamd", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), own)
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.send_replace(());
    }
}

/// Begins a connection to a server that was started; returns what serves it. The process ends when
/// that is dropped or has ended.
pub(super) fn over_pipe(
    connecting: Connecting,
    pipes: (UnixStream, UnixStream),
    mut ended: oneshot::Receiver<String>,
) -> (McpConnection, impl Future<Output = ()>) {
    let (tell, connection) = connection(&connecting);
    let serving = async move {
        let secrets = connecting.secrets.clone();
        let spoken = async {
            let within = connecting.within();
            let begun = begin(within, pipes, ClientLifecycleMode::Initialize).await;
            serve(connecting, begun, &tell).await
        };
        let how = tokio::select! {
            biased;
            how = &mut ended => how.unwrap_or_else(|_| CLOSED.to_owned()),
            how = spoken => {
                // The next call starts it again.
                tell.tell(State::Ended(hide_all(&secrets, &how)));
                // What its process says of its end tells more than that its output has ended.
                match timeout(LAST_WORDS, &mut ended).await {
                    Ok(Ok(last)) if how == CLOSED => last,
                    _ => how,
                }
            }
        };
        tell.tell(State::Ended(hide_all(&secrets, &how)));
    };
    (connection, serving)
}

/// Begins a connection to a server over HTTP; returns what serves it. A server that takes the first
/// question of the newest protocol for a call of its own is connected once more, by the handshake.
pub(super) fn over_http(
    connecting: Connecting,
    client: reqwest::Client,
    config: StreamableHttpClientTransportConfig,
) -> (McpConnection, impl Future<Output = ()>) {
    let (tell, connection) = connection(&connecting);
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    };
    let serving = async move {
        let secrets = connecting.secrets.clone();
        let transport =
            || StreamableHttpClientTransport::with_client(client.clone(), config.clone());
        let within = connecting.within();
        let begun = match begin(within, transport(), lifecycle).await {
            Err(NotBegun::Misunderstood(_)) => {
                begin(within, transport(), ClientLifecycleMode::Initialize).await
            }
            begun => begun,
        };
        let how = serve(connecting, begun, &tell).await;
        tell.tell(State::Ended(hide_all(&secrets, &how)));
    };
    (connection, serving)
}

fn connection(connecting: &Connecting) -> (Teller, McpConnection) {
    let (tell, state) = watch::channel(State::Starting);
    let secrets = connecting.secrets.clone();
    let reporter = connecting.reporter.clone();
    reporter.starting();
    let teller = Teller {
        state: tell,
        reporter,
    };
    (teller, McpConnection { state, secrets })
}

/// Tells the calls, and the daemon, how far a connection has come.
struct Teller {
    state: watch::Sender<State>,
    reporter: ServerReporter,
}

impl Teller {
    fn tell(&self, state: State) {
        match &state {
            State::Starting => self.reporter.starting(),
            State::Ready { tools, .. } => self.reporter.connected(tools.len()),
            State::Ended(how) => self.reporter.failed(how),
        }
        self.state.send_replace(state);
    }
}

/// The longest reason why a connection does not begin, in characters.
const MAX_WHY: usize = 300;

/// How a server has ended whose process tells nothing.
const CLOSED: &str = "has closed its output";

/// How long the end of a process is waited for, after its output has ended.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(3);

/// A connection whose handshake is made.
struct Begun {
    service: RunningService<RoleClient, McpClient>,
    changes: watch::Receiver<()>,
}

/// Why a connection has not begun.
enum NotBegun {
    /// The server has answered the first question with something else.
    Misunderstood(String),
    /// Anything else.
    Failed(String),
}

/// Makes the handshake.
async fn begin<T, E, A>(
    within: Duration,
    transport: T,
    lifecycle: ClientLifecycleMode,
) -> Result<Begun, NotBegun>
where
    T: IntoTransport<RoleClient, E, A>,
    E: Error + Send + Sync + 'static,
{
    let (changed, changes) = watch::channel(());
    let client = McpClient { changed };
    match timeout(within, client.serve_with_lifecycle(transport, lifecycle)).await {
        Ok(Ok(service)) => Ok(Begun { service, changes }),
        Ok(Err(ClientInitializeError::ConnectionClosed(_))) => {
            Err(NotBegun::Failed(CLOSED.to_owned()))
        }
        Ok(Err(error @ ClientInitializeError::ExpectedInitResult(_))) => {
            Err(NotBegun::Misunderstood(explain(&error)))
        }
        Ok(Err(error)) => Err(NotBegun::Failed(explain(&error))),
        Err(_) => Err(NotBegun::Failed(format!(
            "did not begin to speak MCP within {} s",
            within.as_secs()
        ))),
    }
}

/// Serves a connection until it has ended; returns how.
async fn serve(connecting: Connecting, begun: Result<Begun, NotBegun>, tell: &Teller) -> String {
    let within = connecting.within();
    let Connecting {
        server,
        secrets,
        known,
        ..
    } = connecting;
    let Begun {
        service,
        mut changes,
    } = match begun {
        Ok(begun) => begun,
        Err(NotBegun::Misunderstood(why) | NotBegun::Failed(why)) => return why,
    };
    let peer = service.peer().clone();
    let mut closed = std::pin::pin!(service.waiting());
    loop {
        changes.mark_unchanged();
        let listed = tokio::select! {
            listed = list(&peer, within, &secrets) => listed,
            _ = &mut closed => return CLOSED.to_owned(),
        };
        let tools = match listed {
            Ok(tools) => tools,
            Err(why) => return why,
        };
        known.write(&server, &tools);
        tell.tell(State::Ready {
            peer: peer.clone(),
            tools,
        });
        tokio::select! {
            _ = &mut closed => return CLOSED.to_owned(),
            changed = changes.changed() => {
                if changed.is_err() {
                    return CLOSED.to_owned();
                }
            }
        }
        tracing::info!("the tools of the MCP server {} have changed", server.name);
    }
}

/// Asks a server for its tools.
async fn list(
    peer: &Peer<RoleClient>,
    within: Duration,
    secrets: &[Secret],
) -> Result<Vec<ServerTool>, String> {
    let listed = match timeout(within, peer.list_all_tools()).await {
        Ok(Ok(listed)) => listed,
        Ok(Err(error)) => return Err(format!("does not list its tools: {error}")),
        Err(_) => {
            return Err(format!(
                "did not list its tools within {} s",
                within.as_secs()
            ));
        }
    };
    let mut tools = Vec::new();
    for tool in listed {
        let is_read_only = tool
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.read_only_hint)
            .unwrap_or(false);
        let tool = ServerTool {
            name: tool.name.into_owned(),
            description: hide_all(secrets, &tool.description.unwrap_or_default()),
            schema: without_secrets(&tool.input_schema, secrets),
            is_read_only,
        };
        tools.push(tool.bounded());
    }
    Ok(tools)
}

/// Returns the schema of a tool without what no text of the server may show.
fn without_secrets(schema: &JsonObject, secrets: &[Secret]) -> Value {
    let written = Value::Object(schema.clone());
    let hidden = hide_all(secrets, &written.to_string());
    // A value that is a piece of JSON itself would leave none: then the model gets no schema.
    serde_json::from_str(&hidden).unwrap_or_else(|_| json!({}))
}

/// Says in a line why a connection does not begin.
fn explain(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => {
            format!("cannot be reached: {}", innermost(&*error.error))
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => explain(fallback),
        other => {
            let why: String = other.to_string().chars().take(MAX_WHY).collect();
            format!("does not speak MCP: {why}")
        }
    }
}

/// Returns the cause of an error that has no cause itself: what stands above it names types.
pub(super) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
