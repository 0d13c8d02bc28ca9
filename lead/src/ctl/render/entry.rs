//! An entry of a transcript as people read it.

use serde_json::Value;
use teamd_shared::message::Message;
use teamd_shared::transcript::{Block, Cut, Entry, Event};

use super::{BAD, BOLD, DIM, message, under};
use crate::ctl::output::paint;
use crate::ctl::{clock, escape};

/// Shows one entry of a transcript; as it is, if a newer program wrote it.
pub(in crate::ctl) fn entry(line: &[u8]) -> String {
    let Ok(entry) = serde_json::from_slice::<Entry>(line) else {
        return escape::text(&String::from_utf8_lossy(line)).into_owned();
    };
    let time = format!("{} ", paint(DIM, clock::time_of_day(entry.at)));
    match &entry.event {
        Event::Incarnation { incarnation, conversation, prompt } => {
            let (begins, prompt) = match incarnation == conversation {
                true => ("begins".to_owned(), prompt.as_deref().unwrap_or_default()),
                false => (format!("continues the conversation of {conversation}"), ""),
            };
            let begins = format_args!("── incarnation {incarnation} {begins} ──");
            let heading = format!("{time}{}", paint(BOLD, begins));
            if prompt.is_empty() { heading } else { format!("{heading}\n{}", under("  prompt: ", prompt)) }
        }
        Event::Messages { messages } if messages.is_empty() => {
            format!(
                "{time}{}",
                paint(DIM, "messages that are not for it, or were written twice, are passed over")
            )
        }
        Event::Messages { messages } => {
            let shown: Vec<String> = messages.iter().map(consumed).collect();
            shown.join("\n")
        }
        Event::Rejected { offset, reason, .. } => {
            let heading = paint(BAD, format_args!("line at offset {offset} of the inbox is no message:"));
            under(&format!("{time}{heading} "), reason)
        }
        Event::Restarted { reason } => under(&format!("{time}the inbox is read from its start: "), reason),
        Event::Asked { request_id, reason } => {
            under(&format!("{time}asked to shut down ({request_id}): "), reason)
        }
        Event::Answer { content, usage, cut, .. } => {
            let why = match cut {
                Some(Cut::Length) => "; cut: it grew too long",
                Some(Cut::Refusal) => "; cut: the model refused",
                None => "",
            };
            let (read, wrote) = (usage.input(), usage.output_tokens);
            let tokens = paint(DIM, format_args!("({read} + {wrote} tokens{why})"));
            let blocks: Vec<String> = content.iter().map(block).collect();
            format!("{time}{} {tokens}\n{}", paint(BOLD, "answer"), blocks.join("\n")).trim_end().to_owned()
        }
        Event::Charged { usage } => {
            let (read, wrote) = (usage.input(), usage.output_tokens);
            let tokens = paint(DIM, format_args!("({read} + {wrote} tokens)"));
            format!("{time}{} {tokens}", paint(BOLD, "no answer"))
        }
        Event::Compacted { summary, .. } => {
            under(&format!("{time}{} ", paint(BOLD, "what came before, in short:")), summary)
        }
        Event::Result { content, is_error, .. } => {
            let heading = if *is_error { paint(BAD, "error:") } else { paint(DIM, "result:") };
            under(&format!("{time}{heading} "), content)
        }
        Event::Idle { idle_reason, content, .. } => {
            let heading = paint(BOLD, format_args!("idle ({})", idle_reason.as_str()));
            under(&format!("{time}{heading}  "), content)
        }
        Event::Left { reason, .. } => under(&format!("{time}{} ", paint(BOLD, "left:")), reason),
    }
}

/// A message stands in the transcript as it stood in the inbox.
fn consumed(value: &Value) -> String {
    match Message::from_json(value.clone()) {
        Ok(parsed) => message::show(&parsed),
        Err(_) => under("", &value.to_string()),
    }
}

fn block(block: &Block) -> String {
    match block {
        Block::Text { text } => under("  ", text),
        Block::ToolUse { name, input, .. } => under(
            &format!("  {} ", paint(BOLD, format_args!("▸ {}", escape::line(name)))),
            &tool_input(input),
        ),
        Block::Opaque { value } => {
            let kind = value.get("type").and_then(Value::as_str).unwrap_or("something of the service");
            format!("  {}", paint(DIM, format_args!("[{}]", escape::line(kind))))
        }
    }
}

/// Shows the one field of an input without its name, else all as JSON.
fn tool_input(input: &Value) -> String {
    match input.as_object() {
        Some(fields) if fields.len() == 1 => {
            fields.values().next().and_then(Value::as_str).map(str::to_owned)
        }
        Some(fields) if fields.is_empty() => Some(String::new()),
        _ => None,
    }
    .unwrap_or_else(|| input.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(event: &Value) -> String {
        let mut line = json!({"at": 1.0, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}});
        for (key, value) in event.as_object().unwrap() {
            line[key] = value.clone();
        }
        let shown = anstream::adapter::strip_str(&entry(line.to_string().as_bytes())).to_string();
        // The time of day depends on where the test runs.
        shown.split_once(":01 ").map_or(shown.clone(), |(_, rest)| rest.to_owned())
    }

    #[test]
    fn a_conversation_reads_like_one() {
        let begins = json!({"entry": "life", "incarnation": 1, "conversation": 1, "prompt": "/bash ls"});
        assert_eq!(shown(&begins), "── incarnation 1 begins ──\n  prompt: /bash ls");
        let answer = json!({"entry": "answer", "usage": {"input_tokens": 3, "output_tokens": 5}, "content": [
            {"type": "text", "text": "I look."}, {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "ls\x1b"}}]});
        assert_eq!(shown(&answer), "answer (3 + 5 tokens)\n  I look.\n  ▸ bash ls\\u{1b}");
        let result = json!({"entry": "result", "tool_use_id": "t", "content": "a\nb\n", "is_error": false});
        assert_eq!(shown(&result), "result:\n    a\n    b");
        let messages = json!({"entry": "messages", "messages": [{"type": "message", "from": "bob", "to": "alice", "content": "hi"}, 7]});
        assert_eq!(shown(&messages), "--:--:-- bob → alice  hi\n7");
    }

    #[test]
    fn an_entry_of_a_newer_program_is_shown_as_it_is() {
        assert_eq!(entry(b"{\"entry\":\"dream\"}"), "{\"entry\":\"dream\"}");
    }
}
