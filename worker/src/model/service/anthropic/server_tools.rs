//! What an answer says of tools that ran at the service. Pure.

use std::collections::HashSet;

use serde_json::Value;

/// Takes out every use without a result behind it, and every result without a use before it: an answer that was cut, or
/// paused and not gone on with, may hold such a one, and the service refuses it.
pub(super) fn pair(content: &mut Vec<Value>) {
    let mut used = HashSet::new();
    let mut paired = HashSet::new();
    for block in content.iter() {
        if let Some(id) = use_of(block) {
            used.insert(id.to_owned());
        } else if let Some(id) = result_of(block)
            && used.contains(id)
        {
            paired.insert(id.to_owned());
        }
    }
    let mut seen = HashSet::new();
    content.retain(|block| match (use_of(block), result_of(block)) {
        (Some(id), _) => paired.contains(id) && seen.insert(id.to_owned()),
        (None, Some(id)) => seen.contains(id),
        (None, None) => true,
    });
}

/// Returns the id of a use: `server_tool_use`, `mcp_tool_use`.
fn use_of(block: &Value) -> Option<&str> {
    let kind = block["type"].as_str()?;
    kind.ends_with("_tool_use").then(|| block["id"].as_str().unwrap_or_default())
}

/// Returns which use a result belongs to: `web_search_tool_result` and the like. A plain `tool_result` is ours.
fn result_of(block: &Value) -> Option<&str> {
    let kind = block["type"].as_str()?;
    kind.ends_with("_tool_result").then(|| block["tool_use_id"].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_without_the_other_is_left_out() {
        let used = |id: &str| json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {}});
        let found = |id: &str| json!({"type": "web_search_tool_result", "tool_use_id": id, "content": []});
        let text = || json!({"type": "text", "text": "so"});
        let ours = || json!({"type": "tool_use", "id": "t", "name": "bash", "input": {}});
        for (mut content, left) in [
            (vec![text(), used("a"), found("a"), ours()], vec![text(), used("a"), found("a"), ours()]),
            (vec![text(), used("a")], vec![text()]),
            (vec![found("a"), text()], vec![text()]),
            (vec![found("a"), used("a"), text()], vec![text()]),
            (vec![used("a"), used("b"), found("b")], vec![used("b"), found("b")]),
            (
                vec![used("a"), used("b"), found("b"), found("a")],
                vec![used("a"), used("b"), found("b"), found("a")],
            ),
            (vec![used("a"), used("a"), found("a")], vec![used("a"), found("a")]),
        ] {
            pair(&mut content);
            assert_eq!(content, left);
        }
    }
}
