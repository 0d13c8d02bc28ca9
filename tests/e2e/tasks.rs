//! Tasks and their checks, from outside: who may do what when, what a check decides, and what is
//! left when processes die.
#![expect(clippy::disallowed_methods, reason = "a test writes plain files")]

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{Team, is_alive, signal};

/// Makes a task, and returns its id.
fn add(team: &Team, args: &[&str]) -> u64 {
    team.teamctl(["task", "add"].iter().chain(args))
        .ok()
        .stdout
        .trim()
        .parse()
        .unwrap()
}

fn task(team: &Team, id: u64) -> Value {
    serde_json::from_str(&team.file(&format!("tasks/{id}.json"))).unwrap()
}

fn until(team: &Team, id: u64, status: &str) -> Value {
    team.until(&format!("task {id} to be {status}"), || {
        task(team, id)["status"] == status
    });
    task(team, id)
}

fn is_told(team: &Team, name: &str, text: &str) -> bool {
    team.inbox(name)
        .iter()
        .any(|line| line["content"].as_str().unwrap().contains(text))
}

/// A team with these lines in `[work]`, which are trusted.
fn team_with(work: &str) -> Team {
    let team = Team::new();
    team.write("team.toml", &format!("[work]\n{work}"));
    team.trust();
    team.teamd(["start"]).ok();
    team
}

/// A teammate that is given each task, and says that it is done.
fn auto(team: &Team, name: &str) {
    team.teamctl(["spawn", name, "--auto"]).ok();
}

#[test]
fn a_task_is_completed_by_its_check_and_by_nothing_that_a_teammate_says() {
    let team = team_with("check = 'test -e built'\n");
    let id = add(
        &team,
        &[
            "build it",
            "--check",
            "test -e tested",
            "--description",
            "/bash touch tested",
        ],
    );
    auto(&team, "alice");
    // It says that it is done; nothing is built.
    let failed = until(&team, id, "failed");
    assert_eq!(
        (&failed["attempts"], &failed["owner"]),
        (&json!(3), &json!(null))
    );
    let check = &failed["result"]["check"];
    assert_eq!(
        (&check["command"], &check["exit"], &check["set_by"]),
        (&json!("test -e built"), &json!(1), &json!("team.toml"))
    );
    assert_eq!(failed["result"]["verified"], "no");
    team.write("built", "");
    team.teamctl(["task", "retry", &id.to_string()]).ok();
    let done = until(&team, id, "completed");
    assert_eq!(
        (
            &done["result"]["verified"],
            &done["result"]["check"]["command"]
        ),
        (&json!("in place"), &json!("test -e tested"))
    );
    assert_eq!(
        (&done["submission"]["by"], &done["attempts"]),
        (&json!("alice"), &json!(0))
    );
    let log = team.teamctl(["task", "log", &id.to_string()]).ok().stdout;
    assert!(
        log.contains("$ test -e built\n") && log.contains("$ test -e tested\n"),
        "{log}"
    );
    assert!(is_told(
        &team,
        "lead",
        "is completed by alice; verified: in place"
    ));
    assert_eq!(
        team.teamctl(["wait", "--task", &id.to_string()])
            .ok()
            .stdout,
        format!("task {id} is completed\n")
    );
}

