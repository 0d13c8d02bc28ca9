//! A fake model server for one test: it speaks both APIs (and to programs of others the newer one
//! of OpenAI, and that of Google), does what the test tells it, records what it is asked, refuses what the real
//! services refuse, and bills as they do.
//!
//! A request that breaks a rule of its API is answered with the API's own error, and fails the test
//! when the server is dropped.

mod bill;
mod http;
mod openai_rules;
mod reply;
mod rules;
mod speak;

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};

use super::Team;
pub(crate) use bill::Bill;
use bill::Till;
pub(crate) use reply::Reply;
use speak::Speech;

/// The key that the server takes.
pub(crate) const KEY: &str = "sk-fake-0123456789-never-to-be-seen";

/// Which API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Anthropic,
    OpenAi,
    /// OpenAI's newer one, for programs of others.
    Responses,
    /// Google's, for programs of others.
    Google,
}

impl Api {
    /// How `--model` names it, with a model that does not exist.
    pub(crate) fn model(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic:fake",
            Self::OpenAi | Self::Responses => "openai:fake",
            Self::Google => "google:fake",
        }
    }
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) api: Api,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
    pub(crate) at: Instant,
    /// What was billed; nothing if it was not answered.
    pub(crate) bill: Bill,
}

impl Request {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self
            .headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }

    /// Whether the lead agent asks.
    pub(crate) fn is_of_lead(&self) -> bool {
        self.body.to_string().contains("You lead a team of agents")
    }

    /// The id of the last plan that the lead agent was told of.
    pub(crate) fn plan_id(&self) -> Option<String> {
        let all = self.body.to_string();
        let (_, behind) = all.rsplit_once("<plan_approval_request")?;
        let (_, behind) = behind.split_once("request_id=")?;
        let id: String = behind
            .trim_start_matches(['\\', '"'])
            .chars()
            .take_while(char::is_ascii_hexdigit)
            .collect();
        (!id.is_empty()).then_some(id)
    }

    /// Whether the text stands anywhere in the conversation.
    pub(crate) fn mentions(&self, text: &str) -> bool {
        let quoted = json!(text).to_string();
        let told = match self.api {
            Api::Responses => "input",
            Api::Google => "contents",
            Api::Anthropic | Api::OpenAi => "messages",
        };
        self.body[told]
            .to_string()
            .contains(quoted.trim_matches('"'))
    }
}

type Answering = Box<dyn FnMut(&Request) -> Reply + Send>;

#[derive(Default)]
struct State {
    queue: VecDeque<Reply>,
    answering: Option<Answering>,
    requests: Vec<Request>,
    broken: Vec<String>,
    /// The answers that were paused: each may be sent back as the last word.
    paused: Vec<Value>,
    till: Till,
    calls: usize,
    /// Whether the client is a program of others, whose requests are not examined.
    is_foreign: bool,
    over: bool,
}

/// The server.
pub(crate) struct ModelServer {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
}

impl ModelServer {
    /// Starts one that answers `done` to everything.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let served = Arc::clone(&state);
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                if lock(&served).over {
                    return;
                }
                let state = Arc::clone(&served);
                std::thread::spawn(move || serve(&connection, &state));
            }
        });
        Self { state, address }
    }

    /// Starts one whose answers follow from the requests.
    pub(crate) fn answering(answer: impl FnMut(&Request) -> Reply + Send + 'static) -> Self {
        let server = Self::start();
        lock(&server.state).answering = Some(Box::new(answer));
        server
    }

    /// As [`ModelServer::answering`], for the requests of a program that is not ours.
    pub(crate) fn answering_any_client(
        answer: impl FnMut(&Request) -> Reply + Send + 'static,
    ) -> Self {
        let server = Self::answering(answer);
        lock(&server.state).is_foreign = true;
        server
    }

    /// Queues a reply.
    pub(crate) fn replies(&self, reply: Reply) -> &Self {
        lock(&self.state).queue.push_back(reply);
        self
    }

    /// Queues a text.
    pub(crate) fn says(&self, text: &str) -> &Self {
        self.replies(Reply::text(text))
    }

    /// Queues a call.
    pub(crate) fn calls(&self, tool: &str, input: Value) -> &Self {
        self.replies(Reply::call(tool, input))
    }

    /// Queues an error with the API's usual words for the status.
    pub(crate) fn fails(&self, status: u16) -> &Self {
        self.replies(Reply::fail(status))
    }

    /// Where it is, without a path.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A team whose members find the server and the key in the environment of every command.
    pub(crate) fn team(&self) -> Team {
        self.team_with_key(KEY)
    }

    /// As [`ModelServer::team`], with another key; with an empty one there is none.
    pub(crate) fn team_with_key(&self, key: &str) -> Team {
        let team = Team::new()
            .with("ANTHROPIC_BASE_URL", &self.url())
            .with("ANTHROPIC_API_KEY", key)
            .with("OPENAI_BASE_URL", &format!("{}/v1", self.url()))
            .with("OPENAI_API_KEY", key)
            .with("GOOGLE_GEMINI_BASE_URL", &self.url())
            .with("GEMINI_API_KEY", key);
        team.teamd(["start"]).ok();
        team
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        lock(&self.state).requests.clone()
    }

    /// How many requests there were so far.
    pub(crate) fn asked(&self) -> usize {
        lock(&self.state).requests.len()
    }

    /// Whether a request that came after that many mentions a text.
    pub(crate) fn mentioned(&self, after: usize, text: &str) -> bool {
        lock(&self.state)
            .requests
            .iter()
            .skip(after)
            .any(|request| request.mentions(text))
    }

    /// The last request.
    pub(crate) fn last(&self) -> Request {
        self.requests().pop().unwrap()
    }

    /// The rules that were broken so far; then they do not fail the test any more.
    pub(crate) fn broken_rules(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.state).broken)
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        lock(&self.state).over = true;
        drop(TcpStream::connect(self.address));
        let broken = self.broken_rules();
        assert!(
            broken.is_empty() || std::thread::panicking(),
            "requests broke rules: {broken:#?}"
        );
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves a connection until either side has enough.
fn serve(connection: &TcpStream, state: &Mutex<State>) {
    while let Some(asked) = http::read(connection) {
        let (speech, reply) = decide(asked, state);
        if !speak::speak(connection, &speech, reply) {
            return;
        }
    }
}

