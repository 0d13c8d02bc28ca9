//! Integration: nothing is merged that was not checked as it is then, and of the user's repository
//! nothing else is touched.

mod checks;
mod landing;
mod protected;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::checkouts::{
    REPOSITORY, add, checkout, git, of_user, repository, task, team, until, user,
};
use crate::support::model_server::{ModelServer, Reply};
use crate::support::user::User;
use crate::support::{Team, signal};

const SUBMIT: &str = "/task_update {\"task_id\": 1, \"status\": \"completed\"}";

/// Work that a teammate is given with a task.
fn commits(file: &str) -> String {
    format!("/bash echo {file} >> {file}; git add {file}; git commit -qm {file}")
}

/// Makes sure that each commit of the integration branch passes a check, and that the merges are
/// ours.
fn holds(team: &Team, check: &str) {
    let commits = git(team, &["rev-list", "--first-parent", "integration"]);
    for commit in commits.lines() {
        let script = format!(
            "d=$(mktemp -d); git --git-dir={} archive {commit} | tar -x -C $d; cd $d; {check}",
            repository(team).display()
        );
        user(team, &script);
    }
    let merges = git(
        team,
        &[
            "log",
            "--first-parent",
            "--merges",
            "--format=%an %ae %(trailers:key=Task,separator=)",
            "integration",
        ],
    );
    assert!(
        merges
            .lines()
            .all(|line| line.starts_with("teamd teamd@team Task: ")),
        "{merges}"
    );
    git(team, &["fsck", "--strict"]);
}

#[test]
fn checked_work_is_merged_in_turn_and_shown_to_the_user_and_nothing_else_is_touched() {
    for who in User::at_hand() {
        let team = team(
            who,
            "[work]\ncheck = \"test ! -e bad\"\n",
            "for h in post-merge reference-transaction post-checkout pre-auto-gc; do printf '#!/bin/sh\\ntouch ../pwned\\n' > .git/hooks/$h; chmod +x .git/hooks/$h; done",
        );
        let before = of_user(&team);
        for name in ["alice", "bob"] {
            team.teamctl(["spawn", name, "--checkout", "--auto"]).ok();
        }
        for file in ["one", "two", "three", "four"] {
            add(
                &team,
                &[
                    file,
                    "--description",
                    &commits(file),
                    "--check",
                    &format!("test -e {file}"),
                ],
            );
        }
        add(
            &team,
            &[
                "bad",
                "--description",
                &commits("bad"),
                "--max-attempts",
                "1",
            ],
        );
        until(&team, 5, "failed");
        for id in 1..=4 {
            let done = until(&team, id, "completed");
            assert_eq!(done["result"]["verified"], "checked");
            assert_eq!(done["submission"]["commit"], done["result"]["commit"]);
            let merged = done["result"]["merged"].as_str().unwrap();
            assert_eq!(
                git(&team, &["rev-parse", &format!("{merged}^2")]),
                done["result"]["commit"].as_str().unwrap()
            );
        }
        assert_eq!(
            git(
                &team,
                &["rev-list", "--count", "--first-parent", "integration"]
            ),
            "5"
        );
        holds(&team, "test ! -e bad");
        let tip = git(&team, &["rev-parse", "integration"]);
        team.until("the user to be shown", || {
            user(&team, "git rev-parse -q --verify team/integration || true") == tip
        });
        assert_eq!(of_user(&team), before);
        assert!(
            !team.root().with_file_name("pwned").exists(),
            "a hook of the user has run"
        );
        // Now the user asks for it.
        let landed = team.teamctl(["land"]).ok().stdout;
        assert!(
            landed.contains("main is at ") && team.made("one") && team.made("four"),
            "{landed}"
        );
        assert_eq!(
            user(
                &team,
                "git rev-parse main; git status --short | grep -v team.toml || true"
            ),
            tip
        );
        assert!(team.teamctl(["land"]).ok().stdout.contains(" already"));
    }
}

