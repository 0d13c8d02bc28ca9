//! Inboxes: what our reader takes, what it takes for something else, and what is legal but unwise.

use std::collections::HashMap;

use teamd_shared::message::{Body, MAX_LINE, Message, ParseError};

use super::lines::{column_in, column_of, each_line};
use super::{Remark, RemarkPlace};

/// The longest line that a shell writes with one system call, in bytes: a longer one may be parted
/// by another writer.
const ONE_WRITE: usize = 4096;

/// Reads an inbox as its owner does.
pub(in crate::commands) fn lint(bytes: &[u8]) -> Vec<Remark> {
    let mut remarks = Vec::new();
    let mut ids = HashMap::new();
    let torn = each_line(
        bytes,
        "not read yet: it is no line before its newline",
        |number, line| {
            let message = match parse(line) {
                Ok(message) => message,
                Err(error) => {
                    let reader =
                        "rejected: it goes to NAME.rejected.jsonl, and the lead is notified";
                    return remarks.push(Remark::error(
                        RemarkPlace::of(number, column(line, &error)),
                        what(&error),
                        reader,
                    ));
                }
            };
            remarks.extend(unwise(number, line, &message));
            if let Some(first) = message.id.and_then(|id| ids.insert(id, number)) {
                let place = RemarkPlace::of(number, key(line, "id"));
                let what = format!("the same id as line {first}");
                remarks.push(Remark::warning(place, what, "dropped: it was read before"));
            }
        },
    );
    remarks.extend(torn);
    remarks
}

fn parse(line: &[u8]) -> Result<Message, ParseError> {
    // With its newline it has to fit.
    if line.len() >= MAX_LINE {
        return Err(ParseError::TooLong(line.len() as u64 + 1));
    }
    Message::parse(line)
}

fn what(error: &ParseError) -> String {
    match error {
        ParseError::NotJson(why) => format!("not JSON: {}", super::without_place(why)),
        ParseError::NotUtf8(_) => "not UTF-8".to_owned(),
        other => other.to_string(),
    }
}

fn column(line: &[u8], error: &ParseError) -> usize {
    match error {
        ParseError::NotJson(why) => column_in(line, why),
        ParseError::NotUtf8(byte) => column_of(line, *byte),
        ParseError::Wrong { field, .. } => key(line, field),
        ParseError::TooLong(_)
        | ParseError::TooDeep
        | ParseError::NotAnObject
        | ParseError::Missing(_) => 1,
    }
}

/// Returns the column of a field; 1 if it is not there under this name.
fn key(line: &[u8], field: &str) -> usize {
    let name = format!("\"{field}\"");
    let place = line
        .windows(name.len())
        .position(|window| window == name.as_bytes());
    place.map_or(1, |byte| column_of(line, byte))
}

/// Warns of what is legal but unwise.
fn unwise(number: usize, line: &[u8], message: &Message) -> Vec<Remark> {
    let mut remarks = Vec::new();
    let mut warn = |field: &str, what: &str, reader: &str| {
        remarks.push(Remark::warning(
            RemarkPlace::of(number, key(line, field)),
            what,
            reader,
        ));
    };
    if message.id.is_none() {
        if message.extra.contains_key("id") {
            warn(
                "id",
                "the id is no UUID",
                "kept, and means nothing: a line that is written twice is read twice",
            )
        } else {
            warn(
                "id",
                "no id",
                "taken: but a line that is written twice is read twice",
            )
        }
        if line.len() >= ONE_WRITE {
            warn(
                "",
                "longer than 4,096 bytes, and perhaps written by a shell",
                "taken as it is: but another writer's line may split it; `teamctl send NAME -` does not",
            );
        }
    }
    if let Body::Unknown { kind } = &message.body {
        warn(
            "type",
            &format!("the type {kind:?} is unknown"),
            "delivered as text",
        );
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &str) -> String {
        lint(lines.as_bytes())
            .iter()
            .map(|it| format!("{}:{} {} ({})\n", it.line, it.column, it.what, it.reader))
            .collect()
    }

    #[test]
    fn what_is_rejected_and_what_is_read_otherwise_is_told() {
        let lines = [
            r#"{"id":"0197f5f2-0000-7000-8000-000000000001","type":"message","from":"user","content":"fine"}"#,
            "",
            r#"{"type":"message" "from":"user"}"#,
            r#"{"type":"message"}"#,
            r#"{"id":7,"type":"message","from":"ä","content":7}"#,
            r#"{"id":7,"type":"note","from":"user","text":"hi","ts":"now"}"#,
            r#"{"id":"0197f5f2-0000-7000-8000-000000000002","type":"shutdown_approved","from":"a","requestId":"a1"}"#,
            r#"{"id":"0197f5f2-0000-7000-8000-000000000002","type":"shutdown_response","from":"a","metadata":{"request_id":"a1","approve":true}}"#,
            r#"{"type":"mess"#,
        ]
        .join("\n");
        insta::assert_snapshot!(told(&lines), @r#"
        3:19 not JSON: expected `,` or `}` (rejected: it goes to NAME.rejected.jsonl, and the lead is notified)
        4:1 the field "from" is missing (rejected: it goes to NAME.rejected.jsonl, and the lead is notified)
        5:37 the field "content" is not a string (rejected: it goes to NAME.rejected.jsonl, and the lead is notified)
        6:2 the id is no UUID (kept, and means nothing: a line that is written twice is read twice)
        6:9 the type "note" is unknown (delivered as text)
        8:2 the same id as line 7 (dropped: it was read before)
        9:1 the file ends with 13 bytes without a newline (not read yet: it is no line before its newline)
        "#);
    }

    #[test]
    fn a_long_line_without_an_id_may_be_parted_and_a_line_over_the_limit_is_rejected() {
        let line = |length: usize| {
            format!(
                "{{\"type\":\"message\",\"from\":\"user\",\"content\":\"{}\"}}\n",
                "x".repeat(length)
            )
        };
        assert!(told(&line(5000)).contains("longer than 4,096 bytes"));
        assert!(!told(&line(4000)).contains("longer"));
        assert!(told(&line(MAX_LINE)).contains("the limit is 1048576 (rejected"));
    }
}
