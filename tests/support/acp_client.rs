//! A client of `teamctl acp` that speaks raw JSON-RPC on its pipes.

use serde_json::{Value, json};

use super::Team;
use super::json_rpc::JsonRpcClient;

/// A client, the server that it has started, and what it was told until now.
pub(crate) struct AcpClient {
    pub(crate) rpc: JsonRpcClient,
    /// What the server answered to `initialize`.
    pub(crate) initialized: Value,
    /// The updates, in order.
    pub(crate) updates: Vec<Value>,
    /// The questions that are not answered yet.
    pub(crate) questions: Vec<Value>,
    /// The notifications of the protocol itself.
    pub(crate) others: Vec<Value>,
}

impl AcpClient {
    /// Starts the server with these arguments, and introduces itself.
    pub(crate) fn start<const N: usize>(team: &Team, arguments: [&str; N]) -> Self {
        let all: Vec<&str> = ["acp"].into_iter().chain(arguments).collect();
        let command = team.command(env!("CARGO_BIN_EXE_teamctl"), all);
        let mut client = Self {
            rpc: JsonRpcClient::run(command),
            initialized: Value::Null,
            updates: Vec::new(),
            questions: Vec::new(),
            others: Vec::new(),
        };
        let hello = json!({"protocolVersion": 1, "clientCapabilities": {}});
        client.initialized = client.ask("initialize", hello)["result"].clone();
        client
    }

    /// Opens a session in the workspace, and returns its id.
    #[track_caller]
    pub(crate) fn open(&mut self, team: &Team) -> String {
        let answer = self.ask("session/new", json!({"cwd": team.root(), "mcpServers": []}));
        let id = answer["result"]["sessionId"].as_str();
        id.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Sends a prompt, and returns the id of the request.
    pub(crate) fn send_prompt(&mut self, session: &str, text: &str) -> u64 {
        let content = json!([{"type": "text", "text": text}]);
        self.rpc.send(
            "session/prompt",
            json!({"sessionId": session, "prompt": content}),
        )
    }

    /// Sends a prompt, and waits for its end.
    #[track_caller]
    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> Value {
        let id = self.send_prompt(session, text);
        self.answer_to(id)
    }

    /// Sends a request, and waits for its answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.rpc.send(method, params);
        self.answer_to(id)
    }

    /// Waits for the answer to a request.
    #[track_caller]
    pub(crate) fn answer_to(&mut self, id: u64) -> Value {
        loop {
            let frame = self.next();
            if frame["id"] == id && frame["method"].is_null() {
                return frame;
            }
        }
    }

    /// Waits until the updates have this.
    #[track_caller]
    pub(crate) fn until_told(&mut self, text: &str) {
        while !self.told().contains(text) {
            self.next();
        }
    }

    /// Waits for a question, and returns it.
    #[track_caller]
    pub(crate) fn question(&mut self) -> Value {
        loop {
            if let Some(question) = self.questions.pop() {
                return question;
            }
            self.next();
        }
    }

    /// Answers a question.
    pub(crate) fn select(&mut self, question: &Value, option: &str) {
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": option}});
        let id = &question["id"];
        self.rpc
            .write(&json!({"jsonrpc": "2.0", "id": id, "result": outcome}));
    }

    /// All updates as text.
    pub(crate) fn told(&self) -> String {
        let lines: Vec<String> = self.updates.iter().map(Value::to_string).collect();
        lines.join("\n")
    }

    #[track_caller]
    fn next(&mut self) -> Value {
        let frame = self.rpc.next();
        let frame = frame.unwrap_or_else(|| panic!("the server has ended: {}", self.told()));
        match frame["method"].as_str() {
            Some("session/update") => self.updates.push(frame["params"]["update"].clone()),
            Some("session/request_permission") => self.questions.push(frame.clone()),
            Some(_) => self.others.push(frame.clone()),
            None => {}
        }
        frame
    }
}
