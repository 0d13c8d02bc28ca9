//! Work on other machines: a checkout there, tasks that are claimed and submitted over the link, and
//! what is left of them when the link, a daemon or the host is gone.

use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::checkouts::{REPOSITORY, add, git, of_user, repository, says, task, until, user};
use crate::hosts::Hosts;
use crate::support::{Run, Team, signal};

/// A team in a repository, whose daemon runs and has the host `box`.
fn begin(toml: &str, script: &str) -> Hosts {
    let hosts = Hosts::without();
    user(&hosts.team, &format!("{REPOSITORY}{script}"));
    hosts.team.write("team.toml", toml);
    hosts.team.trust();
    hosts.team.teamd(["start"]).ok();
    hosts.add("box").ok();
    hosts
}

fn spawn(hosts: &Hosts, name: &str, more: &[&str]) -> Run {
    let words = ["spawn", name, "--checkout", "--model", "script"];
    hosts.team.teamctl([&words[..], more].concat())
}

/// Orders for work that is committed in a file, and submitted.
fn works(id: u64, file: &str) -> String {
    format!("/claim_task {{\"task_id\": {id}}}\n{}", submits(id, file))
}

fn submits(id: u64, file: &str) -> String {
    format!(
        "/bash echo {file} > {file}; git add {file}; git commit -qm {file}\n\
         /task_update {{\"task_id\": {id}, \"status\": \"completed\"}}"
    )
}

/// The checkout of a teammate there.
fn checkout(hosts: &Hosts, name: &str) -> PathBuf {
    let member = hosts.team.member(name);
    PathBuf::from(member["workspace"].as_str().unwrap())
}

/// The copy of the team repository that the host has.
fn copy(hosts: &Hosts, host: &str) -> PathBuf {
    let teams = hosts.far.join(host).join(".local/state/teamd/repositories");
    let teams = std::fs::read_dir(teams).unwrap();
    let mut found = teams.map(|entry| entry.unwrap().path().join("team.git"));
    found.find(|path| path.exists()).unwrap()
}

/// All names of a repository.
fn names(hosts: &Hosts, repository: &std::path::Path) -> String {
    user(
        &hosts.team,
        &format!("git --git-dir={} for-each-ref", repository.display()),
    )
}

fn is_completed(task: &Value, author: &str) {
    assert_eq!(task["result"]["verified"], "checked", "{task}");
    assert_eq!(task["submission"]["by"], author, "{task}");
}

#[test]
fn work_of_two_hosts_and_of_home_is_checked_at_home_and_merged_in_turn() {
    let hosts = begin(
        "[work]\ncheck = \"test ! -e bad\"\n",
        "mkdir -p .git/hooks; printf '#!/bin/sh\\ntouch ../pwned\\n' > .git/hooks/post-merge; chmod +x .git/hooks/post-merge; git tag v1",
    );
    let team = &hosts.team;
    hosts.add("hut").ok();
    let before = of_user(team);
    spawn(&hosts, "alice", &["--host", "box", "--auto"]).ok();
    spawn(&hosts, "bob", &["--host", "hut", "--auto"]).ok();
    spawn(&hosts, "carol", &["--auto"]).ok();
    for (number, name) in ["alice", "bob", "carol", "alice", "bob"].iter().enumerate() {
        let file = format!("file{number}");
        let orders = format!("/bash echo {file} > {file}; git add {file}; git commit -qm {file}");
        let check = format!("test -e {file}");
        let words = [&file, "--for", name, "--check", &check];
        add(team, &[&words[..], &["--description", &orders]].concat());
    }
    let bad = "/bash touch bad; git add bad; git commit -qm bad";
    let words = ["bad", "--for", "bob", "--max-attempts", "1"];
    add(team, &[&words[..], &["--description", bad]].concat());
    for (id, name) in [
        (1, "alice"),
        (2, "bob"),
        (3, "carol"),
        (4, "alice"),
        (5, "bob"),
    ] {
        is_completed(&until(team, id, "completed"), name);
    }
    until(team, 6, "failed");
    let count = git(
        team,
        &["rev-list", "--count", "--first-parent", "integration"],
    );
    assert_eq!(count, "6");
    git(team, &["fsck", "--strict"]);
    assert_eq!(of_user(team), before);
    // The authors are those who have worked.
    let authors = git(team, &["log", "--no-merges", "--format=%ae", "integration"]);
    assert!(authors.contains("alice@team") && authors.contains("bob@team"));
    team.teamctl(["land"]).ok();
    assert!(team.made("file0") && team.made("file1") && team.made("file4"));
    assert!(
        !team.root().with_file_name("pwned").exists(),
        "a hook has run"
    );
}

