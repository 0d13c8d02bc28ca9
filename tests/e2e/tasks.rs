//! Tasks and their checks, from outside: who may do what when, what a check decides, and what is
//! left when processes die.
#![expect(clippy::disallowed_methods, reason = "a test writes plain files")]

mod checks;
mod lists;
mod protected;
mod reviews;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{Team, signal};

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
fn an_empty_name_is_for_no_teammate() {
    let team = team_with("check = 'true'\n");
    let refused = team
        .teamctl(["task", "add", "x", "--for", " "])
        .exits(2)
        .stderr;
    assert!(refused.contains("is empty"), "{refused}");
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
