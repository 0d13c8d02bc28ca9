//! Checkouts: a teammate works in a clone of its own, and `git` at its hands is hostile. Each test as root and as a user.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::Value;
use teamd_shared::control::{Command, Done, ShutdownOrder};
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::name::Name;

use crate::support::user::User;
use crate::support::{Team, signal};

const SH: &str =
    "set -e\nexport GIT_AUTHOR_NAME=u GIT_AUTHOR_EMAIL=u@x GIT_COMMITTER_NAME=u GIT_COMMITTER_EMAIL=u@x\n";

/// Runs a script of the user in the workspace.
#[track_caller]
pub(crate) fn user(team: &Team, script: &str) -> String {
    team.run_program("bash", ["-c", &format!("{SH}{script}")]).ok().stdout.trim().to_owned()
}

pub(crate) const REPOSITORY: &str =
    "git init -q -b main . && printf 'one\\n' > a.txt && git add a.txt && git commit -qm first\n";

/// A team in a repository, with these lines in `team.toml`, which are trusted.
pub(crate) fn team(who: User, toml: &str, script: &str) -> Team {
    let team = Team::of(who);
    user(&team, &format!("{REPOSITORY}{script}"));
    team.write("team.toml", toml);
    team.trust();
    team.teamd(["start"]).ok();
    team
}

pub(crate) fn checkout(team: &Team, name: &str) -> PathBuf {
    team.root().with_file_name("work.team").join(name)
}

pub(crate) fn repository(team: &Team) -> PathBuf {
    let home = team.home().join(".local/state/teamd/repositories");
    let mut found = home.read_dir().unwrap().map(|entry| entry.unwrap().path().join("team.git"));
    found.find(|path| path.exists()).unwrap()
}

/// What `git` says in the team repository.
#[track_caller]
pub(crate) fn git(team: &Team, args: &[&str]) -> String {
    let repository = format!("--git-dir={}", repository(team).display());
    team.run_program("git", [repository.as_str()].iter().chain(args)).ok().stdout.trim().to_owned()
}

#[track_caller]
pub(crate) fn says(results: &[Value], number: usize, text: &str) {
    let said = results[number]["content"].as_str().unwrap();
    assert!(said.contains(text), "{number}: {said}\nwanted: {text}");
}

/// What is the user's, but for what is shown of the integration branch: objects may come, all else stays.
pub(crate) fn of_user(team: &Team) -> String {
    user(
        team,
        "find . \\( -path ./.team -o -path ./.git/objects -o -path ./.git/refs/remotes \\) -prune -o -printf '%p %m %s %T@ %i\\n' | grep -v '^\\./\\.git [0-9]' | grep -v '^\\./\\.git/refs ' | sort; git for-each-ref | grep -v refs/remotes/team/integration; git fsck",
    )
}

pub(crate) fn task(team: &Team, id: u64) -> Value {
    serde_json::from_str(&team.file(&format!("tasks/{id}.json"))).unwrap()
}

pub(crate) fn until(team: &Team, id: u64, status: &str) -> Value {
    team.until(&format!("task {id} to be {status}"), || task(team, id)["status"] == status);
    task(team, id)
}

pub(crate) fn add(team: &Team, args: &[&str]) {
    team.teamctl(["task", "add"].iter().chain(args)).ok();
}

/// What `doctor` says, on one line.
fn doctor(team: &Team) -> String {
    team.teamctl(["doctor"]).stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

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
        assert!(spawned.stderr.contains("note: what is not committed in "), "{spawned:?}");
        let alice = checkout(&team, "alice");
        assert_eq!(team.member("alice")["workspace"], alice.to_str().unwrap());
        assert!(!alice.join("untracked").exists());
        add(&team, &["one", "--check", "test -e b"]);
        let results = team.does(
            "alice",
            "/claim_task 1\n/bash git rev-parse --abbrev-ref HEAD; echo b > b\n/task_update {\"task_id\": 1, \"status\": \"completed\"}\n\
             /bash git add b; git commit -qm 'add b'; git log -1 --format='%an <%ae>'\n/task_update {\"task_id\": 1, \"status\": \"completed\"}",
        );
        says(&results, 1, "task/1");
        says(&results, 2, "has changes that are not committed: b");
        says(&results, 3, "alice <alice@team>");
        says(&results, 4, "is submitted");
        let task = until(&team, 1, "completed");
        let commit = task["submission"]["commit"].as_str().unwrap();
        assert_eq!(git(&team, &["rev-parse", "refs/team/task-1/1"]), commit);
        assert_eq!(of_user(&team), before, "the user's tree and repository are as they were");
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
    team.teamctl(["spawn", "alice", "--worktree", "--workspace", sub.to_str().unwrap()]).ok();
    let alice = checkout(&team, "alice");
    assert_eq!(team.member("alice")["workspace"], alice.join("deep/sub").to_str().unwrap());
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
        let work = "/claim_task 1\n/bash echo half > half; git add half; git commit -qm half\n/task_update {\"task_id\": 1, \"status\": \"pending\"}";
        team.does("alice", work);
        // One that is killed with a claim leaves its commits, too.
        let see = "/bash git log -p --format=%an refs/team/task-1/1 -1; git merge -q refs/team/task-1/1; ls";
        let more = "/bash echo more > more; git add more; git commit -qm more; touch done; sleep 60";
        team.teamctl(["send", "bob", &format!("/claim_task 1\n{see}\n{more}")]).ok();
        team.until("bob to have committed", || checkout(&team, "bob").join("done").exists());
        let told = team.file("transcript/bob.jsonl");
        assert!(told.contains("Earlier work on it is kept as refs/team/task-1/1") && told.contains("+half"));
        team.teamctl(["shutdown", "bob", "--force", "--timeout", "0s"]).ok();
        let results = team.does("alice", "/claim_task 1");
        says(&results, 0, "refs/team/task-1/2");
        assert_eq!(git(&team, &["log", "-1", "--format=%an %s", "refs/team/task-1/2"]), "bob more");
    }
}

