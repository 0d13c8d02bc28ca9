//! The team tools over HTTP: an MCP server ("streamable HTTP", whose answers are JSON) behind the
//! gateway of the agent. The driver gets each call, and replies with its outcome.
//!
//! The agent gets the token through its pipe alone. So a program that it starts does not find the
//! token in its environment.

use std::sync::Arc;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
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

/// What answers the requests.
#[derive(Debug)]
struct Endpoint {
    tools: Vec<TeamTool>,
    token: String,
    calls: mpsc::UnboundedSender<TeamCall>,
    is_listed: watch::Sender<bool>,
}

impl TeamServer {
    /// Makes the server of these tools; `token`: what the agent must show.
    pub(super) fn new(tools: Vec<TeamTool>, token: String) -> Self {
        let (sends, calls) = mpsc::unbounded_channel();
        let (lists, is_listed) = watch::channel(false);
        let endpoint = Arc::new(Endpoint {
            tools,
            token,
            calls: sends,
            is_listed: lists,
        });
        Self {
            endpoint,
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
    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if let Some((status, why)) = self.refuses(request.headers()) {
            return refusal(status, why);
        }
        // It sends no events of its own, and keeps no session that could be ended.
        if request.method() != Method::POST {
            let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "only POST is served");
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("POST"));
            return response;
        }
        let body = Limited::new(request.into_body(), MAX_MESSAGE).collect();
        let Ok(body) = body.await else {
            return refusal(StatusCode::PAYLOAD_TOO_LARGE, "the message is too long");
        };
        let Ok(message) = serde_json::from_slice::<Value>(&body.to_bytes()) else {
            return refusal(StatusCode::BAD_REQUEST, "the message is no JSON");
        };
        match self.answer_to(&message).await {
            Some(answer) => json_response(&answer),
            None => {
                let mut response = Response::new(Full::default());
                *response.status_mut() = StatusCode::ACCEPTED;
                response
            }
        }
    }

    /// Returns why a request is not served, if so.
    fn refuses(&self, headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text(HOST).unwrap_or_default();
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
        // A page in a browser could have a name of its own lead here.
        if !["127.0.0.1", "localhost"].contains(&host) || headers.contains_key(ORIGIN) {
            return Some((StatusCode::FORBIDDEN, "this server is for the agent alone"));
        }
        let shown = text(AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        if shown != Some(self.token.as_str()) {
            let why = "the team does not know this call: it does not show the token that the agent was given";
            return Some((StatusCode::UNAUTHORIZED, why));
        }
        None
    }

    /// Answers a message; none if it wants no answer.
    async fn answer_to(&self, message: &Value) -> Option<Value> {
        let id = message.get("id")?;
        let params = &message["params"];
        let result = match message["method"].as_str()? {
            "initialize" => mcp::welcome(params["protocolVersion"].as_str()),
            "ping" => json!({}),
            "tools/list" => {
                self.is_listed.send_replace(true);
                mcp::list(&self.tools)
            }
            // An agent may know the tools from an earlier process.
            "tools/call" => {
                self.is_listed.send_replace(true);
                self.call(params).await
            }
            _ => {
                let error = json!({"code": -32601, "message": "there is no such method"});
                return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
        };
        Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }

    async fn call(&self, params: &Value) -> Value {
        let (reply, outcome) = oneshot::channel();
        let input = match &params["arguments"] {
            Value::Null => json!({}),
            arguments => arguments.clone(),
        };
        let call = TeamCall {
            name: params["name"].as_str().unwrap_or_default().to_owned(),
            input,
            reply,
        };
        // Without a driver, the call is dropped, and has no outcome either.
        drop(self.calls.send(call));
        let outcome = outcome.await.unwrap_or_else(|_| Outcome::error(NO_OUTCOME));
        mcp::outcome(&outcome.content, outcome.is_error)
    }
}

fn json_response(answer: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(answer.to_string()));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

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
        let TeamServer {
            endpoint,
            mut calls,
            is_listed,
        } = TeamServer::new(tools.collect(), "secret".to_owned());
        // It needs no model, and works behind a closed gate.
        let gateway = Gateway::new(&Sandbox::default(), false).with_team(Some(endpoint));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (_gate, wanted) = watch::channel(Gate::Closed);
        tokio::spawn(Arc::new(gateway).serve(vec![listener], wanted));

        let own = "host: 127.0.0.1:4141\r\nauthorization: Bearer secret";
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
        for (body, expected) in [
            ("no json", "HTTP/1.1 400"),
            ("[]", "HTTP/1.1 202"),
            (
                "{\"method\": \"notifications/initialized\"}",
                "HTTP/1.1 202",
            ),
            ("{\"id\": 1, \"method\": \"server/discover\"}", "-32601"),
            ("{\"id\": 1, \"method\": \"ping\"}", "\"result\":{}"),
            (
                "{\"id\": 1, \"method\": \"initialize\", \"params\": {\"protocolVersion\": \"2025-06-18\"}}",
                "\"protocolVersion\":\"2025-06-18\"",
            ),
        ] {
            let answer = asks(port, &post, body).await;
            assert!(answer.contains(expected), "{body}: {answer}");
        }
        let long = " ".repeat(MAX_MESSAGE + 1);
        assert!(asks(port, &post, &long).await.starts_with("HTTP/1.1 413"));

        let body = json!({"id": 7, "method": "tools/call", "params": {"name": "task_list"}});
        let call = body.to_string();
        let outcome = async {
            let TeamCall { name, input, reply } = calls.recv().await.unwrap();
            assert_eq!((name.as_str(), input), ("task_list", json!({})));
            reply.send(Outcome::ok("none")).unwrap();
            drop(calls.recv().await.unwrap());
        };
        let both = async {
            let answer = asks(port, &post, &call).await;
            assert!(answer.contains("\"text\":\"none\"") && answer.contains("\"id\":7"));
            let answer = asks(port, &post, &call).await;
            assert!(answer.contains("turn ended") && answer.contains("\"isError\":true"));
        };
        tokio::join!(outcome, both);
    }
}
