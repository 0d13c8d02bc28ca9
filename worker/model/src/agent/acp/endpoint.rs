//! The team tools over HTTP: an MCP server ("streamable HTTP", without sessions, whose answers are
//! JSON) behind the gateway of the agent. The driver gets each call, and replies with its outcome.
//!
//! The agent gets the token through its pipe alone. So a program that it starts does not find the
//! token in its environment.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use hyper::{Request, Response, StatusCode};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ListToolsResult, PaginatedRequestParams, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use teamd_worker_sandbox::{Answering, TeamEndpoint, refusal};
use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

use super::super::{TeamTool, mcp};
use teamd_worker_core::tools::Outcome;

/// The path of the server.
pub(super) const PATH: &str = "/mcp";

/// How long a message may be, in bytes.
const MAX_MESSAGE: usize = 4 << 20;

/// The outcome of a call that the driver has dropped: its turn, or the agent, has ended.
const NO_OUTCOME: &str = "the turn ended before this call had an outcome";

/// Why a request is refused that does not show the token.
const NO_TOKEN: &str =
    "the team does not know this call: it does not show the token that the agent was given";

/// A call of a team tool that has come over HTTP.
#[derive(Debug)]
pub struct TeamCall {
    /// The name of the tool.
    pub name: String,
    /// The input of the tool.
    pub input: Value,
    /// Where its outcome goes.
    pub reply: oneshot::Sender<Outcome>,
}

/// The server of the team tools.
#[derive(Debug)]
pub struct TeamServer {
    /// What answers the requests.
    pub endpoint: Arc<dyn TeamEndpoint>,
    /// The calls.
    pub calls: mpsc::UnboundedReceiver<TeamCall>,
    /// Whether the agent knows the tools: it has asked for their list.
    pub is_listed: watch::Receiver<bool>,
}

/// What answers the requests: those of the agent go on to the server.
struct Endpoint {
    token: String,
    server: StreamableHttpService<Arc<OfferedTools>, NeverSessionManager>,
}

/// The tools that are served.
#[derive(Debug)]
struct OfferedTools {
    list: ListToolsResult,
    calls: mpsc::UnboundedSender<TeamCall>,
    is_listed: watch::Sender<bool>,
}

impl TeamServer {
    /// Makes the server of these tools; `token`: what the agent must show.
    pub(super) fn new(tools: &[TeamTool], token: String) -> Self {
        let (sends, calls) = mpsc::unbounded_channel();
        let (lists, is_listed) = watch::channel(false);
        let tools = Arc::new(OfferedTools {
            list: mcp::list(tools),
            calls: sends,
            is_listed: lists,
        });
        // A page in a browser could have a name of its own lead here.
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(["127.0.0.1", "localhost"])
            .enforce_origin_validation()
            .with_max_request_body_bytes(MAX_MESSAGE)
            .with_legacy_session_mode(false)
            .with_json_response(true);
        let served = move || Ok(Arc::clone(&tools));
        let server = StreamableHttpService::new(served, Arc::default(), config);
        Self {
            endpoint: Arc::new(Endpoint { token, server }),
            calls,
            is_listed,
        }
    }
}

/// Makes a token.
pub(super) fn new_token() -> String {
    format!("team-{}", Uuid::new_v4().simple())
}

impl TeamEndpoint for Endpoint {
    fn serves(&self, path: &str) -> bool {
        path == PATH
    }

    fn answer(&self, request: Request<Incoming>) -> Answering<'_> {
        Box::pin(async move {
            let response = self.respond(request).await;
            response.map(|body| body.map_err(|never| match never {}).boxed_unsync())
        })
    }
}

impl Endpoint {
    async fn respond(
        &self,
        mut request: Request<Incoming>,
    ) -> Response<BoxBody<Bytes, Infallible>> {
        if !self.is_of_agent(request.headers()) {
            return refusal::<Full<Bytes>>(StatusCode::UNAUTHORIZED, NO_TOKEN).map(BodyExt::boxed);
        }
        // It gets JSON, whatever it names: a client that names less is served all the same.
        let both = HeaderValue::from_static("application/json, text/event-stream");
        request.headers_mut().insert(ACCEPT, both);
        self.server.handle(request).await
    }

    /// Tells whether a request shows the token.
    fn is_of_agent(&self, headers: &HeaderMap) -> bool {
        let shown = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "));
        shown == Some(self.token.as_str())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Endpoint").finish_non_exhaustive()
    }
}

