use proptest::prelude::*;
use serde_json::json;

use super::*;

fn bash(command: &str) -> Call {
    Call::Bash { command: command.to_owned(), timeout: None, background: false }
}

#[test]
fn every_tool_is_read() {
    let id = RequestId::new("a1b2c3d4").unwrap();
    for (name, input, call) in [
        ("bash", json!({"command": "ls"}), bash("ls")),
        (
            "bash",
            json!({"command": "ls", "timeout": 1.5, "run_in_background": true}),
            Call::Bash { command: "ls".into(), timeout: Some(1.5), background: true },
        ),
        ("bash", json!({"command": "ls", "timeout": null}), bash("ls")),
        ("read_file", json!({"path": "a"}), Call::ReadFile { path: "a".into(), limit: None, offset: None }),
        (
            "read_file",
            json!({"path": "a", "limit": 5.0, "offset": 7}),
            Call::ReadFile { path: "a".into(), limit: Some(5), offset: Some(7) },
        ),
        (
            "write_file",
            json!({"path": "a", "content": ""}),
            Call::WriteFile { path: "a".into(), content: "".into() },
        ),
        (
            "edit_file",
            json!({"path": "a", "old_text": "x", "new_text": ""}),
            Call::EditFile { path: "a".into(), old_text: "x".into(), new_text: "".into() },
        ),
        (
            "send_message",
            json!({"to": "bob", "content": "hi"}),
            Call::SendMessage { to: "bob".into(), content: "hi".into() },
        ),
        ("read_inbox", json!({}), Call::ReadInbox),
        ("read_inbox", Value::Null, Call::ReadInbox),
        (
            "shutdown_response",
            json!({"request_id": "a1b2c3d4", "approve": false}),
            Call::ShutdownResponse { request_id: id, approve: false, reason: String::new() },
        ),
        ("plan_approval", json!({"plan": "p"}), Call::PlanApproval { plan: "p".into() }),
        ("sleep", json!({"seconds": 0}), Call::Sleep { seconds: 0.0 }),
    ] {
        assert_eq!(Call::parse(Kit::Teammate, name, &input), Ok(call), "{name} {input}");
    }
}

#[test]
fn what_is_wrong_is_said_exactly() {
    for (name, input, error) in [
        (
            "dance",
            json!({}),
            "there is no tool \"dance\"; the tools are bash, read_file, write_file, edit_file, send_message, read_inbox, \
             shutdown_response, plan_approval",
        ),
        ("bash", json!("\"ls\""), "bash: the input must be a JSON object, not a string"),
        ("bash", json!({}), "bash: the field \"command\" is missing"),
        ("bash", json!({"command": ["ls"]}), "bash: the field \"command\" must be a string, not an array"),
        ("bash", json!({"command": " "}), "bash: the field \"command\" must be a string that is not empty"),
        (
            "bash",
            json!({"command": "a\u{0}b"}),
            "bash: the field \"command\" must be a string without NUL characters",
        ),
        (
            "bash",
            json!({"command": "a", "timeout": 0}),
            "bash: the field \"timeout\" must be above 0 and at most 3600 seconds",
        ),
        (
            "bash",
            json!({"command": "a", "timeout": 3601}),
            "bash: the field \"timeout\" must be above 0 and at most 3600 seconds",
        ),
        (
            "bash",
            json!({"command": "a", "timeout": "9"}),
            "bash: the field \"timeout\" must be a number, not a string",
        ),
        (
            "bash",
            json!({"command": "a", "run_in_background": "yes"}),
            "bash: the field \"run_in_background\" must be true or false, not a string",
        ),
        (
            "bash",
            json!({"command": "a", "cwd": "/"}),
            "bash: there is no field \"cwd\"; the fields are command, timeout, run_in_background",
        ),
        ("read_inbox", json!({"last": 3}), "read_inbox: there is no field \"last\"; the tool takes none"),
        (
            "read_file",
            json!({"path": "a", "offset": 0}),
            "read_file: the field \"offset\" must be a whole number from 1",
        ),
        (
            "read_file",
            json!({"path": "a", "limit": 1.5}),
            "read_file: the field \"limit\" must be a whole number from 1",
        ),
        (
            "read_file",
            json!({"path": "a", "limit": -1}),
            "read_file: the field \"limit\" must be a whole number from 1",
        ),
        ("write_file", json!({"path": "a"}), "write_file: the field \"content\" is missing"),
        (
            "shutdown_response",
            json!({"request_id": "a1"}),
            "shutdown_response: the field \"approve\" is missing",
        ),
        (
            "shutdown_response",
            json!({"request_id": "no good", "approve": true}),
            "shutdown_response: the field \"request_id\" is not a request id: 1 to 64 of A-Z, a-z, 0-9, _ and - are expected",
        ),
        (
            "plan_approval",
            json!({"plan": "\n"}),
            "plan_approval: the field \"plan\" must be a string that is not empty",
        ),
        ("sleep", json!({"seconds": -1}), "sleep: the field \"seconds\" must be from 0 to 86400"),
    ] {
        assert_eq!(Call::parse(Kit::Teammate, name, &input), Err(error.to_owned()), "{name} {input}");
    }
}

