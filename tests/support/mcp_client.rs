//! A client of `teamctl mcp` that speaks raw JSON-RPC on its pipes.

use std::process::Command;

use serde_json::{Value, json};

use super::Team;
use super::json_rpc::JsonRpcClient;

/// The version of the protocol that the client names.
const PROTOCOL: &str = "2025-11-25";

/// A client, and the server that it has started.
pub(crate) struct McpClient {
    rpc: JsonRpcClient,
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
    pub(crate) fn run(command: Command) -> Self {
        let mut client = Self {
            rpc: JsonRpcClient::run(command),
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
        self.rpc.write(message);
    }

    /// Sends a request, and returns its id.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        self.rpc.send(method, params)
    }

    /// Sends a request, and waits for its answer.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer_to(id)
    }

    /// Waits for the answer to a request; passes over others.
    pub(crate) fn answer_to(&mut self, id: u64) -> Value {
        self.rpc.answer_to(id)
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
    pub(crate) fn kill(self) {
        self.rpc.kill();
    }

    /// Closes its end, and waits until the server has ended.
    #[track_caller]
    pub(crate) fn close(self) {
        self.rpc.close();
    }
}