#[test]
fn a_host_works_on_what_is_there_now_and_its_copy_is_that_of_home() {
    let hosts = begin(
        "",
        "mkdir sub; echo s > sub/s; git add sub; git commit -qm second",
    );
    let team = &hosts.team;
    spawn(&hosts, "alice", &["--host", "box"]).ok();
    assert!(checkout(&hosts, "alice").join("sub/s").exists());
    spawn(&hosts, "carol", &[]).ok();
    add(team, &["one", "--check", "test -e one"]);
    add(team, &["two", "--check", "test -e one && test -e two"]);
    team.does("carol", &works(1, "one"));
    until(team, 1, "completed");
    // What the user has fetched, and a tag, are seen there, too.
    user(
        team,
        "git tag v2; git update-ref \"refs/tags/$(printf 'lat\\351')\" HEAD; git update-ref refs/remotes/up/main HEAD; git symbolic-ref refs/remotes/up/HEAD refs/remotes/up/main",
    );
    let results = team.does(
        "alice",
        &format!("{}\n/bash cat one; git tag; git branch -r", works(2, "two")),
    );
    says(&results, 3, "one\nv2\n");
    says(&results, 3, "up/main");
    is_completed(&until(team, 2, "completed"), "alice");
    let diff = team.teamctl(["diff", "alice"]).ok().stdout;
    assert!(!diff.contains("+one"), "{diff}");
    // A claim compares both.
    add(team, &["three"]);
    let results = team.does("alice", "/claim_task {\"task_id\": 3}");
    says(&results, 0, "is yours");
    assert_eq!(
        names(&hosts, &copy(&hosts, "box")),
        names(&hosts, &repository(team))
    );
}

#[test]
fn a_task_waits_for_a_host_that_is_away_and_no_longer() {
    let hosts = begin("", "");
    let team = &hosts.team;
    spawn(&hosts, "alice", &["--host", "box", "--auto"]).ok();
    team.wait_for("alice", "idle");
    hosts.cut("box");
    let orders = "/bash echo one > one; git add one; git commit -qm one";
    add(
        team,
        &["one", "--check", "test -e one", "--description", orders],
    );
    let listed = team.teamctl(["task", "list"]).ok().stdout;
    assert!(listed.contains("pending"), "{listed}");
    hosts.mend("box");
    is_completed(&until(team, 1, "completed"), "alice");
    // Nothing has failed meanwhile.
    assert_eq!(task(team, 1)["stalled"], Value::Null);
}

#[test]
fn a_shallow_repository_and_a_team_below_its_top_work_on_a_host() {
    let hosts = Hosts::of(Team::below("repository"));
    let team = &hosts.team;
    user(
        team,
        "w=$(cd ../..; pwd)/whole; git init -q -b main $w; cd $w; mkdir app; for n in 1 2 3; do echo $n > app/n; git add app; git commit -qm $n; done; cd - >/dev/null; \
         git init -q -b main ..; cd ..; git fetch -q --depth 1 file://$w main; git reset -q --hard FETCH_HEAD",
    );
    let folder = team
        .root()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    user(
        team,
        &format!("cd ..; git mv app/n {folder}/n; git commit -qm moved"),
    );
    team.write(
        "team.toml",
        "[checkout]\nsetup = \"test -e n && echo x > set-up\"\ncopy = [\"n\"]\n",
    );
    team.trust();
    team.teamd(["start"]).ok();
    hosts.add("box").ok();
    let spawned = spawn(&hosts, "alice", &["--host", "box"]).ok();
    assert!(
        spawned.stderr.contains("is not copied to a host"),
        "{spawned:?}"
    );
    let at = checkout(&hosts, "alice");
    assert!(at.ends_with(format!("alice/{folder}")), "{}", at.display());
    assert!(
        at.join("set-up").exists(),
        "the setup has run where the team works"
    );
    let log = format!("git -C {} log --oneline | wc -l", at.display());
    assert_eq!(user(team, &log), "2", "history is cut off there, too");
}

