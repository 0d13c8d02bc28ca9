//! The page in a browser.

use std::process::Command;

use serde_json::json;

use super::Page;
use crate::support::Team;
use crate::support::browser::drive;
use crate::support::cgroup::note;
use crate::support::model_server::{Api, ModelServer};

#[test]
fn back_closes_a_text_over_the_page_and_leaves_the_view() {
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/lead/view/src/web/page/dialog.js"
    );
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page/dialog.mjs");
    let Ok(run) = Command::new("node").args([script, source]).output() else {
        return note("skipped: there is no node (apt-get install nodejs)");
    };
    let said = String::from_utf8(run.stdout).unwrap();
    let steps = [
        ("opened twice", 1, 2),
        ("back", 0, 1),
        ("closed", 0, 1),
        ("Escape", 0, 1),
    ];
    let steps = steps
        .map(|(step, open, entries)| format!("{step}: {open} open, {entries} in the history\n"));
    assert_eq!(
        said,
        steps.concat(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
}

#[test]
fn what_was_said_earlier_is_shown_page_by_page_and_new_texts_follow() {
    let team = Team::started();
    team.spawn("ana", "");
    team.wait_for("ana", "idle");
    team.teamd(["stop", "--force"]).ok();
    let entry = |n: usize| {
        json!({"at": 1.0, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}, "entry": "answer",
            "usage": {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0},
            "content": [{"type": "text", "text": format!("answer {n}")}]})
    };
    let all: String = (0..500).map(|n| format!("{}\n", entry(n))).collect();
    team.put("transcript/ana.jsonl", &all);
    let page = Page::of(&team, &[]);
    let transcript = team.path("transcript/ana.jsonl");
    let next = format!("{}\n", entry(500));
    let Some(shown) = drive(
        "earlier.mjs",
        &[&page.url, transcript.to_str().unwrap(), &next],
    ) else {
        return;
    };
    let counts: Vec<&str> = shown.lines().collect();
    assert_eq!(
        counts,
        [
            "200 from answer 300",
            "400 from answer 100",
            "500 from answer 0",
            "501 from answer 0"
        ]
    );
}

/// Has axe look at each view, light and dark, on a phone and on a desk: a team with a plan, a
/// failure, costs and tasks.
#[test]
fn axe_finds_nothing_serious_on_a_phone_and_on_a_desk_light_and_dark() {
    let server = ModelServer::start();
    server.says("All is **done**: see `src/lex.rs`.");
    let team = server.team();
    let plan = r"/plan_approval # Split the parser\n\n1. Move the `lexer`\n2. **Run** the tests\n\n[why](https://example.org/17)";
    team.teamctl([
        "spawn",
        "ana",
        "--model",
        Api::Anthropic.model(),
        "--prompt",
        "do it",
    ])
    .ok();
    team.until_finished("ana", 1);
    let script = ["--model", "script"];
    team.teamctl(
        ["spawn", "bo", "--plan", "--prompt", plan]
            .iter()
            .chain(&script),
    )
    .ok();
    team.until_planned("bo");
    team.teamctl(["spawn", "cy", "--auto"].iter().chain(&script))
        .ok();
    team.teamctl([
        "task",
        "add",
        "Passes, with a subject of many words",
        "--check",
        "true",
        "--description",
        "/bash true",
    ])
    .ok();
    team.teamctl([
        "task",
        "add",
        "Fails",
        "--check",
        "echo no; false",
        "--description",
        "/bash true",
    ])
    .ok();
    team.teamctl(["task", "add", "Waits", "--after", "2"]).ok();
    team.until("the check to fail", || {
        !team
            .journal()
            .iter()
            .all(|line| line["event"] != "returned")
    });
    let page = Page::of(&team, &[]);
    let Some(findings) = drive("look.mjs", &[&page.url]) else {
        return;
    };
    let serious: Vec<&str> = findings
        .lines()
        .filter(|line| {
            ["serious", "critical"]
                .iter()
                .any(|impact| line.contains(impact))
        })
        .collect();
    assert!(serious.is_empty(), "{serious:#?}");
}
