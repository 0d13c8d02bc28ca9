//! Names in the user's repository and in the clones of it: none collides, and none is overwritten.

use crate::checkouts::{REPOSITORY, add, checkout, git, says, team, until, user};
use crate::support::Team;
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
    let team = team(
        User::Ordinary,
        &format!("[work]\ncheck = \"{check}\"\n"),
        CLONED,
    );
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    let does = |id: u64, look: &str| {
        add(&team, &["one"]);
        let work = format!(
            "/claim_task {{\"task_id\": {id}}}\n/bash {look}\n{COMMITS}\n/task_update {{\"task_id\": {id}, \"status\": \"completed\"}}"
        );
        let results = team.does("alice", &work);
        assert_eq!(
            until(&team, id, "completed")["result"]["verified"],
            "checked"
        );
        results[1]["content"].as_str().unwrap().to_owned()
    };
    assert!(
        does(
            1,
            "git log -1 --format=%s origin/main; git log -1 --format=%s fork/topic"
        )
        .contains("u2\nu1")
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
    assert_eq!(
        git(&team, &["for-each-ref", "refs/remotes/origin/integration"]),
        ""
    );
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
    let spawned = team
        .teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    assert!(
        spawned
            .stderr
            .contains("is shown as `team-work/integration`"),
        "{spawned:?}"
    );
    let subject = |name: &str| {
        user(
            &team,
            &format!("git log -1 --format=%s {name} 2>/dev/null || true"),
        )
    };
    add(&team, &["one", "--description", COMMITS]);
    until(&team, 1, "completed");
    team.until("the user to be shown", || {
        subject("team-work/integration").starts_with("Merge task 1")
    });
    assert_eq!(subject("team/integration"), "theirs");
    // Nor is one that comes later.
    user(
        &team,
        "git remote add team-work ../theirs; git update-ref refs/remotes/team-work/integration team/integration",
    );
    add(&team, &["two", "--description", COMMITS]);
    until(&team, 2, "completed");
    team.until("the user to be shown", || {
        subject("team-work-2/integration").starts_with("Merge task 2")
    });
    assert_eq!(subject("team-work/integration"), "theirs");
    assert!(team.teamctl(["land"]).ok().stdout.contains("main is at "));
    // What is to be done about a conflict has that name.
    add(
        &team,
        &[
            "three",
            "--description",
            "/bash echo theirs > a.txt; git commit -qam theirs",
        ],
    );
    until(&team, 3, "completed");
    team.teamctl(["shutdown", "alice"]).ok();
    user(&team, "echo mine > a.txt; git commit -qam mine");
    for command in ["land", "sync"] {
        let refused = team.teamctl([command]).exits(7).stderr;
        let said = refused.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            said.contains("`git merge team-work-2/integration` on main"),
            "{said}"
        );
    }
}

