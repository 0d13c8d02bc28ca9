//! What a check of work finds, wherever the work is and whatever an earlier check has left.

use std::path::Path;

use super::{commits, holds};
use crate::checkouts::{SUBMODULE, add, task, team, until, user};
use crate::support::Team;
use crate::support::user::User;

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
