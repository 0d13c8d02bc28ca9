//! The team tools as an MCP server describes them, whatever carries its messages.

use serde_json::{Value, json};

use super::TeamTool;

/// The version of MCP that is spoken, where the agent names none.
const VERSION: &str = "2025-11-25";

/// Returns the result of `initialize`, given the version that the agent asks for.
pub(super) fn welcome(version: Option<&str>) -> Value {
    json!({
        "protocolVersion": version.unwrap_or(VERSION),
        "capabilities": {"tools": {}}, "serverInfo": {"name": "team", "version": "1"},
    })
}

/// Returns the result of `tools/list`.
pub(super) fn list(tools: &[TeamTool]) -> Value {
    let entries = tools.iter().map(|tool| {
        let text = &tool.text;
        json!({"name": text.name, "description": text.description, "inputSchema": text.input})
    });
    json!({"tools": entries.collect::<Vec<_>>()})
}

/// Returns the result of `tools/call`.
pub(super) fn outcome(content: &str, is_error: bool) -> Value {
    json!({"content": [{"type": "text", "text": content}], "isError": is_error})
}