#[test]
fn each_event_fits_a_status_or_is_a_conflict_that_says_why() {
    let team = Team::started();
    team.spawn("bob", "");
    team.spawn("zoe", "");
    let make = |status: &str| {
        let id = add(&team, &[status, "--check", "until [ -e go ]; do :; done"]);
        let it = id.to_string();
        let bob = |line: &str| {
            team.teamctl(["send", "bob", line]).ok();
        };
        if !matches!(status, "pending" | "cancelled") {
            // One that waits for nothing would be reminded, and lose it.
            bob(&format!(
                "/claim_task {{\"task_id\": {id}}}\n/bash until [ -e go-{id} ]; do sleep 0.02; done"
            ));
            until(&team, id, "in_progress");
        }
        match status {
            "in_review" => {
                team.teamctl(["task", "submit", &it]).ok();
            }
            "cancelled" => drop(team.teamctl(["task", "cancel", &it]).ok()),
            "completed" => {
                team.teamctl(["task", "edit", &it, "--no-check"]).ok();
                team.teamctl(["task", "submit", &it]).ok();
            }
            "failed" => {
                team.teamctl([
                    "task",
                    "edit",
                    &it,
                    "--check",
                    "false",
                    "--max-attempts",
                    "1",
                ])
                .ok();
                team.teamctl(["task", "submit", &it]).ok();
                until(&team, id, "failed");
            }
            _ => {}
        }
        assert_eq!(task(&team, id)["status"], status);
        id
    };
    let table: [(&str, &[&str], [&str; 6]); 7] = [
        // event, arguments; then what becomes of pending, in_progress, in_review, completed,
        // cancelled, failed.
        ("submit", &[], ["-", "in_review", "-", "-", "-", "-"]),
        ("release", &[], ["-", "pending", "pending", "-", "-", "-"]),
        (
            "assign",
            &["zoe"],
            ["pending", "pending", "-", "-", "-", "-"],
        ),
        (
            "cancel",
            &[],
            ["cancelled", "cancelled", "cancelled", "-", "-", "-"],
        ),
        (
            "edit",
            &["--priority", "-5"],
            ["pending", "in_progress", "-", "-", "cancelled", "failed"],
        ),
        ("retry", &[], ["-", "-", "-", "-", "pending", "pending"]),
        (
            "log",
            &[],
            [
                "pending",
                "in_progress",
                "in_review",
                "completed",
                "cancelled",
                "failed",
            ],
        ),
    ];
    for (event, more, leads_to) in table {
        for (status, expected) in [
            "pending",
            "in_progress",
            "in_review",
            "completed",
            "cancelled",
            "failed",
        ]
        .iter()
        .zip(leads_to)
        {
            let id = make(status);
            let it = id.to_string();
            let run = team.teamctl(["task", event, &it].iter().chain(more));
            if expected == "-" {
                let run = run.exits(7);
                assert!(
                    run.stderr.contains(&format!("task {id} ({status}) is "))
                        && run.stderr.contains("hint: "),
                    "{event}: {run:?}"
                );
                assert_eq!(task(&team, id)["status"], **status);
            } else {
                run.ok();
                assert_eq!(task(&team, id)["status"], expected, "{event} of {status}");
            }
            if !["completed", "cancelled", "failed"]
                .contains(&task(&team, id)["status"].as_str().unwrap())
            {
                team.teamctl(["task", "cancel", &it]).ok();
            }
            team.write(&format!("go-{id}"), "");
        }
    }
    team.teamctl(["task", "submit", "4000"]).exits(4);
    assert!(
        team.teamctl(["wait", "--tasks"])
            .exits(7)
            .stderr
            .contains("has failed")
    );
}

#[test]
fn a_failed_task_is_corrected_before_a_teammate_can_take_it_again() {
    let team = Team::started();
    auto(&team, "alice");
    let id = add(
        &team,
        &[
            "build it",
            "--check",
            "test -e built",
            "--max-attempts",
            "1",
        ],
    );
    let it = id.to_string();
    until(&team, id, "failed");
    let run = team
        .teamctl(["task", "edit", &it, "--subject", "- build it at last"])
        .ok();
    assert_eq!(
        run.stdout,
        format!("task {id} (- build it at last) is changed\n")
    );
    assert_eq!(task(&team, id)["status"], "failed");
    // She is idle, and is given it at once: as it is said now.
    team.teamctl_with(
        ["task", "retry", &it, "--description", "-"],
        "/bash touch built\n",
    )
    .ok();
    let done = until(&team, id, "completed");
    assert_eq!(
        (&done["attempts"], &done["subject"]),
        (&json!(0), &json!("- build it at last"))
    );
    let told = team
        .inbox("alice")
        .into_iter()
        .rfind(|line| line["type"] == "task_assignment")
        .unwrap();
    assert!(
        told["content"]
            .as_str()
            .unwrap()
            .ends_with("/bash touch built"),
        "{told}"
    );
    team.teamctl(["task", "retry", &it, "--after", &it])
        .exits(7);
}

