//! A checkout is removed, and no work that is nowhere else with it.

use serde_json::Value;

use super::{SUBMODULE, add, checkout, doctor, git, repository, says, team, until, user};
use crate::support::user::User;

#[test]
fn forget_is_refused_while_a_teammate_starts_in_its_checkout() {
    let toml = "[checkout]\ninputs = [\"a.txt\"]\nsetup = \"touch began; until [ -e go ]; do sleep 0.02; done\"\n";
    let team = team(User::at_hand()[0], toml, "");
    let alice = checkout(&team, "alice");
    let spawning = || {
        let spawning = team.start_teamctl(["spawn", "alice", "--checkout"]);
        team.until("the setup to run", || alice.join("began").exists());
        spawning
    };
    let first = spawning();
    user(&team, "touch ../work.team/alice/go");
    first.finish().ok();
    team.teamctl(["shutdown", "alice"]).ok();
    user(
        &team,
        "cd ../work.team/alice; rm began go; echo new > a.txt",
    );
    let second = spawning();
    let refused = team.teamctl(["forget", "alice", "--discard"]).exits(7);
    assert!(
        refused.stderr.contains("alice is being started")
            && refused.stderr.contains("shutdown alice"),
        "{refused:?}"
    );
    user(&team, "touch ../work.team/alice/go");
    second.finish().ok();
    says(&team.does("alice", "/bash cat a.txt"), 0, "new");
}

#[test]
fn forget_removes_a_checkout_unless_work_would_be_lost() {
    for who in User::at_hand() {
        let team = team(who, "", "");
        team.teamctl(["spawn", "alice", "--checkout"]).ok();
        let alice = checkout(&team, "alice");
        add(&team, &["one"]);
        team.does("alice", "/bash git switch -qc mine; echo m > m; git add m; git commit -qm mine; echo u > u; mkdir closed; touch closed/x; chmod 0 closed");
        team.teamctl(["shutdown", "alice"]).ok();
        let refused = team.teamctl(["forget", "alice"]).exits(7);
        assert!(
            refused.stderr.contains("not committed") && refused.stderr.contains("--discard"),
            "{refused:?}"
        );
        std::fs::remove_file(alice.join("u")).unwrap();
        user(
            &team,
            "chmod 700 ../work.team/alice/closed; rm -r ../work.team/alice/closed",
        );
        let refused = team.teamctl(["forget", "alice"]).exits(7);
        assert!(
            refused.stderr.contains("not integrated or saved: mine"),
            "{refused:?}"
        );
        user(
            &team,
            "mkdir ../work.team/alice/closed; touch ../work.team/alice/closed/x; chmod 0 ../work.team/alice/closed",
        );
        team.teamctl(["forget", "alice", "--discard"]).ok();
        assert!(!alice.exists() && team.member("alice") == Value::Null);
        // Work that is kept is not lost.
        team.teamctl(["spawn", "alice", "--checkout"]).ok();
        team.does("alice", "/claim_task {\"task_id\": 1}\n/bash echo k > k; git add k; git commit -qm kept\n/task_update {\"task_id\": 1, \"status\": \"pending\"}");
        team.until("the work to be kept", || {
            git(&team, &["for-each-ref"]).contains("refs/team/task-1/1")
        });
        team.teamctl(["shutdown", "alice"]).ok();
        team.teamctl(["forget", "alice"]).ok();
        assert!(!alice.exists() && !doctor(&team).contains("is of no teammate"));
    }
}

#[test]
fn work_in_a_submodule_that_is_nowhere_else_is_never_lost() {
    let team = team(User::at_hand()[0], "", SUBMODULE);
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    team.teamctl(["shutdown", "alice"]).ok();
    let at = checkout(&team, "alice").join("sub");
    let in_it = |script: &str| user(&team, &format!("cd {}; {script}", at.display()));
    let refuses = |why: &str| {
        let refused = team.teamctl(["forget", "alice"]).exits(7);
        assert!(
            refused.stderr.contains(why) && refused.stderr.contains("--discard"),
            "{refused:?}"
        );
    };
    // No setting of the submodule is believed, or run.
    let filter = "git config filter.x.clean 'touch ../pwned; cat'; echo '* filter=x' > $(git rev-parse --git-dir)/info/attributes; echo more >> s";
    for change in [
        "echo u > u",
        "rm s",
        "echo more >> s; git update-index --assume-unchanged s",
        &format!("mkdir -p $(git rev-parse --git-dir)/info; {filter}"),
    ] {
        in_it(change);
        refuses("the submodule sub of ");
        refuses("has changes that are not committed");
        assert!(!at.with_file_name("pwned").exists());
        in_it(
            "git config --unset filter.x.clean || true; rm -f u; git update-index --no-assume-unchanged s; git checkout -q s",
        );
    }
    in_it("git switch -qc mine; git commit -q --allow-empty -m mine");
    refuses("not committed: sub");
    for script in [
        "git switch -q --detach HEAD^",
        "cd ..; git submodule --quiet deinit -f sub",
    ] {
        in_it(script);
        refuses("has commits that are nowhere else");
    }
    // Once the user has them, nothing is lost.
    user(
        &team,
        "git -C sub -c protocol.file.allow=always fetch -q $PWD/../work.team/alice/.git/modules/sub mine",
    );
    team.teamctl(["forget", "alice"]).ok();
    assert!(!at.exists());
}