#[test]
fn a_conflict_goes_back_to_its_owner_with_the_files_and_counts_as_no_attempt() {
    let team = team(User::at_hand()[0], "[work]\ncheck = \"true\"\n", "");
    for name in ["alice", "bob"] {
        team.teamctl(["spawn", name, "--checkout"]).ok();
    }
    for subject in ["one", "two"] {
        add(&team, &[subject]);
    }
    let wait = |file: &str| format!("until [ -e {file} ]; do sleep 0.02; done; rm {file}");
    let change = |name: &str, id: u64| {
        let submit = format!("/task_update {{\"task_id\": {id}, \"status\": \"completed\"}}");
        let begin = format!(
            "/claim_task {{\"task_id\": {id}}}\n/bash echo {name} > a.txt; git commit -qam {name}; {}\n{submit}",
            wait("go")
        );
        let merge = "git fetch -q; git merge -q origin/integration; echo both > a.txt; git commit -qam both";
        let again = format!("/bash {}; {merge}\n{submit}", wait("again"));
        if name == "bob" {
            format!("{begin}\n{again}")
        } else {
            begin
        }
    };
    for (name, id) in [("alice", 1), ("bob", 2)] {
        team.teamctl(["send", name, &change(name, id)]).ok();
        until(&team, id, "in_progress");
    }
    let go = |name: &str, file: &str| {
        user(
            &team,
            &format!("touch {}/{file}", checkout(&team, name).display()),
        )
    };
    go("alice", "go");
    until(&team, 1, "completed");
    go("bob", "go");
    team.until("bob to be told", || {
        team.inbox("bob").iter().any(|it| {
            it["content"]
                .as_str()
                .unwrap()
                .contains("conflicts with what is integrated, in a.txt")
        })
    });
    let returned = task(&team, 2);
    assert_eq!(
        (
            &returned["status"],
            &returned["returns"],
            &returned["attempts"]
        ),
        (&json!("in_progress"), &json!(1), &json!(0))
    );
    let diff = team.teamctl(["diff", "2"]).ok().stdout;
    assert!(diff.contains("+bob") && !diff.contains("alice"), "{diff}");
    go("bob", "again");
    until(&team, 2, "completed");
    assert_eq!(git(&team, &["show", "integration:a.txt"]), "both");
    holds(&team, "true");
    // Nor can work be merged that began elsewhere.
    add(&team, &["three"]);
    let alone = "git checkout -q --orphan alone; git commit -qm alone";
    team.does(
        "alice",
        &format!(
            "/claim_task {{\"task_id\": 3}}\n/bash {alone}\n{}",
            SUBMIT.replace('1', "3")
        ),
    );
    team.until("alice to be told", || {
        team.inbox("alice").iter().any(|it| {
            it["content"]
                .as_str()
                .unwrap()
                .contains("all files: it has no commit in common")
        })
    });
}

#[test]
fn an_approval_outlives_a_clean_merge_and_the_queue_goes_on_meanwhile() {
    let team = team(
        User::at_hand()[0],
        "[work]\ncheck = \"git log -1 --format=%H >> ../checked || true; true\"\nprotect = [\"tests/**\"]\n",
        "mkdir tests; echo t > tests/t; git add tests; git commit -qm tests",
    );
    for name in ["alice", "bob"] {
        team.teamctl(["spawn", name, "--checkout", "--auto"]).ok();
    }
    add(
        &team,
        &[
            "delete the test",
            "--description",
            "/bash git rm -q tests/t; git commit -qm gone",
        ],
    );
    let waits = || team.teamctl(["reviews", "--json"]).ok().stdout;
    team.until("the review", || {
        waits().contains("\"task\":1") || waits().contains("\"task\": 1")
    });
    assert_eq!(task(&team, 1)["submission"]["stage"], "reviewing");
    add(&team, &["another", "--description", &commits("another")]);
    until(&team, 2, "completed");
    assert_eq!(task(&team, 1)["status"], "in_review");
    let id = task(&team, 1)["submission"]["request_id"]
        .as_str()
        .unwrap()
        .to_owned();
    team.teamctl(["approve", &id]).ok();
    let done = until(&team, 1, "completed");
    assert_eq!(done["result"]["verified"], "checked");
    assert_eq!(done["result"]["touched_protected"], "tests/t");
    assert_eq!(
        git(&team, &["rev-parse", "integration^1"]),
        task(&team, 2)["result"]["merged"].as_str().unwrap()
    );
    assert_eq!(
        git(&team, &["ls-tree", "--name-only", "integration"]),
        "a.txt\nanother"
    );
    assert_eq!(
        team.events("integrating"),
        3,
        "the first try found that the branch had moved"
    );
}

