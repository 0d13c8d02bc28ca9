//! What happens beside an answer, in one line each. Pure, and not escaped: that is for whoever prints it.

use serde_json::Value;
use teamd_shared::message::{Body, IdleReason, Message};
use teamd_shared::transcript::Cut;

/// The longest line, in characters.
const LONGEST: usize = 160;

/// Returns the first line of a text that says something, cut where it grows too long.
pub(super) fn line(text: &str) -> String {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim_end();
    let mut shown: String = first.chars().take(LONGEST).collect();
    if shown.len() < first.len() {
        shown.push('…');
    }
    shown
}

/// Returns the line, and how many follow that say something.
fn line_and_more(text: &str) -> String {
    match text.lines().filter(|line| !line.trim().is_empty()).count() {
        0 | 1 => line(text),
        2 => format!("{} (+ 1 line)", line(text)),
        lines => format!("{} (+ {} lines)", line(text), lines - 1),
    }
}

/// Says what a call does.
pub(super) fn call(name: &str, input: &Value) -> String {
    let fields: Vec<String> = match input.as_object() {
        // The one field says it without its name.
        Some(fields) if fields.len() == 1 => fields.values().map(value).collect(),
        Some(fields) => fields.iter().map(|(name, field)| format!("{name}={}", value(field))).collect(),
        None => vec![value(input)],
    };
    line_and_more(format!("▸ {name} {}", fields.join(" ")).trim_end())
}

fn value(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Says what came of a call.
pub(super) fn result(content: &str) -> String {
    match content.trim().is_empty() {
        true => "  ✓".to_owned(),
        false => format!("  ↳ {}", line_and_more(content)),
    }
}

/// Says with what a conversation began.
pub(super) fn prompt(prompt: &str) -> String {
    format!("prompt: {}", line_and_more(prompt))
}

/// Says that the agent was asked to leave.
pub(super) fn asked(reason: &str) -> String {
    match reason.trim().is_empty() {
        true => "asked to leave".to_owned(),
        false => format!("asked to leave: {}", line(reason)),
    }
}

/// Says why an answer ended early.
pub(super) fn cut(cut: Cut) -> &'static str {
    match cut {
        Cut::Length => "the answer was cut: it grew too long",
        Cut::Refusal => "the answer was cut: the model refused to go on",
    }
}

/// Says how a piece of work ended; nothing if it was done.
pub(super) fn ended(reason: IdleReason, content: &str) -> Option<String> {
    let why = match reason {
        IdleReason::Available => return None,
        // Whole, since it ends with what to do.
        IdleReason::Failed => format!("failed: {}", content.trim().chars().take(1000).collect::<String>()),
        IdleReason::MaxTurns => "the work was ended: it took too many turns".to_owned(),
        IdleReason::MaxTokens => "the work was ended: it took too many tokens".to_owned(),
        IdleReason::Interrupted => "interrupted".to_owned(),
    };
    Some(why)
}

/// Says what a message was that the agent took in.
pub(super) fn taken_in(value: &Value) -> String {
    let Ok(message) = Message::from_json(value.clone()) else { return line(&value.to_string()) };
    let (from, content) = (&message.from, line_and_more(&message.content));
    let what = match &message.body {
        Body::Message | Body::Broadcast | Body::Unknown { .. } => return line(&format!("{from}: {content}")),
        Body::IdleNotification { idle_reason: IdleReason::Available, .. } => "is idle".to_owned(),
        Body::IdleNotification { idle_reason, .. } => format!("is idle ({})", idle_reason.as_str()),
        Body::TeammateTerminated { name, .. } => return format!("{name} has ended"),
        Body::PlanRequest => "asks for a plan".to_owned(),
        // The plan itself is told where it waits for its answer.
        Body::PlanApprovalRequest { request_id, .. } => {
            return format!("{from} submits a plan ({request_id})");
        }
        Body::PlanApprovalResponse { request_id, approve, .. } => {
            format!("{} the plan {request_id}", if *approve { "approves" } else { "rejects" })
        }
        Body::ShutdownRequest { .. } => "asks to leave".to_owned(),
        Body::ShutdownResponse { approve, .. } => {
            if *approve { "agrees to leave" } else { "does not want to leave" }.to_owned()
        }
    };
    match content.is_empty() {
        true => format!("{from} {what}"),
        false => line(&format!("{from} {what}: {content}")),
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
        assert_eq!(result("\nok\n\nthen\nend\n"), "  ↳ ok (+ 2 lines)");
        assert_eq!(result(" \n"), "  ✓");
        let long = result(&"x".repeat(500));
        assert_eq!((long.chars().count(), long.ends_with('…')), (LONGEST + 5, true));
    }

    #[test]
    fn a_message_says_who_and_what() {
        let said = |message: Value| taken_in(&message);
        let idle = json!({"type": "idle_notification", "from": "alice", "idle_reason": "available", "content": "done"});
        assert_eq!(said(idle), "alice is idle: done");
        assert_eq!(said(json!({"type": "message", "from": "bob", "content": "a\nb"})), "bob: a (+ 1 line)");
        let ended = json!({"type": "teammate_terminated", "from": "teamd", "name": "bob", "exit": null, "content": ""});
        assert_eq!(said(ended), "bob has ended");
        assert_eq!(said(json!(7)), "7");
    }

    #[test]
    fn only_work_that_was_not_done_is_told() {
        assert_eq!(ended(IdleReason::Available, "x"), None);
        assert_eq!(ended(IdleReason::Failed, "no key").unwrap(), "failed: no key");
    }
}