#[test]
fn a_submission_counts_when_its_objects_are_home() {
    let hosts = begin("", "");
    let team = &hosts.team;
    spawn(&hosts, "alice", &["--host", "box"]).ok();
    add(team, &["one", "--check", "test -e one"]);
    // What comes is not what was sent.
    std::fs::File::create(hosts.far.join("spoils")).unwrap();
    let results = team.does("alice", &works(1, "one"));
    says(&results, 2, "damaged");
    assert_eq!(task(team, 1)["submission"], Value::Null);
    std::fs::remove_file(hosts.far.join("spoils")).unwrap();
}

#[test]
fn a_submission_is_shown_as_sending_until_its_objects_are_home() {
    let hosts = begin("", "");
    let team = &hosts.team;
    spawn(&hosts, "alice", &["--host", "box"]).ok();
    add(team, &["one", "--check", "test -e one"]);
    std::fs::File::create(hosts.far.join("holds")).unwrap();
    team.send("alice", &works(1, "one"));
    let shown = || team.json(["task", "show", "1"]);
    team.until("the task to be sent", || shown()["sending_from"] == "box");
    assert_eq!(team.json(["task", "list"])[0]["sending_from"], "box");
    assert_eq!(shown()["status"], "in_progress");
    assert_eq!(team.member("alice")["sending"], 1);
    let listed = team.teamctl(["task", "list"]).ok().stdout;
    assert!(listed.contains("in_progress (sending)"), "{listed}");
    let text = team.teamctl(["task", "show", "1"]).ok().stdout;
    assert!(text.contains("on their way from box"), "{text}");
    spawn(&hosts, "carol", &[]).ok();
    let results = team.does("carol", "/task_list\n/task_get {\"task_id\": 1}");
    says(&results, 0, "[in_progress, sending (alice)]");
    says(&results, 1, "[in_progress, sending (alice)]");
    // A daemon that is gone takes nothing, and the next one is asked again.
    team.kill_daemon();
    assert_eq!(shown()["sending_from"], Value::Null);
    team.teamd(["start"]).ok();
    team.until("it to be sent again", || shown()["sending_from"] == "box");
    std::fs::remove_file(hosts.far.join("holds")).unwrap();
    is_completed(&until(team, 1, "completed"), "alice");
    assert_eq!(team.member("alice")["sending"], Value::Null);
    assert_eq!(shown()["sending_from"], Value::Null);
}

#[test]
fn a_link_that_breaks_while_work_is_on_its_way_submits_it_once() {
    let hosts = begin("", "");
    let team = &hosts.team;
    spawn(&hosts, "bob", &["--host", "box"]).ok();
    add(team, &["one", "--check", "test -e one"]);
    // What a shell there says is no reason.
    std::fs::File::create(hosts.far.join("noisy")).unwrap();
    std::fs::File::create(hosts.far.join("holds")).unwrap();
    team.send("bob", &works(1, "one"));
    team.until("the objects to be on their way", || {
        !hosts.pids(" --give ").is_empty()
    });
    hosts.cut("box");
    assert_eq!(task(team, 1)["status"], "in_progress");
    // Nothing is on its way without a link.
    let shown = || team.json(["task", "show", "1"]);
    team.until("it to be sent no more", || {
        shown()["sending_from"] == Value::Null
    });
    std::fs::remove_file(hosts.far.join("holds")).unwrap();
    hosts.mend("box");
    is_completed(&until(team, 1, "completed"), "bob");
    assert_eq!(task(team, 1)["submission"]["number"], 1);
    team.until("nothing to be left of the transfer", || {
        let bundles = repository(team).with_file_name("bundles");
        std::fs::read_dir(bundles).unwrap().next().is_none()
    });
}

