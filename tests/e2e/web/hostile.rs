//! Hostile texts are shown as texts.

use serde_json::json;
use teamd_shared::testing::roster_member;

use super::{Page, VIEWS, is_harmless, planned};
use crate::support::Team;
use crate::support::browser::drive;

/// A directory that hostile programs wrote: each field that is a text of others, times of a clock
/// that jumps, a line of a megabyte.
fn hostile(team: &Team) {
    team.teamd(["stop", "--force"]).ok();
    let bad = format!(
        "\u{202e}txt\u{200b}\u{1b}[2J\u{7}<script>{}",
        "x".repeat(1 << 20)
    );
    let exit = json!({"code": null, "signal": 9, "at": 1e300, "request_id": null, "unread": 0,
        "inbox": {"offset": 0, "tail": "cbf29ce484222325"}, "note": bad});
    let usage = json!({"input_tokens": u64::MAX, "output_tokens": u64::MAX, "cache_read_input_tokens": 7,
            "cache_creation_input_tokens": 0});
    let member = |name: &str, status: &str| {
        roster_member(
            &json!({"name": name, "role": bad, "status": status, "model": bad,
            "updated_at": -1e300, "exit": exit, "activity": bad, "usage": usage, "waiting": {"until": 1e300, "why": bad},
            "silent_since": -1e300}),
        )
    };
    let members = json!([member("ana", "working"), member("bo", "crashed")]);
    team.put(
        "config.json",
        &json!({"version": 1, "seq": 1, "team_name": bad, "daemon": null, "members": members})
            .to_string(),
    );
    let mut lines = String::new();
    for (at, kind) in [
        (1e300, "message"),
        (-1e300, bad.as_str()),
        (0.0, "task_assignment"),
        (5.0, "idle_notification"),
    ] {
        let line = json!({"type": kind, "from": bad, "to": bad, "content": bad, "timestamp": at, "subject": bad, "task_id": 1,
            "summary": bad, "idle_reason": "available"});
        lines += &format!("{line}\n");
    }
    for owner in ["lead", "ana"] {
        team.put(
            &format!("inbox/{owner}.jsonl"),
            &(lines.clone() + "no json\u{1b}[2J\n"),
        );
    }
    let mut entries = String::new();
    for (at, event) in [
        (
            1e300,
            json!({"entry": "incarnation", "incarnation": 1, "conversation": 1, "prompt": bad}),
        ),
        (
            -5.0,
            json!({"entry": "answer", "usage": usage, "content": [{"type": "text", "text": bad},
            {"type": "tool_use", "id": bad, "name": bad, "input": {"command": bad}}]}),
        ),
        (
            3.0,
            json!({"entry": "result", "tool_use_id": bad, "content": bad, "is_error": true}),
        ),
    ] {
        let mut entry = json!({"at": at, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}});
        entry
            .as_object_mut()
            .unwrap()
            .extend(event.as_object().unwrap().clone());
        entries += &format!("{entry}\n");
    }
    team.put("transcript/ana.jsonl", &entries);
}

#[test]
fn hostile_texts_and_times_of_each_field_are_shown_escaped_and_cut() {
    let team = Team::started();
    let id = planned(&team, "ana", "\u{202e}First\u{1b}[2J");
    team.teamctl(["reject", &id, "--feedback", "\u{202e}no\u{200b}"])
        .ok();
    team.teamctl(["task", "add", "\u{202e}subject\u{1b}[2J"])
        .ok();
    hostile(&team);
    let page = Page::of(&team, &[]);
    // What is read meanwhile is told until all is read.
    page.follow(
        "view=cost",
        || {},
        |state| state["reading"] == 0 && state["members"].as_array().unwrap().len() == 2,
    );
    let one = ["task&id=1", "teammate&name=ana", "overview&news=all"];
    let request = format!("request&id={id}");
    for view in VIEWS.iter().chain(&one).copied().chain([request.as_str()]) {
        let shown = page.view(&format!("view={view}"));
        assert!(is_harmless(&shown), "{view}: {shown}");
        assert!(
            shown.to_string().len() < 200_000,
            "{view} has {} bytes",
            shown.to_string().len()
        );
    }
}

#[test]
fn a_browser_shows_hostile_texts_as_texts() {
    let team = Team::started();
    let hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>\u{202e}txt\u{200b}\u{1b}[2J \
        [click](javascript:alert(3)) **bold** [out](https://example.org/x)";
    planned(&team, "ana", hostile);
    team.teamctl(["task", "add", hostile]).ok();
    team.teamctl(["spawn", "bo", "--role", "<script>alert(4)</script>"])
        .ok();
    for (to, text) in [
        ("lead", hostile.to_owned()),
        ("bo", hostile.to_owned()),
        ("bo", "x".repeat(1 << 20)),
    ] {
        team.echo(
            to,
            &json!({"type": "message", "from": "ana", "to": to, "content": text}).to_string(),
        );
    }
    team.until("bo to have read", || {
        team.transcript("bo")
            .iter()
            .any(|entry| entry["entry"] == "messages")
    });
    let page = Page::of(&team, &[]);
    let views = [
        "overview",
        "board",
        "conversation/bo",
        "sequence",
        "cost",
        "requests",
    ];
    let keyless = page.url.split_once('#').unwrap().0;
    let mut asked = Vec::new();
    for view in views {
        let name = view.split('/').next().unwrap();
        asked.push(format!("{}/{view}", page.url));
        asked.push(match name {
            "requests" => "<strong>bold</strong>".to_owned(),
            // What it shows has come.
            "cost" => "data-shown=\"cost\"".to_owned(),
            _ => "&lt;img src=x onerror=alert(1)&gt;".to_owned(),
        });
    }
    asked.push(keyless.to_owned());
    asked.push("This page has no key".to_owned());
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    let Some(shown) = drive("hostile.mjs", &asked) else {
        return;
    };
    let shown: Vec<String> = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown.len(), views.len() + 1);
    for (view, shown) in views.iter().zip(&shown) {
        for bad in [
            "<img",
            "<script>",
            "href=\"javascript",
            "\u{202e}",
            "\u{200b}",
            "\u{1b}",
        ] {
            assert!(!shown.contains(bad), "{view} has {bad:?}: {shown}");
        }
        assert!(shown.len() < 400_000, "{view} has {} bytes", shown.len());
        assert!(!shown.contains(&page.key), "{view} shows the key");
    }
    let requests = &shown[views.len() - 1];
    assert!(
        requests.contains("&lt;img src=x onerror=alert(1)&gt;"),
        "{requests}"
    );
    assert!(
        requests.contains("<a href=\"https://example.org/x\" rel=\"noopener noreferrer\""),
        "{requests}"
    );
    assert!(requests.contains("\\u{202e}"), "{requests}");
}
