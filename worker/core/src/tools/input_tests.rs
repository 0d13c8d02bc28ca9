use proptest::prelude::*;
use teamd_shared::id::RequestId;
use teamd_shared::member::Gate;

use crate::tools::shutdown_response::ShutdownResponse;
use crate::tools::{Action, Bash, Call, Caller, LocalAction, TeamAction};
use serde_json::{Value, json};

fn parse(name: &str, input: Value) -> Call {
    Caller::Teammate.parse(name, &input).unwrap()
}

fn local(name: &str, input: Value) -> LocalAction {
    match parse(name, input).action {
        Action::Local(action) => action,
        other => panic!("{other:?}"),
    }
}

/// The activity of a command.
fn bash(command: &str) -> String {
    parse("bash", json!({ "command": command })).activity
}

#[test]
fn null_is_no_value_and_a_whole_number_may_be_written_as_a_fraction() {
    let command = |timeout| {
        LocalAction::Bash(Bash {
            command: "ls".to_owned(),
            timeout,
            run_in_background: false,
        })
    };
    assert_eq!(
        local("bash", json!({"command": "ls", "timeout": null})),
        command(None)
    );
    assert_eq!(
        local("bash", json!({"command": "ls", "timeout": 1.5})),
        command(Some(1.5))
    );
    assert_eq!(parse("read_inbox", Value::Null).action, Action::ReadInbox);
    let LocalAction::ReadFile(read) =
        local("read_file", json!({"path": "a", "limit": 5.0, "offset": 7}))
    else {
        panic!();
    };
    assert_eq!((read.limit, read.offset), (Some(5), Some(7)));
}

#[test]
fn what_is_wrong_is_said_exactly() {
    for (name, input, error) in [
        (
            "dance",
            json!({}),
            "there is no tool \"dance\"; the tools are bash, read_file, write_file, edit_file, glob, grep, send_message, read_inbox, \
             shutdown_response, plan_approval, claim_task, task_update, task_list, task_get, task_create",
        ),
        (
            "bash",
            json!("\"ls\""),
            "bash: the input must be a JSON object, not a string",
        ),
        ("bash", json!({}), "bash: missing field `command`"),
        (
            "bash",
            json!({"command": ["ls"]}),
            "bash: the field `command`: invalid type: sequence, expected a string",
        ),
        (
            "bash",
            json!({"command": " "}),
            "bash: the field `command`: must be a string that is not empty",
        ),
        (
            "bash",
            json!({"command": "a\u{0}b"}),
            "bash: the field `command`: must be a string without NUL characters",
        ),
        (
            "bash",
            json!({"command": "a", "timeout": 0}),
            "bash: the field `timeout`: must be above 0 and at most 3600 seconds",
        ),
        (
            "bash",
            json!({"command": "a", "timeout": 3601}),
            "bash: the field `timeout`: must be above 0 and at most 3600 seconds",
        ),
        (
            "bash",
            json!({"command": "a", "timeout": "9"}),
            "bash: the field `timeout`: invalid type: string \"9\", expected f64",
        ),
        (
            "bash",
            json!({"command": "a", "run_in_background": "yes"}),
            "bash: the field `run_in_background`: invalid type: string \"yes\", expected a boolean",
        ),
        (
            "bash",
            json!({"command": "a", "cwd": "/"}),
            "bash: unknown field `cwd`, expected one of `command`, `timeout`, `run_in_background`",
        ),
        (
            "read_inbox",
            json!({"last": 3}),
            "read_inbox: unknown field `last`, there are no fields",
        ),
        (
            "read_file",
            json!({"path": "a", "offset": 0}),
            "read_file: the field `offset`: must be a whole number from 1",
        ),
        (
            "read_file",
            json!({"path": "a", "limit": 1.5}),
            "read_file: the field `limit`: must be a whole number from 1",
        ),
        (
            "read_file",
            json!({"path": "a", "limit": -1}),
            "read_file: the field `limit`: must be a whole number from 1",
        ),
        (
            "write_file",
            json!({"path": "a"}),
            "write_file: missing field `content`",
        ),
        (
            "shutdown_response",
            json!({"request_id": "a1"}),
            "shutdown_response: missing field `approve`",
        ),
        (
            "shutdown_response",
            json!({"request_id": "no good", "approve": true}),
            "shutdown_response: the field `request_id`: not a request id: 1 to 64 of A-Z, a-z, 0-9, _ and - are expected",
        ),
        (
            "plan_approval",
            json!({"plan": "\n"}),
            "plan_approval: the field `plan`: must be a string that is not empty",
        ),
        (
            "sleep",
            json!({"seconds": -1}),
            "sleep: the field `seconds`: must be from 0 to 86400",
        ),
    ] {
        assert_eq!(
            Caller::Teammate.parse(name, &input),
            Err(error.to_owned()),
            "{name} {input}"
        );
    }
}