#[test]
fn a_daemon_that_is_killed_while_it_integrates_does_so_once() {
    let team = team(
        User::at_hand()[0],
        "[work]\ncheck = \"echo checked >> $HOME/../work/checked || true; until [ -e $HOME/../work/go ]; do sleep 0.02; done\"\n",
        "",
    );
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    add(&team, &["one"]);
    team.does(
        "alice",
        &format!(
            "/claim_task {{\"task_id\": 1}}\n{}\n{SUBMIT}",
            commits("one")
        ),
    );
    // While its check runs.
    team.kill_daemon();
    team.teamd(["start"]).ok();
    assert_eq!(task(&team, 1)["status"], "in_review");
    // What a git leaves that is killed while it moves the branch.
    let leaves = "cd $HOME/.local/state/teamd/repositories/*/team.git && touch {refs/heads/integration,packed-refs}.lock";
    assert!(
        team.command("bash", ["-c", leaves])
            .status()
            .unwrap()
            .success()
    );
    team.write("go", "");
    // As soon as it says that it integrates, and again at each chance.
    for _ in 0..3 {
        team.until("it to be integrated, or about to", || {
            team.events("integrating") > 0 || team.events("completed") > 0
        });
        signal(team.daemon_pid(), Signal::SIGKILL);
        team.teamd(["start"]).ok();
    }
    until(&team, 1, "completed");
    assert_eq!(
        git(
            &team,
            &["rev-list", "--count", "--first-parent", "integration"]
        ),
        "2"
    );
    assert_eq!(task(&team, 1)["attempts"], 0);
    // What the user deletes is shown again, and what is moved by another hand is not lost.
    user(
        &team,
        "git update-ref -d refs/remotes/team/integration || true",
    );
    add(&team, &["two"]);
    team.does(
        "alice",
        &format!(
            "/claim_task {{\"task_id\": 2}}\n{}\n/task_update {{\"task_id\": 2, \"status\": \"completed\"}}",
            commits("two")
        ),
    );
    until(&team, 2, "completed");
    let tip = git(&team, &["rev-parse", "integration"]);
    team.until("the user to be shown", || {
        user(&team, "git rev-parse -q --verify team/integration || true") == tip
    });
}

#[test]
fn the_report_of_an_unattended_run_says_what_git_says() {
    let server = ModelServer::answering(|request| {
        let make = |file: &str, after: &str| json!({"subject": file, "description": commits(file), "check": format!("test -e {file}"), "blocked_by": after});
        if request.mentions("Build it") && !request.mentions("is created") {
            let first = Reply::call("task_create", make("one", ""));
            return first
                .and_call("task_create", make("two", "2"))
                .and_call("task_create", make("guarded", ""));
        }
        Reply::text("The tasks are created.")
    });
    let team = server.team();
    user(&team, &format!("{REPOSITORY}echo dirty > untracked"));
    team.write(
        "team.toml",
        "[work]\ncheck = \"test ! -e bad\"\nprotect = [\"guarded\"]\n[checkout]\nalways = true\n[members.ana]\nmodel = 'script'\n[members.bob]\nmodel = 'script'\n",
    );
    team.trust();
    team.write(
        "tasks.toml",
        &format!(
            "[[task]]\nsubject = 'bad'\ndescription = '{}'\nmax_attempts = 1\n",
            commits("bad")
        ),
    );
    // A daemon has read the file when it started.
    team.teamctl(["down"]).ok();
    let before = of_user(&team);
    let file = team.root().with_file_name("report.json");
    let args = [
        "run",
        "Build it.",
        "--tasks",
        "tasks.toml",
        "--report",
        file.to_str().unwrap(),
    ];
    let ended = team.teamctl(args).exits(3);
    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let reported = |field: &str| -> Vec<String> {
        report["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|task| task[field].to_string().replace('"', ""))
            .collect()
    };
    assert_eq!(
        reported("status"),
        ["failed", "completed", "completed", "in_review"],
        "{ended:?}"
    );
    assert_eq!(reported("verified"), ["null", "checked", "checked", "null"]);
    let why = report["obstacles"][0]["why"].as_str().unwrap();
    assert!(
        why.starts_with("the review ") && why.ends_with(" waits for a person"),
        "{report}"
    );
    let tip = git(&team, &["rev-parse", "integration"]);
    let named = git(
        &team,
        &[
            "log",
            "--first-parent",
            "--format=%(trailers:key=Task,valueonly,separator=) %H",
            "--merges",
            &tip,
        ],
    );
    let mut named: Vec<String> = named.lines().map(str::to_owned).collect();
    named.sort();
    let commits = reported("commit");
    assert_eq!(
        named,
        [format!("2 {}", commits[1]), format!("3 {}", commits[2])]
    );
    assert_eq!((commits[0].as_str(), commits[3].as_str()), ("null", "null"));
    assert_eq!(
        git(
            &team,
            &["rev-list", "--count", "--first-parent", "integration"]
        ),
        "3"
    );
    holds(&team, "test ! -e bad && test ! -e guarded");
    assert_eq!(user(&team, "git rev-parse team/integration"), tip);
    assert_eq!(of_user(&team), before);
    team.until_no_process_is_left();
}