#[test]
fn submodules_of_submodules_come_from_the_copies_of_the_user_and_are_not_lost_either() {
    let nested = format!(
        "mkdir ../in; (cd ../in; git init -q ../nested; echo n > ../nested/n; git -C ../nested add n; git -C ../nested commit -qm n; git init -q .; \
         git -c protocol.file.allow=always submodule --quiet add ../nested nested; git commit -qm in); {SUBMODULE}; \
         cd sub; git -c protocol.file.allow=always submodule --quiet add $PWD/../../in in; git commit -qm in; \
         git -c protocol.file.allow=always submodule --quiet update --init --recursive; cd ..; git commit -qam in; rm -rf ../in ../nested"
    );
    let team = team(
        User::at_hand()[0],
        "[work]\ncheck = \"grep -qx n sub/in/nested/n && rm -r sub/in/nested && echo evil > sub/s\"\n",
        &nested,
    );
    let spawned = team.teamctl(["spawn", "alice", "--checkout"]).ok();
    assert!(!spawned.stderr.contains("submodule"), "{spawned:?}");
    let alice = checkout(&team, "alice");
    let shared = user(
        &team,
        "find ../work.team/alice/.git/modules -type f -links +1",
    );
    assert_eq!(shared, "", "no file of the user is shared");
    for (id, file) in [(1, "one"), (2, "two")] {
        add(&team, &[file]);
        let work = format!(
            "/claim_task {{\"task_id\": {id}}}\n/bash cat sub/in/nested/n; echo > {file}; git add {file}; git commit -qm {file}\n/task_update {{\"task_id\": {id}, \"status\": \"completed\"}}"
        );
        says(&team.does("alice", &work), 1, "n");
        until(&team, id, "completed");
    }
    team.teamctl(["shutdown", "alice"]).ok();
    let in_it = |script: &str| {
        user(
            &team,
            &format!("cd {}/sub/in/nested; {script}", alice.display()),
        )
    };
    let refuses = |why: &str| {
        let refused = team.teamctl(["forget", "alice"]).exits(7);
        assert!(
            refused.stderr.contains(why) && refused.stderr.contains("--discard"),
            "{refused:?}"
        );
    };
    in_it("echo more >> n");
    refuses("the submodule sub/in/nested of ");
    refuses("has changes that are not committed");
    in_it("git commit -qam more; git branch more; git checkout -q HEAD^");
    refuses("the submodule sub/in/nested of ");
    refuses("has commits that are nowhere else");
    in_it("cd ..; git submodule --quiet deinit -f nested");
    refuses("the submodule sub/modules/in/modules/nested of ");
    user(
        &team,
        "git --git-dir=../work.team/alice/.git/modules/sub/modules/in/modules/nested branch -q -D more",
    );
    team.teamctl(["forget", "alice"]).ok();
    // Without a copy they are empty, which is said.
    user(
        &team,
        "git -C sub/in submodule --quiet deinit -f nested; rm -rf .git/modules/sub/modules/in/modules",
    );
    let spawned = team.teamctl(["spawn", "bob", "--checkout"]).ok();
    assert!(
        spawned
            .stderr
            .contains("note: the submodule sub/in/nested is empty, as it is in "),
        "{spawned:?}"
    );
    assert!(
        checkout(&team, "bob")
            .join("sub/in/nested")
            .read_dir()
            .unwrap()
            .next()
            .is_none()
    );
}

