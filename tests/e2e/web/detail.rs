//! One task, one teammate and one request, as the page shows them.

use std::cell::Cell;
use std::fs::File;

use nix::sys::signal::Signal;
use serde_json::json;

use super::Page;
use crate::sandbox::localhost::{keeper, serving};
use crate::support::{Team, signal};

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

/// What a teammate serves is shown once it is known: a keeper that says nothing holds no view.
#[test]
fn the_ports_of_a_teammate_are_shown_and_no_view_waits_for_them() {
    let Some(team) = serving("false", &["alice"]) else {
        return;
    };
    let keeper = keeper(&team, "alice");
    signal(keeper, Signal::SIGSTOP);
    let page = Page::of(&team, &["--read-only"]);
    let began = std::time::Instant::now();
    let views = 20;
    for _ in 0..views {
        let shown = page.view("view=teammate&name=alice").to_string();
        assert!(!shown.contains("teamctl port"), "{shown}");
    }
    // Each had waited 200 ms.
    assert!(began.elapsed().as_millis() < views * 100);
    page.follow(
        "view=teammate&name=alice",
        || signal(keeper, Signal::SIGCONT),
        |state| state.to_string().contains("`teamctl port alice 3000`"),
    );
}

#[test]
fn the_output_of_commands_is_followed_while_they_run_and_shown_after() {
    let team = Team::started();
    let go = |name: &str| drop(File::create(team.root().join(name)).unwrap());
    let command = |number: u32| {
        let wait = |file: &str| format!("until [ -e {file}{number} ]; do sleep 0.05; done");
        format!(
            r"printf '\\033[1mtick\\033[0m\\n'; {}; echo tock; {}",
            wait("go"),
            wait("end")
        )
    };
    team.teamctl(["spawn", "ana", "--auto"]).ok();
    let page = Page::of(&team, &["--read-only"]);
    let behind = json!({"command": command(1).replace("\\\\", "\\"), "run_in_background": true});
    let before = json!({"command": command(2).replace("\\\\", "\\")});
    for (prompt, part, number, title) in [
        (
            format!("/bash {behind}"),
            "output-1",
            1,
            "In the background: 1",
        ),
        (format!("/bash {before}"), "output-last", 2, "Its command"),
    ] {
        team.send("ana", &prompt);
        let is_told = Cell::new(false);
        page.follow(
            "view=teammate&name=ana",
            || {},
            |state| {
                let text = state[part].as_str().unwrap_or_default();
                let is_there = |line: &str| text.lines().any(|it| it == line);
                if is_there("tick") && !is_told.replace(true) {
                    go(&format!("go{number}"));
                }
                let outputs = state["outputs"].as_array().unwrap();
                let shown = outputs.iter().find(|output| output["part"] == part);
                is_there("tock")
                    && shown.is_some_and(|it| it["title"] == title && it["state"] == "it runs…")
            },
        );
    }
    go("end2");
    page.follow(
        "view=teammate&name=ana",
        || {},
        |state| {
            state["outputs"][0]["title"] == "Its last command"
                && state["output-last"].to_string().contains("[exit code 0]")
        },
    );
    go("end1");
    page.follow(
        "view=teammate&name=ana",
        || {},
        |state| {
            state["outputs"][1]["state"] == "ended"
                && state["output-1"].to_string().contains("tock")
        },
    );
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
