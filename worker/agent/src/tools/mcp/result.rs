//! What a model gets of the result of a tool: text, and a word about everything else.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use teamd_worker_core::mcp::visible;
use teamd_worker_core::tools::Outcome;

/// How much of a result a model gets, in bytes.
pub(super) const MAX_RESULT: usize = 100_000;

/// Makes the outcome of a call.
pub(super) fn outcome_of(result: CallToolResult) -> Outcome {
    let mut parts: Vec<String> = result.content.iter().map(text_of).collect();
    if parts.is_empty()
        && let Some(structured) = &result.structured_content
    {
        parts.push(structured.to_string());
    }
    let text = visible(&parts.join("\n"));
    let content = if text.is_empty() {
        "(no content)".to_owned()
    } else {
        text
    };
    Outcome {
        content,
        is_error: result.is_error.unwrap_or(false),
    }
}

fn text_of(content: &ContentBlock) -> String {
    match content {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => format!(
            "[an image, {}, {} bytes in base64: not shown]",
            image.mime_type,
            image.data.len()
        ),
        ContentBlock::Audio(audio) => format!("[audio, {}: not shown]", audio.mime_type),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("{uri}\n{text}"),
            ResourceContents::BlobResourceContents { uri, .. } => {
                format!("[{uri}: not text, and not shown]")
            }
            _ => "[a resource that is not shown]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[{}: {}]", link.name, link.uri),
        _ => "[content of a kind that is not shown]".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outcome(result: serde_json::Value) -> Outcome {
        outcome_of(serde_json::from_value(result).unwrap())
    }

    #[test]
    fn a_result_reaches_the_model_as_visible_text() {
        let told = outcome(json!({"content": [
            {"type": "text", "text": "one\u{1b}[2J\u{202e}"},
            {"type": "image", "mimeType": "image/png", "data": "aGk="},
            {"type": "resource", "resource": {"uri": "file:///x", "text": "two"}},
        ]}));
        let expected =
            "one[2J\n[an image, image/png, 4 bytes in base64: not shown]\nfile:///x\ntwo";
        assert_eq!(told, Outcome::ok(expected));
        let structured =
            outcome(json!({"content": [], "structuredContent": {"a": 1}, "isError": true}));
        assert_eq!(structured, Outcome::error("{\"a\":1}"));
        assert_eq!(outcome(json!({"content": []})).content, "(no content)");
    }
}
