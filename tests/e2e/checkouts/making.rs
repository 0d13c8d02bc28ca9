//! How a checkout is made: of which repositories, where, and with which setup.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::{REPOSITORY, SUBMODULE, add, checkout, says, team, until, user};
use crate::support::Team;
use crate::support::user::User;

/// Repositories that a checkout cannot be made of: how each is made, and why it is refused.
/// `forms` has those that can be mended on the way.
const REFUSED: [(&str, &str); 3] = [
    ("rm -rf .git", "is in no git repository that can be used"),
    (
        "mv .git /tmp/$$; find . -mindepth 1 -delete; cp -r /tmp/$$/. .; rm -rf /tmp/$$; git config core.bare true",
        "it belongs to the repository",
    ),
    (
        "git checkout -qb o; echo 2 > a.txt; git commit -qam 2; git checkout -q main; echo 3 > a.txt; git commit -qam 3; git rebase o || true",
        "a rebase or bisection is under way",
    ),
];

#[test]
fn a_repository_that_does_not_fit_is_refused_with_the_next_step() {
    for (script, why) in REFUSED {
        let team = team(User::at_hand()[0], "", script);
        let run = team.teamctl(["spawn", "alice", "--checkout"]);
        assert!(
            matches!(run.code, Some(2 | 7))
                && run.stderr.contains(why)
                && run.stderr.contains("hint: "),
            "{script}: {run:?}"
        );
        assert!(!checkout(&team, "alice").exists(), "{script}");
    }
}

/// What is odd in a repository, and fits all the same. All of a list is in one repository.
const ODD: [&[&str]; 2] = [
    &[
        // No identity.
        "git config user.useConfigOnly true",
        // Names that are called as ours.
        "git branch integration; git commit -q --allow-empty -m 2; git tag v1; git branch task",
        // Cases, links, and names that must be quoted.
        "echo A > A.txt; ln -s /etc/passwd out; ln -s ../../.. up; mkdir 'a b'; echo x > 'a b/ü'; git add .; git commit -qm odd",
        // Attributes, and a file of Git LFS.
        "printf '*.txt text eol=crlf\\n*.bin filter=lfs diff=lfs merge=lfs -text\\n' > .gitattributes; echo p > x.bin; git add . ; git commit -qm attributes",
        // A submodule that only the user's tree has.
        SUBMODULE,
    ],
    &[
        // Names below those that are called as ours.
        "git branch integration/foo; git tag integration/bar",
        // A submodule that nobody has.
        "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),gone; printf '[submodule \"gone\"]\n\tpath = gone\n\turl = https://x.invalid/gone\n' > .gitmodules; git add .gitmodules; git commit -qm gone",
        // Many files that are not committed.
        "for i in $(seq 4000); do echo > a-file-of-the-user-that-is-not-committed-$i; done",
    ],
];

#[test]
fn an_odd_repository_that_fits_works() {
    for odd in ODD {
        let script = odd.join("\n");
        let team = team(User::at_hand()[0], "", &script);
        let run = team.teamctl(["spawn", "alice", "--checkout"]).ok();
        let has_pointers = run.stderr.contains("note: files of Git LFS are pointers");
        assert_eq!(has_pointers, script.contains("lfs"), "{run:?}");
        let results = team.does("alice", "/bash git status --short; git log --oneline | wc -l; git fsck --no-dangling 2>&1 | grep -v '^notice'; echo 2 > two; git add two; git commit -qm two && echo committed");
        let said = results[0]["content"].as_str().unwrap();
        assert!(
            said.contains("committed") && !said.contains("M ") && !said.contains("missing"),
            "{said}"
        );
        add(&team, &["one"]);
        let results = team.does("alice", "/claim_task {\"task_id\": 1}\n/bash echo 3 > three; git add .; git commit -qm three\n/task_update {\"task_id\": 1, \"status\": \"completed\"}");
        says(&results, 2, "is submitted");
        until(&team, 1, "completed");
    }
}

