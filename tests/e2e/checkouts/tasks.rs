//! Tasks in checkouts: a branch for each claim, and what is submitted or released from it.

use super::{add, checkout, git, of_user, repository, says, team, until, user};
use crate::support::user::User;

#[test]
fn a_teammate_claims_commits_and_submits_in_a_clone_of_its_own() {
    for who in User::at_hand() {
        let team = team(
            who,
            "",
            "mkdir sub; echo s > sub/s; git add sub; git commit -qm second; echo dirty > untracked",
        );
        let before = of_user(&team);
        let spawned = team.teamctl(["spawn", "alice", "--checkout"]).ok();
        assert!(
            spawned.stderr.contains("note: what is not committed in "),
            "{spawned:?}"
        );
        let alice = checkout(&team, "alice");
        assert_eq!(team.member("alice")["workspace"], alice.to_str().unwrap());
        assert!(!alice.join("untracked").exists());
        add(&team, &["one", "--check", "test -e b"]);
        let results = team.does(
            "alice",
            "/claim_task {\"task_id\": 1}\n/bash git rev-parse --abbrev-ref HEAD; echo b > b\n/task_update {\"task_id\": 1, \"status\": \"completed\"}\n\
             /bash git add b; git commit -qm 'add b'; git log -1 --format='%an <%ae>'\n/task_update {\"task_id\": 1, \"status\": \"completed\"}",
        );
        says(&results, 1, "task/1");
        says(&results, 2, "has changes that are not committed: b");
        says(&results, 3, "alice <alice@team>");
        says(&results, 4, "is submitted");
        let task = until(&team, 1, "completed");
        let commit = task["submission"]["commit"].as_str().unwrap();
        assert_eq!(git(&team, &["rev-parse", "refs/team/task-1/1"]), commit);
        assert_eq!(
            of_user(&team),
            before,
            "the user's tree and repository are as they were"
        );
        // Spawned again: it is the same checkout, and nothing is said twice.
        team.teamctl(["shutdown", "alice"]).ok();
        let again = team.teamctl(["spawn", "alice", "--resume"]).ok();
        assert!(!again.stderr.contains("not committed"), "{again:?}");
        assert_eq!(team.member("alice")["workspace"], alice.to_str().unwrap());
    }
}

#[test]
fn a_team_in_a_subdirectory_works_in_the_same_one() {
    let team = team(
        User::at_hand()[0],
        "",
        "mkdir -p deep/sub; echo s > deep/sub/s; git add .; git commit -qm second",
    );
    let sub = team.root().join("deep/sub");
    team.teamctl([
        "spawn",
        "alice",
        "--worktree",
        "--workspace",
        sub.to_str().unwrap(),
    ])
    .ok();
    let alice = checkout(&team, "alice");
    assert_eq!(
        team.member("alice")["workspace"],
        alice.join("deep/sub").to_str().unwrap()
    );
    let results = team.does(
        "alice",
        "/bash pwd; ls; echo more > m; git add m; git commit -qm m; git status --short; echo top > ../../top",
    );
    says(&results, 0, "deep/sub\ns");
    assert!(alice.join("top").exists() && !team.made("deep/sub/m"));
}

#[test]
fn released_work_is_kept_and_the_next_owner_is_told_its_name() {
    for who in User::at_hand() {
        let team = team(who, "", "");
        for name in ["alice", "bob"] {
            team.teamctl(["spawn", name, "--checkout"]).ok();
        }
        add(&team, &["one", "--description", "Do it."]);
        let work = "/claim_task {\"task_id\": 1}\n/bash echo half > half; git add half; git commit -qm half\n/task_update {\"task_id\": 1, \"status\": \"pending\"}";
        team.does("alice", work);
        // One that is killed with a claim leaves its commits, too.
        let see = "/bash git log -p --format=%an refs/team/task-1/1 -1; git merge -q refs/team/task-1/1; ls";
        let more =
            "/bash echo more > more; git add more; git commit -qm more; touch done; sleep 60";
        team.teamctl([
            "send",
            "bob",
            &format!("/claim_task {{\"task_id\": 1}}\n{see}\n{more}"),
        ])
        .ok();
        team.until("bob to have committed", || {
            checkout(&team, "bob").join("done").exists()
        });
        let told = team.file("transcript/bob.jsonl");
        assert!(
            told.contains("Earlier work on it is kept as refs/team/task-1/1")
                && told.contains("+half")
        );
        team.teamctl(["shutdown", "bob", "--force", "--timeout", "0s"])
            .ok();
        let results = team.does("alice", "/claim_task {\"task_id\": 1}");
        says(&results, 0, "refs/team/task-1/2");
        assert_eq!(
            git(
                &team,
                &["log", "-1", "--format=%an %s", "refs/team/task-1/2"]
            ),
            "bob more"
        );
    }
}

