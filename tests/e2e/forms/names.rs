//! Names in the user's repository and in the clones of it: none collides, and none is overwritten.

use crate::checkouts::{add, checkout, git, says, team, until, user};
use crate::support::user::User;

const COMMITS: &str = "/bash echo $RANDOM >> w; git add w; git commit -qm w";

/// The user's repository is a clone, whose origin has branches that are called as ours.
const CLONED: &str = "git init -q -b main ../up; (cd ../up; for i in 1 2; do git commit -q --allow-empty -m u$i; done; git tag v1; git branch integration/x; git branch topic HEAD^); \
     git remote add origin ../up; git fetch -q --tags origin; git remote set-head origin main; git reset -q --hard origin/main; git remote add fork ../up; git fetch -q fork";

#[test]
fn remote_branches_and_tags_of_the_user_are_known_in_checkouts_and_checks_and_follow_a_fetch() {
    let check = "git merge-base origin/main HEAD && git rev-parse --verify fork/main && git describe --tags --match v1 \
         && test $(git symbolic-ref refs/remotes/origin/HEAD) = refs/remotes/origin/main && git merge-base --is-ancestor origin/integration HEAD \
         && test $(git rev-list --count origin/integration..HEAD) = 2";
    let team = team(User::Ordinary, &format!("[work]\ncheck = \"{check}\"\n"), CLONED);
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    let does = |id: u64, look: &str| {
        add(&team, &["one"]);
        let work = format!("/claim_task {id}\n/bash {look}\n{COMMITS}\n/task_update {id} completed");
        let results = team.does("alice", &work);
        assert_eq!(until(&team, id, "completed")["result"]["verified"], "checked");
        results[1]["content"].as_str().unwrap().to_owned()
    };
    assert!(
        does(1, "git log -1 --format=%s origin/main; git log -1 --format=%s fork/topic").contains("u2\nu1")
    );
    // Names come and go, and one may lie where another was.
    user(
        &team,
        "(cd ../up; git commit -q --allow-empty -m u3; git branch -q -D topic; git branch topic/a; git tag v2); git fetch -q --prune --all --tags",
    );
    let seen = does(
        2,
        "git log -1 --format=%s origin/main; git log -1 --format=%s origin/topic/a; git rev-parse v2",
    );
    assert!(seen.starts_with("u3\nu3\n"), "{seen}");
    assert_eq!(git(&team, &["for-each-ref", "refs/remotes/origin/integration"]), "");
    assert!(
        !user(&team, "git for-each-ref refs/remotes/origin/integration/x").is_empty(),
        "the user's own stays"
    );
    team.teamctl(["land"]).ok();
}

#[test]
fn a_remote_of_the_user_that_is_called_as_ours_is_left_alone() {
    let own = "git init -q -b integration ../theirs; git -C ../theirs commit -q --allow-empty -m theirs; git remote add team ../theirs; git fetch -q team";
    let team = team(User::Ordinary, "", own);
    let spawned = team.teamctl(["spawn", "alice", "--checkout", "--auto"]).ok();
    assert!(spawned.stderr.contains("is shown as `team-work/integration`"), "{spawned:?}");
    let subject = |name: &str| user(&team, &format!("git log -1 --format=%s {name} 2>/dev/null || true"));
    add(&team, &["one", "--description", COMMITS]);
    until(&team, 1, "completed");
    team.until("the user to be shown", || subject("team-work/integration").starts_with("Merge task 1"));
    assert_eq!(subject("team/integration"), "theirs");
    // Nor is one that comes later.
    user(
        &team,
        "git remote add team-work ../theirs; git update-ref refs/remotes/team-work/integration team/integration",
    );
    add(&team, &["two", "--description", COMMITS]);
    until(&team, 2, "completed");
    team.until("the user to be shown", || subject("team-work-2/integration").starts_with("Merge task 2"));
    assert_eq!(subject("team-work/integration"), "theirs");
    assert!(team.teamctl(["land"]).ok().stdout.contains("main is at "));
}

#[test]
fn submodules_that_the_user_has_not_filled_are_told_in_one_line() {
    let many = "git init -q ../sub; git -C ../sub commit -q --allow-empty -m s; \
         for i in 1 2 3; do git -c protocol.file.allow=always submodule --quiet add ../sub s$i; done; git commit -qm s; git submodule --quiet deinit -f s2 s3";
    let team = team(User::Ordinary, "", many);
    let spawned = team.teamctl(["spawn", "alice", "--checkout"]).ok();
    assert!(spawned.stderr.contains("2 submodules are empty, as they are in "), "{spawned:?}");
    assert_eq!(spawned.stderr.matches("submodule").count(), 1, "{spawned:?}");
    let alice = checkout(&team, "alice");
    assert!(alice.join("s1/.git").exists() && !alice.join("s2/.git").exists());
    says(&team.does("alice", "/bash git status --short; echo rc $?"), 0, "rc 0");
}
