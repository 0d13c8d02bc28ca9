//! Plans: what the lead agent may decide, and what a person does.

use std::fs::File;

use nix::sys::signal::Signal;

use super::{team, text};
use crate::support::{Team, signal};

/// The holder of this sits at a terminal with `teamctl chat`.
fn chat(team: &Team) -> File {
    let chat = File::create(team.path("run/chat")).unwrap();
    chat.lock_shared().unwrap();
    chat
}

/// Failure 12 (CC#27265).
#[test]
fn the_lead_agent_only_recommends_where_a_person_decides() {
    let team = team();
    let results = team.lead_does(
        r#"/spawn_teammate {"name": "alice", "role": "coder", "prompt": "/plan_approval Drop it\n/bash echo x > x.txt", "plan": true}"#,
    );
    assert!(
        text(&results[0])
            .0
            .ends_with("it submits a plan first, which a person answers"),
        "{results:?}"
    );
    let id = team.until_planned("alice");
    team.until("the plan to be read", || {
        team.consumed("lead")
            .iter()
            .any(|line| line["plan"] == "Drop it")
    });
    let listed = team.lead_does("/list_teammates");
    assert!(
        text(&listed[0])
            .0
            .ends_with(&format!("plan {id} of alice waits for a person: Drop it")),
        "{listed:?}"
    );
    let results = team.lead_does(&format!("/plan_approval {{\"request_id\": \"{id}\", \"approve\": true, \"feedback\": \"looks right\"}}"));
    let (told, is_error) = text(&results[0]);
    assert!(
        is_error && told.contains(&format!("`teamctl approve {id}`")),
        "{told}"
    );
    assert_eq!(
        (
            team.request(&id)["status"].as_str(),
            team.member("alice")["gate"].as_str()
        ),
        (Some("pending"), Some("closed"))
    );
    assert!(!team.made("x.txt"));
    team.teamctl(["approve", &id]).ok();
    team.until_finished("alice", 1);
    assert!(team.made("x.txt"));
    let results = team.lead_does(&format!("/shutdown_response {{\"request_id\": \"{id}\"}}"));
    assert_eq!(
        text(&results[0]),
        (format!("plan {id} of alice: approved").as_str(), false)
    );
}

#[test]
fn at_a_chat_the_call_waits_for_the_persons_answer() {
    let team = team();
    let chat = chat(&team);
    team.teamctl([
        "spawn",
        "alice",
        "--plan",
        "--prompt",
        "/plan_approval Drop it\n/plan_approval Again",
    ])
    .ok();
    let id = team.until_planned("alice");
    team.until_lead_ended(1);
    team.send(
        "lead",
        &format!(
            "/plan_approval {{\"request_id\": \"{id}\", \"approve\": true, \"feedback\": \"fine\"}}"
        ),
    );
    team.until("the call to wait", || {
        team.member("lead")["activity"] == "waiting for a person"
    });
    // What arrives meanwhile is kept for after the answer.
    team.echo(
        "lead",
        r#"{"type":"message","from":"bob","content":"psst"}"#,
    );
    team.teamctl(["reject", &id, "--feedback", "smaller steps"])
        .ok();
    team.until_lead_ended(2);
    let results = team.results("lead");
    assert_eq!(
        text(&results[0]),
        ("the person rejected the plan: smaller steps", false)
    );
    team.until("the message to be read", || {
        team.has_consumed("lead", "psst")
    });
    // The chat is closed before the person has answered.
    let again = team.until_planned("alice");
    team.until("the plan to be read", || {
        team.consumed("lead")
            .iter()
            .any(|line| line["plan"] == "Again")
    });
    // The roster may show the call before still.
    team.wait_for("lead", "idle");
    team.send(
        "lead",
        &format!("/plan_approval {{\"request_id\": \"{again}\", \"approve\": true}}"),
    );
    team.until("the call to wait", || {
        team.member("lead")["activity"] == "waiting for a person"
    });
    drop(chat);
    team.until("the call to end", || team.results("lead").len() == 2);
    let results = team.results("lead");
    let (told, is_error) = text(&results[1]);
    assert!(
        is_error && told.starts_with("not decided: the chat was closed"),
        "{told}"
    );
    assert_eq!(team.request(&again)["status"], "pending");
}

