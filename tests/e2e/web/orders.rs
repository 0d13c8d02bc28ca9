//! What a person orders on the page: each order is a command of `teamctl`, in its words.

use serde_json::{Value, json};

use super::Page;
use crate::support::Team;

/// Gives an order, and returns the code of the answer and what it says.
fn order(page: &Page, kind: &str, body: &Value) -> (u16, String) {
    let answer = page.post(&format!("/{kind}"), &body.to_string());
    let said: Value = serde_json::from_str(&answer.body).unwrap();
    let said = said["said"].as_str().or(said["error"].as_str());
    (answer.code, said.unwrap().to_owned())
}

fn refused(page: &Page, kind: &str, body: &Value, why: &str) {
    let (code, said) = order(page, kind, body);
    assert_eq!(code, 409, "{kind} {body}: {said}");
    assert!(said.contains(why), "{kind} {body}: {said}");
}

fn done(page: &Page, kind: &str, body: &Value) -> String {
    let (code, said) = order(page, kind, body);
    assert_eq!(code, 200, "{kind} {body}: {said}");
    said
}

#[test]
fn tasks_are_added_changed_cancelled_and_retried_in_the_words_of_the_commands() {
    let team = Team::started();
    team.spawn("ana", "");
    let page = Page::of(&team, &[]);
    let first = json!({"subject": "--help me", "description": "- [ ] one\n", "check": "test -e x", "for": "ana", "after": "", "review": "person"});
    assert_eq!(done(&page, "add_task", &first), "1");
    assert_eq!(
        done(
            &page,
            "add_task",
            &json!({"subject": "Then", "after": "1, 1"})
        ),
        "2"
    );
    let task = |id: &str| team.json(["task", "show", id]);
    let shown = task("1");
    assert_eq!(
        (&shown["subject"], &shown["check"]["command"]),
        (&json!("--help me"), &json!("test -e x"))
    );
    assert_eq!(
        (&shown["for"], &shown["review"]),
        (&json!("ana"), &json!("person"))
    );
    assert_eq!(task("2")["blocked_by"], json!([1]));
    for (body, why) in [
        (json!({}), "the subject of a task is one line of text"),
        (
            json!({"subject": "a\nb"}),
            "the subject of a task is one line of text",
        ),
        (
            json!({"subject": "x", "for": "nobody"}),
            "no teammate is named \"nobody\"",
        ),
        (json!({"subject": "x", "after": "99"}), "99"),
        (
            json!({"subject": "x", "after": "one"}),
            "invalid value 'one'",
        ),
        (
            json!({"subject": "x", "review": "pearson"}),
            "did you mean person?",
        ),
        (json!({"subject": "x", "check": " "}), "the check is empty"),
    ] {
        refused(&page, "add_task", &body, why);
    }
    let said = done(
        &page,
        "edit_task",
        &json!({"id": 2, "subject": "Later", "after": "", "description": "more"}),
    );
    assert_eq!(said, "task 2 (Later) is changed");
    let shown = task("2");
    assert_eq!(
        (&shown["blocked_by"], &shown["description"]),
        (&json!([]), &json!("more"))
    );
    refused(&page, "edit_task", &json!({"id": 2}), "nothing to change");
    refused(&page, "edit_task", &json!({"id": 77, "subject": "x"}), "77");
    assert_eq!(
        done(&page, "cancel_task", &json!({"id": 2})),
        "task 2 (Later) is cancelled"
    );
    let twice = json!({"id": 2});
    let said = order(&page, "cancel_task", &twice);
    assert!(said.1.contains("cancelled"), "{said:?}");
    let again = done(
        &page,
        "retry_task",
        &json!({"id": 2, "description": "/bash true"}),
    );
    assert_eq!(
        (again.as_str(), &task("2")["description"]),
        ("task 2 (Later) is open again", &json!("/bash true"))
    );
    refused(&page, "retry_task", &json!({"id": 2}), "task 2");
    // What is not such an order is not even tried.
    for (kind, body) in [
        ("add_task", json!({"subject": 7})),
        ("add_task", json!({"subject": "x", "workspace": "/"})),
        ("edit_task", json!({"id": -1})),
        ("cancel_task", json!([])),
    ] {
        assert_eq!(
            page.post(&format!("/{kind}"), &body.to_string()).code,
            400,
            "{kind} {body}"
        );
    }
    assert_eq!(
        team.json(["task", "list", "--all"])
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn teammates_are_spawned_interrupted_asked_for_a_plan_and_shut_down() {
    let team = Team::started();
    let page = Page::of(&team, &[]);
    let work = "/sleep 0.5\n".repeat(45);
    let prompt = format!("/reject_shutdown chapter two is not written yet\n{work}");
    let said = done(
        &page,
        "spawn",
        &json!({"name": "ana", "role": "writer", "model": "script", "prompt": prompt, "auto": true}),
    );
    assert!(said.starts_with("ana is "), "{said}");
    let member = &team.member("ana");
    assert_eq!(
        (&member["name"], &member["role"]),
        (&json!("ana"), &json!("writer"))
    );
    for (body, why) in [
        (json!({"name": "ana", "model": "script"}), "ana"),
        (json!({"name": "Bo"}), "is not a name"),
        (
            json!({"name": "bo", "model": "scirpt"}),
            "did you mean script?",
        ),
        (
            json!({"name": "bo", "agent": "none-such", "model": "script"}),
            "none-such",
        ),
        (
            json!({"name": "bo", "model": "script", "checkout": true}),
            "git",
        ),
    ] {
        refused(&page, "spawn", &body, why);
    }
    team.wait_for("ana", "working");
    refused(
        &page,
        "shutdown",
        &json!({"name": "ana", "text": "we are done"}),
        "ana rejected the shutdown: chapter two is not written yet",
    );
    assert_eq!(
        done(&page, "interrupt", &json!({"name": "ana"})),
        "interrupted ana"
    );
    assert!(done(&page, "interrupt", &json!({"name": "ana"})).contains("nothing to interrupt"));
    let said = done(
        &page,
        "request_plan",
        &json!({"name": "ana", "text": "Of the next chapter, please."}),
    );
    assert_eq!(
        said,
        "ana is asked for a plan and may change nothing until one is approved"
    );
    let said = done(
        &page,
        "shutdown",
        &json!({"name": "ana", "text": "", "force": true}),
    );
    assert!(said.starts_with("ana is gone"), "{said}");
    for kind in ["interrupt", "request_plan", "shutdown"] {
        refused(&page, kind, &json!({"name": "nobody"}), "nobody");
        assert_eq!(page.post(&format!("/{kind}"), "{}").code, 400, "{kind}");
    }
    let again = done(&page, "spawn", &json!({"name": "ana", "resume": true}));
    assert!(again.starts_with("ana is "), "{again}");
}

#[test]
fn read_only_refuses_every_order_and_shows_what_was_changed() {
    let team = Team::started();
    team.spawn("ana", "");
    let page = Page::of(&team, &["--read-only"]);
    for (kind, body) in [
        (
            "answer",
            json!({"id": "ffffffff", "approve": true, "feedback": ""}),
        ),
        (
            "review",
            json!({"id": "ffffffff", "approve": true, "feedback": "", "work": "", "comments": []}),
        ),
        ("send", json!({"to": "ana", "text": "x"})),
        ("add_task", json!({"subject": "x"})),
        ("edit_task", json!({"id": 1, "subject": "x"})),
        ("retry_task", json!({"id": 1})),
        ("cancel_task", json!({"id": 1})),
        ("spawn", json!({"name": "bo", "model": "script"})),
        ("interrupt", json!({"name": "ana"})),
        ("shutdown", json!({"name": "ana"})),
        ("request_plan", json!({"name": "ana"})),
    ] {
        let (code, said) = order(&page, kind, &body);
        assert_eq!(code, 403, "{kind}: {said}");
        assert!(said.contains("--read-only"), "{kind}: {said}");
    }
    let members = &team.roster()["members"];
    assert_eq!(members.as_array().unwrap().len(), 1, "{members}");
    assert_eq!(team.status("ana"), "idle");
    assert_eq!(team.json(["task", "list", "--all"]), json!([]));
    let diff = &page.changes("of=ana")[0];
    assert!(
        diff["summary"]
            .as_str()
            .unwrap()
            .starts_with("ana has no checkout"),
        "{diff}"
    );
}