#[test]
fn an_idle_teammate_is_given_a_branch_with_its_task() {
    let team = team(User::at_hand()[0], "", "");
    let work = "/bash echo $RANDOM > f-$(git branch --show-current | tr / -); git add .; git commit -qm work";
    for _ in 0..4 {
        add(&team, &["work", "--description", work, "--check", "git status --short | wc -l | grep -qx 0"]);
    }
    for name in ["alice", "bob"] {
        team.teamctl(["spawn", name, "--checkout", "--auto"]).ok();
    }
    team.teamctl(["wait", "--tasks", "--timeout", "60s"]).ok();
    for id in 1..=4 {
        assert!(team.file(&format!("tasks/{id}.json")).contains("\"completed\""), "{id}");
        let own = format!("refs/team/task-{id}/1");
        assert_eq!(git(&team, &["show", "--name-only", "--format=", &own]), format!("f-task-{id}"));
        // What is integrated later is no part of it.
        git(&team, &["merge-base", "--is-ancestor", &format!("{own}^"), "integration"]);
    }
    // With something that is not committed it is given none, and is told why.
    team.does("alice", "/bash echo x > dirty");
    team.teamctl(["task", "add", "more", "--for", "alice", "--description", "/bash true"]).ok();
    team.until("alice to be told", || {
        team.inbox("alice").iter().any(|it| {
            it["content"].as_str().unwrap().contains("cannot be given a task: ")
                && it["content"].as_str().unwrap().contains(": dirty")
        })
    });
    team.until("the lead to be told", || {
        team.inbox("lead")
            .iter()
            .any(|it| it["content"].as_str().unwrap().contains("alice cannot be given a task"))
    });
    assert!(team.file("tasks/5.json").contains("\"pending\""));
    team.does("alice", "/bash rm dirty");
    team.does("alice", "/claim_task 5");
}

#[test]
fn what_a_teammate_can_do_to_git_changes_neither_the_repositories_nor_what_we_run() {
    for who in User::at_hand() {
        let team = team(who, "", "");
        let before = of_user(&team);
        for name in ["alice", "bob"] {
            team.teamctl(["spawn", name, "--checkout"]).ok();
        }
        team.spawn("zoe", "");
        let repository = repository(&team);
        let at = repository.display();
        let pwned = team.root().with_file_name("pwned");
        let run = pwned.display();
        add(&team, &["one"]);
        let attacks = [
            format!("/bash touch {at}/x; echo x >> {at}/config; rm -rf {at}/objects; find {at}/objects -type f -exec chmod u+w {{}} + -exec sh -c 'echo x > \"$1\"' _ {{}} \\;"),
            "/bash echo x > .git/hooks/pre-commit; echo x >> .git/config; git config core.fsmonitor x; mv .git .g; echo x > .git/config.worktree; ls -la .git/hooks".to_owned(),
            "/claim_task 1".to_owned(),
            // All that `git` could be told to run, by files that it reads.
            format!("/bash printf '* filter=x diff=x merge=x\\n' > .gitattributes; printf '* filter=x\\n' > .git/info/attributes; \
                     printf '[filter \"x\"]\\nclean=touch {run}\\nsmudge=touch {run}\\n[core]\\nfsmonitor=touch {run}\\nsshCommand=touch {run}\\n' > .git/config.worktree; \
                     mkdir -p sub && cd sub && git init -q . && printf '[core]\\nfsmonitor=touch {run}; false\\nhooksPath=/tmp\\n' >> .git/config && git -c user.name=x commit -q --allow-empty -m x; cd ..; \
                     git add .gitattributes; git commit -qm attributes; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub; git commit -qm sub; echo gitdir: /tmp > sub2"),
            "/bash git add -A; git commit -qm all; git replace HEAD HEAD^; git rev-parse HEAD".to_owned(),
            "/task_update {\"task_id\": 1, \"status\": \"completed\"}".to_owned(),
        ];
        let results = team.does("alice", &attacks.join("\n"));
        says(&results, 1, "total");
        says(&results, 5, "is submitted");
        // It is merged, and shown to the user: nothing of it runs on that way either.
        until(&team, 1, "completed");
        assert!(!pwned.exists(), "something that a teammate named was run");
        assert_eq!(of_user(&team), before);
        git(&team, &["fsck", "--strict"]);
        assert_eq!(git(&team, &["config", "gc.auto"]), "0");
        // Others see nothing of it; the other teammate still can work.
        let hidden = team.does("zoe", &format!("/bash ls {at} && echo BROKEN"));
        assert!(!hidden[0]["content"].as_str().unwrap().contains("BROKEN"), "{hidden:?}");
        let results = team
            .does("bob", "/bash git fetch -q && git status --short && git fsck && git log --oneline | wc -l");
        says(&results, 0, "1");
    }
}

