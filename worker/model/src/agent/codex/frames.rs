//! Parts of the lines of Codex, without a state.

use serde_json::{Value, json};
use teamd_shared::transcript::Usage;
use teamd_worker_core::tools::Outcome;

use super::super::{TeamTool, number_of, why_it_failed};

/// Returns a team tool as the agent gets it.
pub(super) fn shown(tool: &TeamTool) -> Value {
    let text = &tool.text;
    json!({"type": "function", "name": text.name, "description": text.description, "inputSchema": text.input})
}

/// Returns why a turn has failed; none if it has not.
pub(super) fn how_it_ended(turn: &Value) -> Option<String> {
    match turn["status"].as_str() {
        Some("completed") => None,
        Some("failed") => Some(failure(&turn["error"])),
        other => Some(format!(
            "its turn is {}",
            other.unwrap_or("over, without a status")
        )),
    }
}

pub(super) fn failure(error: &Value) -> String {
    let kinds = error["codexErrorInfo"].as_object();
    let status = kinds.and_then(|kinds| {
        kinds
            .values()
            .find_map(|kind| kind["httpStatusCode"].as_u64())
    });
    let texts = ["message", "additionalDetails"]
        .into_iter()
        .filter_map(|name| error[name].as_str());
    why_it_failed(status, &texts.collect::<Vec<_>>().join(": "))
}

pub(super) fn usage(value: &Value) -> Usage {
    let read = number_of(&value["cachedInputTokens"]);
    let written = number_of(&value["cacheWriteInputTokens"]);
    Usage {
        input_tokens: number_of(&value["inputTokens"]).saturating_sub(read + written),
        output_tokens: number_of(&value["outputTokens"]),
        cache_read_input_tokens: read,
        cache_creation_input_tokens: written,
    }
}

pub(super) fn tool_result(request: &Value, outcome: &Outcome) -> String {
    let mut items = vec![json!({"type": "inputText", "text": outcome.content})];
    for image in &outcome.images {
        items.push(json!({"type": "inputImage", "imageUrl": image.data_url()}));
    }
    line(&json!({"id": request, "result": {"success": !outcome.is_error, "contentItems": items}}))
}

pub(super) fn line(frame: &Value) -> String {
    format!("{frame}\n")
}
