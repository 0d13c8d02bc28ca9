//! Inboxes: what our reader takes, what it takes for something else, and what is legal but unwise.

use std::collections::HashMap;

use serde::Deserializer;
use serde_json::{Map, Value};
use teamd_shared::json;
use teamd_shared::message::{Body, MAX_LINE, Message, ParseError};

use super::Remark;
use super::lines::{column_in, column_of, each_line};

/// The longest line that a shell writes with one system call, in bytes: a longer one may be parted by another writer.
const ONE_WRITE: usize = 4096;
/// Characters that some readers take for the end of a line.
const ENDS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// Reads an inbox as its owner does.
pub(in crate::ctl::commands) fn lint(bytes: &[u8]) -> Vec<Remark> {
    let (mut remarks, mut ids) = (Vec::new(), HashMap::new());
    let torn = each_line(bytes, "not read yet: it is no line before its newline", |number, line| {
        let message = match parse(line) {
            Ok(message) => message,
            Err(error) => {
                let reader = "rejected: it goes to NAME.rejected.jsonl, and the lead is told";
                return remarks.push(Remark::error((number, column(line, &error)), what(&error), reader));
            }
        };
        remarks.extend(unwise(number, line, &message));
        if let Some(first) = message.id.and_then(|id| ids.insert(id, number)) {
            let (place, said) = ((number, key(line, "id")), format!("the same id as line {first}"));
            remarks.push(Remark::warning(place, said, "dropped: it was read before"));
        }
    });
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
        ParseError::TooLong(_) | ParseError::TooDeep | ParseError::NotAnObject | ParseError::Missing(_) => 1,
    }
}

/// Returns the column of a field; 1 if it is not there under this name.
fn key(line: &[u8], field: &str) -> usize {
    let name = format!("\"{field}\"");
    let found = line.windows(name.len()).position(|window| window == name.as_bytes());
    found.map_or(1, |byte| column_of(line, byte))
}

/// Says what is legal but unwise, and what is read with another spelling.
fn unwise(number: usize, line: &[u8], message: &Message) -> Vec<Remark> {
    let mut remarks = Vec::new();
    let mut warn = |field: &str, what: &str, reader: &str| {
        remarks.push(Remark::warning((number, key(line, field)), what, reader));
    };
    if message.id.is_none() {
        match message.extra.contains_key("id") {
            true => warn(
                "id",
                "the id is no UUID",
                "kept, and means nothing: a line that is written twice is read twice",
            ),
            false => warn("id", "no id", "taken: but a line that is written twice is read twice"),
        }
        if line.len() >= ONE_WRITE {
            warn(
                "",
                "longer than 4,096 bytes, and perhaps written by a shell",
                "taken as it stands: but another writer's line may part it; `teamctl send NAME -` does not",
            );
        }
    }
    for field in ["timestamp", "ts"].into_iter().filter(|&field| message.extra.contains_key(field)) {
        warn(field, "the time is no number", "kept, and means nothing: seconds since 1970 are read");
    }
    if message.extra.contains_key("decide_within") && message.body.kind() == "shutdown_request" {
        warn("decide_within", "decide_within is no number", "kept, and means nothing: seconds are read");
    }
    for field in twice(line) {
        warn(&field, &format!("the field {field:?} is there twice"), "the last one counts");
    }
    if let Body::Unknown { kind } = &message.body {
        warn("type", &format!("the type {kind:?} is unknown"), "delivered as text");
    }
    if std::str::from_utf8(line).is_ok_and(|text| text.contains(ENDS)) {
        warn("", "U+0085, U+2028 or U+2029 is not escaped", "taken: but other readers end a line there");
    }
    // What was written is read once more, for its spellings alone: it is an object, or there were no message.
    if serde_json::from_slice::<Value>(line).is_err() {
        warn("", "half of a surrogate pair stands in a text", "read as U+FFFD");
    }
    if let Ok(Value::Object(fields)) = json::value(line) {
        for (written, read) in spellings(&fields, message) {
            warn(written, &format!("{written} is another writer's spelling"), &format!("read as {read}"));
        }
    }
    remarks
}

