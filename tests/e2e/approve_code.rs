//! `approve_code`: an answer that a person decides needs four digits, which only `top`, the page and
//! the hook show.

use std::path::Path;

use serde_json::{Value, json};

use crate::hooks::{configure, told};
use crate::support::Team;
use crate::support::terminal::Terminal;

/// A team whose hook of requests writes down what it gets, with a plan that waits.
fn team() -> (Team, String) {
    let team = Team::new();
    team.write("team.toml", "[team]\napprove_code = true\n");
    configure(&team.home(), &["on_request"]);
    team.teamd(["start"]).ok();
    let id = planned(&team, "ana");
    (team, id)
}

fn planned(team: &Team, name: &str) -> String {
    let prompt = "/plan_approval Drop the cache";
    team.teamctl(["spawn", name, "--plan", "--prompt", prompt])
        .ok();
    team.until_planned(name)
}

/// The code of a request that the hook was given last.
fn code(team: &Team, id: &str) -> String {
    let facts = told(&team.home(), "on_request");
    let mut of_request = facts
        .iter()
        .filter(|facts| facts["request"]["request_id"] == id);
    let last = of_request.next_back();
    last.map_or_else(String::new, |facts| {
        facts["code"].as_str().unwrap_or_default().to_owned()
    })
}

fn until_code(team: &Team, id: &str) -> String {
    team.until("the hook to get the code", || !code(team, id).is_empty());
    code(team, id)
}

fn other_than(code: &str) -> &'static str {
    if code == "0000" { "1111" } else { "0000" }
}

/// Asserts that a text is in no file below a directory.
fn nowhere_in(dir: &Path, text: &str) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            nowhere_in(&entry.path(), text);
        } else if kind.is_file() {
            let content = std::fs::read(entry.path()).unwrap();
            let content = String::from_utf8_lossy(&content);
            assert!(!content.contains(text), "{}", entry.path().display());
        }
    }
}

#[test]
fn an_answer_needs_the_code_that_the_hook_shows() {
    let (team, id) = team();
    let digits = until_code(&team, &id);
    assert_eq!(digits.len(), 4, "{digits}");
    let refused = team.teamctl(["--json", "approve", &id]).exits(3);
    let error: Value = serde_json::from_str(&refused.stderr).unwrap();
    let error = error["error"].to_string();
    assert!(
        error.contains("is answered with its code") && error.contains("--code DIGITS"),
        "{error}"
    );
    // The hash of the plan is no code.
    let hash = team.json(["plans"])[0]["plan_sha256"].clone();
    let with_hash = ["approve", &id, "--plan-sha256", hash.as_str().unwrap()];
    let refused = team.teamctl(with_hash).exits(3);
    assert!(refused.stderr.contains("with its code"), "{refused:?}");
    let wrong = other_than(&digits);
    let refused = team.teamctl(["reject", &id, "--code", wrong]).exits(3);
    assert!(
        refused.stderr.contains("that is not the code of"),
        "{refused:?}"
    );
    assert_eq!(team.request(&id)["status"], "pending");
    team.teamctl(["approve", &id, "--code", &digits]).ok();
    assert_eq!(team.request(&id)["status"], "approved");
    // The same answer again is no error, and a code of something else none for this.
    team.teamctl(["approve", &id]).ok();
    let next = planned(&team, "bo");
    let digits = until_code(&team, &next);
    team.teamctl(["reject", &next, "--code", &digits]).ok();
    nowhere_in(&team.path(""), "\"code\"");
}

#[test]
fn wrong_codes_are_shown_and_the_new_code_is_not_taken_at_once() {
    let (team, id) = team();
    let first = until_code(&team, &id);
    for _ in 0..3 {
        let wrong = ["approve", &id, "--code", other_than(&first)];
        team.teamctl(wrong).exits(3);
    }
    team.until("the hook to get the new code", || {
        told(&team.home(), "on_request").len() == 2
    });
    let second = code(&team, &id);
    let refused = team.teamctl(["approve", &id, "--code", &second]).exits(3);
    assert!(
        refused
            .stderr
            .contains("is taken now: three wrong ones were given"),
        "{refused:?}"
    );
    assert_eq!(team.request(&id)["status"], "pending");
    let events = team.teamctl(["events"]).ok();
    assert!(
        events
            .stdout
            .contains("wrong codes were given for the plan")
            && events.stdout.contains("from teamctl (pid "),
        "{events:?}"
    );
}

#[test]
fn top_shows_the_code_and_answers_with_it() {
    let (team, id) = team();
    let digits = until_code(&team, &id);
    let mut terminal = Terminal::teamctl_at(&team, &["top"], (80, 24));
    terminal.until_screen("the code", |screen| {
        screen.contains(&format!("Code: {digits}")) && screen.contains("a approve")
    });
    team.until("the approval", || {
        if team.request(&id)["status"] == "pending" {
            terminal.press("a");
        }
        team.request(&id)["status"] == "approved"
    });
    terminal.press("q");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn without_the_setting_nothing_asks_for_a_code() {
    let team = Team::new();
    configure(&team.home(), &["on_request"]);
    team.teamd(["start"]).ok();
    let id = planned(&team, "ana");
    team.until("the hook", || !told(&team.home(), "on_request").is_empty());
    assert_eq!(told(&team.home(), "on_request")[0]["code"], json!(null));
    team.teamctl(["approve", &id]).ok();
}
