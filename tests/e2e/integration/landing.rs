//! The branch of the user: it is synced, landed in, and never overwritten.

use serde_json::{Value, json};

use super::{SUBMIT, commits, holds};
use crate::checkouts::{add, checkout, git, task, team, until, user};
use crate::support::user::User;

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
