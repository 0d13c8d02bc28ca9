//! Integration: nothing is merged that was not checked as it is then, and of the user's repository
//! nothing else is touched.

use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::checkouts::{
    REPOSITORY, SUBMODULE, add, checkout, git, of_user, repository, task, team, until, user,
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
fn a_deleted_test_is_seen_however_much_else_is_changed() {
    let team = team(
        User::at_hand()[0],
        "[work]\ncheck = \"true\"\nprotect = [\"tests/**\"]\n",
        "mkdir tests; echo t > tests/t; git add tests; git commit -qm tests",
    );
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    add(&team, &["one"]);
    let long = "x".repeat(80);
    let many = format!("for i in $(seq 400); do echo > aa-{long}-$i; echo > zz-{long}-$i; done");
    let work = format!("/bash {many}; git rm -q tests/t; git add .; git commit -qm many");
    team.does(
        "alice",
        &format!("/claim_task {{\"task_id\": 1}}\n{work}\n{SUBMIT}"),
    );
    team.until("the review", || {
        task(&team, 1)["submission"]["stage"] == "reviewing"
    });
    assert_eq!(
        task(&team, 1)["result"]["touched_protected"],
        "it changes more files than can be looked at"
    );
    // Who reviews it is told that not all is shown.
    assert!(
        team.teamctl(["diff", "1"])
            .ok()
            .stdout
            .contains(" characters cut]")
    );
}

#[test]
fn a_check_that_meddles_with_the_scratch_clone_does_not_change_what_the_next_one_sees() {
    for who in User::at_hand() {
        let meddle = "git config core.fsmonitor 'touch x' ; echo x > .git/index; echo x > .git/HEAD; rm -rf .git/objects .git/refs; mv .git .g; \
                      echo evil > a.txt; git update-index --assume-unchanged a.txt; touch -d @1 a.txt; mkdir -p deep/.git closed; echo ref: x > deep/.git/HEAD; ln -s / up; chmod 0 closed; true";
        let team = team(
            who,
            "[work]\ncheck = \"grep -qx one a.txt && test ! -e closed && test ! -e up && test ! -e deep\"\ncache = [\"target\"]\n",
            "echo target > .gitignore; git add .; git commit -qm ignore",
        );
        team.teamctl(["spawn", "alice", "--checkout", "--auto"])
            .ok();
        add(
            &team,
            &["one", "--description", &commits("one"), "--check", meddle],
        );
        add(
            &team,
            &[
                "two",
                "--description",
                &commits("two"),
                "--check",
                "ls -A; git status --short; mkdir -p target; echo warm > target/x",
            ],
        );
        add(
            &team,
            &[
                "three",
                "--description",
                &commits("three"),
                "--check",
                "cat target/x; echo poison > target/x; false",
                "--max-attempts",
                "1",
            ],
        );
        add(
            &team,
            &[
                "four",
                "--description",
                &commits("four"),
                "--check",
                "cat target/x",
            ],
        );
        until(&team, 2, "completed");
        until(&team, 3, "failed");
        until(&team, 4, "completed");
        let log = team.teamctl(["task", "log", "4"]).ok().stdout;
        assert!(log.contains("warm") && !log.contains("poison"), "{log}");
        holds(&team, "grep -qx one a.txt");
    }
}

#[test]
fn a_check_finds_the_submodules_filled_and_as_they_are_committed() {
    let team = team(
        User::at_hand()[0],
        "[work]\ncheck = \"grep -qx s sub/s && ls -A sub\"\n",
        SUBMODULE,
    );
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    let meddle = "echo evil > sub/s; rm sub/.git; mkdir sub/.git; touch sub/left";
    add(
        &team,
        &["one", "--description", &commits("one"), "--check", meddle],
    );
    until(&team, 1, "completed");
    add(&team, &["two", "--description", &commits("two")]);
    until(&team, 2, "completed");
    let log = team.teamctl(["task", "log", "2"]).ok().stdout;
    assert!(log.contains(".git\ns\n") && !log.contains("left"), "{log}");
    // A commit that only the submodule of a checkout has is in no check.
    let work = "/bash cd sub; echo more > more; git add more; git -c user.name=a -c user.email=a@x commit -qm more; cd ..; git commit -qam more";
    add(
        &team,
        &["three", "--description", work, "--max-attempts", "1"],
    );
    until(&team, 3, "failed");
    team.until("alice to be told why", || {
        team.inbox("alice").iter().any(|it| {
            it["content"]
                .as_str()
                .unwrap()
                .contains("note: the submodule sub is empty: ")
        })
    });
}

#[test]
fn a_team_in_a_subdirectory_is_checked_there_and_its_patterns_count_from_there() {
    let team = Team::below("repository");
    user(
        &team,
        "git init -q -b main ..; mkdir tests ../tests; touch tests/t ../tests/t ../Makefile; echo set-up > ../.gitignore; git add ..; git commit -qm first",
    );
    team.write(
        "team.toml",
        "[work]\ncheck = \"cat tests/t && test ! -e work && mkdir -p target && cp target/x seen || echo warm > target/x; test -w ../Makefile\"\n\
         protect = [\"tests/**\"]\ncache = [\"target\"]\n\
         [checkout]\nsetup = \"test -e tests/t && touch ../set-up\"\n",
    );
    team.trust();
    team.teamd(["start"]).ok();
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    let workspace = team.member("alice")["workspace"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        workspace.ends_with("repository.team/alice/work"),
        "{workspace}"
    );
    let submits = |id: u64, work: &str| {
        add(
            &team,
            &[
                "one",
                "--check",
                "cat target/x && ! echo x > ../.git/x && ! rm -r ../.git/objects",
            ],
        );
        let submit = format!("/task_update {{\"task_id\": {id}, \"status\": \"completed\"}}");
        team.does(
            "alice",
            &format!(
                "/claim_task {{\"task_id\": {id}}}\n/bash {work}; git add -A ..; git commit -qm t{id}\n{submit}"
            ),
        );
    };
    let is_reviewed = |id: u64, touched: &str| {
        team.until("the review", || {
            task(&team, id)["submission"]["stage"] == "reviewing"
        });
        assert_eq!(task(&team, id)["result"]["touched_protected"], touched);
    };
    // What lies outside of the team's directory is protected, too.
    submits(1, "echo x > ../tests/t");
    is_reviewed(1, "tests/t");
    team.teamctl([
        "approve",
        task(&team, 1)["submission"]["request_id"].as_str().unwrap(),
    ])
    .ok();
    until(&team, 1, "completed");
    team.teamctl(["land"]).ok();
    assert_eq!(
        user(&team, "git status --short; cat ../tests/t"),
        "?? team.toml\nx"
    );
    // Who works in place could plant that; it does not move where the team lies.
    team.write(".git", "gitdir: ../.git\n");
    submits(2, "echo y > tests/t");
    is_reviewed(2, "work/tests/t");
    std::fs::remove_file(team.root().join(".git")).unwrap();
    assert!(
        team.teamctl(["task", "log", "2"])
            .ok()
            .stdout
            .contains("warm"),
        "the cache counts from there, too"
    );
    team.teamctl(["task", "release", "2"]).ok();
    // What stands in its place leads nowhere.
    add(&team, &["link"]);
    let root = workspace.trim_end_matches("/work");
    let wait =
        format!("cd {root}/.git; touch is-claimed; until [ -e is-done ]; do sleep 0.02; done");
    team.send(
        "alice",
        &format!("/claim_task {{\"task_id\": 3}}\n/bash {wait}\n/task_update {{\"task_id\": 3, \"status\": \"completed\"}}"),
    );
    team.until("it to be claimed", || {
        Path::new(root).join(".git/is-claimed").exists()
    });
    let link = "git rm -rq work; rm -rf work; ln -s /tmp work; git add work; git commit -qm link";
    user(&team, &format!("cd {root}; {link}; touch .git/is-done"));
    team.until("the work to be sent back", || {
        task(&team, 3)["returns"] == 1
    });
}

#[test]
fn a_linked_tree_of_the_user_is_landed_in_and_a_repository_that_is_gone_is_named() {
    let linked = "find . -mindepth 1 -delete; git init -q -b main ../main; git -C ../main commit -q --allow-empty -m 1; git -C ../main worktree add -q $PWD -b tree";
    let team = team(User::at_hand()[0], "[work]\ncheck = \"true\"\n", linked);
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    add(&team, &["one"]);
    team.does(
        "alice",
        &format!(
            "/claim_task {{\"task_id\": 1}}\n{}\n{SUBMIT}",
            commits("one")
        ),
    );
    until(&team, 1, "completed");
    user(&team, "mv ../main ../away");
    for command in ["land", "sync"] {
        let refused = team.teamctl([command]).exits(7);
        assert!(
            refused.stderr.contains(" is no git repository any more")
                && refused.stderr.contains("hint: "),
            "{refused:?}"
        );
    }
    user(&team, "mv ../away ../main");
    team.teamctl(["land"]).ok();
    assert_eq!(
        user(&team, "git rev-parse tree"),
        git(&team, &["rev-parse", "integration"])
    );
    assert!(team.made("one"));
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
fn a_users_branch_is_synced_and_landed_and_never_overwritten() {
    for who in User::at_hand() {
        let team = team(who, "[work]\ncheck = \"test ! -e bad\"\n", "");
        assert!(
            team.teamctl(["land"])
                .exits(7)
                .stderr
                .contains("no teammate has a checkout yet")
        );
        team.teamctl(["spawn", "alice", "--checkout"]).ok();
        add(&team, &["one"]);
        team.does(
            "alice",
            &format!("/claim_task {{\"task_id\": 1}}\n/bash echo team > a.txt; echo > ignored; git add .; git commit -qm team\n{SUBMIT}"),
        );
        until(&team, 1, "completed");
        // What is not committed and would be overwritten, also if it is ignored.
        for (file, undo) in [
            ("a.txt", "git checkout -q a.txt"),
            ("ignored", "rm ignored"),
        ] {
            user(&team, "echo ignored > .git/info/exclude");
            team.write(file, "mine\n");
            let refused = team.teamctl(["land"]).exits(7);
            assert!(
                refused
                    .stderr
                    .contains(&format!("would be overwritten: {file}")),
                "{refused:?}"
            );
            assert_eq!(team.text(file), "mine\n");
            user(&team, undo);
        }
        user(
            &team,
            "git branch other; echo u > u; git add u; git commit -qm user",
        );
        // Its branch has moved: it is merged and checked before.
        let landed = team.teamctl(["land"]).ok();
        assert!(
            landed.stderr.contains("merged and checked first"),
            "{landed:?}"
        );
        assert_eq!(
            (team.text("a.txt").as_str(), team.text("u").as_str()),
            ("team\n", "u\n")
        );
        assert_eq!(
            user(&team, "git rev-parse main"),
            git(&team, &["rev-parse", "integration"])
        );
        // Another branch, without the working tree.
        team.teamctl(["land", "--into", "other"]).ok();
        assert_eq!(
            user(
                &team,
                "git rev-parse other; git status --short | grep -v team.toml || true"
            ),
            git(&team, &["rev-parse", "integration"])
        );
        // One that is checked out elsewhere is not moved below that tree, however many trees there
        // are.
        user(
            &team,
            "far=$(printf '%0200d' 0 | sed 's|0|/far|g'); for n in $(seq 200); do at=.git/worktrees/$n; mkdir -p $at; echo $far/$n/.git > $at/gitdir; echo ../.. > $at/commondir; \
             echo ref: refs/heads/other > $at/HEAD; touch $at/locked; done; git update-ref refs/heads/other HEAD^",
        );
        let refused = team.teamctl(["land", "--into", "other"]).exits(7);
        assert!(
            refused
                .stderr
                .contains("other is checked out in another working tree"),
            "{refused:?}"
        );
        user(&team, "rm -r .git/worktrees");
        assert!(
            team.teamctl(["land", "--into", "none"])
                .exits(7)
                .stderr
                .contains("there is no branch none")
        );
        assert!(
            team.teamctl(["sync"])
                .ok()
                .stdout
                .contains("integrated already")
        );
        // A check that fails, and a conflict, stay a task.
        user(&team, "touch bad; git add bad; git commit -qm bad");
        let refused = team.teamctl(["sync"]).exits(7);
        assert!(
            refused
                .stderr
                .contains("is not integrated: its check failed: "),
            "{refused:?}"
        );
        let failed = until(&team, 3, "pending");
        assert_eq!(
            (&failed["status"], &failed["attempts"]),
            (&json!("pending"), &json!(1))
        );
        assert_eq!(
            git(&team, &["ls-tree", "--name-only", "integration"]),
            "a.txt\nignored\nu"
        );
    }
}

#[test]
fn land_says_what_it_sees_and_integrates_what_the_user_has_merged_by_hand() {
    let team = team(
        User::at_hand()[0],
        "[work]\ncheck = \"test ! -e bad\"\n",
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
    until(&team, 1, "completed");
    let merge = "git fetch -q . ; git merge -q --no-edit team/integration";
    team.until("the user to be shown", || {
        user(&team, "git branch -r").contains("team/integration")
    });
    user(
        &team,
        &format!("echo u > u; git add u; git commit -qm user; {merge}"),
    );
    let by_hand = user(&team, "git rev-parse main");
    let landed = team.teamctl(["land"]).ok();
    let now = user(&team, "git rev-parse main");
    assert!(
        landed.stdout.contains(&format!(
            "main is at {} now (it was at {}",
            &now[..12],
            &by_hand[..12]
        )),
        "{landed:?}"
    );
    assert_eq!(now, git(&team, &["rev-parse", "integration"]));
    holds(&team, "test ! -e bad");
    // Nothing is to be done, and it says no more.
    let again = team.teamctl(["land"]).ok().stdout;
    assert!(
        again.contains("main already contains the integration branch; it stays at "),
        "{again}"
    );
    let told: Value = serde_json::from_str(&team.teamctl(["land", "--json"]).ok().stdout).unwrap();
    assert_eq!(
        (&told["before"], &told["after"]),
        (&json!(now), &json!(now))
    );
    // What the check refuses stays where it is, although it contains all that is integrated.
    user(&team, "touch bad; git add bad; git commit -qm bad");
    let refused = team.teamctl(["land"]).exits(7);
    let said = refused
        .stderr
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        said.contains("is not integrated: its check failed: `test ! -e bad` exited with 1"),
        "{said}"
    );
    assert!(
        said.contains("`teamctl task log 3` shows the output"),
        "{said}"
    );
    assert_eq!(git(&team, &["rev-parse", "integration"]), now);
}

#[test]
fn a_conflict_of_the_users_branch_names_its_files_and_stays_one_task_until_the_branch_is_in() {
    let team = team(User::at_hand()[0], "[work]\ncheck = \"true\"\n", "");
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    let changes = |id: u64, text: &str| {
        add(&team, &[text]);
        let submit = SUBMIT.replace('1', &id.to_string());
        let work = format!("echo {text} > a.txt; git commit -qam {text}");
        team.does(
            "alice",
            &format!("/claim_task {{\"task_id\": {id}}}\n/bash {work}\n{submit}"),
        );
        until(&team, id, "completed");
    };
    let conflicts = |command: &str, id: u64| {
        let refused = team.teamctl([command]).exits(7).stderr;
        let said = refused.split_whitespace().collect::<Vec<_>>().join(" ");
        let why = "is not integrated: it conflicts with what is integrated, in a.txt";
        assert!(
            said.contains(&format!("task {id} (Integrate main at ")) && said.contains(why),
            "{said}"
        );
        let out = format!("a teammate resolves task {id}, or you do: `git merge team/integration`");
        assert!(said.contains(&out), "{said}");
    };
    let last = || {
        team.teamctl(["task", "list", "--all", "--json"])
            .ok()
            .stdout
            .matches("\"subject\"")
            .count()
    };
    let by_hand = "git merge -q team/integration > /dev/null || true; echo both > a.txt; git commit -qam both";
    changes(1, "team");
    user(&team, "echo user > a.txt; git commit -qam user");
    for command in ["land", "sync", "land"] {
        conflicts(command, 2);
    }
    assert_eq!(last(), 2, "each time it is the same task");
    for shown in [["task", "show", "2"], ["task", "log", "2"]] {
        let shown = team.teamctl(shown).ok().stdout;
        assert!(
            shown.contains("conflicts with what is integrated, in a.txt"),
            "{shown}"
        );
    }
    // The person resolves it: the same task brings that in.
    user(&team, by_hand);
    team.teamctl(["land"]).ok();
    assert_eq!(
        (last(), task(&team, 2)["status"].as_str()),
        (2, Some("completed"))
    );
    // A teammate holds it when the person has resolved it.
    changes(3, "again");
    user(&team, "echo mine > a.txt; git commit -qam mine");
    conflicts("sync", 4);
    team.send(
        "alice",
        "/claim_task {\"task_id\": 4}\n/bash until [ -e go ]; do sleep 0.02; done; rm go",
    );
    until(&team, 4, "in_progress");
    let refused = team.teamctl(["land"]).exits(7).stderr;
    assert!(refused.contains("(alice works on it)"), "{refused}");
    user(&team, by_hand);
    team.teamctl(["land"]).ok();
    assert_eq!(until(&team, 4, "cancelled")["owner"], Value::Null);
    team.until("alice to be told", || {
        team.inbox("alice").iter().any(|it| {
            it["content"]
                .as_str()
                .unwrap()
                .contains("has cancelled task 4")
        })
    });
    user(
        &team,
        &format!("touch {}/go", checkout(&team, "alice").display()),
    );
    team.until("alice to be done", || {
        team.member("alice")["status"] == "idle"
    });
    // The person gives it up.
    changes(6, "more");
    user(&team, "echo other > a.txt; git commit -qam other");
    conflicts("land", 7);
    user(&team, "git reset -q --hard team/integration");
    team.teamctl(["land"]).ok();
    until(&team, 7, "cancelled");
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

/// What a teammate does to a protected file so that its own `git` does not show it, and which file
/// is named all the same.
const TRICKS: [(&str, &str, &str); 11] = [
    (
        "submodule",
        "mkdir sub; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub",
        "sub",
    ),
    (
        "modules",
        "touch .gitmodules; git add .gitmodules",
        ".gitmodules",
    ),
    (
        "skip",
        "echo evil > tests/t; git add tests/t; git update-index --skip-worktree tests/t",
        "tests/t",
    ),
    (
        "assume",
        "echo evil > tests/t; git add tests/t; git update-index --assume-unchanged tests/t",
        "tests/t",
    ),
    (
        "exclude",
        "echo tests/ >> .git/info/exclude; echo tests/ > .gitignore; touch tests/new; git add -f .gitignore tests/new",
        "tests/new",
    ),
    ("rename", "git mv tests/t elsewhere", "tests/t"),
    (
        "link",
        "git mv tests kept; ln -s kept tests; git add -A",
        "tests, tests/t",
    ),
    (
        "readd",
        "git rm -q tests/t; git commit -qm gone; mkdir tests; echo other > tests/t; git add tests/t",
        "tests/t",
    ),
    ("mode", "chmod +x tests/t; git add tests/t", "tests/t"),
    (
        "attributes",
        "echo 'tests/** working-tree-encoding=UTF-16' > .gitattributes; git add .gitattributes",
        ".gitattributes",
    ),
    (
        "replace",
        "echo evil > tests/t; git commit -qam evil; git replace -f HEAD HEAD^ || true; git commit -q --allow-empty -m x",
        "tests/t",
    ),
];

#[test]
fn nothing_that_a_teammate_does_to_its_git_hides_a_changed_protected_file() {
    let team = team(
        User::at_hand()[0],
        "[work]\nprotect = [\"tests/**\"]\n",
        "mkdir tests; echo t > tests/t; git add tests; git commit -qm tests",
    );
    for (number, (name, trick, _)) in TRICKS.iter().enumerate() {
        team.teamctl(["spawn", name, "--checkout"]).ok();
        let id = number + 1;
        add(&team, &[name, "--for", name]);
        let work = format!(
            "/claim_task {{\"task_id\": {id}}}\n/bash {trick}; git commit -qm {name} || true"
        );
        team.teamctl([
            "send",
            name,
            &format!("{work}\n/task_update {{\"task_id\": {id}, \"status\": \"completed\"}}"),
        ])
        .ok();
    }
    for (number, (name, _, touched)) in TRICKS.iter().enumerate() {
        let id = number as u64 + 1;
        team.until(&format!("the review of {name}"), || {
            task(&team, id)["submission"]["stage"] == "reviewing"
        });
        assert_eq!(
            task(&team, id)["result"]["touched_protected"],
            *touched,
            "{name}"
        );
        team.teamctl(["task", "cancel", &id.to_string()]).ok();
    }
    // What is put back in the commit is no change.
    team.teamctl(["spawn", "honest", "--checkout"]).ok();
    add(&team, &["honest", "--check", "grep -qx t tests/t"]);
    let back = "git rm -q tests/t; git commit -qm gone; git checkout -q HEAD^ tests/t; touch x; git add -A; git commit -qm back";
    team.teamctl([
        "send",
        "honest",
        &format!("/claim_task {{\"task_id\": 12}}\n/bash {back}\n/task_update {{\"task_id\": 12, \"status\": \"completed\"}}"),
    ])
    .ok();
    let done = until(&team, 12, "completed");
    assert_eq!(done["result"]["verified"], "checked");
    assert_eq!(git(&team, &["show", "integration:tests/t"]), "t");
}

/// A program that exchanges two directories (`renameat2(2)`), as it stands between double quotes.
fn exchanges(one: &str, other: &str) -> String {
    let number = if cfg!(target_arch = "x86_64") {
        316
    } else {
        276
    };
    format!(
        "perl -e 'my (\\$a, \\$b) = (q({one}), q({other})); syscall({number}, -100, \\$a, -100, \\$b, 2)'"
    )
}

/// Work that changes what the check builds with, and nothing that is protected.
fn builds_with(program: &str) -> String {
    format!("/bash echo \"{program}\" > build.sh; git commit -qam build")
}

const GUARDED: &str = "mkdir -p deep/tests; echo exit 1 > deep/tests/t; echo true > build.sh; git add .; git commit -qm tests";

#[test]
fn no_check_changes_what_a_pattern_begins_with_before_it_is_used() {
    let team = team(
        User::at_hand()[0],
        "[work]\nprotect = [\"deep/tests/**\", \"lost/**\"]\ncheck = \"bash build.sh; bash deep/tests/t\"\n",
        GUARDED,
    );
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    let evil = "cp -a deep evil; echo exit 0 > evil/tests/t; ";
    let attacks = [
        "echo exit 0 > deep/tests/t".to_owned(),
        "rm -rf deep; mkdir -p deep/tests; echo exit 0 > deep/tests/t".to_owned(),
        "mv deep/tests x; mkdir deep/tests; echo exit 0 > deep/tests/t".to_owned(),
        "mv deep x; mkdir -p deep/tests; echo exit 0 > deep/tests/t".to_owned(),
        format!("{evil}{}", exchanges("deep", "evil")),
        format!("{evil}{}", exchanges("deep/tests", "evil/tests")),
        format!("{evil}mv -T evil/tests deep/tests; mount --bind evil deep"),
    ];
    for (number, attack) in attacks.iter().enumerate() {
        add(
            &team,
            &[
                "build",
                "--max-attempts",
                "1",
                "--description",
                &builds_with(attack),
            ],
        );
        let failed = until(&team, number as u64 + 1, "failed");
        let found = (
            &failed["result"]["check"]["exit"],
            &failed["result"]["touched_protected"],
        );
        assert_eq!(found, (&json!(1), &json!(null)), "{attack}");
    }
    // What is not there yet cannot be mounted: that it is made is seen.
    let makes = builds_with("mkdir lost; rmdir lost; exit 0");
    add(
        &team,
        &[
            "makes",
            "--check",
            "mkdir lost; rmdir lost",
            "--max-attempts",
            "1",
            "--description",
            &makes,
        ],
    );
    let failed = until(&team, attacks.len() as u64 + 1, "failed");
    assert_eq!(
        failed["result"]["touched_protected"],
        "changed while the check ran: lost"
    );
}

#[test]
fn what_is_exchanged_while_a_check_runs_is_seen_where_a_pattern_begins_with_no_path() {
    let team = team(
        User::at_hand()[0],
        "[work]\nprotect = [\"**/t\"]\ncheck = \"bash build.sh; bash deep/tests/t && bash build.sh\"\n",
        GUARDED,
    );
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    // There and back again, so that nothing is left to be found.
    let evil = "test -e evil || { cp -a deep evil; echo exit 0 > evil/tests/t; }; ";
    add(
        &team,
        &[
            "build",
            "--description",
            &builds_with(&format!("{evil}{}", exchanges("deep", "evil"))),
        ],
    );
    team.until("the review", || {
        task(&team, 1)["submission"]["stage"] == "reviewing"
    });
    let touched = task(&team, 1)["result"]["touched_protected"].clone();
    assert_eq!(touched, "changed while the check ran: deep");
}

#[test]
fn what_a_protected_link_leads_to_is_protected_in_commits_and_while_a_check_runs() {
    let team = team(
        User::at_hand()[0],
        "[work]\nprotect = [\"tests/**\", \"link.sh\"]\ncheck = \"bash build.sh; bash tests/t && bash link.sh\"\n",
        "mkdir -p deep/spec lib; ln -s deep/spec tests; ln -s tests/../lib/one.sh link.sh; ln -s real.sh lib/one.sh; \
         ln -sf lib/one.sh link.sh; echo exit 1 > deep/spec/t; echo exit 1 > lib/real.sh; echo true > build.sh; git add .; git commit -qm links",
    );
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    let cases = [
        ("echo exit 0 > deep/spec/t", "deep/spec/t"),
        ("echo exit 0 > lib/real.sh", "lib/real.sh"),
        ("rm tests; cp -r deep/spec tests", "tests, tests/t"),
    ];
    for (id, (work, touched)) in (1..).zip(cases) {
        let work = format!("/bash {work}; git add -A; git commit -qm work");
        add(
            &team,
            &[
                "one",
                "--check",
                "true",
                "--max-attempts",
                "1",
                "--description",
                &work,
            ],
        );
        assert_eq!(
            until(&team, id, "failed")["result"]["touched_protected"],
            touched
        );
    }
    for (id, attack) in (4..).zip([
        "echo exit 0 > deep/spec/t",
        "mv deep/spec x; mkdir deep/spec; echo exit 0 > deep/spec/t",
        "echo exit 0 > lib/real.sh",
    ]) {
        add(
            &team,
            &[
                "build",
                "--max-attempts",
                "1",
                "--description",
                &builds_with(attack),
            ],
        );
        let failed = until(&team, id, "failed");
        assert_eq!(failed["result"]["check"]["exit"], 1, "{attack}");
    }
}

#[test]
fn a_setup_that_changes_protected_files_before_the_check_is_seen() {
    let team = team(
        User::at_hand()[0],
        "[work]\nprotect = [\"tests/**\"]\ncheck = \"sh tests/run.sh\"\n[checkout]\nsetup = \"sh setup.sh\"\n",
        "mkdir tests; echo exit 1 > tests/run.sh; echo true > setup.sh; git add .; git commit -qm tests",
    );
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    let work = "/bash echo 'echo exit 0 > tests/run.sh' > setup.sh; git commit -qam setup";
    add(&team, &["setup", "--description", work]);
    team.until("the review", || {
        task(&team, 1)["submission"]["stage"] == "reviewing"
    });
    assert_eq!(
        task(&team, 1)["result"]["touched_protected"],
        "changed by the setup: tests/run.sh"
    );
}

#[test]
fn work_that_breaks_the_setup_goes_back_and_a_setup_that_cannot_run_is_tried_again() {
    let team = team(
        User::at_hand()[0],
        "[work]\ncheck = \"true\"\n[checkout]\nsetup = \"sh setup.sh\"\n",
        "echo 'test ! -e $HOME/../work/is-down' > setup.sh; echo is-down > .gitignore; git add .; git commit -qm setup",
    );
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    let work = "/bash echo 'echo it is broken; exit 3' > setup.sh; git commit -qam broken";
    add(&team, &["broken", "--description", work]);
    let wanted = "(attempt 1 of 3): `true` was not run: the setup `sh setup.sh` fails with this work only (exit code 3)\nit is broken";
    team.until("its owner to be told", || {
        team.inbox("alice").iter().any(|it| {
            it["content"]
                .as_str()
                .is_some_and(|text| text.contains(wanted))
        })
    });
    team.teamctl(["task", "cancel", "1"]).ok();
    let log = team.teamctl(["task", "log", "1"]).ok().stdout;
    assert!(
        log.contains("$ sh setup.sh\nit is broken\n[exit code 3]"),
        "{log}"
    );
    user(&team, "touch is-down");
    add(&team, &["one", "--description", &commits("one")]);
    team.until("it to be told", || task(&team, 2)["stalled"].is_string());
    assert!(
        task(&team, 2)["stalled"]
            .as_str()
            .unwrap()
            .starts_with("the setup failed: `sh setup.sh`: ")
    );
    user(&team, "rm is-down");
    assert_eq!(until(&team, 2, "completed")["attempts"], 0);
    holds(&team, "test ! -e bad");
}

/// Where names differ by case alone. This file system keeps them apart; another one might not, so
/// what is protected is so in any case.
#[test]
fn names_that_differ_by_case_alone_are_merged_checked_and_landed_as_they_are() {
    let team = team(
        User::at_hand()[0],
        "[work]\ncheck = \"test $(cat a.txt) = one\"\nprotect = [\"tests/**\"]\n",
        "mkdir tests; echo t > tests/t; git add .; git commit -qm tests",
    );
    for name in ["alice", "bob"] {
        team.teamctl(["spawn", name, "--checkout", "--auto"]).ok();
    }
    let work = "/bash echo two > A.txt; mkdir Dir; echo 3 > Dir/x; git add .; git commit -qm upper";
    add(
        &team,
        &[
            "upper",
            "--description",
            work,
            "--check",
            "test $(cat A.txt) = two",
        ],
    );
    assert_eq!(
        until(&team, 1, "completed")["result"]["verified"],
        "checked"
    );
    let work =
        "/bash mkdir dir; echo 4 > dir/X; git mv A.txt A.TXT; git add .; git commit -qm lower";
    add(&team, &["lower", "--description", work]);
    until(&team, 2, "completed");
    let files = git(&team, &["ls-tree", "-r", "--name-only", "integration"]);
    assert_eq!(files, "A.TXT\nDir/x\na.txt\ndir/X\ntests/t");
    team.teamctl(["land"]).ok();
    assert_eq!(
        user(
            &team,
            "cat A.TXT a.txt Dir/x dir/X; git status --short -uno"
        ),
        "two\none\n3\n4"
    );
    let work = "/bash mkdir Tests; echo u > Tests/T; git add .; git commit -qm tests";
    add(&team, &["tests", "--description", work]);
    team.until("the review", || {
        task(&team, 3)["submission"]["stage"] == "reviewing"
    });
    assert_eq!(task(&team, 3)["result"]["touched_protected"], "Tests/T");
    holds(&team, "test $(cat a.txt) = one");
}

#[test]
fn a_user_who_rewrites_a_branch_or_what_is_shown_loses_nothing_and_breaks_nothing() {
    let team = team(
        User::at_hand()[0],
        "[work]\ncheck = \"true\"\n",
        "git commit -q --allow-empty -m second; git branch old",
    );
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    add(&team, &["one"]);
    add(&team, &["two"]);
    team.does(
        "alice",
        &format!(
            "/claim_task {{\"task_id\": 1}}\n{}\n{SUBMIT}",
            commits("one")
        ),
    );
    until(&team, 1, "completed");
    // The branch begins elsewhere now, and what is shown is another commit.
    user(
        &team,
        "git reset -q --hard HEAD^; echo u > u; git add u; git commit -qm rewritten; git update-ref refs/remotes/team/integration HEAD",
    );
    team.does(
        "alice",
        &format!(
            "/claim_task {{\"task_id\": 2}}\n{}\n{}",
            commits("two"),
            SUBMIT.replace('1', "2")
        ),
    );
    until(&team, 2, "completed");
    let tip = git(&team, &["rev-parse", "integration"]);
    team.until("the user to be shown", || {
        user(&team, "git rev-parse team/integration") == tip
    });
    team.teamctl(["land"]).ok();
    assert_eq!(
        user(&team, "git rev-parse main; ls"),
        format!(
            "{}\na.txt\none\nteam.toml\ntwo\nu",
            git(&team, &["rev-parse", "integration"])
        )
    );
    // One that has nothing in common with it stays as it is.
    user(
        &team,
        "git checkout -q --orphan alone; git commit -qm alone",
    );
    let before = user(&team, "git rev-parse alone");
    let refused = team.teamctl(["land"]).exits(7);
    assert!(refused.stderr.contains("is not integrated"), "{refused:?}");
    assert_eq!(user(&team, "git rev-parse alone"), before);
    // A branch that is gone is no error of the queue.
    user(&team, "git checkout -q main; git branch -qD alone");
    assert!(
        team.teamctl(["sync"])
            .ok()
            .stdout
            .contains("integrated already")
    );
    git(&team, &["fsck", "--strict"]);
}
