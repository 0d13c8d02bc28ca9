//! What happens beside an answer, in one line each. Pure; the caller escapes the line.

use serde_json::Value;
use teamd_shared::message::{Body, IdleReason, Message};
use teamd_shared::transcript::{Cut, Event};

/// The longest line, in characters.
const LONGEST: usize = 160;
/// The longest reason of a failure, in characters: it ends with what to do.
const LONGEST_REASON: usize = 1000;

/// Returns the first line of a text that is not blank, cut where it is too long.
pub(in crate::ctl) fn line(text: &str) -> String {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim_end();
    let mut shown: String = first.chars().take(LONGEST).collect();
    if shown.len() < first.len() {
        shown.push('…');
    }
    shown
}

/// Returns that line, and the number of lines that follow it.
pub(in crate::ctl) fn line_and_more(text: &str) -> String {
    match text.lines().filter(|line| !line.trim().is_empty()).count() {
        0 | 1 => line(text),
        2 => format!("{} (+ 1 line)", line(text)),
        lines => format!("{} (+ {} lines)", line(text), lines - 1),
    }
}

/// Describes a tool call.
pub(in crate::ctl) fn call(name: &str, input: &Value) -> String {
    let fields: Vec<String> = match input.as_object() {
        // A single field needs no name.
        Some(fields) if fields.len() == 1 => fields.values().map(value).collect(),
        Some(fields) => fields.iter().map(|(name, field)| format!("{name}={}", value(field))).collect(),
        None => vec![value(input)],
    };
    line_and_more(format!("▸ {name} {}", fields.join(" ")).trim_end())
}

fn value(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Describes the result of a call; of a command its exit code and the last line of its output.
pub(in crate::ctl) fn result(content: &str, is_error: bool, is_command: bool) -> String {
    let content = content.trim();
    if content.is_empty() || is_command && !is_error && content == "(no output)" {
        return "  ✓".to_owned();
    }
    if !is_command {
        return format!("  ↳ {}", line_and_more(content));
    }
    // How a command failed is in brackets below its output.
    let lines: Vec<&str> = content.lines().filter(|line| !line.trim().is_empty()).collect();
    let is_note = |line: &str| line.starts_with('[') && line.ends_with(']');
    let notes = lines.iter().rev().take_while(|line| is_error && is_note(line)).count();
    let (output, notes) = lines.split_at(lines.len() - notes);
    let how = notes.iter().rev().find(|note| note.starts_with("[exit code ")).or(notes.first());
    let how = how.map(|how| how.trim_matches(['[', ']']).replacen("exit code", "exit", 1));
    let last = output.last().map(|last| match output.len() {
        1 => line(last),
        lines => format!("{} ({lines} lines)", line(last)),
    });
    format!("  ↳ {}", how.into_iter().chain(last).collect::<Vec<_>>().join(" · "))
}

/// Explains why an answer ended early.
pub(in crate::ctl) fn cut(cut: Cut) -> &'static str {
    match cut {
        Cut::Length => "the answer was cut: it was too long",
        Cut::Refusal => "the answer was cut: the model refused to continue",
    }
}

/// Says what an entry tells beside what is said and done, and whether something went wrong.
pub(in crate::ctl) fn beside(event: &Event) -> Option<(String, bool)> {
    let (text, is_failure) = match event {
        Event::Idle { idle_reason, content, .. } => return Some((ended(*idle_reason, content)?, true)),
        Event::Left { reason, .. } => (format!("left: {reason}"), false),
        Event::Asked { reason, .. } if reason.trim().is_empty() => ("asked to shut down".to_owned(), false),
        Event::Asked { reason, .. } => (format!("asked to shut down: {reason}"), false),
        Event::Compacted { .. } => {
            ("the conversation was long: the earlier part is now a summary".to_owned(), false)
        }
        Event::Rejected { offset, reason, .. } => {
            (format!("the inbox line at offset {offset} is not a message: {reason}"), true)
        }
        Event::Restarted { reason } => (format!("the inbox is read again from its start: {reason}"), true),
        _ => return None,
    };
    Some((line(&text), is_failure))
}

/// Explains why a piece of work ended early; none if it is done.
fn ended(reason: IdleReason, content: &str) -> Option<String> {
    match reason {
        IdleReason::Available => None,
        IdleReason::Failed => {
            Some(format!("failed: {}", content.trim().chars().take(LONGEST_REASON).collect::<String>()))
        }
        IdleReason::MaxTurns => Some("the work was ended: it took too many turns".to_owned()),
        IdleReason::MaxTokens => Some("the work was ended: it took too many tokens".to_owned()),
        IdleReason::MaxCost => Some("the work was ended: it cost too much".to_owned()),
        IdleReason::Interrupted => Some("interrupted".to_owned()),
    }
}