#[test]
fn a_daemon_that_is_killed_while_a_host_works_loses_nothing_and_doubles_nothing() {
    let hosts = begin("", "");
    let team = &hosts.team;
    spawn(&hosts, "alice", &["--host", "box"]).ok();
    for id in 1..=2 {
        add(team, &["one", "--check", &format!("test -e file{id}")]);
    }
    std::fs::File::create(hosts.far.join("holds")).unwrap();
    team.send("alice", &works(1, "file1"));
    team.until("the objects to be on their way", || {
        !hosts.pids(" --give ").is_empty()
    });
    team.kill_daemon();
    std::fs::remove_file(hosts.far.join("holds")).unwrap();
    team.teamd(["start"]).ok();
    is_completed(&until(team, 1, "completed"), "alice");
    std::fs::File::create(hosts.far.join("holds")).unwrap();
    team.send("alice", &works(2, "file2"));
    team.until("the objects to be on their way", || {
        !hosts.pids(" --give ").is_empty()
    });
    for pid in hosts.pids("--host-of") {
        signal(pid, Signal::SIGKILL);
    }
    std::fs::remove_file(hosts.far.join("holds")).unwrap();
    is_completed(&until(team, 2, "completed"), "alice");
    let merges = git(team, &["rev-list", "--count", "--merges", "integration"]);
    assert_eq!(merges, "2");
}

#[test]
fn a_lost_host_leaves_its_task_to_others() {
    let hosts = begin("", "");
    let team = &hosts.team;
    spawn(&hosts, "alice", &["--host", "box"]).ok();
    spawn(&hosts, "carol", &[]).ok();
    add(team, &["one", "--check", "test -e one"]);
    team.send(
        "alice",
        "/claim_task {\"task_id\": 1}\n/bash echo mine > one; git add one; git commit -qm mine; touch committed; sleep 600",
    );
    let committed = checkout(&hosts, "alice").join("committed");
    team.until("alice to have committed", || committed.exists());
    hosts.cut("box");
    let refused = team.teamctl(["diff", "alice"]).run_failed();
    assert!(
        refused.stderr.contains("box cannot be reached"),
        "{refused:?}"
    );
    let released = team.does("carol", "/claim_task {\"task_id\": 1}");
    says(&released, 0, "alice");
    team.teamctl(["forget", "--lost", "alice"]).ok();
    until(team, 1, "pending");
    team.does("carol", &works(1, "one"));
    is_completed(&until(team, 1, "completed"), "carol");
    // What she has not submitted is still on the host, and saved when it comes back.
    let kept = checkout(&hosts, "alice");
    hosts.mend("box");
    team.until("her commits to be saved", || {
        let saved = git(team, &["for-each-ref", "--format=%(subject)", "refs/team/"]);
        saved.lines().any(|subject| subject == "mine")
    });
    assert_eq!(
        user(team, &format!("git -C {} show HEAD:one", kept.display())),
        "mine"
    );
    // She is forgotten without her host, and so is that.
    hosts.cut("box");
    team.teamctl(["forget", "alice"]).ok();
    team.teamctl(["host", "remove", "box"]).ok();
}

#[test]
fn a_checkout_that_is_left_on_a_host_is_named_and_goes_with_its_next_owner() {
    let hosts = begin("", "");
    let team = &hosts.team;
    for name in ["alice", "bob"] {
        spawn(&hosts, name, &["--host", "box"]).ok();
    }
    let left = checkout(&hosts, "alice");
    let lost = checkout(&hosts, "bob");
    let doctor = || team.teamctl(["doctor", "-v"]).stdout;
    let named =
        |root: &PathBuf| format!("the checkout {} on box is of no teammate", root.display());
    team.does("alice", "/bash touch unsaved");
    team.teamctl(["shutdown", "alice"]).ok();
    hosts.cut("box");
    team.teamctl(["forget", "--lost", "bob"]).ok();
    let refused = team.teamctl(["forget", "alice"]).run_failed();
    assert!(refused.stderr.contains("cannot be reached"), "{refused:?}");
    team.teamctl(["forget", "alice", "--discard"]).ok();
    hosts.mend("box");
    // The host is back, so what was lost with it goes as any other.
    team.until("the checkout of bob to be removed", || {
        team.teamctl(["forget", "bob"]).is_done()
    });
    assert!(!lost.exists() && left.exists());
    let seen = doctor();
    assert!(seen.contains(&named(&left)), "{seen}");
    assert!(!seen.contains(&named(&lost)), "{seen}");
    let hosts_now = team.json(["host", "list"]);
    assert_eq!(
        hosts_now[0]["vitals"]["checkouts"][0],
        left.to_str().unwrap()
    );
    spawn(&hosts, "alice", &["--host", "box"]).ok();
    assert!(left.join("unsaved").exists());
    let seen = doctor();
    assert!(!seen.contains("of no teammate"), "{seen}");
    team.teamctl(["shutdown", "alice"]).ok();
    team.teamctl(["forget", "alice", "--discard"]).ok();
    assert!(!left.exists());
}

