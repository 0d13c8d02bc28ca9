//! Checks: confined, run again after a crash, and ended with what they are for.

use nix::sys::signal::Signal;
use serde_json::json;

use super::{add, auto, is_told, task, team_with, until};
use crate::support::{Team, is_alive, signal};

#[test]
fn what_a_check_runs_is_confined_and_gone_when_it_ends() {
    let team = team_with("check_timeout = 2\n");
    auto(&team, "alice");
    let outside = team.root().parent().unwrap().join("outside");
    let escapes = format!(
        "echo x > {}; echo x > .team/tasks/1.json; setsid sleep 4321 & exit 0",
        outside.display()
    );
    let id = add(&team, &["escapes", "--check", &escapes]);
    until(&team, id, "completed");
    assert!(!outside.exists() && task(&team, id)["id"] == id);
    let id = add(
        &team,
        &[
            "hangs",
            "--check",
            "sleep 4321 & sleep 4322",
            "--max-attempts",
            "1",
        ],
    );
    let failed = until(&team, id, "failed");
    assert_eq!(failed["result"]["check"]["exit"], json!(null));
    assert!(
        team.teamctl(["task", "log", &id.to_string()])
            .ok()
            .stdout
            .contains("timed out after")
    );
    let id = add(
        &team,
        &[
            "floods",
            "--check",
            "head -c 300000000 /dev/zero; kill -9 $$",
            "--max-attempts",
            "1",
        ],
    );
    until(&team, id, "failed");
    let size = team
        .path(&format!("log/task-{id}.log"))
        .metadata()
        .unwrap()
        .len();
    assert!(size < 1 << 20, "{size}");
    // It ends its own tree, prints what is no text, and lies about its end: nothing of that passes.
    let attack =
        "kill -9 -1; kill -9 1 $PPID; head -c 3000 /dev/urandom; (sleep 4323 &) ; exec false";
    let id = add(&team, &["kills", "--check", attack, "--max-attempts", "1"]);
    until(&team, id, "failed");
    assert!(
        !team
            .teamctl(["task", "log", &id.to_string()])
            .ok()
            .stdout
            .contains('\x1b')
    );
    let sleeps = || {
        team.processes()
            .iter()
            .filter(|&&pid| crate::support::process::command_line(pid).contains("sleep 432"))
            .count()
    };
    team.until("nothing to be left", || sleeps() == 0);
}

#[test]
fn a_check_that_a_killed_daemon_has_started_is_run_again_and_counts_once() {
    let team = Team::started();
    auto(&team, "alice");
    let id = add(
        &team,
        &[
            "slow",
            "--check",
            "echo began >> began; until [ -e go ]; do sleep 0.05; done",
        ],
    );
    team.until("the check to run", || team.made("began"));
    team.kill_daemon();
    team.teamd(["start"]).ok();
    team.until("the check to run again", || {
        team.text("began").lines().count() == 2
    });
    assert_eq!(task(&team, id)["status"], "in_review");
    // Its own process is killed: that is no attempt either.
    let check = || {
        team.processes()
            .into_iter()
            .find(|&pid| crate::support::process::command_line(pid).contains("team-worker job"))
    };
    let pid = check().unwrap();
    signal(pid, Signal::SIGKILL);
    team.until("the lead to be told", || {
        is_told(&team, "lead", "could not run")
    });
    assert!(!is_alive(pid));
    team.write("go", "");
    let done = until(&team, id, "completed");
    assert_eq!(
        (&done["attempts"], &done["submission"]["number"]),
        (&json!(0), &json!(1))
    );
}

#[test]
fn while_work_is_checked_in_place_nothing_of_its_author_writes() {
    let team = team_with("");
    let id = add(
        &team,
        &[
            "slow",
            "--check",
            "touch began; until [ -e go ]; do sleep 0.05; done",
        ],
    );
    team.spawn("bob", "");
    let left = r#"{"command": "while :; do echo left >> writes; sleep 0.04321; done", "run_in_background": true}"#;
    let orders = format!(
        "/claim_task {{\"task_id\": {id}}}\n/bash {left}\n/bash until [ -e writes ]; do sleep 0.02; done\n/task_update {{\"task_id\": {id}, \"status\": \"completed\"}}\n/bash touch changed"
    );
    team.teamctl(["send", "bob", &orders]).ok();
    team.until("the check to run", || team.made("began"));
    let writes = || {
        team.processes()
            .iter()
            .any(|&pid| crate::support::process::command_line(pid).contains("04321"))
    };
    assert!(
        !writes(),
        "what it has left running has ended before the check"
    );
    assert_eq!(team.member("bob")["gate"], "closed");
    team.until("the refusal", || team.entries("bob", "result").len() == 5);
    let told = team.entries("bob", "result")[4]["content"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        told.contains("Read-only")
            && told.contains(&format!("your work on task {id} is being checked")),
        "{told}"
    );
    // A death of the author, and one of the daemon, change nothing of that.
    team.kill_and_wait_for_restart("bob");
    team.kill_daemon();
    team.teamd(["start"]).ok();
    assert_eq!(team.member("bob")["gate"], "closed");
    // What is wanted of it meanwhile it does afterwards.
    team.teamctl(["send", "bob", "/bash touch later"]).ok();
    assert!(!team.made("later"));
    team.write("go", "");
    until(&team, id, "completed");
    team.until("the gate to be open", || {
        team.member("bob")["gate"] == "open"
    });
    team.until("what was wanted to be done", || team.made("later"));
    assert!(!team.made("changed"));
}

