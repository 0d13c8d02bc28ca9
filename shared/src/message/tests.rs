use super::*;
use proptest::prelude::*;
use serde_json::json;

fn parse(line: &str) -> Result<Message, ParseError> {
    Message::parse(line.as_bytes())
}

fn body(line: &str) -> Body {
    parse(line).unwrap().body
}

fn id(text: &str) -> RequestId {
    RequestId::new(text).unwrap()
}

#[test]
fn what_a_shell_writes_is_enough() {
    let message = parse(r#"{"type":"message","from":"user","content":"hi"}"#).unwrap();
    assert_eq!(
        (message.id, message.to, message.timestamp),
        (None, None, None)
    );
    assert_eq!(
        (message.from.as_str(), message.content.as_str()),
        ("user", "hi")
    );
}

#[test]
fn an_id_that_is_no_uuid_means_nothing_and_is_kept() {
    let message = parse(r#"{"id":"1","type":"message","from":"a","content":""}"#).unwrap();
    assert_eq!(message.id, None);
    assert_eq!(message.extra["id"], "1");
}

#[test]
fn other_spellings_are_read_as_the_same_thing() {
    let response = |approve| Body::ShutdownResponse {
        request_id: id("r1"),
        approve,
        reason: "done".into(),
        answered_by: None,
    };
    for (line, approve) in [
        (
            r#"{"type":"shutdown_response","from":"a","request_id":"r1","approve":true,"content":"done"}"#,
            true,
        ),
        (
            r#"{"type":"shutdown_response","from":"a","requestId":"r1","approved":true,"reason":"done"}"#,
            true,
        ),
        (
            r#"{"type":"shutdown_response","from":"a","metadata":{"request_id":"r1","approve":true},"content":"done"}"#,
            true,
        ),
        (
            r#"{"type":"shutdown_approved","from":"a","requestId":"r1","text":"done"}"#,
            true,
        ),
        (
            r#"{"type":"shutdown_rejected","from":"a","requestId":"r1","reason":"done"}"#,
            false,
        ),
    ] {
        assert_eq!(body(line), response(approve), "{line}");
    }
    let plan = Body::PlanApprovalRequest {
        request_id: id("r2"),
        plan: "p".into(),
        incarnation: None,
    };
    for line in [
        r#"{"type":"plan_approval_request","from":"a","request_id":"r2","plan":"p"}"#,
        r#"{"type":"plan_approval_response","from":"a","request_id":"r2","plan":"p"}"#,
    ] {
        assert_eq!(body(line), plan, "{line}");
    }
    let with_ts = parse(r#"{"type":"message","from":"a","content":"x","ts":12.5}"#).unwrap();
    assert_eq!(with_ts.timestamp, Some(12.5));
}

#[test]
fn what_others_say_in_a_field_of_its_own_stands_in_the_text_too() {
    for (line, content) in [
        (
            r#"{"type":"plan_approval_request","from":"a","request_id":"r","plan":"p"}"#,
            "p",
        ),
        (
            r#"{"type":"shutdown_rejected","from":"a","requestId":"r","reason":"busy"}"#,
            "busy",
        ),
        (
            r#"{"type":"plan_approval_request","from":"a","request_id":"r","plan":"p","content":""}"#,
            "",
        ),
    ] {
        assert_eq!(parse(line).unwrap().content, content, "{line}");
    }
}

#[test]
fn a_verdict_of_the_lead_is_never_taken_for_a_plan() {
    let line = r#"{"type":"plan_approval_response","from":"lead","request_id":"r","approve":true,"plan":"p"}"#;
    assert!(matches!(
        body(line),
        Body::PlanApprovalResponse { approve: true, .. }
    ));
}

#[test]
fn unknown_types_and_fields_are_kept() {
    let line = r#"{"type":"poll","from":"a","content":"tea?","options":["yes","no"]}"#;
    let message = parse(line).unwrap();
    assert_eq!(
        message.body,
        Body::Unknown {
            kind: "poll".into()
        }
    );
    let again = message.to_json();
    assert_eq!(again["type"], "poll");
    assert_eq!(again["options"], serde_json::json!(["yes", "no"]));
}

#[test]
fn a_field_is_written_once_whatever_else_was_kept() {
    let mut message = Message::new(
        Uuid::nil(),
        "a",
        "b",
        1.0,
        Body::PlanRequest { gate_closed: None },
    )
    .with_content("x");
    for name in ["to", "content", "more", "reason"] {
        message.extra.insert(name.to_owned(), "kept".into());
    }
    message.id = None;
    message.to = None;
    let line = r#"{"type":"plan_request","from":"a","timestamp":1.0,"content":"x","to":"kept","more":"kept","reason":"kept"}"#;
    assert_eq!(message.to_line().unwrap(), format!("{line}\n").into_bytes());
    assert_eq!(message.to_json().to_string(), line);
    message.body = Body::ShutdownRequest {
        request_id: id("r"),
        incarnation: None,
        reason: "why".into(),
        decide_within: None,
    };
    let line = r#""content":"x","request_id":"r","incarnation":null,"reason":"why","decide_within":null,"to":"kept","more":"kept"}"#;
    assert!(message.to_json().to_string().ends_with(line));
}

#[test]
fn each_malformed_line_says_what_is_wrong() {
    for (line, expected) in [
        (
            &b"{"[..],
            "not JSON: EOF while parsing an object at line 1 column 1",
        ),
        (b"[1]", "not a JSON object"),
        (
            b"{\"type\":\"message\",\"from\":\"\xff\"}",
            "not UTF-8: invalid byte at 26",
        ),
        (br#"{"from":"a"}"#, "the field \"type\" is missing"),
        (br#"{"type":"message"}"#, "the field \"from\" is missing"),
        (
            br#"{"type":"message","from":7}"#,
            "the field \"from\" is not a string",
        ),
        (
            br#"{"type":"shutdown_response","from":"a","request_id":"r"}"#,
            "the field \"approve\" is missing",
        ),
        (
            br#"{"type":"shutdown_request","from":"a","request_id":"../x"}"#,
            "the field \"request_id\" is not 1 to 64 of A-Z, a-z, 0-9, _ and -",
        ),
    ] {
        assert_eq!(Message::parse(line).unwrap_err().to_string(), expected);
    }
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    assert!(matches!(Message::parse(&deep), Err(ParseError::NotJson(_))));
    assert!(matches!(
        Message::parse(&vec![b' '; MAX_LINE + 1]),
        Err(ParseError::TooLong(_))
    ));
}

#[test]
fn what_is_longer_when_it_is_written_again_is_read_all_the_same() {
    let number = "1e15,";
    let line = |count| {
        format!(
            r#"{{"type":"message","from":"a","content":"c","x":[{}1]}}"#,
            number.repeat(count)
        )
    };
    let message = Message::parse(line(MAX_LINE / number.len() - 20).as_bytes()).unwrap();
    let written = message.to_json();
    assert!(written.to_string().len() > MAX_LINE);
    assert_eq!(Message::from_json(written).unwrap(), message);
    // The plan stands in it twice.
    let plan = "x".repeat(MAX_LINE - 200);
    let line = format!(
        r#"{{"type":"plan_approval_request","from":"a","request_id":"r","plan":"{plan}"}}"#
    );
    let message = Message::parse(line.as_bytes()).unwrap();
    assert_eq!(Message::from_json(message.to_json()).unwrap(), message);
}

#[test]
fn a_line_is_one_line_for_every_reader() {
    let text = "a\u{85}b\u{2028}c\u{2029}d\ne\r\u{b}\u{c}";
    let message = Message::new(Uuid::nil(), "a", "b", 1.0, Body::Message).with_content(text);
    let line = message.to_line().unwrap();
    let written = std::str::from_utf8(&line).unwrap();
    assert!(!written.trim_end_matches('\n').contains([
        '\u{85}', '\u{2028}', '\u{2029}', '\n', '\r', '\u{b}', '\u{c}'
    ]));
    assert_eq!(Message::parse(&line).unwrap().content, text);
}

#[test]
fn a_message_over_the_limit_is_refused_with_its_size() {
    let message =
        Message::new(Uuid::nil(), "a", "b", 1.0, Body::Message).with_content("x".repeat(MAX_LINE));
    let error = message.to_line().unwrap_err();
    assert!(error.size > MAX_LINE);
    assert!(error.to_string().contains("1048576"));
}

#[test]
fn a_summary_is_the_first_line_that_says_something() {
    assert_eq!(summary_of("\n  \n done \nmore"), "done");
    assert_eq!(summary_of(&"ä".repeat(300)).chars().count(), MAX_SUMMARY);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Message::parse(&bytes);
    }

    #[test]
    fn what_is_written_is_read_again(content in ".*", from in "[a-z]{1,8}", reason in ".*", approve: bool) {
        for body in [
            Body::Message,
            Body::ShutdownRequest { request_id: id("r"), incarnation: Some(3), reason: reason.clone(), decide_within: Some(30.0) },
            Body::ShutdownResponse { request_id: id("r"), approve, reason: reason.clone(), answered_by: Some(AnsweredBy::Runtime) },
            Body::PlanApprovalRequest { request_id: id("r"), plan: reason.clone(), incarnation: None },
            Body::PlanApprovalResponse { request_id: id("r"), approve, feedback: reason.clone() },
            Body::PermissionRequest { request_id: id("r"), tool: reason.clone(), input: json!({"command": reason}), incarnation: None },
            Body::IdleNotification { idle_reason: IdleReason::MaxTurns, summary: reason.clone() },
        ] {
            let message = Message::new(Uuid::from_u128(7), &from, "lead", 1763756100.25, body).with_content(content.clone());
            prop_assert_eq!(Message::parse(&message.to_line().unwrap()).unwrap(), message);
        }
    }
}
