//! What a form of repository must not widen: a file that a command made, a directory of another
//! account, a lock that a person holds.

use std::os::unix::fs::chown;

use crate::checkouts::{add, checkout, team, until, user};
use crate::support::Team;
use crate::support::user::User;

#[test]
fn a_file_that_a_command_makes_gives_it_no_repository_that_names_the_workspace() {
    let team = Team::of(User::Ordinary);
    user(
        &team,
        "git init -q --bare ../apart.git; git config --file ../apart.git/config core.bare false; git config --file ../apart.git/config core.worktree $PWD",
    );
    team.teamd(["start"]).ok();
    team.teamctl(["spawn", "bob"]).ok();
    team.does(
        "bob",
        "/bash echo gitdir: ../apart.git > .git; touch ../apart.git/planted",
    );
    team.does(
        "bob",
        "/bash touch ../apart.git/planted; git commit -q --allow-empty -m planted",
    );
    assert!(team.made(".git") && !team.made("../apart.git/planted"));
    assert_eq!(user(&team, "git rev-list --all"), "");
}

#[test]
fn checkouts_are_not_made_where_another_account_or_a_link_leads_them() {
    for who in User::at_hand() {
        let team = team(who, "", "ln -s . ../work.team");
        let refused = team.teamctl(["spawn", "alice", "--checkout"]).exits(7);
        assert!(
            refused.stderr.contains("that is a link") && refused.stderr.contains("checkouts = "),
            "{refused:?}"
        );
        if who == User::Root {
            user(&team, "rm ../work.team; mkdir -m 777 ../work.team");
            chown(team.root().with_file_name("work.team"), Some(65_533), None).unwrap();
            let refused = team.teamctl(["spawn", "alice", "--checkout"]).exits(7);
            assert!(
                refused.stderr.contains("belongs to another user"),
                "{refused:?}"
            );
        }
    }
}

#[test]
fn a_repository_of_another_account_works_where_the_user_calls_it_safe() {
    // Only root reads what another account owns, and lands there.
    let Some(who) = User::at_hand().into_iter().find(|who| *who == User::Root) else {
        return;
    };
    let team = team(who, "", "chmod -R go-w .git .; chown -R 65534:65534 .git .");
    let refused = team.teamctl(["spawn", "alice", "--checkout"]).exits(7);
    assert!(
        refused.stderr.contains("safe.directory") && !refused.stderr.contains("git init"),
        "{refused:?}"
    );
    user(
        &team,
        "git config --global --add safe.directory \"$PWD\"; git config --global user.name u; git config --global user.email u@x",
    );
    let spawned = team
        .teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    assert!(
        spawned.stderr.contains("nothing can be shown in "),
        "{spawned:?}"
    );
    user(&team, "chmod -R a+rwX .git .");
    add(
        &team,
        &[
            "one",
            "--description",
            "/bash echo 1 > one; git add one; git commit -qm one",
        ],
    );
    until(&team, 1, "completed");
    team.teamctl(["land"]).ok();
    assert!(team.made("one"));
}

#[test]
fn a_repository_of_another_account_works_where_variables_call_it_safe() {
    let Some(who) = User::at_hand().into_iter().find(|who| *who == User::Root) else {
        return;
    };
    let variables = [
        ("COUNT", "1"),
        ("KEY_0", "safe.directory"),
        ("VALUE_0", "*"),
    ];
    let team = team(
        who,
        "",
        "chmod -R a+rwX .git .; chown -R 65534:65534 .git .",
    );
    let team = variables.iter().fold(team, |team, (name, value)| {
        team.with(&format!("GIT_CONFIG_{name}"), value)
    });
    team.teamctl(["spawn", "bob"]).ok();
    let results = team.does(
        "bob",
        "/bash git status --short --branch && git config --get safe.directory",
    );
    assert_eq!(results[0]["is_error"], false, "{results:?}");
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    add(
        &team,
        &[
            "one",
            "--description",
            "/bash echo 1 > one; git add one; git commit -qm one",
        ],
    );
    until(&team, 1, "completed");
    team.teamctl(["land"]).ok();
    assert!(team.made("one"));
}

#[test]
fn a_lock_that_a_killed_git_has_left_goes_and_one_that_a_person_holds_stays() {
    let team = team(
        User::Ordinary,
        "",
        "git config core.editor 'sh -c \"touch ../editing; until [ -e ../go ]; do sleep 0.02; done\"'",
    );
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    team.teamctl(["spawn", "bob", "--restart", "on-failure"])
        .ok();
    let lock = checkout(&team, "alice").join(".git/index.lock");
    user(
        &team,
        &format!(
            "touch {} {}",
            lock.display(),
            lock.with_file_name("HEAD.lock").display()
        ),
    );
    add(&team, &["one"]);
    team.does("alice", "/claim_task {\"task_id\": 1}");
    assert!(
        !lock.exists()
            && user(
                &team,
                &format!(
                    "git -C {} branch --show-current",
                    checkout(&team, "alice").display()
                )
            ) == "task/1"
    );
    // A killed command of one that works in place.
    user(&team, "touch .git/index.lock");
    team.kill_and_wait_for_restart("bob");
    assert!(!team.made(".git/index.lock"));
    assert!(
        team.file("log/bob.log")
            .contains("removed what a git has left that was killed")
    );
    // A person commits.
    user(
        &team,
        &format!(
            "{}echo more >> a.txt; (git commit -qa >/dev/null 2>&1 </dev/null &)",
            "rm -f ../go; "
        ),
    );
    team.until("the editor to be open", || team.made("../editing"));
    team.kill_and_wait_for_restart("bob");
    assert!(team.made(".git/index.lock"), "the person still commits");
    user(&team, "touch ../go");
}

#[test]
fn what_git_says_of_a_repository_has_a_next_step_of_its_own() {
    let team = team(User::Ordinary, "", "");
    for (broken, why, next) in [
        ("mv .git ../kept", "not a git repository", "git init"),
        (
            "echo gitdir: /nowhere > .git",
            "not a git repository: /nowhere",
            "worktree repair",
        ),
        (
            "rm .git; mv ../kept .git; chmod 0 .git",
            "cannot be read",
            "let this user read it",
        ),
        (
            "chmod 755 .git; git config core.repositoryFormatVersion 9",
            "repo version",
            "a newer git",
        ),
        (
            "sed -i s/9/0/ .git/config; echo [ >> .git/config",
            "bad config",
            "put that line right",
        ),
    ] {
        user(&team, broken);
        let refused = team.teamctl(["spawn", "alice", "--checkout"]).exits(7);
        assert!(
            refused.stderr.contains(why) && refused.stderr.contains(next),
            "{broken}: {refused:?}"
        );
    }
}