/// Returns the fields that an object has more than once.
fn twice(line: &[u8]) -> Vec<String> {
    struct Names(Vec<String>);
    impl<'de> serde::de::Visitor<'de> for Names {
        type Value = Vec<String>;
        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("an object")
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(mut self, mut map: A) -> Result<Vec<String>, A::Error> {
            let mut twice = Vec::new();
            while let Some((name, serde::de::IgnoredAny)) = map.next_entry::<String, _>()? {
                match self.0.contains(&name) {
                    true => twice.push(name),
                    false => self.0.push(name),
                }
            }
            Ok(twice)
        }
    }
    // It is an object, or there were no message. One with half a surrogate pair in a name is not looked at.
    serde_json::Deserializer::from_slice(line).deserialize_map(Names(Vec::new())).unwrap_or_default()
}

/// Returns the spellings of other writers that the reader took: it has kept all others as they were.
fn spellings(fields: &Map<String, Value>, message: &Message) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    for (written, read) in
        [("requestId", "request_id"), ("approved", "approve"), ("ts", "timestamp"), ("text", "content")]
    {
        if fields.contains_key(written) && !message.extra.contains_key(written) {
            found.push((written, read));
        }
    }
    let absent = |names: [&str; 2]| names.iter().all(|name| fields.get(*name).is_none_or(Value::is_null));
    let body = message.body.kind();
    let of_request =
        ["shutdown_request", "shutdown_response", "plan_approval_request", "plan_approval_response"];
    if of_request.contains(&body) && absent(["request_id", "requestId"]) {
        found.push(("metadata", "request_id"));
    }
    let written = fields.get("type").and_then(Value::as_str).unwrap_or_default();
    match (written, body) {
        ("shutdown_approved", _) => found.push(("shutdown_approved", "shutdown_response with approve true")),
        ("shutdown_rejected", _) => found.push(("shutdown_rejected", "shutdown_response with approve false")),
        ("plan_approval_response", "plan_approval_request") => {
            found.push((
                "plan_approval_response",
                "plan_approval_request: it carries a plan, and is not from the lead",
            ));
        }
        ("shutdown_response" | "plan_approval_response", _) if absent(["approve", "approved"]) => {
            found.push(("metadata", "approve"));
        }
        _ => {}
    }
    found
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
        3:19 not JSON: expected `,` or `}` (rejected: it goes to NAME.rejected.jsonl, and the lead is told)
        4:1 the field "from" is missing (rejected: it goes to NAME.rejected.jsonl, and the lead is told)
        5:37 the field "content" is not a string (rejected: it goes to NAME.rejected.jsonl, and the lead is told)
        6:2 the id is no UUID (kept, and means nothing: a line that is written twice is read twice)
        6:49 the time is no number (kept, and means nothing: seconds since 1970 are read)
        6:9 the type "note" is unknown (delivered as text)
        6:37 text is another writer's spelling (read as content)
        7:84 requestId is another writer's spelling (read as request_id)
        7:53 shutdown_approved is another writer's spelling (read as shutdown_response with approve true)
        8:84 metadata is another writer's spelling (read as request_id)
        8:84 metadata is another writer's spelling (read as approve)
        8:2 the same id as line 7 (dropped: it was read before)
        9:1 the file ends with 13 bytes without a newline (not read yet: it is no line before its newline)
        "#);
    }

    #[test]
    fn what_means_nothing_or_stands_there_twice_is_told() {
        let id = r#""id":"0197f5f2-0000-7000-8000-000000000001","from":"lead""#;
        let lines = [
            format!(r#"{{{id},"type":"shutdown_request","request_id":"a1","decide_within":"soon"}}"#),
            format!(r#"{{{},"type":"message","type":"broadcast"}}"#, id.replace("01\"", "02\"")),
            format!(r#"{{{},"type":"message","content":"cut \ud83d"}}"#, id.replace("01\"", "03\"")),
            String::new(),
        ];
        insta::assert_snapshot!(told(&lines.join("\n")), @r#"
        1:104 decide_within is no number (kept, and means nothing: seconds are read)
        2:60 the field "type" is there twice (the last one counts)
        3:1 half of a surrogate pair stands in a text (read as U+FFFD)
        "#);
    }

    #[test]
    fn a_long_line_without_an_id_may_be_parted_and_a_line_over_the_limit_is_rejected() {
        let line = |length: usize| {
            format!("{{\"type\":\"message\",\"from\":\"user\",\"content\":\"{}\"}}\n", "x".repeat(length))
        };
        assert!(told(&line(5000)).contains("longer than 4,096 bytes"));
        assert!(!told(&line(4000)).contains("longer"));
        assert!(told(&line(MAX_LINE)).contains("the limit is 1048576 (rejected"));
    }
}
