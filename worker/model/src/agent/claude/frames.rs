//! Parts of the lines of Claude Code, without a state.

use serde::Serialize;
use serde_json::{Value, json};
use teamd_shared::transcript::Usage;

use super::super::{AgentOutput, number_of};

/// Returns the outcomes of its own tools that a message holds.
pub(super) fn outcomes(content: &Value) -> Vec<AgentOutput> {
    let results = content
        .as_array()
        .into_iter()
        .flatten()
        .filter(|block| block["type"] == "tool_result");
    results
        .map(|block| {
            let id = block["tool_use_id"].as_str().unwrap_or_default().to_owned();
            let parts = block["content"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|part| part["text"].as_str());
            let content = block["content"]
                .as_str()
                .map_or_else(|| parts.collect::<Vec<_>>().join("\n"), str::to_owned);
            AgentOutput::Outcome {
                id,
                content,
                is_error: block["is_error"] == true,
            }
        })
        .collect()
}

pub(super) fn usage_of(value: &Value) -> Usage {
    Usage {
        input_tokens: number_of(&value["input_tokens"]),
        output_tokens: number_of(&value["output_tokens"]),
        cache_read_input_tokens: number_of(&value["cache_read_input_tokens"]),
        cache_creation_input_tokens: number_of(&value["cache_creation_input_tokens"]),
    }
}

pub(super) fn mcp_result(request: &Value, id: &Value, result: &impl Serialize) -> String {
    success(
        request,
        &json!({"mcp_response": {"jsonrpc": "2.0", "id": id, "result": result}}),
    )
}

pub(super) fn success(request: &Value, response: &Value) -> String {
    line(
        &json!({"type": "control_response", "response": {"subtype": "success", "request_id": request, "response": response}}),
    )
}

pub(super) fn refused(request: &Value, why: &str) -> String {
    line(
        &json!({"type": "control_response", "response": {"subtype": "error", "request_id": request, "error": why}}),
    )
}

pub(super) fn line(frame: &Value) -> String {
    format!("{frame}\n")
}
