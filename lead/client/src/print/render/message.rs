//! A line of an inbox as people read it:
//! `12:03:05 alice → lead  idle_notification available  text`.

use teamd_shared::message::{AnsweredBy, Body, Message};

use super::{BAD, BOLD, DIM, under};
use crate::print::style::paint;
use crate::print::{clock, escape};

/// How many lines of a plan are shown among other messages.
const PLAN_LINES: usize = 10;

/// Formats one line of an inbox; of a long plan only the beginning.
pub fn brief(line: &[u8]) -> String {
    let Ok(mut it) = Message::parse(line) else {
        return message(line);
    };
    let lines: Vec<&str> = it.content.lines().collect();
    match &it.body {
        Body::PlanApprovalRequest { request_id, .. } if lines.len() > PLAN_LINES + 1 => {
            let first = lines[..PLAN_LINES].join("\n");
            let more = lines.len() - PLAN_LINES;
            it.content = format!("{first}\n… {more} more lines: `teamctl plans {request_id}`");
            show(&it)
        }
        _ => show(&it),
    }
}

/// Shows one line of an inbox.
pub fn message(line: &[u8]) -> String {
    match Message::parse(line) {
        Ok(message) => show(&message),
        Err(error) => {
            let heading = paint(
                BAD,
                format_args!("malformed line ({}):", escape::line(&error.to_string())),
            );
            under(&format!("{heading} "), &String::from_utf8_lossy(line))
        }
    }
}

/// Shows a message.
pub(super) fn show(message: &Message) -> String {
    let time = message
        .timestamp
        .map_or_else(|| "--:--:--".to_owned(), clock::time_of_day);
    let mut heading = format!(
        "{} {}  ",
        paint(DIM, time),
        paint(BOLD, escape::line(&message.from))
    );
    if let Some(to) = &message.to {
        heading = format!(
            "{} → {}  ",
            heading.trim_end(),
            paint(BOLD, escape::line(to))
        );
    }
    let detail = detail(&message.body);
    if !detail.is_empty() {
        heading.push_str(&format!("{}  ", paint(DIM, escape::line(&detail))));
    }
    under(&heading, &message.content)
}

/// Describes a message beyond its text; nothing for an ordinary one.
fn detail(body: &Body) -> String {
    let kind = body.kind();
    match body {
        Body::Message => String::new(),
        Body::Broadcast | Body::PlanRequest { .. } | Body::Unknown { .. } => kind.to_owned(),
        Body::ShutdownRequest { request_id, .. }
        | Body::ReviewRequest { request_id, .. }
        | Body::PermissionRequest { request_id, .. }
        | Body::PlanApprovalRequest { request_id, .. } => {
            format!("{kind} {request_id}")
        }
        Body::ShutdownResponse {
            request_id,
            approve,
            answered_by,
            ..
        } => {
            let by = match answered_by {
                Some(AnsweredBy::Runtime) => " by the runtime",
                Some(AnsweredBy::Model) | None => "",
            };
            format!("{kind} {request_id} {}{by}", verdict(*approve))
        }
        Body::PlanApprovalResponse {
            request_id,
            approve,
            ..
        } => {
            format!("{kind} {request_id} {}", verdict(*approve))
        }
        Body::TaskAssignment { task_id, .. } => {
            task_id.map_or(kind.to_owned(), |id| format!("{kind} {id}"))
        }
        Body::IdleNotification { idle_reason, .. } => format!("{kind} {}", idle_reason.as_str()),
        Body::TeammateTerminated { unread, .. } => format!("{kind} {unread} unread"),
        Body::Returned { why, .. } => format!("{kind} {why}"),
    }
}

fn verdict(approve: bool) -> &'static str {
    if approve { "approved" } else { "rejected" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> String {
        anstream::adapter::strip_str(&message(line.as_bytes())).to_string()
    }

    #[test]
    fn a_message_is_one_line_and_a_long_one_is_indented() {
        let line = r#"{"type":"message","from":"user","to":"alice","content":"hi"}"#;
        assert_eq!(shown(line), "--:--:-- user → alice  hi");
        assert_eq!(
            shown(r#"{"type":"message","from":"user","content":"hi"}"#),
            "--:--:-- user  hi"
        );
        let line = r#"{"type":"idle_notification","from":"alice","to":"lead","content":"done:\n\n- a\n","idle_reason":"failed"}"#;
        assert_eq!(
            shown(line),
            "--:--:-- alice → lead  idle_notification failed\n    done:\n\n    - a"
        );
    }

    #[test]
    fn protocol_messages_name_their_request() {
        let line = r#"{"type":"shutdown_response","from":"a","to":"lead","request_id":"a1b2c3d4","approve":true,"answered_by":"runtime","content":""}"#;
        assert_eq!(
            shown(line),
            "--:--:-- a → lead  shutdown_response a1b2c3d4 approved by the runtime"
        );
    }

    #[test]
    fn a_long_plan_is_cut_with_the_command_that_shows_it_whole() {
        let plan = |lines: usize| {
            let text = vec!["step"; lines].join("\n");
            serde_json::json!({"type": "plan_approval_request", "from": "a", "to": "lead", "request_id": "a1b2c3d4",
                "content": text})
            .to_string()
        };
        let shown = brief(plan(40).as_bytes());
        assert!(
            shown.ends_with("    … 30 more lines: `teamctl plans a1b2c3d4`"),
            "{shown}"
        );
        assert_eq!(shown.lines().count(), 12);
        for short in [
            plan(PLAN_LINES + 1),
            plan(1),
            r#"{"type":"message","from":"a","content":"x"}"#.to_owned(),
            "?".to_owned(),
        ] {
            assert_eq!(brief(short.as_bytes()), message(short.as_bytes()));
        }
    }

    #[test]
    fn nothing_that_others_wrote_reaches_the_terminal_as_it_is() {
        let line =
            r#"{"type":"x\u001b[2J","from":"a\nb","to":"\u202e","content":"\u001b]0;t\u0007\r"}"#;
        let shown = message(line.as_bytes());
        let ours = anstream::adapter::strip_str(&shown).to_string();
        assert_eq!(
            ours,
            "--:--:-- a\\nb → \\u{202e}  x\\u{1b}[2J  \\u{1b}]0;t\\u{7}\\r"
        );
    }

    #[test]
    fn a_malformed_line_is_shown_as_such() {
        assert_eq!(
            shown("{\"type\":1}"),
            "malformed line (the field \"type\" is not a string): {\"type\":1}"
        );
        assert_eq!(
            shown("not json\x1b"),
            "malformed line (not JSON: expected ident at line 1 column 2): not json\\u{1b}"
        );
    }
}
