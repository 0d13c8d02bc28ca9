//! A disk that is full in a step of git: that is said with the next step, nothing is lost or moved
//! by half, and all goes on when there is space again. Each disk is a small one of its own;
//! mounting it takes root.

use std::path::Path;

use crate::checkouts::{REPOSITORY, add, checkout, git, repository, says, task, until, user};
use crate::disk::SmallDisk;
use crate::support::Team;
use crate::support::cgroup::note;

/// A file that cannot be packed smaller.
const LARGE: &str = "head -c 300000 /dev/urandom > ";

/// A small disk; none, which is said, where it may not be mounted.
fn disk(at: &Path) -> Option<SmallDisk> {
    std::fs::create_dir_all(at).unwrap();
    let mounted = SmallDisk::mount(at, "4m");
    mounted
        .map_err(|why| {
            note(&format!(
                "git finds no full disk: a small one cannot be mounted: {why}"
            ))
        })
        .ok()
}

fn begin(team: &Team, check: &str) {
    user(
        team,
        &format!(
            "{REPOSITORY}{LARGE} large; echo 'is-*' > .gitignore; git add .; git commit -qm large"
        ),
    );
    team.write("team.toml", &format!("[work]\ncheck = \"{check}\"\n"));
    team.trust();
}

#[track_caller]
fn tells(said: &str) {
    let is_full = [
        "No space left on device",
        "no space is left",
        "Out of diskspace",
    ];
    assert!(
        is_full.iter().any(|text| said.contains(text)) && said.contains("free some space"),
        "{said}"
    );
}

/// Has a teammate do the work of a task and submit it twice: the disk is full for the first time.
fn submits_twice(team: &Team, (name, id): (&str, u64), disk: &SmallDisk) {
    let wait = |file: &str| format!("until [ -e {file} ]; do sleep 0.02; done");
    let submit = format!("/task_update {{\"task_id\": {id}, \"status\": \"completed\"}}");
    let work = format!(
        "/claim_task {{\"task_id\": {id}}}\n/bash {LARGE} f{id}; git add f{id}; git commit -qm f{id}; touch is-done; {}\n{submit}\n/bash touch is-refused; {}\n{submit}",
        wait("is-full"),
        wait("is-free")
    );
    let before = team.notices(name).len();
    team.send(name, &work);
    let at = |file: &str| checkout(team, name).join(file);
    team.until("the work to be done", || at("is-done").exists());
    disk.fill();
    user(team, &format!("touch {}", at("is-full").display()));
    team.until("the work to be refused", || at("is-refused").exists());
    assert!(task(team, id)["status"] == "in_progress" && !at(".git/teamd.pack").exists());
    disk.free();
    user(team, &format!("touch {}", at("is-free").display()));
    team.until_finished(name, before + 1);
    let results = team.results(name);
    tells(results[results.len() - 3]["content"].as_str().unwrap());
    says(&results, results.len() - 1, "is submitted");
}

#[test]
fn where_the_team_repository_has_no_space_work_waits_and_counts_as_no_attempt() {
    let team = Team::new();
    begin(&team, "until [ -e $HOME/../work/go ]; do sleep 0.02; done");
    team.teamd(["start"]).ok();
    let at = team.home().join(".local/state/teamd/repositories");
    let Some(disk) = disk(&at) else { return };
    disk.fill();
    tells(
        &team
            .teamctl(["spawn", "alice", "--checkout"])
            .exits(1)
            .stderr,
    );
    assert_eq!(
        user(&team, &format!("find {} -name new.git", at.display())),
        ""
    );
    disk.free();
    for name in ["alice", "bob"] {
        team.teamctl(["spawn", name, "--checkout"]).ok();
        add(&team, &[name]);
    }
    submits_twice(&team, ("alice", 1), &disk);
    assert_eq!(
        user(
            &team,
            &format!(
                "find {} -path '*/incoming/*' -type f",
                repository(&team).display()
            )
        ),
        ""
    );
    // Its check runs; the next one waits for that.
    let work = format!(
        "/claim_task {{\"task_id\": 2}}\n/bash {LARGE} f2; git add f2; git commit -qm f2\n/task_update {{\"task_id\": 2, \"status\": \"completed\"}}"
    );
    says(&team.does("bob", &work), 2, "is submitted");
    let tip = git(&team, &["rev-parse", "integration"]);
    disk.fill();
    team.write("go", "");
    for id in [1, 2] {
        team.until("it to be told", || task(&team, id)["stalled"].is_string());
        let waits = task(&team, id);
        tells(waits["stalled"].as_str().unwrap());
        assert_eq!(
            (&waits["status"], &waits["attempts"], &waits["returns"]),
            (&"in_review".into(), &0.into(), &0.into())
        );
    }
    assert_eq!(git(&team, &["rev-parse", "integration"]), tip);
    disk.free();
    for id in [1, 2] {
        assert_eq!(until(&team, id, "completed")["attempts"], 0);
    }
    assert_eq!(
        git(
            &team,
            &["rev-list", "--count", "--first-parent", "integration"]
        ),
        "4"
    );
    git(&team, &["fsck", "--strict"]);
    team.teamd(["stop"]).ok();
}