#[test]
fn forget_saves_what_is_committed_on_a_host_and_refuses_to_lose_the_rest() {
    let hosts = begin("", "");
    let team = &hosts.team;
    spawn(&hosts, "alice", &["--host", "box"]).ok();
    add(team, &["one"]);
    team.does("alice", "/claim_task {\"task_id\": 1}\n/bash echo x > one; git add one; git commit -qm saved; echo y > two");
    let at = checkout(&hosts, "alice");
    team.teamctl(["shutdown", "alice"]).ok();
    let refused = team.teamctl(["forget", "alice"]).run_failed();
    assert!(refused.stderr.contains("not committed: two"), "{refused:?}");
    assert!(at.exists());
    std::fs::remove_file(at.join("two")).unwrap();
    team.teamctl(["forget", "alice"]).ok();
    assert!(!at.exists());
    let saved = git(team, &["log", "-1", "--format=%s", "refs/team/task-1/1"]);
    assert_eq!(saved, "saved");
    // The next owner, anywhere, is told of it.
    spawn(&hosts, "bob", &["--host", "box"]).ok();
    let results = team.does(
        "bob",
        "/claim_task {\"task_id\": 1}\n/bash git log -1 --format=%s refs/team/task-1/1; touch left",
    );
    says(&results, 0, "refs/team/task-1/1");
    says(&results, 1, "saved");
    team.teamctl(["shutdown", "bob"]).ok();
    team.teamctl(["forget", "bob", "--discard"]).ok();
}

#[test]
fn work_with_contents_of_git_lfs_stays_on_its_host_and_is_not_lost() {
    let hosts = begin("", "");
    let team = &hosts.team;
    spawn(&hosts, "alice", &["--host", "box"]).ok();
    add(team, &["one"]);
    let pointer = "version https://git-lfs.github.com/spec/v1\\noid sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\\nsize 3\\n";
    let orders = format!(
        "/claim_task {{\"task_id\": 1}}\n/bash printf '{pointer}' > big; git add big; git commit -qm big\n\
         /task_update {{\"task_id\": 1, \"status\": \"completed\"}}"
    );
    let results = team.does("alice", &orders);
    says(&results, 2, "Git LFS");
    team.teamctl(["shutdown", "alice"]).ok();
    let refused = team.teamctl(["forget", "alice"]).run_failed();
    assert!(refused.stderr.contains("Git LFS"), "{refused:?}");
}

#[test]
fn without_a_checkout_no_task_is_given_to_a_host() {
    let hosts = begin("", "");
    let team = &hosts.team;
    let refused = team.teamctl([
        "spawn",
        "alice",
        "--host",
        "box",
        "--workspace",
        "~/work",
        "--auto",
    ]);
    let refused = refused.run_failed();
    assert!(refused.stderr.contains("--checkout"), "{refused:?}");
    let both = spawn(&hosts, "alice", &["--host", "box", "--workspace", "~/work"]).run_failed();
    assert!(both.stderr.contains("--workspace"), "{both:?}");
    let words = [
        "spawn",
        "alice",
        "--host",
        "box",
        "--workspace",
        "~/work",
        "--model",
        "script",
    ];
    team.teamctl(words).ok();
    add(team, &["one"]);
    let results = team.does("alice", "/claim_task {\"task_id\": 1}");
    says(&results, 0, "has no checkout on box");
}

