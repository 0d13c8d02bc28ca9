//! The team tools as an MCP server describes them, whatever carries its messages.

use rmcp::model::{
    CallToolResult, ContentBlock, Implementation, ListToolsResult, ProtocolVersion,
    ServerCapabilities, ServerConfig, Tool,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::TeamTool;
use teamd_worker_core::tools::Outcome;

/// Returns what the server tells of itself.
pub(super) fn config() -> ServerConfig {
    let capabilities = ServerCapabilities::builder().enable_tools().build();
    ServerConfig::new(capabilities)
        .with_server_info(Implementation::new("team", "1"))
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
}

/// Returns the result of `initialize`, in the version that its parameters ask for.
pub(super) fn welcome(params: &Value) -> ServerConfig {
    match ProtocolVersion::deserialize(&params["protocolVersion"]) {
        Ok(version) => config().with_protocol_version(version),
        Err(_) => config(),
    }
}

/// Returns the result of `tools/list`.
pub(super) fn list(tools: &[TeamTool]) -> ListToolsResult {
    let entries = tools.iter().map(|tool| {
        let text = &tool.text;
        let input = match &text.input {
            Value::Object(input) => input.clone(),
            _ => Map::new(),
        };
        Tool::new(text.name, text.description.clone(), input)
    });
    ListToolsResult::with_all_items(entries.collect())
}

/// Returns the result of `tools/call`: the text, and behind it the images.
pub(super) fn result(outcome: Outcome) -> CallToolResult {
    let mut content = vec![ContentBlock::text(outcome.content)];
    for image in outcome.images {
        content.push(ContentBlock::image(
            image.data,
            image.media_type.media_type(),
        ));
    }
    if outcome.is_error {
        CallToolResult::error(content)
    } else {
        CallToolResult::success(content)
    }
}