/// Describes a message that the agent has read.
pub(in crate::ctl) fn message(value: &Value) -> String {
    let Ok(message) = Message::from_json(value.clone()) else { return line(&value.to_string()) };
    let what = match &message.body {
        Body::Message | Body::Broadcast | Body::Unknown { .. } => "",
        Body::TaskAssignment { .. } => " gives it work",
        Body::TeammateTerminated { name, .. } => return format!("{name} has ended"),
        // The plan itself is shown where it waits for its answer.
        Body::PlanApprovalRequest { request_id, .. } => {
            return format!("{} submits a plan ({request_id})", message.from);
        }
        Body::ReviewRequest { request_id, .. } => &format!(" asks for review {request_id}"),
        Body::IdleNotification { idle_reason: IdleReason::Available, .. } => " is idle",
        Body::IdleNotification { idle_reason, .. } => &format!(" is idle ({})", idle_reason.as_str()),
        Body::PlanRequest { .. } => " asks for a plan",
        Body::PlanApprovalResponse { request_id, approve: true, .. } => {
            &format!(" approves the plan {request_id}")
        }
        Body::PlanApprovalResponse { request_id, .. } => &format!(" rejects the plan {request_id}"),
        Body::ShutdownRequest { .. } => " asks for a shutdown",
        Body::ShutdownResponse { approve: true, .. } => " approves the shutdown",
        Body::ShutdownResponse { .. } => " rejects the shutdown",
    };
    match line_and_more(&message.content).as_str() {
        "" => format!("{}{what}", message.from),
        content => line(&format!("{}{what}: {content}", message.from)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_call_and_its_result_are_one_line_each() {
        assert_eq!(call("bash", &json!({"command": "cargo test\nls"})), "▸ bash cargo test (+ 1 line)");
        assert_eq!(call("edit_file", &json!({"path": "a", "n": 1})), "▸ edit_file path=a n=1");
        assert_eq!(call("list_teammates", &json!({})), "▸ list_teammates");
        assert_eq!(call("odd", &json!([1])), "▸ odd [1]");
        assert_eq!(result("\nok\n\nthen\nend\n", false, false), "  ↳ ok (+ 2 lines)");
        assert_eq!(result(" \n", false, false), "  ✓");
        let long = result(&"x".repeat(500), false, false);
        assert_eq!((long.chars().count(), long.ends_with('…')), (LONGEST + 5, true));
    }

    #[test]
    fn the_result_of_a_command_is_its_exit_code_and_its_last_line() {
        let said = |content: &str, is_error| result(content, is_error, true);
        assert_eq!(said("(no output)", false), "  ✓");
        assert_eq!(said("line 1\n\nline 2\n", false), "  ↳ line 2 (2 lines)");
        assert_eq!(said("line 1\nline 2\n[exit code 1]", true), "  ↳ exit 1 · line 2 (2 lines)");
        assert_eq!(said("[exit code 0]\n[exit code 7]\n[a note]", true), "  ↳ exit 7");
        assert_eq!(said("[timed out after 2 s]", true), "  ↳ timed out after 2 s");
        assert_eq!(said("the gate is closed", true), "  ↳ the gate is closed");
        assert_eq!(
            said("[exit code 1]", false),
            "  ↳ [exit code 1]",
            "a command that prints so has not failed"
        );
    }

    #[test]
    fn a_message_names_its_sender_and_its_purpose() {
        let said = |value: Value| message(&value);
        let idle = json!({"type": "idle_notification", "from": "alice", "idle_reason": "available", "content": "done"});
        assert_eq!(said(idle), "alice is idle: done");
        assert_eq!(said(json!({"type": "message", "from": "bob", "content": "a\nb"})), "bob: a (+ 1 line)");
        let ended = json!({"type": "teammate_terminated", "from": "teamd", "name": "bob", "exit": null, "content": ""});
        assert_eq!(said(ended), "bob has ended");
        assert_eq!(said(json!(7)), "7");
    }

    #[test]
    fn only_work_that_is_not_done_is_explained() {
        assert_eq!(ended(IdleReason::Available, "x"), None);
        assert_eq!(ended(IdleReason::Failed, "no key").unwrap(), "failed: no key");
    }
}