#[test]
fn a_task_that_no_teammate_can_take_is_refused_or_named() {
    let team = Team::new();
    team.write("team.toml", "[members.coder]\ncount = 2\nrole = 'rust'\n");
    team.teamd(["start"]).ok();
    team.teamctl(["spawn", "alice"]).ok();
    let refused = |args: &[&str], code: i32, said: &str| {
        let run = team.teamctl(["task"].iter().chain(args)).exits(code);
        assert!(run.stderr.contains(said), "{run:?}");
    };
    refused(
        &["add", "x", "--for", "alcie"],
        4,
        "did you mean alice? names and roles are alice, coder-1, coder-2, rust",
    );
    refused(
        &["add", "x", "--for", "lead", "--later"],
        2,
        "the lead agent cannot hold tasks",
    );
    for check in ["", "  "] {
        refused(&["add", "x", "--check", check], 2, "the check is empty");
    }
    for whom in ["alice", "coder-2", "rust"] {
        add(&team, &[whom, "--for", whom, "--check", "none"]);
    }
    refused(&["edit", "1", "--for", "zoe"], 4, "`--later`");
    refused(&["edit", "1", "--check", ""], 2, "`none`");
    refused(&["assign", "1", "alcie"], 4, "did you mean alice?");
    team.write("list.md", "- [ ] a\n");
    team.write("list.toml", "[[task]]\nsubject = 'a'\nfor = 'zoe'\n");
    refused(&["import", "list.toml"], 4, "no teammate is named \"zoe\"");
    assert_eq!(
        team.teamctl(["task", "import", "list.toml", "--later"])
            .ok()
            .stdout,
        "4\n"
    );
    let run = team.teamctl(["tasks"]).ok();
    let why = "no teammate can take task 4: it is reserved for zoe, but no such teammate exists";
    assert!(
        run.stderr.contains(why) && run.stderr.contains("`teamctl task edit 4 --for NAME`"),
        "{run:?}"
    );
    let run = team.teamctl(["doctor"]);
    assert!(
        run.stdout.contains("no teammate can take task 4"),
        "{run:?}"
    );
    for id in ["1", "2", "3"] {
        team.teamctl(["task", "cancel", id]).ok();
    }
    add(&team, &["behind it", "--after", "4"]);
    let run = team.teamctl(["wait", "--tasks"]).exits(7);
    assert!(
        run.stderr
            .contains("task 4 (a) cannot be done: it is reserved for zoe"),
        "{run:?}"
    );
}

#[test]
fn a_teammate_holds_one_task_and_chooses_no_check() {
    let team = Team::started();
    let first = add(&team, &["one", "--check", "false"]);
    let second = add(&team, &["two", "--for", "zoe", "--later"]);
    let third = add(&team, &["three", "--after", &first.to_string()]);
    team.spawn("bob", "");
    let lines = [
        (
            format!("/claim_task {{\"task_id\": {second}}}"),
            "is for zoe",
        ),
        (
            format!("/claim_task {{\"task_id\": {third}}}"),
            "is blocked by 1 (pending)",
        ),
        (
            "/claim_task {\"task_id\": 99}".to_owned(),
            "there is no task 99",
        ),
        ("/claim_task".to_owned(), "task 1 (one) is yours"),
        ("/claim_task".to_owned(), "holds task 1 (one) already"),
        (
            r#"/task_create {"subject": "mine", "check": "true"}"#.to_owned(),
            "task_create: unknown field `check`",
        ),
        (
            "/task_create {\"subject\": \"mine\"}".to_owned(),
            "task 4 (mine) is created",
        ),
        (
            "/task_update {\"task_id\": 4, \"status\": \"completed\", \"summary\": \"it is done\"}"
                .to_owned(),
            "is claimed by no teammate",
        ),
        (
            "/task_update {\"task_id\": 4, \"status\": \"cancelled\"}".to_owned(),
            "must be completed or pending",
        ),
        ("/task_list".to_owned(), "1. one [in_progress (bob)]"),
        ("/task_get {\"task_id\": 1}".to_owned(), "check: false"),
        (
            format!(
                "/task_update {{\"task_id\": {first}, \"status\": \"completed\", \"summary\": \"I am sure\"}}"
            ),
            "its check decides",
        ),
        ("/bash until [ -e go ]; do sleep 0.02; done".to_owned(), ""),
    ];
    let orders: Vec<&str> = lines.iter().map(|(line, _)| line.as_str()).collect();
    team.teamctl(["send", "bob", &orders.join("\n")]).ok();
    team.until("the results", || {
        team.entries("bob", "result").len() >= lines.len() - 1
    });
    for (result, (line, told)) in team.entries("bob", "result").iter().zip(&lines) {
        assert!(
            result["content"].as_str().unwrap().contains(told),
            "{line}: {result}"
        );
    }
    team.until("what the check says", || {
        is_told(
            &team,
            "bob",
            "failed (attempt 1 of 3): `false` exited with 1",
        )
    });
    assert_eq!(task(&team, first)["status"], "in_progress");
    // Its end gives the task back, in the line of the end.
    team.teamctl(["shutdown", "bob", "--force"]).ok();
    let exited = team
        .journal()
        .into_iter()
        .find(|line| line["event"] == "exited")
        .unwrap();
    assert_eq!(
        (&exited["released"], &task(&team, first)["status"]),
        (&json!([first]), &json!("pending"))
    );
}