#[test]
fn a_check_that_fills_the_disk_itself_has_failed_and_one_that_finds_it_full_is_tried_again() {
    let team = Team::new();
    begin(&team, "true");
    team.teamd(["start"]).ok();
    let Some(disk) = disk(&team.home().join(".local/state/teamd/repositories")) else {
        return;
    };
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    let work = |id: u32| format!("/bash echo {id} > f{id}; git add .; git commit -qm f{id}");
    let fills = [
        "--check",
        "head -c 9000000 /dev/zero > filler",
        "--max-attempts",
        "1",
    ];
    add(
        &team,
        &[&["one", "--description", &work(1)][..], &fills].concat(),
    );
    assert_eq!(until(&team, 1, "failed")["attempts"], 1);
    let waits = "touch is-begun; until [ -e $HOME/../work/go ]; do sleep 0.02; done; echo > needed";
    add(&team, &["two", "--description", &work(2), "--check", waits]);
    let begun = repository(&team).with_file_name("scratch").join("is-begun");
    team.until("the check to run", || begun.exists());
    disk.fill();
    team.write("go", "");
    team.until("it to be told", || task(&team, 2)["stalled"].is_string());
    tells(task(&team, 2)["stalled"].as_str().unwrap());
    disk.free();
    assert_eq!(until(&team, 2, "completed")["attempts"], 0);
    team.teamd(["stop"]).ok();
}

#[test]
fn where_a_checkout_has_no_space_nothing_is_claimed_or_submitted_by_half() {
    let team = Team::new();
    begin(&team, "true");
    team.teamd(["start"]).ok();
    let alice = checkout(&team, "alice");
    let Some(disk) = disk(alice.parent().unwrap()) else {
        return;
    };
    disk.fill();
    tells(
        &team
            .teamctl(["spawn", "alice", "--checkout"])
            .exits(1)
            .stderr,
    );
    assert_eq!(user(&team, "ls -A ../work.team"), "filler");
    disk.free();
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    add(&team, &["one"]);
    disk.fill();
    let results = team.does("alice", "/claim_task {\"task_id\": 1}");
    tells(results[0]["content"].as_str().unwrap());
    assert_eq!(task(&team, 1)["status"], "pending");
    disk.free();
    submits_twice(&team, ("alice", 1), &disk);
    until(&team, 1, "completed");
    team.teamd(["stop"]).ok();
}

#[test]
fn where_the_user_has_no_space_work_is_integrated_and_no_file_of_the_user_changes() {
    let team = Team::new();
    let Some(disk) = disk(team.root()) else {
        return;
    };
    let Some(_team_dir) = self::disk(&team.path("")) else {
        return;
    };
    begin(&team, "true");
    team.teamd(["start", "--adopt", ".team"]).ok();
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    add(&team, &["one"]);
    disk.fill();
    team.does("alice", &format!("/claim_task {{\"task_id\": 1}}\n/bash {LARGE} one; {LARGE} large; git rm -q a.txt; mkdir d; echo > d/d; git add .; git commit -qm one\n/task_update {{\"task_id\": 1, \"status\": \"completed\"}}"));
    until(&team, 1, "completed");
    tells(&team.teamctl(["land"]).exits(1).stderr);
    // There is space for what is integrated, and not for its files.
    disk.leave(800_000);
    let state = || {
        user(
            &team,
            "git rev-parse main; git status --short | grep -v filler; sha256sum *",
        )
    };
    let before = state();
    let refused = team.teamctl(["land"]).exits(7);
    assert!(
        refused.stderr.contains("main cannot be moved: ") && refused.stderr.contains("hint: "),
        "{refused:?}"
    );
    assert_eq!(state(), before);
    disk.free();
    let before = state();
    disk.leave_files(Some(2));
    let refused = team.teamctl(["land"]).exits(7);
    assert!(
        refused.stderr.contains("main cannot be moved: "),
        "{refused:?}"
    );
    assert_eq!(state(), before, "no room for files");
    disk.leave_files(None);
    team.teamctl(["land"]).ok();
    assert_eq!(
        user(&team, "git rev-parse main"),
        git(&team, &["rev-parse", "integration"])
    );
    team.teamd(["stop"]).ok();
}

#[test]
fn where_temporary_files_have_no_space_nothing_is_taken_for_damage_or_a_conflict() {
    let team = Team::new();
    begin(&team, "true");
    let Some(disk) = disk(&team.temp()) else {
        return;
    };
    team.teamd(["start"]).ok();
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    add(&team, &["one"]);
    disk.fill();
    let work = format!(
        "/claim_task {{\"task_id\": 1}}\n/bash {LARGE} one; git add one; git commit -qm one\n/task_update {{\"task_id\": 1, \"status\": \"completed\"}}"
    );
    says(&team.does("alice", &work), 2, "is submitted");
    team.until("it to be told", || task(&team, 1)["stalled"].is_string());
    tells(task(&team, 1)["stalled"].as_str().unwrap());
    let forgets = |code: i32| {
        team.teamctl(["shutdown", "alice"]).ok();
        team.teamctl(["forget", "alice"]).exits(code).stderr
    };
    disk.free();
    let done = until(&team, 1, "completed");
    assert_eq!(
        (&done["attempts"], &done["returns"]),
        (&0.into(), &0.into())
    );
    disk.fill();
    tells(&forgets(1));
    disk.free();
    forgets(0);
    team.teamd(["stop"]).ok();
}
