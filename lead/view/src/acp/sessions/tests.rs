use std::path::Path;

use serde_json::json;
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::position::Position;

use super::*;

fn sessions() -> Sessions {
    let name = Name::new("alice").unwrap();
    let reader = UpdateReader::new(&name, Path::new("/w"));
    let mut sessions = Sessions::new(&name, reader, 1);
    sessions.open(&SessionId::new("s"), None);
    sessions
}

fn send(sessions: &mut Sessions, id: i64) -> Uuid {
    let message = RandomIds.message();
    sessions.sent(RequestId::Number(id), SessionId::new("s"), message);
    message
}

fn read(sessions: &mut Sessions, event: Value) {
    let mut entry = json!({"at": 1.0, "inbox": Position::START});
    let fields = entry.as_object_mut().unwrap();
    fields.extend(event.as_object().unwrap().clone());
    let entry = serde_json::from_value(entry).unwrap();
    sessions.read(&NewEntries {
        live: String::new(),
        entries: vec![entry],
        places: Vec::new(),
        lines: Vec::new(),
    });
}

fn consume(sessions: &mut Sessions, message: Uuid) {
    let mail = json!({"type": "message", "from": "user", "id": message, "content": "x"});
    read(sessions, json!({"entry": "messages", "messages": [mail]}));
}

fn answer(sessions: &mut Sessions) {
    let usage = json!({"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 2,
        "cache_creation_input_tokens": 0});
    read(
        sessions,
        json!({"entry": "answer", "usage": usage, "content": []}),
    );
}

fn idle(sessions: &mut Sessions, reason: &str, goes_on: bool) {
    let id = RandomIds.message();
    read(
        sessions,
        json!({"entry": "idle", "idle_reason": reason, "content": "why", "message_id": id,
            "goes_on": goes_on}),
    );
}

/// The answers that are to be written: the id, and how it ended.
fn answers(sessions: &mut Sessions) -> Vec<String> {
    let lines = sessions.take_lines();
    let frames = lines.iter().map(|line| serde_json::from_str(line).unwrap());
    let answers = frames.filter(|frame: &Value| frame["method"].is_null());
    let answers = answers.map(|frame| {
        let how = match &frame["error"]["message"] {
            Value::String(why) => why.clone(),
            _ => frame["result"]["stopReason"].to_string(),
        };
        format!("{} {how}", frame["id"])
    });
    answers.collect()
}

#[test]
fn a_prompt_ends_with_the_work_that_has_consumed_it() {
    let mut sessions = sessions();
    let first = send(&mut sessions, 1);
    // The end of what went on before.
    idle(&mut sessions, "available", false);
    assert!(answers(&mut sessions).is_empty());
    consume(&mut sessions, first);
    answer(&mut sessions);
    let second = send(&mut sessions, 2);
    idle(&mut sessions, "available", false);
    assert_eq!(answers(&mut sessions), ["1 \"end_turn\""]);
    consume(&mut sessions, second);
    idle(&mut sessions, "failed", false);
    assert_eq!(answers(&mut sessions), ["2 alice: failed: why"]);
    assert!(!sessions.has_prompts());
}

fn open_other(sessions: &mut Sessions, id: i64) -> Uuid {
    let session = SessionId::new("other");
    let message = RandomIds.message();
    sessions.open(&session, None);
    sessions.sent(RequestId::Number(id), session, message);
    message
}

#[test]
fn what_no_model_has_seen_goes_on_with_the_next_work() {
    let mut sessions = sessions();
    let first = send(&mut sessions, 1);
    consume(&mut sessions, first);
    sessions.cancel(&SessionId::new("s"));
    assert!(sessions.interrupt_is_due());
    sessions.interrupt_is_asked();
    // It was read, and the work before it ends.
    idle(&mut sessions, "interrupted", true);
    assert!(answers(&mut sessions).is_empty());
    assert!(sessions.interrupt_is_due(), "the next work begins with it");
    answer(&mut sessions);
    idle(&mut sessions, "available", false);
    assert_eq!(answers(&mut sessions), ["1 \"cancelled\""]);
    assert!(!sessions.interrupt_is_due());
}

#[test]
fn work_is_interrupted_for_the_prompt_that_it_began_with_and_for_no_other() {
    let mut sessions = sessions();
    let first = send(&mut sessions, 1);
    consume(&mut sessions, first);
    answer(&mut sessions);
    let joined = open_other(&mut sessions, 2);
    consume(&mut sessions, joined);
    sessions.cancel(&SessionId::new("other"));
    assert_eq!(answers(&mut sessions), ["2 \"cancelled\""]);
    assert!(!sessions.interrupt_is_due());
    sessions.cancel(&SessionId::new("s"));
    assert!(sessions.interrupt_is_due());
    sessions.interrupt_is_asked();
    // It is asked for until it could be asked.
    sessions.interrupt_failed();
    assert!(!sessions.interrupt_is_due());
    sessions.try_again();
    assert!(sessions.interrupt_is_due());
    idle(&mut sessions, "interrupted", false);
    assert_eq!(answers(&mut sessions), ["1 \"cancelled\""]);
}

#[test]
fn a_prompt_that_is_cancelled_before_it_is_read_ends_at_once() {
    let mut sessions = sessions();
    let first = send(&mut sessions, 1);
    sessions.cancel(&SessionId::new("s"));
    assert_eq!(answers(&mut sessions), ["1 \"cancelled\""]);
    assert!(!sessions.interrupt_is_due());
    // No work is done for it, unless others have asked for that.
    let other = open_other(&mut sessions, 2);
    consume(&mut sessions, other);
    consume(&mut sessions, first);
    assert!(!sessions.interrupt_is_due());
    idle(&mut sessions, "available", false);
    let third = send(&mut sessions, 3);
    sessions.cancel(&SessionId::new("s"));
    consume(&mut sessions, third);
    assert!(sessions.interrupt_is_due());
}

#[test]
fn an_incarnation_that_leaves_after_its_answer_has_done_the_work() {
    let mut sessions = sessions();
    let first = send(&mut sessions, 1);
    consume(&mut sessions, first);
    answer(&mut sessions);
    let second = send(&mut sessions, 2);
    read(
        &mut sessions,
        json!({"entry": "left", "reason": "", "incarnation": 1}),
    );
    assert_eq!(answers(&mut sessions), ["1 \"end_turn\""]);
    sessions.rest(&Activity::Ended);
    assert!(
        answers(&mut sessions)[0].starts_with("2 alice has ended"),
        "{second}"
    );
}

#[test]
fn an_end_says_what_its_work_has_cost_since_the_prompt_was_read() {
    let mut sessions = sessions();
    answer(&mut sessions);
    let first = send(&mut sessions, 1);
    answer(&mut sessions);
    consume(&mut sessions, first);
    answer(&mut sessions);
    answer(&mut sessions);
    idle(&mut sessions, "max_turns", false);
    let line = sessions.take_lines().pop().unwrap();
    let frame: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(frame["result"]["stopReason"], "max_turn_requests");
    let usage = &frame["result"]["usage"];
    assert_eq!(
        (&usage["inputTokens"], &usage["outputTokens"]),
        (&json!(6), &json!(10))
    );
    assert_eq!(usage["totalTokens"], 20);
}
