//! Work that is completed when it is approved.

use serde_json::json;

use super::{add, auto, is_told, review, task, team_with, until};
use crate::support::Team;

#[test]
fn work_is_reviewed_and_completed_only_when_it_is_approved() {
    let team = team_with("check = 'true'\n");
    let id = add(&team, &["build it", "--review", "person"]);
    // One that waits for nothing would be reminded, and lose it.
    let busy = "/bash until [ -e go ]; do sleep 0.02; done";
    team.spawn(
        "alice",
        &format!("/claim_task {{\"task_id\": {id}}}\n/task_update {{\"task_id\": {id}, \"status\": \"completed\"}}\n{busy}"),
    );
    let first = review(&team);
    assert_eq!(task(&team, id)["status"], "in_review");
    assert_eq!(task(&team, id)["submission"]["request_id"], json!(first));
    // The line follows the journal, which `reviews` reads.
    team.until("the lead to be asked", || {
        team.inbox("lead")
            .iter()
            .any(|line| line["type"] == "review_request")
    });
    let status = team.teamctl(["status"]).ok().stdout;
    assert!(
        status.contains(&format!("{first} task {id} (build it), submission 1")),
        "{status}"
    );
    team.teamctl(["reject", &first, "--feedback", "build it again"])
        .ok();
    assert!(is_told(&team, "alice", "is not approved: build it again"));
    assert_eq!(task(&team, id)["returns"], 1);
    team.teamctl(["task", "submit", &id.to_string()]).ok();
    let second = review(&team);
    assert_ne!(first, second);
    let answered = team.teamctl(["approve", &first]).exits(7);
    assert!(
        answered.stderr.contains("is rejected already"),
        "{answered:?}"
    );
    // The daemon is killed: the review waits, and its answer completes the task once.
    team.kill_daemon();
    team.teamd(["start"]).ok();
    assert_eq!(review(&team), second);
    team.teamctl(["approve", "alice"]).exits(2);
    team.teamctl(["approve", &second]).ok();
    let done = until(&team, id, "completed");
    assert_eq!(
        (&done["attempts"], &done["returns"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(team.json(["reviews"]), json!([]));
    let shown = team.teamctl(["requests"]).ok().stdout;
    team.write("go", "");
    assert!(
        shown.contains("review") && shown.contains("approved") && shown.contains("rejected"),
        "{shown}"
    );
}

#[test]
fn a_changed_protected_file_forces_a_review_also_where_no_check_runs() {
    let team = Team::new();
    std::fs::create_dir(team.root().join("tests")).unwrap();
    team.write("tests/a", "one");
    team.write("team.toml", "[work]\nprotect = ['tests/**']\n");
    team.trust();
    team.teamd(["start"]).ok();
    let harmless = add(&team, &["harmless", "--description", "/bash touch other"]);
    let id = add(
        &team,
        &["delete the test", "--description", "/bash rm tests/a"],
    );
    auto(&team, "alice");
    let it = review(&team);
    assert_eq!(task(&team, harmless)["status"], "completed");
    let asked = &team.json(["reviews", &it])[0]["payload"]["touched_protected"];
    assert_eq!(asked, "changed since the task was set");
    // Released work needs no answer any more.
    team.teamctl(["task", "cancel", &id.to_string()]).ok();
    assert_eq!(team.json(["requests", &it])[0]["status"], "expired");
    team.teamctl(["approve", &it]).exits(7);
}
