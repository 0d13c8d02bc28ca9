//! An entry of a transcript as people read it: whole, behind its time.

use teamd_client::print::render::{BAD, BOLD, DIM, under};
use teamd_client::print::style::paint;
use teamd_client::print::{clock, escape};
use teamd_shared::json;
use teamd_shared::transcript::Entry;
use teamd_view::model::{ConversationPart, parts};

/// Shows one entry of a transcript; as it is, if a newer program wrote it. An entry that only
/// counts is not shown.
pub(crate) fn entry(line: &[u8]) -> String {
    let Ok(entry) = json::read::<Entry>(line) else {
        return escape::text(&String::from_utf8_lossy(line)).into_owned();
    };
    let mut parts: Vec<String> = parts(&entry.event, false).iter().map(part).collect();
    // What a subagent did stands further in.
    if entry.call.is_some() {
        for part in &mut parts {
            *part = format!("    {}", part.replace('\n', "\n    "));
        }
    }
    if parts.is_empty() {
        return String::new();
    }
    format!(
        "{} {}",
        paint(DIM, clock::time_of_day(entry.at)),
        parts.join("\n  ")
    )
}

fn part(part: &ConversationPart) -> String {
    match part {
        ConversationPart::Said { from, text } => {
            under(&paint(BOLD, format_args!("{}:", escape::line(from))), text)
        }
        ConversationPart::Answer(text) => {
            escape::text(text.trim_matches('\n')).replace('\n', "\n  ")
        }
        ConversationPart::Call(text) => under(&paint(BOLD, "▸"), text),
        ConversationPart::Result {
            content,
            is_error: true,
            ..
        } => under(&paint(BAD, "error:"), content),
        ConversationPart::Result { content, .. } => under(&paint(DIM, "result:"), content),
        ConversationPart::Failure(text) => paint(BAD, under("", text)),
        ConversationPart::Aside(text) => paint(BOLD, under("", text)),
        ConversationPart::Detail(text) => paint(DIM, under("", text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn shown(event: &Value) -> String {
        let mut line = json!({"at": 1.0, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}});
        for (key, value) in event.as_object().unwrap() {
            line[key] = value.clone();
        }
        let shown = anstream::adapter::strip_str(&entry(line.to_string().as_bytes())).to_string();
        // The day depends on where the test runs: `Jan 01 1970` has three words.
        shown.splitn(4, ' ').nth(3).unwrap().to_owned()
    }

    #[test]
    fn a_conversation_reads_like_one() {
        let begins = json!({"entry": "incarnation", "incarnation": 1, "conversation": 1, "prompt": "/bash ls"});
        assert_eq!(
            shown(&begins),
            "── incarnation 1 begins ──\n  prompt: /bash ls"
        );
        let answer = json!({"entry": "answer", "usage": {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}, "content": [
            {"type": "text", "text": "I look.\nTwice."}, {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "ls\x1b"}}]});
        assert_eq!(
            shown(&answer),
            "answer (3 + 5 tokens)\n  I look.\n  Twice.\n  ▸ bash ls\\u{1b}"
        );
        let result =
            json!({"entry": "result", "tool_use_id": "t", "content": "a\nb\n", "is_error": false});
        assert_eq!(shown(&result), "result:\n    a\n    b");
        let messages = json!({"entry": "messages", "messages": [{"type": "message", "from": "bob", "to": "alice", "content": "hi"}, 7]});
        assert_eq!(shown(&messages), "bob: hi\n  7");
        let idle = json!({"entry": "idle", "idle_reason": "failed", "content": "no key", "message_id": uuid::Uuid::nil()});
        assert_eq!(shown(&idle), "failed: no key");
    }

    #[test]
    fn what_a_subagent_did_stands_further_in() {
        let result = json!({"entry": "result", "call": "t", "tool_use_id": "s", "content": "a\nb\n", "is_error": false});
        assert_eq!(shown(&result), "    result:\n        a\n        b");
    }

    #[test]
    fn what_costs_nothing_is_no_line() {
        let at = json!({"at": 1.0, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}});
        let with = |more: Value| {
            let mut line = at.clone();
            line.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            entry(line.to_string().as_bytes())
        };
        let nothing = json!({"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0});
        assert_eq!(
            with(json!({"entry": "charged", "usage": nothing, "model_calls": 1})),
            ""
        );
        let answer = shown(
            &json!({"entry": "answer", "usage": nothing, "content": [{"type": "text", "text": "I look."}]}),
        );
        assert_eq!(answer, "answer\n  I look.");
    }

    #[test]
    fn an_entry_of_a_newer_program_is_shown_as_it_is() {
        assert_eq!(entry(b"{\"entry\":\"dream\"}"), "{\"entry\":\"dream\"}");
    }
}