#[test]
fn without_a_git_that_is_new_enough_the_error_says_what_works_all_the_same() {
    for (script, why) in [
        ("echo git version 2.37.9", "git 2.37.9 is too old"),
        ("", "git is not installed"),
    ] {
        let team = Team::new();
        user(&team, REPOSITORY);
        let bin = team.make_dir("../bin");
        for program in [
            "bash", "sh", "grep", "head", "tail", "sort", "cat", "printf", "tr",
        ] {
            let real = user(&team, &format!("command -v {program}"));
            std::os::unix::fs::symlink(
                if program == "printf" {
                    "/usr/bin/printf"
                } else {
                    &real
                },
                bin.join(program),
            )
            .unwrap();
        }
        if !script.is_empty() {
            team.write("../bin/git", &format!("#!/bin/sh\n{script}\n"));
            std::fs::set_permissions(bin.join("git"), PermissionsExt::from_mode(0o755)).unwrap();
        }
        let team = team.with("PATH", bin.to_str().unwrap());
        team.teamd(["start"]).ok();
        let run = team.teamctl(["spawn", "alice", "--checkout"]).exits(7);
        assert!(
            run.stderr.contains(why) && run.stderr.contains("spawn without --checkout"),
            "{run:?}"
        );
        team.teamctl(["spawn", "alice"]).ok();
    }
}

#[test]
fn a_checkout_is_prepared_and_a_setup_that_fails_ends_the_spawn() {
    let toml = "[checkout]\nalways = true\ncopy = [\".env.test\", \"data\"]\nsetup = \"cat .env.test data/d >> made; grep -q ok .env.test\"\ninputs = [\"a.txt\"]\n";
    let team = team(
        User::at_hand()[0],
        toml,
        "printf 'made\\n' > .gitignore; git add .gitignore; git commit -qm i; echo ok > .env.test; mkdir data; echo d > data/d",
    );
    let spawned = team.teamctl(["spawn", "alice"]).ok();
    assert!(!spawned.stderr.contains("error"), "{spawned:?}");
    let alice = checkout(&team, "alice");
    let made = || std::fs::read_to_string(alice.join("made")).unwrap();
    assert_eq!(made(), "ok\nd\n");
    let results = team.does(
        "alice",
        "/bash git status --short; git rev-parse --show-toplevel",
    );
    assert_eq!(
        results[0]["content"],
        alice.to_str().unwrap(),
        "what is copied is not to be committed"
    );
    let respawn = |expected: &str| {
        team.teamctl(["shutdown", "alice"]).ok();
        team.teamctl(["spawn", "alice"]).ok();
        assert_eq!(made(), expected);
    };
    respawn("ok\nd\n");
    team.does("alice", "/bash echo new > a.txt");
    respawn("ok\nd\nok\nd\n");
    // It fails: the spawn says with what.
    team.write(".env.test", "bad\n");
    let failed = team.teamctl(["spawn", "bob"]).exits(7);
    assert!(
        failed.stderr.contains("the setup of bob failed: ")
            && failed.stderr.contains("exit code 1"),
        "{failed:?}"
    );
    assert_eq!(team.member("bob"), Value::Null);
    for (file, why) in [
        ("ln -sf a.txt .env.test", "is a link"),
        ("rm .env.test", "is not in "),
    ] {
        user(&team, file);
        let failed = team.teamctl(["spawn", "bob"]).exits(7);
        assert!(failed.stderr.contains(why), "{failed:?}");
    }
    team.write("team.toml", "[checkout]\ncopy = [\"../x\"]\n");
    assert!(
        team.teamctl(["spawn", "bob"])
            .exits(2)
            .stderr
            .contains("not a path beneath the repository")
    );
}

#[test]
fn a_setup_that_writes_its_own_inputs_runs_once_for_each_checkout() {
    let toml = "[checkout]\nsetup = \"echo . >> made.lock; test ! -e broken\"\n";
    let team = team(
        User::at_hand()[0],
        toml,
        "printf 'made.lock\\nbroken\\n' > .gitignore; git add .; git commit -qm i",
    );
    let runs = |expected: &str| {
        assert_eq!(
            user(&team, "wc -l < ../work.team/alice/made.lock"),
            expected
        );
        team.teamctl(["shutdown", "alice"]).ok();
    };
    for _ in 0..2 {
        team.teamctl(["spawn", "alice", "--checkout"]).ok();
        runs("1");
    }
    team.teamctl(["forget", "alice"]).ok();
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    runs("1");
    // One that has failed runs again, although its inputs are what they were.
    user(
        &team,
        "cd ../work.team/alice; cp made.lock kept; rm made.lock; touch broken",
    );
    assert!(
        team.teamctl(["spawn", "alice", "--checkout"])
            .exits(7)
            .stderr
            .contains("fix `[checkout] setup`")
    );
    user(&team, "cd ../work.team/alice; mv kept made.lock; rm broken");
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    runs("2");
}