impl ServerHandler for OfferedTools {
    fn get_info(&self) -> ServerConfig {
        mcp::config()
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.is_listed.send_replace(true);
        Ok(self.list.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        // An agent may know the tools from an earlier process.
        self.is_listed.send_replace(true);
        let (reply, outcome) = oneshot::channel();
        let call = TeamCall {
            name: request.name.into_owned(),
            input: Value::Object(request.arguments.unwrap_or_default()),
            reply,
        };
        // Without a driver, the call is dropped, and has no outcome either.
        drop(self.calls.send(call));
        let outcome = outcome.await.unwrap_or_else(|_| Outcome::error(NO_OUTCOME));
        Ok(mcp::result(outcome).into())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use serde_json::json;
    use teamd_shared::member::{Gate, Sandbox};
    use teamd_worker_core::tools::Caller;
    use teamd_worker_sandbox::Gateway;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::watch;

    use super::*;

    /// Sends a request whose connection ends with it; returns its answer.
    async fn asks(port: u16, head: &str, body: &str) -> String {
        let mut agent = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let length = body.len();
        let request =
            format!("{head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
        agent.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        agent.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn only_the_agent_is_served_and_each_call_has_its_outcome() {
        let tools = Caller::Teammate.team_tools().map(|text| TeamTool {
            text,
            immediate_reply: None,
        });
        let tools: Vec<_> = tools.collect();
        let TeamServer {
            endpoint,
            mut calls,
            is_listed,
        } = TeamServer::new(&tools, "secret".to_owned());
        // It needs no model, and works behind a closed gate.
        let gateway = Gateway::new(&Sandbox::default(), false).with_team(Some(endpoint));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (_gate, wanted) = watch::channel(Gate::Closed);
        tokio::spawn(Arc::new(gateway).serve(vec![listener], wanted));

        let own = "host: 127.0.0.1:4141\r\nauthorization: Bearer secret\r\ncontent-type: application/json";
        let post = format!("POST /mcp HTTP/1.1\r\n{own}");
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
        let refused = asks(port, &post.replace("secret", "other"), &list).await;
        assert!(refused.contains("401") && !*is_listed.borrow());
        for (head, status) in [
            (post.clone(), "200"),
            (format!("GET /mcp HTTP/1.1\r\n{own}"), "405"),
            (format!("DELETE /mcp HTTP/1.1\r\n{own}"), "405"),
            (post.replace("secret", "other"), "401"),
            ("POST /mcp HTTP/1.1\r\nhost: localhost".to_owned(), "401"),
            (post.replace("127.0.0.1", "rebound.example"), "403"),
            (format!("{post}\r\norigin: https://x.example"), "403"),
            (post.replace("/mcp", "/mcpx"), "404"),
        ] {
            let answer = asks(port, &head, &list).await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")),
                "{head}: {answer}"
            );
            assert_eq!(
                answer.contains("\"send_message\""),
                status == "200",
                "{answer}"
            );
            assert!(*is_listed.borrow());
        }
        let asked = |method: &str, params: Value| {
            json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
        };
        let client = json!({"name": "agent", "version": "1"});
        let hello = |version: &str| json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
        let of_2026 = json!({"_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": client,
            "io.modelcontextprotocol/clientCapabilities": {},
        }});
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        for (body, expected) in [
            ("no json".to_owned(), "HTTP/1.1 415"),
            (initialized.to_string(), "HTTP/1.1 202"),
            (asked("no/such", json!({})), "-32601"),
            (asked("ping", json!({})), "\"result\":{}"),
            (
                asked("initialize", hello("2025-06-18")),
                "\"protocolVersion\":\"2025-06-18\"",
            ),
            (
                asked("initialize", hello("2199-01-01")),
                "\"protocolVersion\":\"2025-11-25\"",
            ),
        ] {
            let answer = asks(port, &post, &body).await;
            assert!(answer.contains(expected), "{body}: {answer}");
        }
        let head =
            format!("{post}\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: server/discover");
        let answer = asks(port, &head, &asked("server/discover", of_2026)).await;
        assert!(answer.contains("\"supportedVersions\""), "{answer}");
        let long = " ".repeat(MAX_MESSAGE + 1);
        assert!(asks(port, &post, &long).await.starts_with("HTTP/1.1 413"));

        let call = asked("tools/call", json!({"name": "task_list"}));
        let outcome = async {
            let TeamCall { name, input, reply } = calls.recv().await.unwrap();
            assert_eq!((name.as_str(), input), ("task_list", json!({})));
            reply.send(Outcome::ok("none")).unwrap();
            drop(calls.recv().await.unwrap());
        };
        let both = async {
            let answer = asks(port, &post, &call).await;
            assert!(answer.contains("\"text\":\"none\"") && answer.contains("\"id\":1"));
            let answer = asks(port, &post, &call).await;
            assert!(answer.contains("turn ended") && answer.contains("\"isError\":true"));
        };
        tokio::join!(outcome, both);
    }
}