#[test]
fn malice_in_commits_is_refused_and_the_team_repository_does_not_take_it() {
    let team = team(User::at_hand()[0], "", "");
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    add(&team, &["one"]);
    let refs = || git(&team, &["for-each-ref"]);
    let before = refs();
    // What is malicious lies in a commit below HEAD, whose own files are as they should be.
    let evil = |tree: &str| {
        format!(
            "/bash tree=$({tree}); e=$(git commit-tree -p origin/integration -m evil $tree); echo z > z; git add z; \
             git reset -q --soft $(git commit-tree -p $e -m top $(git write-tree)); git status --short; git log --oneline | wc -l"
        )
    };
    let blob = "git hash-object -w --stdin <<< x";
    let entry = |mode: &str, name: &str| {
        evil(&format!("printf '{mode} blob %s\\t{name}\\n' $({blob}) | git mktree --missing"))
    };
    for order in [
        entry("100644", ".git"),
        entry("100644", ".GIT"),
        evil(&format!(
            "printf '040000 tree %s\\t.git\\n' $(printf '100644 blob %s\\tconfig\\n' $({blob}) | git mktree) | git mktree"
        )),
        evil(
            "printf '120000 blob %s\\t.gitmodules\\n' $(printf x | git hash-object -w --stdin) | git mktree",
        ),
        evil(
            "printf '[submodule \"../../x\"]\\n\\tpath = x\\n\\turl = --upload-pack=touch\\n' > m; printf '100644 blob %s\\t.gitmodules\\n' $(git hash-object -w m) | git mktree; rm m",
        ),
        // Objects that are missing.
        "/bash echo y > y; git add y; git commit -qm y; rm -rf .git/objects/??; git log --oneline | wc -l"
            .to_owned(),
    ] {
        let update = |status| format!("/task_update {{\"task_id\": 1, \"status\": \"{status}\"}}");
        let parts = [
            "/claim_task 1",
            &order,
            &update("completed"),
            "/bash git reset -q --hard origin/integration",
            &update("pending"),
        ];
        let results = team.does("alice", &parts.join("\n"));
        says(&results, 0, "is yours");
        let said = results[2]["content"].as_str().unwrap();
        assert!(
            said.contains("the work is refused: ") && !said.contains("refused:  (")
                || order.contains("rm -rf") && results[2]["is_error"] == true,
            "{order}\n{said}"
        );
        says(&results, 4, "is pending");
        assert_eq!(refs(), before, "{order}");
    }
    git(&team, &["fsck", "--strict"]);
}