#[test]
fn checks_run_on_hosts_that_a_person_trusts_with_them_and_at_home_while_none_is_linked() {
    let hosts = begin(
        "[work]\ncheck = \"pwd; test ! -e bad\"\ncheck_hosts = ['box', 'hut']\nprotect = ['tests/**']\n",
        "mkdir tests; touch tests/t; git add tests; git commit -qm tests",
    );
    let team = &hosts.team;
    hosts.add("hut").ok();
    spawn(&hosts, "carol", &[]).ok();
    for id in 1..=4 {
        add(team, &["one", "--check", &format!("test -e file{id}")]);
    }
    team.does("carol", &works(1, "file1"));
    let done = until(team, 1, "completed");
    is_completed(&done, "carol");
    let host = done["result"]["check"]["host"].as_str().unwrap();
    assert!(["box", "hut"].contains(&host), "{done}");
    let log = team.teamctl(["task", "log", "1"]).ok().stdout;
    assert!(log.contains("far") && log.contains("scratch"), "{log}");
    // What fails there goes back with the output; a protected file is seen at home.
    let bad = "/claim_task {\"task_id\": 2}\n/bash touch bad; git add bad; git commit -qm bad\n/task_update {\"task_id\": 2, \"status\": \"completed\"}";
    team.send("carol", bad);
    team.until("the check to fail", || task(team, 2)["attempts"] == 1);
    until(team, 2, "pending");
    let sly = "/claim_task {\"task_id\": 2}\n/bash echo x > tests/t; echo > file2; git add tests file2; git commit -qm sly\n/task_update {\"task_id\": 2, \"status\": \"completed\"}";
    team.send("carol", sly);
    let asks = |task: &Value| task["submission"]["stage"] == "reviewing";
    team.until("a person to be asked", || asks(&task(team, 2)));
    let seen = task(team, 2);
    let touched = seen["result"]["touched_protected"].as_str().unwrap();
    assert!(touched.contains("tests/t"), "{seen}");
    team.teamctl(["task", "release", "2"]).ok();
    // Without them, home checks.
    hosts.cut("box");
    hosts.cut("hut");
    team.does("carol", &works(3, "file3"));
    let done = until(team, 3, "completed");
    assert_eq!(done["result"]["check"].get("host"), None, "{done}");
}

#[test]
fn no_secret_of_home_crosses_with_work_and_checks() {
    let mut hosts = Hosts::without();
    std::fs::File::create(hosts.far.join("listens")).unwrap();
    hosts.team = hosts
        .team
        .with("GITHUB_TOKEN", "secret-of-home")
        .with("EDITOR", "editor-of-home");
    let team = &hosts.team;
    user(team, REPOSITORY);
    team.write("team.toml", "[work]\ncheck_hosts = ['box']\n");
    team.trust();
    team.teamd(["start"]).ok();
    hosts.add("box").ok();
    spawn(&hosts, "alice", &["--host", "box"]).ok();
    add(team, &["one", "--check", "test -e one"]);
    team.does("alice", &works(1, "one"));
    let done = until(team, 1, "completed");
    assert_eq!(done["result"]["check"]["host"], "box", "{done}");
    let said = hosts.said_without(&["secret-of-home", "editor-of-home"]);
    for step in ["Make", "Branch", "Pack", "CheckMerged"] {
        assert!(said.contains(step), "{step} has crossed unheard");
    }
}

#[test]
fn a_final_check_at_home_repeats_what_a_host_says_before_the_branch_moves() {
    let hosts = begin(
        // It passes on the host alone.
        "[work]\ncheck = \"case $PWD in */far/*) ;; *) test -e really ;; esac\"\ncheck_hosts = ['box']\nfinal_check = 'home'\n",
        "",
    );
    let team = &hosts.team;
    spawn(&hosts, "carol", &["--auto"]).ok();
    let orders = |file: &str| format!("/bash echo > {file}; git add {file}; git commit -qm {file}");
    let words = ["one", "--max-attempts", "1", "--description"];
    add(team, &[&words[..], &[&orders("lie")]].concat());
    let failed = until(team, 1, "failed");
    assert_eq!(failed["result"]["check"].get("host"), None, "{failed}");
    assert_eq!(git(team, &["rev-list", "--count", "integration"]), "1");
    add(team, &["two", "--description", &orders("really")]);
    is_completed(&until(team, 2, "completed"), "carol");
}