#[test]
fn only_what_changes_something_needs_an_open_gate() {
    let needs = |name, input| local(name, input).needs_open_gate();
    assert!(needs(
        "bash",
        json!({"command": "ls", "run_in_background": true})
    ));
    let foreground = local("bash", json!({"command": "ls"}));
    assert!(
        !foreground.needs_open_gate(),
        "the kernel keeps it from changing anything"
    );
    assert!(foreground.changes(Gate::Open) && !foreground.changes(Gate::Closed));
    assert!(needs("write_file", json!({"path": "a", "content": ""})));
    assert!(needs(
        "edit_file",
        json!({"path": "a", "old_text": "x", "new_text": "y"})
    ));
    assert!(!needs("read_file", json!({"path": "a"})));
    assert!(!needs("sleep", json!({"seconds": 1})));
}

#[test]
fn an_activity_fits_on_a_line_of_a_terminal() {
    assert_eq!(bash("cargo test"), "bash: cargo test");
    assert_eq!(
        bash("a\nb\u{1b}[2J\u{202e}"),
        r"bash: a\nb\u{1b}[2J\u{202e}"
    );
    assert_eq!(parse("read_inbox", json!({})).activity, "read_inbox");
    assert_eq!(
        parse("sleep", json!({"seconds": 0.5})).activity,
        "sleep: 0.5"
    );
    let long = bash(&"ä".repeat(1_000_000));
    assert_eq!(long.chars().count(), 60);
    assert!(long.ends_with('…'));
}

#[test]
fn what_the_lead_agent_calls_by_the_name_of_a_teammates_tool_is_told_apart() {
    let request_id = RequestId::new("a1b2c3d4").unwrap();
    let parse = |input| {
        Caller::LeadAgent
            .parse("shutdown_response", &input)
            .unwrap()
            .action
    };
    let status = Action::Team(TeamAction::ShowRequest(request_id.clone()));
    assert_eq!(parse(json!({"request_id": "a1b2c3d4"})), status);
    assert_eq!(
        parse(json!({"request_id": "a1b2c3d4", "approve": null})),
        status
    );
    let own = Action::AnswerShutdown(ShutdownResponse {
        request_id,
        approve: true,
        reason: "done".into(),
    });
    assert_eq!(
        parse(json!({"request_id": "a1b2c3d4", "approve": true, "reason": "done"})),
        own
    );
    let verdict = json!({"request_id": "a1b2c3d4", "approve": false, "feedback": "smaller"});
    let action = Caller::LeadAgent
        .parse("plan_approval", &verdict)
        .unwrap()
        .action;
    assert!(
        matches!(action, Action::Team(TeamAction::AnswerPlan(_))),
        "{action:?}"
    );
    assert!(Caller::Teammate.parse("plan_approval", &verdict).is_err());
    assert!(
        Caller::LeadAgent
            .parse("plan_approval", &json!({"plan": "mine"}))
            .is_err()
    );
}

proptest! {
    #[test]
    fn no_activity_is_longer_or_holds_a_control_character(text in "(?s)[^\\x00]{0,90}") {
        let activity = bash(&format!("x{text}"));
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
        assert_eq!(
            Caller::Teammate.parse(name, &input),
            Err(error.to_owned()),
            "{input}"
        );
    }
}