#[test]
fn a_repository_that_fits_works_and_any_other_is_refused_with_the_next_step() {
    let odd: [(&str, &str, Option<&str>); 17] = [
        ("no repository", "rm -rf .git", Some("is in no git repository that can be used")),
        ("empty", "rm -rf .git; git init -q .", Some("has no commit yet")),
        (
            "bare",
            "mv .git /tmp/$$; find . -mindepth 1 -delete; cp -r /tmp/$$/. .; rm -rf /tmp/$$; git config core.bare true",
            Some("it belongs to the repository"),
        ),
        (
            "mid-rebase",
            "git checkout -qb o; echo 2 > a.txt; git commit -qam 2; git checkout -q main; echo 3 > a.txt; git commit -qam 3; git rebase o || true",
            Some("a rebase or bisection is under way"),
        ),
        ("partial", "git config remote.origin.promisor true", Some("is a partial clone")),
        ("detached", "git checkout -q --detach", None),
        (
            "shallow",
            "git commit -q --allow-empty -m 2; git clone -q --depth 1 file://$PWD ../s; rm -rf .git; mv ../s/.git .",
            None,
        ),
        ("without identity", "git config user.useConfigOnly true", None),
        (
            "a branch that is called integration",
            "git branch integration; git commit -q --allow-empty -m 2; git tag v1; git branch task",
            None,
        ),
        ("a branch below integration", "git branch integration/foo; git tag integration/bar", None),
        (
            "many files that are not committed",
            "for i in $(seq 4000); do echo > a-file-of-the-user-that-is-not-committed-$i; done",
            None,
        ),
        (
            "cases and links",
            "echo A > A.txt; ln -s /etc/passwd out; ln -s ../../.. up; mkdir 'a b'; echo x > 'a b/ü'; git add .; git commit -qm odd",
            None,
        ),
        (
            "attributes",
            "printf '*.txt text eol=crlf\\n*.bin filter=lfs diff=lfs merge=lfs -text\\n' > .gitattributes; echo p > x.bin; git add . ; git commit -qm attributes",
            None,
        ),
        (
            "submodules",
            "git init -q ../sub; git -C ../sub commit -q --allow-empty -m s; git -c protocol.file.allow=always submodule --quiet add ../sub sub; git commit -qm sub; rm -rf ../sub",
            None,
        ),
        (
            "a submodule without a copy",
            "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),gone; printf '[submodule \"gone\"]\n\tpath = gone\n\turl = https://x.invalid/gone\n' > .gitmodules; git add .gitmodules; git commit -qm gone",
            None,
        ),
        (
            "alternates",
            "cp -r .git ../other.git; git repack -qad; rm -rf .git/objects/??; echo $PWD/../other.git/objects > .git/objects/info/alternates; rm -f .git/objects/pack/*",
            None,
        ),
        (
            "a linked tree",
            "find . -mindepth 1 -delete; git init -q -b main ../main; git -C ../main commit -q --allow-empty -m 1; git -C ../main worktree add -q $PWD -b tree; echo t > a.txt; git add a.txt; git commit -qm in-tree",
            None,
        ),
    ];
    for (what, script, refused) in odd {
        let team = team(User::at_hand()[0], "", script);
        let run = team.teamctl(["spawn", "alice", "--checkout"]);
        let Some(why) = refused else {
            let run = run.ok();
            let has_pointers = run.stderr.contains("note: files of Git LFS are pointers");
            assert_eq!(has_pointers, what == "attributes", "{run:?}");
            let results = team.does("alice", "/bash git status --short; git log --oneline | wc -l; git fsck --no-dangling 2>&1 | grep -v '^notice'; echo 2 > two; git add two; git commit -qm two && echo committed");
            let said = results[0]["content"].as_str().unwrap();
            assert!(
                said.contains("committed") && !said.contains("M ") && !said.contains("missing"),
                "{what}: {said}"
            );
            add(&team, &["one"]);
            let results = team.does("alice", "/claim_task 1\n/bash echo 3 > three; git add .; git commit -qm three\n/task_update {\"task_id\": 1, \"status\": \"completed\"}");
            says(&results, 2, "is submitted");
            until(&team, 1, "completed");
            continue;
        };
        assert!(
            matches!(run.code, Some(2 | 7)) && run.stderr.contains(why) && run.stderr.contains("hint: "),
            "{what}: {run:?}"
        );
        assert!(!checkout(&team, "alice").exists(), "{what}");
    }
}