#[test]
fn where_checkouts_lie_is_said_or_found() {
    let team = team(User::Ordinary, "", "");
    // A directory that is not a checkout stays as it is.
    std::fs::create_dir_all(checkout(&team, "bob")).unwrap();
    std::fs::File::create(checkout(&team, "bob").join("mine")).unwrap();
    team.give(&checkout(&team, "bob"));
    team.give(checkout(&team, "bob").parent().unwrap());
    let refused = team.teamctl(["spawn", "bob", "--checkout"]).exits(7);
    assert!(
        refused
            .stderr
            .contains("is not empty, and is not a checkout"),
        "{refused:?}"
    );
    assert!(checkout(&team, "bob").join("mine").exists());
    // A link that stands where the checkout would be leads nowhere.
    std::os::unix::fs::symlink(team.home(), checkout(&team, "eve")).unwrap();
    let refused = team.teamctl(["spawn", "eve", "--checkout"]).exits(7);
    assert!(
        refused.stderr.contains("a checkout cannot be made in"),
        "{refused:?}"
    );
    user(&team, "touch ../package.json");
    let spawned = team.teamctl(["spawn", "alice", "--checkout"]).ok();
    assert!(
        spawned
            .stderr
            .contains("package.json: `checkouts = \"PATH\"` in team.toml moves it"),
        "{spawned:?}"
    );
    team.teamd(["stop"]).ok();
    team.write("team.toml", "checkouts = \"../elsewhere\"\n");
    team.trust();
    team.teamd(["start"]).ok();
    team.teamctl(["spawn", "carol", "--checkout"]).ok();
    assert!(
        team.root()
            .with_file_name("elsewhere")
            .join("carol/a.txt")
            .exists()
    );
}

#[test]
fn what_stands_where_a_checkout_is_made_is_never_removed() {
    let team = team(User::at_hand()[0], "", "");
    for mine in ["alice/.new", "alice/.git/teamd.new", ".alice.new/mine"] {
        user(
            &team,
            &format!("mkdir -p $(dirname ../work.team/{mine}); echo mine > ../work.team/{mine}"),
        );
        let refused = team.teamctl(["spawn", "alice", "--checkout"]).exits(7);
        assert!(
            refused.stderr.contains(" is not ") && refused.stderr.contains("hint: "),
            "{refused:?}"
        );
        assert_eq!(
            user(
                &team,
                &format!(
                    "cat ../work.team/{mine}; rm -r ../work.team/*alice* ../work.team/.alice* || true"
                )
            ),
            "mine"
        );
    }
    // Nor is anything made where a link leads that stands in it.
    user(
        &team,
        "mkdir -p deep/sub; touch deep/sub/x; git add .; git commit -qm deep",
    );
    let sub = team.root().join("deep/sub");
    let spawn = [
        "spawn",
        "alice",
        "--checkout",
        "--workspace",
        sub.to_str().unwrap(),
    ];
    team.teamctl(spawn).ok();
    team.teamctl(["shutdown", "alice"]).ok();
    user(
        &team,
        "mkdir ../elsewhere; cd ../work.team/alice; rm -r deep; ln -s ../../elsewhere deep",
    );
    let refused = team.teamctl(spawn).exits(7);
    assert!(
        refused.stderr.contains("is a link, or no directory"),
        "{refused:?}"
    );
    assert!(!team.root().with_file_name("elsewhere").join("sub").exists());
}

#[test]
fn a_clone_of_the_user_where_a_checkout_would_be_stays_as_it_is() {
    let team = team(User::at_hand()[0], "", "");
    team.teamctl(["spawn", "bob", "--checkout"]).ok();
    team.teamctl(["shutdown", "bob"]).ok();
    let own = "git clone -q . ../work.team/$name; cd ../work.team/$name; for f in exclude sparse-checkout attributes grafts; do echo '# mine' > .git/info/$f; done";
    user(
        &team,
        &format!("rm -r ../work.team/bob; for name in alice bob; do ({own}); done"),
    );
    let state = || {
        user(
            &team,
            "find ../work.team -printf '%p %m %s %T@ %i\\n' | sort",
        )
    };
    let before = state();
    for args in [
        &["spawn", "alice", "--checkout"][..],
        &["spawn", "bob", "--checkout"],
        &["diff", "bob"],
        &["forget", "bob"],
        &["forget", "bob", "--discard"],
    ] {
        let refused = team.teamctl(args).exits(7);
        let why = format!("is not a checkout of {}", args[1]);
        assert!(
            refused.stderr.contains(&why) && refused.stderr.contains("hint: "),
            "{refused:?}"
        );
        assert_eq!(state(), before, "{args:?}");
    }
}