#[test]
fn one_that_becomes_idle_without_submitting_is_reminded_twice_and_then_loses_the_task() {
    let team = Team::started();
    let id = add(&team, &["forgotten"]);
    team.spawn("bob", "");
    team.teamctl(["send", "bob", "/claim_task"]).ok();
    team.until("to be released", || task(&team, id)["idle_releases"] == 1);
    let released = task(&team, id);
    assert_eq!(
        (&released["status"], &released["owner"]),
        (&json!("pending"), &json!(null))
    );
    assert_eq!(team.events("reminded"), 2);
    team.until("to be told", || {
        is_told(&team, "bob", "is not yours any more")
    });
}

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
fn an_empty_name_is_for_no_teammate() {
    let team = team_with("check = 'true'\n");
    let refused = team
        .teamctl(["task", "add", "x", "--for", " "])
        .exits(2)
        .stderr;
    assert!(refused.contains("is empty"), "{refused}");
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

/// Eight for forty; `TEAM_RACE=full` lets forty race for two hundred, which takes a minute.
#[test]
fn many_race_for_many_tasks_while_workers_are_killed_and_each_is_done_once() {
    let is_full = std::env::var("TEAM_RACE").is_ok_and(|race| race == "full");
    let (teammates, tasks): (u64, usize) = if is_full { (40, 200) } else { (8, 40) };
    let team = Team::new().with("TEAM_RESTART_MAX", "1000");
    team.teamd(["start"]).ok();
    let list: String = (1..=tasks)
        .map(|task| format!("- [ ] task {task}\n  /bash echo {task} >> done-{task}\n"))
        .collect();
    team.teamctl_with(["task", "import", "-"], &list).ok();
    let names: Vec<String> = (1..=teammates).map(|number| format!("w{number}")).collect();
    for name in &names {
        auto(&team, name);
    }
    // A worker that is drawn dies after every few tasks, and the daemon after half of them.
    for completed in (0..tasks).step_by(5) {
        team.until("more tasks to be completed", || {
            team.events("completed") >= completed
        });
        let drawn = usize::try_from(RandomState::new().hash_one(completed) % teammates).unwrap();
        match i32::try_from(
            team.member(&names[drawn])["pid"]
                .as_i64()
                .unwrap_or_default(),
        )
        .unwrap()
        {
            0 => {}
            pid => signal(pid, Signal::SIGKILL),
        }
        if completed == tasks / 2 {
            team.kill_daemon();
            team.teamd(["start"]).ok();
        }
    }
    team.teamctl(["wait", "--tasks", "--timeout", "90s"]).ok();
    let mut claims: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    for line in team
        .journal()
        .into_iter()
        .filter(|line| line["record"] == "task")
    {
        claims
            .entry(line["id"].as_u64().unwrap())
            .or_default()
            .push(line["event"].clone());
    }
    assert_eq!(claims.len(), tasks);
    for (id, events) in claims {
        let count = |event: &str| events.iter().filter(|it| **it == event).count();
        assert_eq!(
            (count("completed"), count("created")),
            (1, 1),
            "{id}: {events:?}"
        );
        assert_eq!(count("claimed"), 1 + count("released"), "{id}: {events:?}");
    }
    assert_eq!(team.events("completed"), tasks);
    team.teamctl(["doctor"]);
    assert_eq!(
        team.json(["task", "list", "--all"])
            .as_array()
            .unwrap()
            .len(),
        tasks
    );
}

#[test]
fn a_list_of_long_tasks_reaches_a_teammate_without_their_texts() {
    let team = Team::started();
    for _ in 0..6 {
        let long: Vec<Value> = (0..18)
            .map(|_| json!({"subject": "long", "description": "x".repeat(50_000)}))
            .collect();
        team.teamctl_with(["task", "import", "-"], &json!(long).to_string())
            .ok();
    }
    team.spawn("bob", "");
    let listed = team.does("bob", "/task_list");
    let listed = listed[0]["content"].as_str().unwrap();
    assert!(
        listed.starts_with("1. long [pending]\n") && listed.contains("\n100. long [pending]\n"),
        "{listed}"
    );
    assert!(listed.ends_with("\n(the first 100; there may be more)") && listed.len() < 5000);
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

#[test]
fn what_is_no_task_or_no_list_is_refused_with_the_way_on() {
    let team = Team::started();
    let one = add(&team, &["one"]).to_string();
    let two = add(&team, &["two", "--after", &one]).to_string();
    for (args, code, told) in [
        (vec!["add", ""], 2, "one line of text"),
        (vec!["add", "two\nlines"], 2, "one line of text"),
        (
            vec!["add", "x", "--after", "99"],
            4,
            "no task 99 to wait for",
        ),
        (
            vec!["add", "x", "--check", "a", "--no-check"],
            2,
            "cannot be used with",
        ),
        (
            vec!["edit", &one, "--after", &two],
            7,
            "would wait for itself: 1 waits for 2 waits for 1",
        ),
        (
            vec!["edit", &one, "--after", &one],
            2,
            "cannot wait for itself",
        ),
        (vec!["edit", &one], 2, "nothing to change"),
        (vec!["assign", &one, "stranger"], 4, "stranger"),
        (vec!["show", "99"], 4, "there is no task 99"),
        (vec!["show", "x"], 2, "invalid"),
        (
            vec!["import", "no-such-file"],
            1,
            "cannot open no-such-file",
        ),
    ] {
        let run = team.teamctl(["task"].iter().chain(&args)).exits(code);
        assert!(run.stderr.contains(told), "{args:?}: {run:?}");
    }
    let long: Vec<Value> = (1..=10_001)
        .map(|number| json!({"subject": number.to_string()}))
        .collect();
    let ring: String = (1..=300)
        .map(|it| format!("[[task]]\nsubject = 'x'\nblocked_by = [{}]\n", it % 300 + 1))
        .collect();
    for (list, told) in [
        ("[{\"subject\": 1}]", "line 1 column"),
        ("- [ ] a\n- [ ]\n", "line 2: the subject of a task"),
        (
            "[[task]]\nsubject = 'a'\nchek = 'false'\n",
            "line 1: a task has no field `chek`",
        ),
        (
            &json!(long).to_string(),
            "has 10001 tasks, the limit is 10000",
        ),
        (&ring, "tasks wait for each other: lines 1, 4, 7"),
        (
            &format!("- [ ] {}", "x".repeat(300)),
            "line 1: the subject has more than 200 characters",
        ),
    ] {
        let run = team.teamctl_with(["task", "import", "-"], list).exits(2);
        assert!(
            run.stderr.contains(told) && run.stderr.len() < 500,
            "{run:?}"
        );
    }
    assert_eq!(team.json(["task", "list"]).as_array().unwrap().len(), 2);
    team.teamd(["stop"]).ok();
    assert!(
        team.teamctl(["task", "add", "x"])
            .exits(6)
            .stderr
            .contains("teamd start")
    );
    assert_eq!(
        team.json(["task", "list"]).as_array().unwrap().len(),
        2,
        "to look needs no daemon"
    );
}

#[test]
fn a_claim_of_a_task_with_a_plan_closes_the_gate() {
    let team = Team::started();
    let id = add(
        &team,
        &[
            "careful",
            "--plan",
            "--description",
            "/bash touch changed\n/plan_approval do it\n/bash touch changed-later",
        ],
    );
    auto(&team, "alice");
    let plan = team.until_planned("alice");
    assert_eq!(team.member("alice")["gate"], "closed");
    assert!(!team.made("changed"));
    team.teamctl(["approve", &plan]).ok();
    until(&team, id, "completed");
    assert!(team.made("changed-later"));
}

/// The id of the only review that waits.
fn review(team: &Team) -> String {
    let mut found = Value::Null;
    team.until("a review", || {
        found = team.json(["reviews"]);
        found.as_array().is_some_and(|all| all.len() == 1)
    });
    found[0]["request_id"].as_str().unwrap().to_owned()
}

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