#[test]
fn work_that_is_nowhere_else_is_never_lost() {
    for who in User::at_hand() {
        let team = team(who, "", "");
        team.teamctl(["spawn", "alice", "--checkout"]).ok();
        add(&team, &["one"]);
        // The branch of the task is there already, with a commit, and HEAD is on another one that
        // has no name.
        let results = team.does(
            "alice",
            "/bash git switch -qc task/1; echo w > w; git add w; git commit -qm own; git switch -q --detach; echo d > d; git add d; git commit -qm nameless\n\
             /claim_task {\"task_id\": 1}\n/bash git log --format=%s task/1-1 task/1-2; git branch --show-current; ls\n/task_update {\"task_id\": 1, \"status\": \"pending\"}\n\
             /bash git branch -D task/1-1 task/1-2; echo s > a.txt; git stash -q",
        );
        says(&results, 1, "task/1-2");
        says(&results, 2, "own");
        says(&results, 2, "nameless");
        says(&results, 2, "task/1\na.txt");
        team.teamctl(["shutdown", "alice"]).ok();
        let refuses = |why: &str| {
            let refused = team.teamctl(["forget", "alice"]).exits(7);
            assert!(
                refused.stderr.contains(why) && refused.stderr.contains("--discard"),
                "{refused:?}"
            );
        };
        let at = checkout(&team, "alice");
        let in_it = |script: &str| user(&team, &format!("cd {}; {script}", at.display()));
        refuses("not integrated or saved: WIP on ");
        in_it("git stash drop -q; git tag here; git tag -a -m note note");
        refuses("tags that are nowhere else: here, note");
        in_it(
            "git tag -d here note; git update-index --assume-unchanged a.txt; echo hidden > a.txt",
        );
        refuses("not committed: a.txt");
        in_it("git checkout -q a.txt; git update-index --skip-worktree a.txt; rm a.txt");
        refuses("not committed: a.txt");
        in_it(
            "git update-index --no-skip-worktree a.txt; git checkout -q a.txt; echo '*' > .git/info/exclude; echo u > u",
        );
        refuses("not committed: u");
        // It cannot be saved: the checkout stays, and the lead is told.
        in_it("rm u; git switch -q task/1; echo k > k; git add k; git commit -qm kept");
        let repository = repository(&team);
        user(&team, &format!("mv {0} {0}.away", repository.display()));
        refuses("cannot be saved: ");
        user(&team, &format!("mv {0}.away {0}", repository.display()));
        assert!(at.join("k").exists());
        // Now it can.
        team.teamctl(["forget", "alice"]).ok();
        assert!(!at.exists());
        assert_eq!(
            git(&team, &["log", "-1", "--format=%s", "refs/team/task-1/1"]),
            "kept"
        );
    }
}

#[test]
fn what_the_user_has_moved_or_removed_since_is_no_work_of_a_teammate() {
    let own = "git init -q -b main ../up; (cd ../up; git commit -q --allow-empty -m u1; git branch topic; git branch moves; git tag light; git tag -a -m a heavy); \
         git remote add up ../up; git fetch -q --tags up";
    let team = team(User::at_hand()[0], "", own);
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    let moved = "(cd ../up; git checkout -q --detach; git commit -q --amend --allow-empty -m u2; git tag -f light; git tag -f -a -m b heavy; git branch -q -D topic; \
         git branch -q -f moves HEAD; git branch -q -f main HEAD); git fetch -q --force --prune --tags up";
    user(&team, moved);
    team.teamctl(["spawn", "bob", "--checkout"]).ok();
    for name in ["alice", "bob"] {
        team.teamctl(["shutdown", name]).ok();
    }
    let at = checkout(&team, "alice");
    let in_it = |script: &str| user(&team, &format!("cd {}; {script}", at.display()));
    assert_eq!(in_it("git log -1 --format=%s up/topic"), "u1");
    // One that the teammate has moved itself is told.
    in_it("git tag -f light $(git commit-tree -m mine HEAD^{tree})");
    let refused = team.teamctl(["forget", "alice"]).exits(7);
    assert!(
        refused.stderr.contains("tags that are nowhere else: light"),
        "{refused:?}"
    );
    in_it("git tag -f light up/topic");
    team.teamctl(["forget", "alice"]).ok();
    assert!(!at.exists());
}

/// A name that is a folder of others now is in the way of nothing.
#[test]
fn a_tag_that_was_renamed_to_one_below_its_name_stops_nothing() {
    let team = team(
        User::at_hand()[0],
        "",
        "git tag v; git tag w/1; git tag kept",
    );
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    user(&team, "git tag -d v w/1 kept; git tag v/1; git tag w");
    team.teamctl(["spawn", "bob", "--checkout"]).ok();
    let at = checkout(&team, "bob");
    let tags = user(&team, &format!("cd {}; git tag --list", at.display()));
    assert_eq!(
        tags.split_whitespace().collect::<Vec<_>>(),
        ["kept", "v/1", "w"]
    );
}

#[test]
fn the_lead_is_told_of_work_that_could_not_be_saved() {
    let team = team(User::at_hand()[0], "", "");
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    add(&team, &["one"]);
    let work = "/claim_task {\"task_id\": 1}\n/bash echo w > w; git add w; git commit -qm w; rm .git/HEAD\n/task_update {\"task_id\": 1, \"status\": \"pending\"}";
    team.does("alice", work);
    team.until("the lead to be told", || {
        team.inbox("lead").iter().any(|it| {
            it["content"]
                .as_str()
                .unwrap()
                .contains("alice's commits could not be saved: ")
        })
    });
    team.teamctl(["shutdown", "alice"]).ok();
    for args in [&["forget", "alice"][..], &["spawn", "alice", "--checkout"]] {
        let refused = team.teamctl(args).exits(7);
        assert!(
            refused.stderr.contains("its .git is damaged")
                && refused.stderr.contains("forget alice --discard"),
            "{refused:?}"
        );
    }
    team.teamctl(["forget", "alice", "--discard"]).ok();
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
}
