//! A client of `teamctl mcp` that speaks raw JSON-RPC on its pipes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Team, poll_until, signal};

/// The version of the protocol that the client names.
const PROTOCOL: &str = "2025-11-25";

/// A client, and the server that it has started.
pub(crate) struct McpClient {
    server: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    last_id: u64,
    /// What the server answered to `initialize`.
    pub(crate) initialized: Value,
}

/// What a call of a tool answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolResult {
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

impl ToolResult {
    /// The cursor that it ends with.
    #[track_caller]
    pub(crate) fn cursor(&self) -> u64 {
        let last = self.text.lines().last().unwrap_or_default();
        let cursor = last.strip_prefix("cursor: ");
        cursor
            .unwrap_or_else(|| panic!("{self:?}"))
            .parse()
            .unwrap()
    }

    /// What it says before what came for the lead.
    pub(crate) fn said(&self) -> &str {
        self.text.split("\n\n").next().unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert!(!self.is_error, "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn failed(self) -> Self {
        assert!(self.is_error, "{self:?}");
        self
    }
}

impl McpClient {
    /// Starts the server, and introduces itself.
    pub(crate) fn start(team: &Team) -> Self {
        Self::run(team.command(env!("CARGO_BIN_EXE_teamctl"), ["mcp"]))
    }

    /// As [`McpClient::start`], by another command.
    pub(crate) fn run(mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut server = command.spawn().unwrap();
        let mut client = Self {
            stdin: server.stdin.take(),
            stdout: BufReader::new(server.stdout.take().unwrap()),
            server,
            last_id: 0,
            initialized: Value::Null,
        };
        let hello = json!({
            "protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
        });
        client.initialized = client.ask("initialize", hello)["result"].clone();
        client.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    /// Writes a message.
    pub(crate) fn write(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{message}").unwrap();
    }

    /// Sends a request, and returns its id.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Sends a request, and waits for its answer.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer_to(id)
    }

    /// Waits for the answer to a request; passes over others.
    pub(crate) fn answer_to(&mut self, id: u64) -> Value {
        loop {
            let mut line = String::new();
            let length = self.stdout.read_line(&mut line).unwrap();
            assert!(length > 0, "the server has ended");
            let message: Value =
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if message["id"] == id {
                return message;
            }
        }
    }

    /// Calls a tool.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, input: Value) -> ToolResult {
        let answer = self.ask("tools/call", json!({"name": tool, "arguments": input}));
        let result = &answer["result"];
        let content = result["content"].as_array();
        let content = content.unwrap_or_else(|| panic!("{answer}"));
        assert_eq!(content.len(), 1, "{answer}");
        assert_eq!(content[0]["type"], "text", "{answer}");
        assert_eq!(result["structuredContent"], Value::Null, "{answer}");
        ToolResult {
            text: content[0]["text"].as_str().unwrap().to_owned(),
            is_error: result["isError"] == true,
        }
    }

    /// Kills the server.
    pub(crate) fn kill(mut self) {
        signal(i32::try_from(self.server.id()).unwrap(), Signal::SIGKILL);
        self.server.wait().unwrap();
    }

    /// Closes its end, and waits until the server has ended.
    #[track_caller]
    pub(crate) fn close(mut self) {
        drop(self.stdin.take());
        let has_ended = poll_until(&mut || self.server.try_wait().unwrap().is_some());
        assert!(has_ended, "the server goes on without a client");
        assert!(self.server.wait().unwrap().success());
    }
}
