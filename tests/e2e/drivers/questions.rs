//! What an agent may do only when a person has said so.

use nix::sys::signal::Signal;
use serde_json::json;

use super::{CLAUDE, LIVE, Stub, agent_of, session, spawn, team_of};
use crate::support::{Team, signal};

/// With `permissions = "ask"` each question of the agent is a request, which a person answers; the
/// runtime answers in time.
pub(super) fn a_question_of_the_agent_is_a_request_that_a_person_answers(stub: &Stub) {
    let Some(team) = team_of(&[stub], LIVE) else {
        return;
    };
    spawn(
        &team,
        stub,
        &[
            "--permissions",
            "ask",
            "--prompt",
            "$ echo yes > first\n$ echo no > second\n@task_list",
        ],
    );
    let asked = |team: &Team| {
        let pending = || {
            team.teamctl(["--json", "requests"])
                .ok()
                .json()
                .as_array()
                .unwrap()
                .clone()
        };
        let open = || {
            pending()
                .into_iter()
                .find(|it| it["kind"] == "permission" && it["status"] == "pending")
        };
        team.until("a question", || open().is_some());
        open().unwrap()
    };
    let first = asked(&team);
    assert_eq!(
        first["payload"],
        json!({"tool": stub.command, "input": {"command": "echo yes > first"}})
    );
    team.wait_for("carol", "awaiting_approval");
    let shown = team.teamctl(["status"]).ok().stdout;
    assert!(
        shown.contains(&format!("{}: echo yes > first", stub.command)),
        "{shown}"
    );
    assert!(!team.made("first"));
    team.teamctl(["approve", first["request_id"].as_str().unwrap()])
        .ok();
    let second = asked(&team);
    assert_eq!(team.text("first"), "yes\n");
    team.send("carol", "say heard");
    team.teamctl([
        "reject",
        second["request_id"].as_str().unwrap(),
        "--feedback",
        "not that one",
    ])
    .ok();
    team.until_finished("carol", 1);
    let told = team.notices("carol").pop().unwrap()["content"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        told.contains("refused") && told.contains("heard") && !team.made("second"),
        "{told}"
    );
    let entries = team.transcript("carol");
    let at = |what: &str| {
        entries
            .iter()
            .rposition(|entry| entry["entry"] == what)
            .unwrap()
    };
    let refused = entries
        .iter()
        .position(|it| it["entry"] == "result" && it["is_error"] == true)
        .unwrap();
    assert!(
        at("messages") < refused,
        "it is told before the answer: {entries:?}"
    );
    let results = team.results("carol");
    let kept = session(&team, stub);
    assert!(kept.contains("not that one"), "{results:?} {kept}");

    // Asked while it is asked to leave: nothing is waited for. And with its incarnation a
    // question ends.
    team.send("carol", "$ echo x > third");
    let third = asked(&team);
    assert_eq!(team.shutdown("carol", &[], 0)["outcome"], "shutdown");
    let id = third["request_id"].as_str().unwrap();
    assert_eq!(team.request(id)["status"], "expired");
    team.teamctl(["approve", id]).exits(7);
    assert!(!team.made("third"));
}

/// It will not hear the answer: it goes on without one.
pub(super) fn a_question_is_over_when_the_agent_has_ended(stub: &Stub) {
    let Some(team) = team_of(&[stub], LIVE) else {
        return;
    };
    spawn(
        &team,
        stub,
        &["--permissions", "ask", "--prompt", "$ echo yes > first"],
    );
    team.wait_for("carol", "awaiting_approval");
    signal(agent_of(&team), Signal::SIGKILL);
    team.until_finished("carol", 1);
    assert_eq!(
        team.notices("carol").pop().unwrap()["idle_reason"],
        "available"
    );
    assert!(!team.made("first") && session(&team, stub).contains("may have run"));
    let open = team.teamctl(["--json", "requests"]).ok().json();
    let statuses: Vec<_> = open
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["status"].clone())
        .collect();
    assert_eq!(statuses, ["expired"]);
}

#[test]
fn a_question_that_is_not_answered_in_time_is_refused_and_an_approval_can_end_them() {
    let Some(team) = team_of(&[&CLAUDE], LIVE) else {
        return;
    };
    team.teamd(["stop"]).ok();
    let team = team.with("TEAM_PERMISSION_TIMEOUT", "0.2s");
    team.teamd(["start"]).ok();
    spawn(
        &team,
        &CLAUDE,
        &[
            "--plan",
            "--permissions",
            "ask",
            "--prompt",
            "$ true\n@plan_approval {\"plan\": \"make it\"}",
        ],
    );
    team.until("the end of its time", || {
        team.file("transcript/carol.jsonl")
            .contains("no answer within")
    });
    team.until("its plan", || !team.requests("plan_approval").is_empty());
    let plan = team.last_request("plan_approval");
    team.teamctl([
        "approve",
        &plan,
        "--permissions",
        "allow",
        "--feedback",
        "\n$ echo done > made\n",
    ])
    .ok();
    team.until_finished("carol", 1);
    assert_eq!(team.text("made"), "done\n");
    let statuses: Vec<_> = team
        .requests("permission")
        .iter()
        .map(|it| it["status"].clone())
        .collect();
    assert_eq!(statuses, ["rejected"]);
}
