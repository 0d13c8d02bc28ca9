//! Transcripts: what a worker that resumes uses of the conversation.

use std::collections::HashSet;

use teamd_shared::json;
use teamd_shared::transcript::{Block, Entry, Event};

use super::lines::{each_line, unreadable};
use super::{Remark, RemarkPlace};

/// Reads a transcript as a worker does that resumes.
pub(in crate::commands) fn lint(bytes: &[u8]) -> Vec<Remark> {
    const PASSED: &str = "skipped when the conversation continues";
    let mut remarks = Vec::new();
    let mut open = HashSet::new();
    let torn = each_line(
        bytes,
        "the next incarnation sets it aside",
        |number, line| match json::read::<Entry>(line) {
            Ok(entry) => {
                if !follow(&mut open, entry.event) {
                    let what = "it is the result of no call, or a second one";
                    remarks.push(Remark::error(RemarkPlace::of(number, 1), what, PASSED));
                }
            }
            Err(error) => remarks.push(unreadable(number, line, &error.to_string(), PASSED)),
        },
    );
    remarks.extend(torn);
    remarks
}

/// Follows the conversation by one entry; `open` has the calls without a result. Returns false for
/// the result of no call, or a second one.
fn follow(open: &mut HashSet<String>, event: Event) -> bool {
    match event {
        // A new conversation leaves the calls of the one before behind.
        Event::Incarnation {
            incarnation,
            conversation,
            ..
        } if incarnation == conversation => open.clear(),
        Event::Answer { content, .. } => {
            // An agent may say more before a call of it has its result.
            open.extend(content.into_iter().filter_map(|block| match block {
                Block::ToolUse { id, .. } => Some(id),
                Block::Text { .. } | Block::Opaque { .. } => None,
            }));
        }
        Event::Result { tool_use_id, .. } => return open.remove(&tool_use_id),
        // The worker gave up its work: its calls no longer get results.
        Event::Left { .. } => open.clear(),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn told(entries: &[Value]) -> Vec<String> {
        let line = |entry: &Value| {
            let mut line = json!({"at": 1.0, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}});
            line.as_object_mut()
                .unwrap()
                .extend(entry.as_object().unwrap().clone());
            format!("{line}\n")
        };
        let lines: String = entries.iter().map(line).collect();
        lint(lines.as_bytes())
            .iter()
            .map(|it| format!("{}: {}", it.line, it.what))
            .collect()
    }

    fn answer(ids: &[&str]) -> Value {
        let calls: Vec<_> = ids
            .iter()
            .map(|id| json!({"type": "tool_use", "id": id, "name": "bash", "input": {}}))
            .collect();
        json!({"entry": "answer", "content": calls, "usage": {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}})
    }

    fn result(id: &str) -> Value {
        json!({"entry": "result", "tool_use_id": id, "content": "", "is_error": false})
    }

    #[test]
    fn a_line_that_is_no_entry_is_told() {
        let left = json!({"entry": "left", "reason": "x", "incarnation": 1});
        assert_eq!(told(std::slice::from_ref(&left)), [""; 0]);
        let unknown = told(&[left, json!({"entry": "gone"})]);
        assert!(
            unknown[0].starts_with("2: unknown variant `gone`"),
            "{unknown:?}"
        );
    }

    #[test]
    fn a_result_of_no_call_or_a_second_one_is_told() {
        let both = [answer(&["a", "b"]), result("a"), result("b"), answer(&[])];
        assert_eq!(told(&both), [""; 0]);
        assert_eq!(told(&both[..2]), [""; 0]);
        let beside = [
            answer(&["a"]),
            answer(&["b"]),
            answer(&[]),
            result("b"),
            result("a"),
        ];
        assert_eq!(told(&beside), [""; 0]);
        let twice = [answer(&["a"]), result("a"), result("a")];
        assert_eq!(
            told(&twice),
            ["3: it is the result of no call, or a second one"]
        );
        let fresh =
            json!({"entry": "incarnation", "incarnation": 2, "conversation": 2, "prompt": null});
        assert_eq!(
            told(&[answer(&["a"]), fresh, answer(&["a"]), result("a")]),
            [""; 0]
        );
    }
}
