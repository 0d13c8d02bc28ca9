//! One task, one teammate and one request, as the page shows them.

use std::cell::Cell;
use std::fs::File;

use serde_json::json;

use super::Page;
use crate::support::Team;

#[test]
fn the_output_of_a_check_is_followed_while_it_runs() {
    let team = Team::started();
    team.teamctl(["spawn", "ana", "--auto"]).ok();
    let wait = |file: &str| format!("until [ -e {file} ]; do sleep 0.05; done");
    let check = format!("echo tick; {}; echo tock; {}", wait("go"), wait("end"));
    team.teamctl([
        "task",
        "add",
        "Wait",
        "--check",
        &check,
        "--description",
        "/bash true",
    ])
    .ok();
    let page = Page::of(&team, &["--read-only"]);
    let is_told = Cell::new(false);
    page.follow(
        "view=task&id=1",
        || {},
        |state| {
            let log = state["log"].as_str().unwrap_or_default();
            if log.contains("\ntick") && !is_told.replace(true) {
                File::create(team.root().join("go")).unwrap();
            }
            log.contains("\ntock") && state["task"]["checking"] == true
        },
    );
    File::create(team.root().join("end")).unwrap();
    page.follow(
        "view=task&id=1",
        || {},
        |state| state["task"]["status"] == "completed",
    );
    let shown = page.view("view=task&id=1");
    let can = ["edit", "retry", "cancel"].map(|order| &shown["task"][order]);
    assert_eq!(can, [&json!(false); 3], "{shown}");
    assert_eq!(page.get("/view?view=task&id=2").code, 404);
}

#[test]
fn a_teammate_and_a_request_are_shown_with_what_concerns_them() {
    let team = Team::started();
    let id = super::planned(&team, "ana", "First");
    team.spawn("bo", "");
    let page = Page::of(&team, &[]);
    let shown = page.view("view=teammate&name=ana");
    assert_eq!(
        (&shown["member"]["word"], &shown["requests"][0]["id"]),
        (&json!("plan"), &json!(id))
    );
    assert!(
        shown["member"]["facts"]
            .as_array()
            .unwrap()
            .contains(&json!(["gate", "closed"])),
        "{shown}"
    );
    assert!(!shown["events"].to_string().contains("bo "), "{shown}");
    let request = |view: &str| page.view(view)["request"].clone();
    let of_id = format!("view=request&id={id}");
    assert_eq!(request(&of_id)["pending"], true);
    team.teamctl(["reject", &id, "--feedback", "smaller steps"])
        .ok();
    page.follow(
        &of_id,
        || {},
        |state| state["request"]["status"] == "rejected",
    );
    assert_eq!(request(&of_id)["reason"], "smaller steps");
    for missing in ["teammate&name=nobody", "request&id=ffffffff"] {
        for once in ["view", "events"] {
            let answer = page.get(&format!("/{once}?view={missing}"));
            assert_eq!(answer.code, 404, "{once} {missing}");
        }
    }
    // Starts of processes are no news, unless they are asked for.
    let news = |query: &str| page.view(query)["feed"].to_string();
    let usual = news("view=overview");
    assert!(
        usual.contains("smaller steps") && !usual.contains("is spawned"),
        "{usual}"
    );
    assert!(news("view=overview&news=all").contains("bo is spawned"));
}
