//! What is protected, where work is done in place.

use serde_json::json;

use super::{add, auto, is_told, review, task, team_with, until};
use crate::support::Team;

#[test]
fn a_changed_protected_file_is_seen() {
    let team = Team::new();
    std::fs::create_dir(team.root().join("tests")).unwrap();
    team.write("tests/failing.sh", "exit 1");
    team.write(
        "team.toml",
        "[work]\ncheck = 'cat tests/*.sh | bash'\nprotect = ['tests/**']\n",
    );
    team.trust();
    team.teamd(["start"]).ok();
    let id = add(
        &team,
        &[
            "make the tests pass",
            "--description",
            "/bash rm tests/failing.sh; touch tests/x.sh",
        ],
    );
    auto(&team, "alice");
    let approve = |id: u64| {
        until(&team, id, "in_review");
        team.teamctl(["approve", &review(&team)]).ok();
        until(&team, id, "completed")
    };
    let why = json!("changed since the task was set");
    assert_eq!(approve(id)["result"]["touched_protected"], why);
    let listed = team.teamctl(["task", "list", "--all"]).ok().stdout;
    assert!(listed.contains("in place, touched protected"), "{listed}");
    // What was changed before the claim counts, also in a task that the teammate makes by itself.
    let id = add(&team, &["prepared", "--for", "bob", "--later"]);
    team.spawn(
        "bob",
        "/bash touch tests/y.sh\n/task_create {\"subject\": \"of its own\"}\n/claim_task {\"task_id\": 3}\n/task_update {\"task_id\": 3, \"status\": \"completed\"}",
    );
    team.until("its task", || team.path("tasks/3.json").exists());
    assert_eq!(approve(3)["result"]["touched_protected"], why);
    team.teamctl([
        "send",
        "bob",
        &format!("/claim_task {{\"task_id\": {id}}}\n/task_update {{\"task_id\": {id}, \"status\": \"completed\"}}"),
    ])
    .ok();
    assert_eq!(approve(id)["result"]["touched_protected"], why);
    // The check of a team.toml that a teammate has changed is not run: it must be trusted again.
    team.write("team.toml", "[work]\ncheck = 'true'\n");
    team.teamd(["stop"]).ok();
    assert!(
        team.teamd(["start"])
            .exits(3)
            .stderr
            .contains("work.check = \"true\"")
    );
}

#[test]
fn what_a_protected_link_leads_to_is_protected_in_place() {
    let team = Team::new();
    std::fs::create_dir(team.root().join("spec")).unwrap();
    std::os::unix::fs::symlink("spec", team.root().join("tests")).unwrap();
    team.write("spec/t.sh", "exit 1");
    team.write(
        "team.toml",
        "[work]\ncheck = 'bash tests/t.sh'\nprotect = ['tests/**']\n",
    );
    team.trust();
    team.teamd(["start"]).ok();
    let id = add(
        &team,
        &[
            "make the tests pass",
            "--description",
            "/bash echo exit 0 > spec/t.sh",
        ],
    );
    auto(&team, "alice");
    until(&team, id, "in_review");
    team.teamctl(["approve", &review(&team)]).ok();
    let touched = until(&team, id, "completed")["result"]["touched_protected"].clone();
    assert_eq!(touched, "changed since the task was set");
}

#[test]
fn what_cannot_be_looked_at_is_not_known_to_be_untouched_and_blocks_nothing() {
    let team = Team::new();
    std::fs::create_dir(team.root().join("tests")).unwrap();
    team.write("tests/a", "one");
    team.write(
        "team.toml",
        "[work]\nprotect = ['tests/**']\ncheck = 'true'\n",
    );
    team.trust();
    team.teamd(["start"]).ok();
    let touched = |id: u64| {
        until(&team, id, "in_review");
        let it = review(&team);
        let shown = team.teamctl(["task", "show", &id.to_string()]).ok().stdout;
        let why = task(&team, id)["result"]["touched_protected"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(shown.contains(&why), "{shown}");
        assert!(
            is_told(&team, "lead", &format!("touched protected files ({why})")),
            "{why}"
        );
        team.teamctl(["approve", &it]).ok();
        until(&team, id, "completed");
        why
    };
    auto(&team, "alice");
    // A pipe has no end: it is not opened, neither by the daemon nor by the check.
    let fifo = add(
        &team,
        &["pipe", "--description", "/bash rm tests/a; mkfifo tests/a"],
    );
    assert_eq!(touched(fifo), "changed since the task was set");
    let same = add(&team, &["the same pipe"]);
    until(&team, same, "completed");
    // It takes no room, and would take hours to read. Nothing is equal to it.
    let large = add(
        &team,
        &["large", "--description", "/bash truncate -s 1T tests/large"],
    );
    let why = touched(large);
    assert!(
        why.starts_with("they cannot be looked at: tests/large: the protected files are larger"),
        "{why}"
    );
    let unknown = add(&team, &["unknown", "--description", "/bash rm tests/large"]);
    let why = touched(unknown);
    assert!(
        why.starts_with("what they were when the task was set is not known: tests/large"),
        "{why}"
    );
    // The check itself changes nothing there, also where it would put that back.
    let swap = "cp -p tests/x x; echo two > tests/x; mv -f x tests/x; test $(cat tests/x) = two";
    team.write("tests/x", "one");
    let swapped = add(&team, &["swapped", "--check", swap, "--max-attempts", "1"]);
    assert_eq!(
        until(&team, swapped, "failed")["result"]["touched_protected"],
        json!(null)
    );
    assert_eq!(
        std::fs::read_to_string(team.root().join("tests/x")).unwrap(),
        "one"
    );
}

#[test]
fn a_protected_pattern_that_matches_nothing_is_a_note_of_the_doctor() {
    let team = team_with("protect = ['tests/**', 'team.toml']\n");
    let said = team.teamctl(["doctor"]).stdout;
    assert!(
        said.contains("no file matches the protected pattern \"tests/**\""),
        "{said}"
    );
    assert!(!said.contains("pattern \"team.toml\""), "{said}");
}