#[test]
fn without_a_git_that_is_new_enough_the_error_says_what_works_all_the_same() {
    for (script, why) in [("echo git version 2.37.9", "git 2.37.9 is too old"), ("", "git is not installed")]
    {
        let team = Team::new();
        user(&team, REPOSITORY);
        let bin = team.make_dir("../bin");
        for program in ["bash", "sh", "grep", "head", "tail", "sort", "cat", "printf", "tr"] {
            let real = user(&team, &format!("command -v {program}"));
            std::os::unix::fs::symlink(
                if program == "printf" { "/usr/bin/printf" } else { &real },
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
        assert!(run.stderr.contains(why) && run.stderr.contains("spawn without --checkout"), "{run:?}");
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
    let results = team.does("alice", "/bash git status --short; git rev-parse --show-toplevel");
    assert_eq!(results[0]["content"], alice.to_str().unwrap(), "what is copied is not to be committed");
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
        failed.stderr.contains("the setup of bob failed: ") && failed.stderr.contains("exit code 1"),
        "{failed:?}"
    );
    assert_eq!(team.member("bob"), Value::Null);
    for (file, why) in [("ln -sf a.txt .env.test", "is a link"), ("rm .env.test", "is not in ")] {
        user(&team, file);
        let failed = team.teamctl(["spawn", "bob"]).exits(7);
        assert!(failed.stderr.contains(why), "{failed:?}");
    }
    team.write("team.toml", "[checkout]\ncopy = [\"../x\"]\n");
    assert!(team.teamctl(["spawn", "bob"]).exits(2).stderr.contains("not a path beneath the repository"));
}

#[test]
fn forget_is_refused_while_a_teammate_starts_in_its_checkout() {
    let toml =
        "[checkout]\ninputs = [\"a.txt\"]\nsetup = \"touch began; until [ -e go ]; do sleep 0.02; done\"\n";
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
    user(&team, "cd ../work.team/alice; rm began go; echo new > a.txt");
    let second = spawning();
    let refused = team.teamctl(["forget", "alice", "--discard"]).exits(7);
    assert!(
        refused.stderr.contains("alice is being started") && refused.stderr.contains("shutdown alice"),
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
        user(&team, "chmod 700 ../work.team/alice/closed; rm -r ../work.team/alice/closed");
        let refused = team.teamctl(["forget", "alice"]).exits(7);
        assert!(refused.stderr.contains("not integrated or saved: mine"), "{refused:?}");
        user(
            &team,
            "mkdir ../work.team/alice/closed; touch ../work.team/alice/closed/x; chmod 0 ../work.team/alice/closed",
        );
        team.teamctl(["forget", "alice", "--discard"]).ok();
        assert!(!alice.exists() && team.member("alice") == Value::Null);
        // Work that is kept is not lost.
        team.teamctl(["spawn", "alice", "--checkout"]).ok();
        team.does("alice", "/claim_task 1\n/bash echo k > k; git add k; git commit -qm kept\n/task_update {\"task_id\": 1, \"status\": \"pending\"}");
        team.until("the work to be kept", || git(&team, &["for-each-ref"]).contains("refs/team/task-1/1"));
        team.teamctl(["shutdown", "alice"]).ok();
        team.teamctl(["forget", "alice"]).ok();
        assert!(!alice.exists() && !doctor(&team).contains("is of no teammate"));
    }
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
    assert!(refused.stderr.contains("is not empty, and is not a checkout"), "{refused:?}");
    assert!(checkout(&team, "bob").join("mine").exists());
    // A link that stands where the checkout would be leads nowhere.
    std::os::unix::fs::symlink(team.home(), checkout(&team, "eve")).unwrap();
    let refused = team.teamctl(["spawn", "eve", "--checkout"]).exits(7);
    assert!(refused.stderr.contains("a checkout cannot be made in"), "{refused:?}");
    user(&team, "touch ../package.json");
    let spawned = team.teamctl(["spawn", "alice", "--checkout"]).ok();
    assert!(
        spawned.stderr.contains("package.json: `checkouts = \"PATH\"` in team.toml moves it"),
        "{spawned:?}"
    );
    team.teamd(["stop"]).ok();
    team.write("team.toml", "checkouts = \"../elsewhere\"\n");
    team.trust();
    team.teamd(["start"]).ok();
    team.teamctl(["spawn", "carol", "--checkout"]).ok();
    assert!(team.root().with_file_name("elsewhere").join("carol/a.txt").exists());
}

#[test]
fn a_killed_job_leaves_nothing_that_the_next_does_not_finish() {
    let team = team(User::at_hand()[0], "", "");
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    let alice = checkout(&team, "alice");
    team.teamctl(["shutdown", "alice"]).ok();
    let home = repository(&team).parent().unwrap().to_owned();
    // As a kill leaves it at each step.
    let noted = format!("ln -s $(stat -c %d:%i .alice.new) {}/alice.new", home.display());
    for left in [
        "rm -r alice; mkdir .alice.new".to_owned(),
        format!("rm -r alice; mkdir -p .alice.new/.git; {noted}"),
        format!("mv alice .alice.new; rm .alice.new/a.txt; {noted}"),
        format!("rm -r alice; mkdir alice; ln -s 1:1 {}/alice.new", home.display()),
    ] {
        user(&team, &format!("cd ../work.team; {left}"));
        team.teamctl(["spawn", "alice", "--checkout"]).ok();
        let results = team.does("alice", "/bash git status --short; cat a.txt");
        assert_eq!(results[0]["content"], "one", "{left}");
        team.teamctl(["shutdown", "alice"]).ok();
        assert!(
            !alice.with_file_name(".alice.new").exists()
                && home.join("alice.new").symlink_metadata().is_err(),
            "{left}"
        );
    }
    user(&team, &format!("cd {}; mkdir new.git; touch new.git/x; rm -rf team.git", home.display()));
    team.teamctl(["spawn", "zoe", "--checkout"]).ok();
    assert!(checkout(&team, "zoe").join("a.txt").exists() && !home.join("new.git").exists());
}

#[test]
fn what_stands_where_a_checkout_is_made_is_never_removed() {
    let team = team(User::at_hand()[0], "", "");
    for mine in ["alice/.new", "alice/.git/teamd.new", ".alice.new/mine"] {
        user(&team, &format!("mkdir -p $(dirname ../work.team/{mine}); echo mine > ../work.team/{mine}"));
        let refused = team.teamctl(["spawn", "alice", "--checkout"]).exits(7);
        assert!(refused.stderr.contains(" is not ") && refused.stderr.contains("hint: "), "{refused:?}");
        assert_eq!(
            user(
                &team,
                &format!("cat ../work.team/{mine}; rm -r ../work.team/*alice* ../work.team/.alice* || true")
            ),
            "mine"
        );
    }
    // Nor is anything made where a link leads that stands in it.
    user(&team, "mkdir -p deep/sub; touch deep/sub/x; git add .; git commit -qm deep");
    let sub = team.root().join("deep/sub");
    let spawn = ["spawn", "alice", "--checkout", "--workspace", sub.to_str().unwrap()];
    team.teamctl(spawn).ok();
    team.teamctl(["shutdown", "alice"]).ok();
    user(&team, "mkdir ../elsewhere; cd ../work.team/alice; rm -r deep; ln -s ../../elsewhere deep");
    let refused = team.teamctl(spawn).exits(7);
    assert!(refused.stderr.contains("is a link, or no directory"), "{refused:?}");
    assert!(!team.root().with_file_name("elsewhere").join("sub").exists());
}

#[test]
fn a_clone_of_the_user_where_a_checkout_would_be_stays_as_it_is() {
    let team = team(User::at_hand()[0], "", "");
    team.teamctl(["spawn", "bob", "--checkout"]).ok();
    team.teamctl(["shutdown", "bob"]).ok();
    let own = "git clone -q . ../work.team/$name; cd ../work.team/$name; for f in exclude sparse-checkout attributes grafts; do echo '# mine' > .git/info/$f; done";
    user(&team, &format!("rm -r ../work.team/bob; for name in alice bob; do ({own}); done"));
    let state = || user(&team, "find ../work.team -printf '%p %m %s %T@ %i\\n' | sort");
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
        assert!(refused.stderr.contains(&why) && refused.stderr.contains("hint: "), "{refused:?}");
        assert_eq!(state(), before, "{args:?}");
    }
}

#[test]
fn thousands_of_files_that_are_not_committed_are_named_and_break_nothing() {
    let team = team(User::at_hand()[0], "", "");
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    add(&team, &["one"]);
    add(&team, &["two"]);
    let many = "for i in $(seq 4000); do echo > a-file-that-is-not-committed-$i; done";
    let results = team.does(
        "alice",
        &format!(
            "/claim_task 1\n/bash {many}\n/task_update 1 completed\n/task_update 1 pending\n/claim_task 2"
        ),
    );
    for number in [2, 4] {
        says(&results, number, "has changes that are not committed: a-file-that-is-not-committed-1, ");
    }
    assert!(
        team.teamctl(["diff", "alice"]).ok().stdout.contains("not in git: a-file-that-is-not-committed-1\n")
    );
    team.teamctl(["shutdown", "alice"]).ok();
    let refused = team.teamctl(["forget", "alice"]).exits(7);
    assert!(refused.stderr.contains("not committed: a-file-that-is-not-committed-1, "), "{refused:?}");
}

/// Gives the user's repository a submodule with a file, of which the user's tree has the only copy.
pub(crate) const SUBMODULE: &str = "git init -q ../sub; echo s > ../sub/s; git -C ../sub add s; git -C ../sub commit -qm s; \
     git -c protocol.file.allow=always submodule --quiet add ../sub sub; git commit -qm sub; rm -rf ../sub";

#[test]
fn work_in_a_submodule_that_is_nowhere_else_is_never_lost() {
    let team = team(User::at_hand()[0], "", SUBMODULE);
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    team.teamctl(["shutdown", "alice"]).ok();
    let at = checkout(&team, "alice").join("sub");
    let in_it = |script: &str| user(&team, &format!("cd {}; {script}", at.display()));
    let refuses = |why: &str| {
        let refused = team.teamctl(["forget", "alice"]).exits(7);
        assert!(refused.stderr.contains(why) && refused.stderr.contains("--discard"), "{refused:?}");
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
    for script in ["git switch -q --detach HEAD^", "cd ..; git submodule --quiet deinit -f sub"] {
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
    let shared = user(&team, "find ../work.team/alice/.git/modules -type f -links +1");
    assert_eq!(shared, "", "no file of the user is shared");
    for (id, file) in [(1, "one"), (2, "two")] {
        add(&team, &[file]);
        let work = format!(
            "/claim_task {id}\n/bash cat sub/in/nested/n; echo > {file}; git add {file}; git commit -qm {file}\n/task_update {id} completed"
        );
        says(&team.does("alice", &work), 1, "n");
        until(&team, id, "completed");
    }
    team.teamctl(["shutdown", "alice"]).ok();
    let in_it = |script: &str| user(&team, &format!("cd {}/sub/in/nested; {script}", alice.display()));
    let refuses = |why: &str| {
        let refused = team.teamctl(["forget", "alice"]).exits(7);
        assert!(refused.stderr.contains(why) && refused.stderr.contains("--discard"), "{refused:?}");
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
    assert!(spawned.stderr.contains("note: the submodule sub/in/nested is empty: "), "{spawned:?}");
    assert!(checkout(&team, "bob").join("sub/in/nested").read_dir().unwrap().next().is_none());
}

#[test]
fn a_teammate_that_is_told_to_leave_while_its_checkout_is_made_is_not_started() {
    let toml = "checkouts = \"../elsewhere\"\n[checkout]\nsetup = \"touch began; until [ -e go ]; do sleep 0.02; done\"\n";
    let team = team(
        *User::at_hand().last().unwrap(),
        toml,
        "printf 'began\\ngo\\n' > .gitignore; git add .; git commit -qm i",
    );
    let began = team.root().with_file_name("elsewhere").join("alice/began");
    let spawning = || {
        let spawning = team.start_teamctl(["spawn", "alice", "--checkout"]);
        team.until("the setup to run", || began.exists());
        spawning
    };
    let late = team.teamctl(["spawn", "alice", "--checkout", "--timeout", "300ms"]).exits(5);
    assert!(
        late.stderr.contains("its checkout is still being made") && late.stderr.contains("shutdown alice"),
        "{late:?}"
    );
    let call_off = || {
        team.until("the setup to run", || began.exists());
        let said = team.teamctl(["shutdown", "alice"]).ok();
        assert!(said.stdout.contains("alice was still being prepared: it is not started"), "{said:?}");
        team.until("the daemon alone to be left", || team.processes().len() == 1);
        std::fs::remove_file(&began).unwrap();
    };
    // Only a setup that begins anew shows that the next command has reached the daemon.
    call_off();
    let first = spawning();
    call_off();
    let refused = first.finish().exits(7);
    assert!(
        refused.stderr.contains("was shut down before it had started") && refused.stderr.contains("hint: "),
        "{refused:?}"
    );
    assert_eq!(team.member("alice"), Value::Null);
    // Where it was made is nothing that could be guessed.
    assert!(doctor(&team).contains("elsewhere/alice is of no teammate"));
    // Those who tell it to leave meanwhile have the same answer.
    let second = spawning();
    let is_job = |pid: &i32| crate::support::process::command_line(*pid).contains(" job");
    let stop_job = || {
        let job = team.processes().into_iter().find(is_job).unwrap();
        signal(job, Signal::SIGSTOP);
        job
    };
    let job = stop_job();
    let shutdown = || {
        Command::Shutdown(ShutdownOrder {
            request_id: RandomIds.request(),
            name: Name::new("alice").unwrap(),
            reason: String::new(),
            decide_within: 1.0,
            force_after: None,
            wait: true,
        })
    };
    let said = team.asks_at_once(vec![shutdown(), shutdown()], || signal(job, Signal::SIGCONT));
    assert_eq!(said, [Ok(Done::Withdrawn), Ok(Done::Withdrawn)]);
    second.finish().exits(7);
    std::fs::remove_file(&began).unwrap();
    // The daemon dies in that moment: the command that asked for the start has an answer, and asks no other daemon.
    let third = spawning();
    let job = stop_job();
    let leaving = team.start_teamctl(["shutdown", "alice"]);
    third.finish().exits(7);
    team.kill_daemon();
    signal(job, Signal::SIGKILL);
    team.teamd(["start"]).ok();
    leaving.finish();
    std::fs::remove_file(&began).unwrap();
    // It dies before it is told: the command that asked for the start comes late to the next one.
    let fourth = spawning();
    fourth.signal(Signal::SIGSTOP);
    team.kill_daemon();
    team.teamd(["start"]).ok();
    team.teamctl(["shutdown", "alice"]).exits(4);
    fourth.signal(Signal::SIGCONT);
    let refused = fourth.finish().exits(7);
    assert!(refused.stderr.contains("was shut down before it had started"), "{refused:?}");
    assert_eq!(team.member("alice"), Value::Null);
    user(&team, "touch ../elsewhere/alice/go");
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
}

#[test]
fn work_that_is_nowhere_else_is_never_lost() {
    for who in User::at_hand() {
        let team = team(who, "", "");
        team.teamctl(["spawn", "alice", "--checkout"]).ok();
        add(&team, &["one"]);
        // The branch of the task is there already, with a commit, and HEAD is on another one that has no name.
        let results = team.does(
            "alice",
            "/bash git switch -qc task/1; echo w > w; git add w; git commit -qm own; git switch -q --detach; echo d > d; git add d; git commit -qm nameless\n\
             /claim_task 1\n/bash git log --format=%s task/1-1 task/1-2; git branch --show-current; ls\n/task_update {\"task_id\": 1, \"status\": \"pending\"}\n\
             /bash git branch -D task/1-1 task/1-2; echo s > a.txt; git stash -q",
        );
        says(&results, 1, "task/1-2");
        says(&results, 2, "own");
        says(&results, 2, "nameless");
        says(&results, 2, "task/1\na.txt");
        team.teamctl(["shutdown", "alice"]).ok();
        let refuses = |why: &str| {
            let refused = team.teamctl(["forget", "alice"]).exits(7);
            assert!(refused.stderr.contains(why) && refused.stderr.contains("--discard"), "{refused:?}");
        };
        let at = checkout(&team, "alice");
        let in_it = |script: &str| user(&team, &format!("cd {}; {script}", at.display()));
        refuses("not integrated or saved: WIP on ");
        in_it("git stash drop -q; git tag here; git tag -a -m note note");
        refuses("tags that are nowhere else: here, note");
        in_it("git tag -d here note; git update-index --assume-unchanged a.txt; echo hidden > a.txt");
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
        assert_eq!(git(&team, &["log", "-1", "--format=%s", "refs/team/task-1/1"]), "kept");
    }
}

#[test]
fn the_lead_is_told_of_work_that_could_not_be_saved() {
    let team = team(User::at_hand()[0], "", "");
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    add(&team, &["one"]);
    let work = "/claim_task 1\n/bash echo w > w; git add w; git commit -qm w; rm .git/HEAD\n/task_update {\"task_id\": 1, \"status\": \"pending\"}";
    team.does("alice", work);
    team.until("the lead to be told", || {
        let told =
            |it: &Value| it["content"].as_str().unwrap().contains("alice's commits could not be saved: ");
        team.inbox("lead").iter().any(told)
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

#[test]
fn a_daemon_that_is_killed_while_a_checkout_is_made_leaves_what_the_next_one_finishes() {
    let toml = "[checkout]\nsetup = \"echo . >> ../runs || echo . >> runs; touch began; until [ -e go ]; do sleep 0.02; done\"\n";
    let team = team(
        User::at_hand()[0],
        toml,
        "printf 'began\\ngo\\nruns\\n' > .gitignore; git add .; git commit -qm i",
    );
    let alice = checkout(&team, "alice");
    let begun = || team.until("the setup to run", || alice.join("began").exists());
    // The command is given again to the next daemon.
    let spawning = team.start_teamctl(["spawn", "alice", "--checkout"]);
    begun();
    team.kill_daemon();
    user(&team, "rm ../work.team/alice/began");
    team.teamd(["start"]).ok();
    begun();
    // It is not given again: a later one finds what there is.
    team.kill_daemon();
    spawning.signal(Signal::SIGKILL);
    spawning.finish();
    user(&team, "touch ../work.team/alice/go");
    team.teamd(["start"]).ok();
    assert_eq!(team.member("alice"), Value::Null);
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    assert_eq!(user(&team, "wc -l < ../work.team/alice/runs"), "3", "a setup that was broken off is none");
    says(&team.does("alice", "/bash git status --short; cat a.txt"), 0, "one");
}

#[test]
fn a_task_that_no_teammate_can_be_given_is_shown_with_the_reason() {
    let team = team(User::at_hand()[0], "", "");
    team.teamctl(["spawn", "alice", "--checkout", "--auto"]).ok();
    let at = repository(&team);
    user(&team, &format!("mv {0} {0}.away", at.display()));
    add(&team, &["one", "--description", "/bash echo 1 > one; git add one; git commit -qm one"]);
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let status = || words(team.teamctl(["status"]).ok().stdout);
    team.until("the reason to be shown", || {
        status().contains("task 1: alice cannot be given a task: the team repository ")
    });
    let doctor = words(team.teamctl(["doctor"]).exits(1).stdout);
    assert!(doctor.contains("task 1 (one) is stalled: alice cannot be given a task: "), "{doctor}");
    user(&team, &format!("mv {0}.away {0}", at.display()));
    team.until("alice to be left alone", || {
        team.inbox("lead")
            .iter()
            .any(|it| it["content"].as_str().unwrap().contains("alice cannot be given a task"))
    });
    team.teamctl(["task", "assign", "1", "alice"]).ok();
    until(&team, 1, "completed");
    assert!(!status().contains("cannot be given a task"));
}

#[test]
fn doctor_names_a_damaged_checkout_and_one_that_was_never_finished() {
    let team = team(User::at_hand()[0], "", "");
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    team.does("alice", "/bash rm -rf .git/* ; mkdir -p .git");
    user(&team, "mkdir ../work.team/.alice.new");
    let said = doctor(&team);
    for wanted in [
        "alice is not a checkout of alice any more: its .git is missing or damaged",
        "forget alice --discard",
        ".alice.new was never finished",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
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
        assert_eq!(user(&team, "wc -l < ../work.team/alice/made.lock"), expected);
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
    user(&team, "cd ../work.team/alice; cp made.lock kept; rm made.lock; touch broken");
    assert!(
        team.teamctl(["spawn", "alice", "--checkout"]).exits(7).stderr.contains("fix `[checkout] setup`")
    );
    user(&team, "cd ../work.team/alice; mv kept made.lock; rm broken");
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    runs("2");
}