#[test]
fn a_command_that_is_killed_in_the_middle_is_no_failed_check() {
    let team = Team::started();
    auto(&team, "alice");
    let work = "/bash echo began >> began; until [ -e go ]; do sleep 0.02; done; touch done";
    let id = add(
        &team,
        &["long", "--check", "test -e done", "--description", work],
    );
    for times in 1..=2 {
        team.until("the command to run", || {
            team.made("began") && team.text("began").lines().count() >= times
        });
        team.kill_and_wait_for_restart("alice");
    }
    team.write("go", "");
    let done = until(&team, id, "completed");
    assert_eq!(
        done["attempts"],
        json!(team.events("returned")),
        "each attempt is a check that has failed"
    );
}

#[test]
fn tools_of_a_check_find_caches_that_they_may_write_and_those_are_warm() {
    let team = team_with("check = 'sh tool.sh'\n");
    let users = team.home().join(".cache/uv");
    std::fs::create_dir_all(&users).unwrap();
    std::fs::write(users.join("seed"), "seed").unwrap();
    let tool = "set -e\ncache=${XDG_CACHE_HOME:-$HOME/.cache}\nmkdir -p $cache/tool\necho x >> $cache/tool/runs\n\
                test -e ${UV_CACHE_DIR:-$cache/uv}/seed\necho x >> ${UV_CACHE_DIR:-$cache/uv}/seed\n\
                cat $cache/tool/runs > runs\n";
    team.write("tool.sh", tool);
    let runs = || team.text("runs").lines().count();
    auto(&team, "alice");
    for warm in 1..=2 {
        let id = add(&team, &["check it"]);
        until(&team, id, "completed");
        assert_eq!(runs(), warm);
    }
    // What a check has left that failed is not believed.
    let id = add(&team, &["fails", "--check", "false", "--max-attempts", "1"]);
    until(&team, id, "failed");
    let id = add(&team, &["check it"]);
    until(&team, id, "completed");
    assert_eq!(runs(), 1);
    // Those of a teammate are its own, and outlast its processes.
    team.spawn("bob", "");
    for warm in 1..=2 {
        team.does("bob", "/bash sh tool.sh");
        assert_eq!(runs(), warm);
        team.kill_and_wait_for_restart("bob");
    }
    assert_eq!(
        std::fs::read_to_string(users.join("seed")).unwrap(),
        "seed",
        "the user's are as they were"
    );
}

#[test]
fn a_release_or_a_stop_ends_the_check() {
    let team = Team::started();
    team.spawn("bob", "");
    let id = add(&team, &["slow", "--check", "touch began; sleep 4321"]);
    team.teamctl([
        "send",
        "bob",
        &format!("/claim_task {{\"task_id\": {id}}}\n/task_update {{\"task_id\": {id}, \"status\": \"completed\"}}"),
    ])
    .ok();
    team.until("the check to run", || team.made("began"));
    team.teamctl(["task", "release", &id.to_string()]).ok();
    let sleeps = || {
        team.processes()
            .iter()
            .any(|&pid| crate::support::process::command_line(pid).contains("sleep 4321"))
    };
    team.until("its end", || !sleeps());
    assert_eq!(
        (&task(&team, id)["status"], &task(&team, id)["attempts"]),
        (&json!("pending"), &json!(0))
    );
    std::fs::remove_file(team.root().join("began")).unwrap();
    team.teamctl([
        "send",
        "bob",
        &format!("/claim_task {{\"task_id\": {id}}}\n/task_update {{\"task_id\": {id}, \"status\": \"completed\"}}"),
    ])
    .ok();
    team.until("the check to run", || team.made("began"));
    team.teamd(["stop"]).ok();
    team.until_no_process_is_left();
    assert_eq!(task(&team, id)["status"], "in_review");
}