#[test]
fn an_idle_teammate_is_given_a_branch_with_its_task() {
    let team = team(User::at_hand()[0], "", "");
    let work = "/bash echo $RANDOM > f-$(git branch --show-current | tr / -); git add .; git commit -qm work";
    for _ in 0..4 {
        add(
            &team,
            &[
                "work",
                "--description",
                work,
                "--check",
                "git status --short | wc -l | grep -qx 0",
            ],
        );
    }
    for name in ["alice", "bob"] {
        team.teamctl(["spawn", name, "--checkout", "--auto"]).ok();
    }
    team.teamctl(["wait", "--tasks", "--timeout", "60s"]).ok();
    for id in 1..=4 {
        assert!(
            team.file(&format!("tasks/{id}.json"))
                .contains("\"completed\""),
            "{id}"
        );
        let own = format!("refs/team/task-{id}/1");
        assert_eq!(
            git(&team, &["show", "--name-only", "--format=", &own]),
            format!("f-task-{id}")
        );
        // What is integrated later is no part of it.
        git(
            &team,
            &[
                "merge-base",
                "--is-ancestor",
                &format!("{own}^"),
                "integration",
            ],
        );
    }
    // With something that is not committed it is given none, and is told why.
    team.does("alice", "/bash echo x > dirty");
    team.teamctl([
        "task",
        "add",
        "more",
        "--for",
        "alice",
        "--description",
        "/bash true",
    ])
    .ok();
    team.until("alice to be told", || {
        team.inbox("alice").iter().any(|it| {
            it["content"]
                .as_str()
                .unwrap()
                .contains("cannot be given a task: ")
                && it["content"].as_str().unwrap().contains(": dirty")
        })
    });
    team.until("the lead to be told", || {
        team.inbox("lead").iter().any(|it| {
            it["content"]
                .as_str()
                .unwrap()
                .contains("alice cannot be given a task")
        })
    });
    assert!(team.file("tasks/5.json").contains("\"pending\""));
    team.does("alice", "/bash rm dirty");
    team.does("alice", "/claim_task {\"task_id\": 5}");
}

#[test]
fn a_task_that_no_teammate_can_be_given_is_shown_with_the_reason() {
    let team = team(User::at_hand()[0], "", "");
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    let at = repository(&team);
    user(&team, &format!("mv {0} {0}.away", at.display()));
    add(
        &team,
        &[
            "one",
            "--description",
            "/bash echo 1 > one; git add one; git commit -qm one",
        ],
    );
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let status = || words(team.teamctl(["status"]).ok().stdout);
    team.until("the reason to be shown", || {
        status().contains("task 1: alice cannot be given a task: the team repository ")
    });
    let doctor = words(team.teamctl(["doctor"]).exits(1).stdout);
    assert!(
        doctor.contains("task 1 (one) is stalled: alice cannot be given a task: "),
        "{doctor}"
    );
    user(&team, &format!("mv {0}.away {0}", at.display()));
    team.until("alice to be left alone", || {
        team.inbox("lead").iter().any(|it| {
            it["content"]
                .as_str()
                .unwrap()
                .contains("alice cannot be given a task")
        })
    });
    team.teamctl(["task", "assign", "1", "alice"]).ok();
    until(&team, 1, "completed");
    assert!(!status().contains("cannot be given a task"));
}