/// A teammate in place can write each name of the user's repository.
#[test]
fn no_symbolic_name_of_the_user_leads_to_a_name_of_the_team() {
    let team = team(User::Ordinary, "", CLONED);
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    let refresh = |name: &str| {
        team.teamctl(["spawn", name, "--checkout"]).ok();
    };
    let tip = git(&team, &["rev-parse", "integration"]);
    let evil = "evil=$(git commit-tree -p HEAD -m evil HEAD^{tree})";
    user(
        &team,
        "git update-ref refs/heads/integration HEAD; git update-ref refs/tags/plain HEAD; \
         for name in refs/remotes/origin/foo refs/remotes/foo/HEAD refs/tags/foo refs/remotes/team/integration; do git symbolic-ref $name refs/heads/integration; done",
    );
    refresh("bob");
    let symbolic = || {
        git(
            &team,
            &[
                "for-each-ref",
                "--format=%(symref)%(if)%(symref)%(then) %(refname)%(end)",
            ],
        )
        .lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect::<Vec<_>>()
    };
    let head = ["refs/remotes/origin/main refs/remotes/origin/HEAD"];
    assert_eq!(symbolic(), head);
    // One that is there from before goes, too, and nothing is written through it.
    for name in [
        "refs/remotes/origin/foo",
        "refs/remotes/gone/foo",
        "refs/tags/foo",
        "refs/tags/gone",
    ] {
        git(&team, &["symbolic-ref", name, "refs/heads/integration"]);
    }
    user(
        &team,
        &format!(
            "{evil}; for name in refs/remotes/origin/foo refs/remotes/foo/HEAD refs/tags/foo; do git update-ref --no-deref $name $evil; done"
        ),
    );
    refresh("carol");
    assert_eq!(symbolic(), head);
    assert_eq!(git(&team, &["rev-parse", "integration"]), tip);
    assert_eq!(
        git(
            &team,
            &["for-each-ref", "--format=%(refname)", "refs/heads"]
        ),
        "refs/heads/integration"
    );
    assert_eq!(
        git(
            &team,
            &["log", "-1", "--format=%s", "refs/remotes/origin/foo"]
        ),
        "evil"
    );
    // Nor is a branch of the user written through the name that the user is shown.
    let main = user(&team, "git rev-parse main");
    user(
        &team,
        "git symbolic-ref refs/remotes/team/integration refs/heads/main",
    );
    add(&team, &["one"]);
    team.does(
        "alice",
        &format!("/claim_task {{\"task_id\": 1}}\n{COMMITS}\n/task_update {{\"task_id\": 1, \"status\": \"completed\"}}"),
    );
    until(&team, 1, "completed");
    team.until("the user to be shown", || {
        user(&team, "git log -1 --format=%s team/integration").starts_with("Merge task 1")
    });
    assert_eq!(user(&team, "git rev-parse main"), main);
    team.teamctl(["land"]).ok();
    assert_eq!(
        user(&team, "git rev-parse main"),
        git(&team, &["rev-parse", "integration"])
    );
}

#[test]
fn a_team_of_another_repository_takes_no_name_and_one_of_the_same_does() {
    let first = team(User::Ordinary, "", "");
    first.teamctl(["spawn", "alice", "--checkout"]).ok();
    let other = Team::of_the_same_user(&first);
    user(&other, REPOSITORY);
    other.teamd(["start"]).ok();
    let spawned = other.teamctl(["spawn", "bob", "--checkout"]).ok();
    assert!(!spawned.stderr.contains("is taken"), "{spawned:?}");
    let same = Team::of_the_same_user(&first);
    let linked = format!(
        "git -C {} worktree add -q -f {}/linked",
        first.root().display(),
        same.root().display()
    );
    user(&same, &linked);
    same.teamd(["start"]).ok();
    let spawned = same
        .teamctl(["spawn", "carol", "--checkout", "--workspace", "linked"])
        .ok();
    assert!(
        spawned
            .stderr
            .contains("is shown as `team-linked/integration`"),
        "{spawned:?}"
    );
}

#[test]
fn submodules_that_the_user_has_not_filled_are_told_in_one_line() {
    let many = "git init -q ../sub; git -C ../sub commit -q --allow-empty -m s; \
         for i in 1 2 3; do git -c protocol.file.allow=always submodule --quiet add ../sub s$i; done; git commit -qm s; git submodule --quiet deinit -f s2 s3";
    let team = team(User::Ordinary, "", many);
    let spawned = team.teamctl(["spawn", "alice", "--checkout"]).ok();
    assert!(
        spawned
            .stderr
            .contains("2 submodules are empty, as they are in "),
        "{spawned:?}"
    );
    assert_eq!(
        spawned.stderr.matches("submodule").count(),
        1,
        "{spawned:?}"
    );
    let alice = checkout(&team, "alice");
    assert!(alice.join("s1/.git").exists() && !alice.join("s2/.git").exists());
    says(
        &team.does("alice", "/bash git status --short; echo rc $?"),
        0,
        "rc 0",
    );
}