fn decide(asked: http::Asked, state: &Mutex<State>) -> (Speech, Reply) {
    let mut state = lock(state);
    let path = asked.path.split('?').next().unwrap_or_default();
    let api = match path.rsplit('/').next() {
        Some("messages") => Api::Anthropic,
        Some("responses") => Api::Responses,
        Some(call) if call.contains(':') => Api::Google,
        _ => Api::OpenAi,
    };
    let body = serde_json::from_slice(&asked.body).unwrap_or_default();
    let mut request = Request {
        api,
        headers: asked.headers,
        body,
        at: Instant::now(),
        bill: Bill::default(),
    };
    let refused = refusal(path, &request, &state.paused);
    let mut reply = match refused.filter(|(status, _)| *status != 400 || !state.is_foreign) {
        Some((status, why)) => {
            if status == 400 {
                state.broken.push(why.clone());
            }
            Reply::fail(status).saying(&why)
        }
        None => next(&mut state, &request),
    };
    state.paused.extend(reply.paused());
    let begin = state.calls;
    reply.name_calls(api, &mut state.calls);
    if state.calls > begin || reply.is_answer() {
        request.bill = state.till.bill(api, &request.body, reply.bytes());
    }
    let streams = request.body["stream"] == true || path.ends_with(":streamGenerateContent");
    let counts = request.body["stream_options"]["include_usage"] == true;
    let speech = Speech {
        api,
        bill: request.bill,
        streams,
        counts,
    };
    state.requests.push(request);
    (speech, reply)
}

fn next(state: &mut State, request: &Request) -> Reply {
    if let Some(reply) = state.queue.pop_front() {
        return reply;
    }
    match &mut state.answering {
        Some(answer) => answer(request),
        None => Reply::text("done"),
    }
}

/// Why the real service would not answer.
fn refusal(path: &str, request: &Request, paused: &[Value]) -> Option<(u16, String)> {
    let (wanted, key, expected) = match request.api {
        Api::Anthropic => ("/v1/messages", request.header("x-api-key"), KEY.to_owned()),
        Api::OpenAi => (
            "/v1/chat/completions",
            request.header("authorization"),
            format!("Bearer {KEY}"),
        ),
        Api::Responses => (
            "/v1/responses",
            request.header("authorization"),
            format!("Bearer {KEY}"),
        ),
        Api::Google => (
            google_path(path),
            request.header("x-goog-api-key"),
            KEY.to_owned(),
        ),
    };
    // As a proxy it is asked with the whole address.
    if path.strip_prefix("http://models.invalid").unwrap_or(path) != wanted {
        return Some((404, format!("there is nothing at {path}")));
    }
    if key != expected {
        return Some((401, format!("Incorrect API key provided: {key}")));
    }
    if request.body["model"] == "unknown" {
        return Some((404, "model: unknown".to_owned()));
    }
    let broken = match request.api {
        Api::Anthropic => rules::check(request, paused),
        Api::OpenAi => openai_rules::check(request),
        // Only programs of others speak them.
        Api::Responses | Api::Google => return None,
    };
    broken.err().map(|why| (400, why))
}

/// The path, if it is one at which Google answers for a model.
fn google_path(path: &str) -> &str {
    let call = path.strip_prefix("/v1beta/models/");
    let call = call.and_then(|call| call.split_once(':'));
    match call {
        Some((_, "generateContent" | "streamGenerateContent")) => path,
        _ => "/v1beta/models/MODEL:generateContent",
    }
}