#[test]
fn a_call_that_waits_for_a_person_can_be_interrupted_and_shut_down() {
    let team = team();
    let _chat = chat(&team);
    team.teamctl([
        "spawn",
        "alice",
        "--plan",
        "--prompt",
        "/plan_approval Drop it",
    ])
    .ok();
    let id = team.until_planned("alice");
    team.until_lead_ended(1);
    let wait = || {
        // The roster may show the call before still.
        team.wait_for("lead", "idle");
        team.send(
            "lead",
            &format!("/plan_approval {{\"request_id\": \"{id}\", \"approve\": true}}"),
        );
        team.until("the call to wait", || {
            team.member("lead")["activity"] == "waiting for a person"
        });
    };
    wait();
    team.teamctl(["interrupt", "lead"]).ok();
    team.until_lead_ended(2);
    assert!(
        text(&team.results("lead")[0])
            .0
            .starts_with("not decided: interrupted by the user")
    );
    wait();
    team.send("lead", "what does it do?");
    team.until_lead_ended(3);
    assert!(
        text(&team.results("lead")[1])
            .0
            .starts_with("not decided: the person has written")
    );
    assert!(team.has_consumed("lead", "what does it do?"));
    wait();
    assert_eq!(team.shutdown("lead", &[], 0)["outcome"], "shutdown");
    let results = team.results("lead");
    assert!(
        text(&results[2])
            .0
            .starts_with("not decided: you are asked to leave"),
        "{results:?}"
    );
    assert_eq!(team.request(&id)["status"], "pending");
}

#[test]
fn the_lead_agent_answers_alone_where_a_person_has_said_so() {
    let team = team();
    let args = [
        "spawn",
        "alice",
        "--plan",
        "--approve-by",
        "lead",
        "--prompt",
    ];
    team.teamctl(
        [
            &args[..],
            &["/plan_approval One\n/plan_approval Two\n/bash echo x > x.txt"],
        ]
        .concat(),
    )
    .ok();
    let one = team.until_planned("alice");
    let results = team.lead_does(&format!("/plan_approval {{\"request_id\": \"{one}\", \"approve\": false, \"feedback\": \"smaller steps\"}}"));
    assert_eq!(
        text(&results[0]),
        (
            "rejected: its author has your feedback; a gate that was closed stays closed",
            false
        )
    );
    team.until("the second plan", || {
        team.requests("plan_approval").len() == 2
    });
    let two = team.until_planned("alice");
    let results = team.lead_does(&format!(
        "/plan_approval {{\"request_id\": \"{two}\", \"approve\": true}}"
    ));
    assert_eq!(
        text(&results[0]),
        (
            "approved: the gate of its author is open, the task that was reviewed is completed, or the tool may be used",
            false
        )
    );
    team.until_finished("alice", 1);
    assert!(team.made("x.txt") && text(&team.results("alice")[0]).0.contains("smaller steps"));
}

#[test]
fn a_call_that_waits_for_a_person_waits_on_in_the_next_incarnation() {
    let team = team();
    let _chat = chat(&team);
    let prompt = "/plan_approval Drop it\n/bash echo x >> x.txt";
    team.teamctl(["spawn", "alice", "--plan", "--prompt", prompt])
        .ok();
    let id = team.until_planned("alice");
    team.until_lead_ended(1);
    team.send(
        "lead",
        &format!(
            "/plan_approval {{\"request_id\": \"{id}\", \"approve\": true, \"feedback\": \"fine\"}}"
        ),
    );
    team.until("the call to wait", || {
        team.member("lead")["activity"] == "waiting for a person"
    });
    signal(team.pid("lead"), Signal::SIGKILL);
    team.until("the next incarnation to wait", || {
        team.incarnation("lead") == 2 && team.member("lead")["activity"] == "waiting for a person"
    });
    assert_eq!(team.request(&id)["status"], "pending");
    team.teamctl(["approve", &id]).ok();
    team.until_finished("alice", 1);
    team.until_lead_ended(2);
    let results = team.results("lead");
    assert_eq!(
        (results.len(), text(&results[0])),
        (1, ("the person approved the plan", false))
    );
    assert_eq!(
        (team.text("x.txt"), team.requests("plan_approval").len()),
        ("x\n".to_owned(), 1)
    );
}