#[test]
fn only_what_changes_something_needs_an_open_gate() {
    let needs = |name, input| Call::parse(Kit::Teammate, name, &input).unwrap().needs_open_gate();
    assert!(needs("bash", json!({"command": "ls", "run_in_background": true})));
    assert!(!needs("bash", json!({"command": "ls"})), "the kernel keeps it from changing anything");
    assert!(bash("ls").changes(Gate::Open) && !bash("ls").changes(Gate::Closed));
    assert!(needs("write_file", json!({"path": "a", "content": ""})));
    assert!(needs("edit_file", json!({"path": "a", "old_text": "x", "new_text": "y"})));
    assert!(!needs("read_file", json!({"path": "a"})));
    assert!(!needs("send_message", json!({"to": "bob", "content": ""})));
    assert!(!needs("plan_approval", json!({"plan": "p"})));
    assert!(!needs("sleep", json!({"seconds": 1})));
}

#[test]
fn an_activity_fits_on_a_line_of_a_terminal() {
    assert_eq!(bash("cargo test").activity(), "bash: cargo test");
    assert_eq!(bash("a\nb\u{1b}[2J\u{202e}").activity(), r"bash: a\nb\u{1b}[2J\u{202e}");
    assert_eq!(Call::ReadInbox.activity(), "read_inbox");
    assert_eq!(Call::Sleep { seconds: 0.5 }.activity(), "sleep: 0.5 s");
    let long = bash(&"ä".repeat(1_000_000)).activity();
    assert_eq!(long.chars().count(), 60);
    assert!(long.ends_with('…'));
}

#[test]
fn what_two_kits_call_the_same_is_told_apart() {
    let id = RequestId::new("a1b2c3d4").unwrap();
    let parse = |input| Call::parse(Kit::Lead, "shutdown_response", &input);
    let status = Call::Lead(LeadCall::Status { request_id: id.clone() });
    assert_eq!(parse(json!({"request_id": "a1b2c3d4"})), Ok(status.clone()));
    assert_eq!(parse(json!({"request_id": "a1b2c3d4", "approve": null})), Ok(status));
    let own = Call::ShutdownResponse { request_id: id.clone(), approve: true, reason: "done".into() };
    assert_eq!(parse(json!({"request_id": "a1b2c3d4", "approve": true, "reason": "done"})), Ok(own));
    let verdict = json!({"request_id": "a1b2c3d4", "approve": false, "feedback": "smaller"});
    let call = Call::Lead(LeadCall::Verdict { request_id: id, approve: false, feedback: "smaller".into() });
    assert_eq!(Call::parse(Kit::Lead, "plan_approval", &verdict), Ok(call));
    assert!(Call::parse(Kit::Teammate, "plan_approval", &verdict).is_err());
    assert!(Call::parse(Kit::Lead, "plan_approval", &json!({"plan": "mine"})).is_err());
}

proptest! {
    #[test]
    fn no_activity_is_longer_or_holds_a_control_character(text in "(?s).{0,90}") {
        let activity = bash(&text).activity();
        prop_assert!(activity.chars().count() <= 60);
        prop_assert!(!activity.chars().any(char::is_control));
    }
}

#[test]
fn half_a_call_is_told_as_such() {
    for (name, input, error) in [
        (
            "bash",
            json!("{command: ls}"),
            "bash: nothing was done: the input is not valid JSON (key must be a string at line 1 column 2)",
        ),
        (
            "write_file",
            json!("{\"path\": \"a.txt\", \"content\": \"half"),
            "write_file: nothing was done: the input ends in the middle, after 34 characters; if the answer grew too \
             long, do it in smaller pieces",
        ),
    ] {
        assert_eq!(Call::parse(Kit::Teammate, name, &input), Err(error.to_owned()), "{input}");
    }
}
