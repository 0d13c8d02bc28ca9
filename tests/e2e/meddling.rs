//! What people and programs do to the files of a team while it runs is noticed and repaired, and
//! never believed.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{Team, is_alive, signal};

fn log(team: &Team) -> String {
    team.file("log/teamd.log")
}

#[test]
fn a_deleted_or_damaged_roster_is_written_anew_and_no_answer_is_empty() {
    let team = Team::started();
    team.spawn("alice", "");
    let config = team.path("config.json");
    std::fs::remove_file(&config).unwrap();
    let status = team.json(["status"]);
    assert_eq!(
        (&status["daemon"]["running"], &status["members"][0]["name"]),
        (&json!(true), &json!("alice"))
    );
    std::fs::remove_file(&config).unwrap();
    team.teamctl(["send", "alice", "hello"]).ok();
    // Damaged: kept aside, and said; unless the daemon writes it at that moment, as alice reads the
    // message.
    team.until("it to be kept aside", || {
        team.plant("config.json", |at| {
            std::fs::copy("/etc/passwd", at).map(drop).unwrap()
        });
        team.teamctl(["wait", "alice", "--for", "idle"]).ok();
        std::fs::read_dir(team.path("")).unwrap().any(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_str()
                .unwrap()
                .starts_with("config.json.unreadable-")
        })
    });
    assert!(log(&team).contains("is written again"));
    std::fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&config)
        .unwrap();
    team.teamctl(["send", "alice", "hello again"]).ok();
    std::fs::remove_file(&config).unwrap();
    let all = team.json(["shutdown", "--all"]);
    assert_eq!(all["results"][0]["outcome"], "shutdown", "{all}");
}

#[test]
fn a_journal_deleted_or_replaced_under_the_daemon_is_written_again() {
    let team = Team::started();
    team.spawn("alice", "");
    let before = team.file("journal.jsonl");
    std::fs::remove_file(team.path("journal.jsonl")).unwrap();
    team.until("it to be there again", || {
        team.path("journal.jsonl").exists()
    });
    assert!(team.file("journal.jsonl").starts_with(&before));
    team.plant("journal.jsonl", |at| {
        std::fs::copy("/etc/passwd", at).map(drop).unwrap()
    });
    team.until("ours to be there again", || {
        team.file("journal.jsonl").starts_with(&before)
    });
    let pid = team.pid("alice");
    team.spawn("bob", "");
    team.kill_daemon();
    team.teamd(["start"]).ok();
    assert_eq!(team.pid("alice"), pid);
    assert!(is_alive(pid) && team.member("bob")["status"] == "idle");
}

#[test]
fn a_journal_cut_or_overwritten_under_the_daemon_begins_with_its_state() {
    let team = Team::started();
    team.spawn("alice", "");
    let pid = team.pid("alice");
    let garbage = "no journal\n".repeat(team.file("journal.jsonl").len());
    for (content, name) in [("", "bob"), (garbage.as_str(), "carol")] {
        // In place: it stays the file that the daemon has open.
        team.put("journal.jsonl", content);
        team.until("a snapshot", || {
            team.file("journal.jsonl")
                .contains("\"record\":\"snapshot\"")
        });
        team.spawn(name, "");
        let first: serde_json::Value =
            serde_json::from_str(team.file("journal.jsonl").lines().next().unwrap()).unwrap();
        assert_eq!(
            (&first["record"], &first["version"]),
            (&json!("snapshot"), &json!(1))
        );
        team.teamctl(["lint", ".team/journal.jsonl"]).ok();
    }
    assert_eq!(log(&team).matches("its earlier lines are lost").count(), 2);
    team.until("the lead to be told", || {
        team.file("inbox/lead.jsonl")
            .matches("journal.jsonl was cut or overwritten")
            .count()
            == 2
    });
    team.kill_daemon();
    team.teamd(["start"]).ok();
    assert_eq!(team.pid("alice"), pid);
    for name in ["bob", "carol"] {
        assert_eq!(team.status(name), "idle");
    }
}

#[test]
fn without_a_journal_the_roster_is_kept_aside_and_the_team_begins_anew() {
    let team = Team::started();
    team.spawn("alice", "");
    team.teamctl(["shutdown", "alice"]).ok();
    team.teamd(["stop"]).ok();
    std::fs::remove_file(team.path("journal.jsonl")).unwrap();
    team.teamd(["start"]).ok();
    assert!(team.member("alice").is_null());
    assert!(log(&team).contains("there is no journal, and config.json has members"));
}

#[test]
fn a_start_says_that_it_kept_an_unreadable_roster_and_a_missing_one_is_no_empty_team() {
    let team = Team::started();
    team.spawn("alice", "");
    team.kill_daemon();
    std::fs::remove_file(team.path("config.json")).unwrap();
    let said = team.teamctl(["status"]).exits(1).stderr;
    assert!(
        said.contains("config.json is missing") && said.contains("hint: `teamd start`"),
        "{said}"
    );
    team.put("config.json", "{");
    let said = team.teamd(["start"]).ok().stdout;
    let kept =
        "adopted alice; config.json could not be read: it is kept as config.json.unreadable-";
    assert!(
        said.contains(kept) && said.contains("written again"),
        "{said}"
    );
    team.wait_for("alice", "idle");
}

#[test]
fn a_directory_that_others_could_write_to_is_closed_at_the_start() {
    let team = Team::new();
    for folder in ["", "inbox", "log", "run", "transcript", "archive"] {
        std::fs::create_dir_all(team.path(folder)).unwrap();
        std::fs::set_permissions(team.path(folder), std::fs::Permissions::from_mode(0o777))
            .unwrap();
    }
    team.teamd(["start", "--adopt", ".team"]).ok();
    for folder in ["", "inbox", "log", "run", "transcript", "archive"] {
        let mode = std::fs::metadata(team.path(folder))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700, "{folder}");
    }
}

#[test]
fn the_daemon_keeps_nothing_open_that_its_starter_had_open() {
    let team = Team::new();
    let teamd = env!("CARGO_BIN_EXE_teamd");
    let lock = team.root().join("lock");
    let start = format!("exec 9>'{}'; flock -n 9 && '{teamd}' start", lock.display());
    assert!(
        team.command("bash", ["-c", &start])
            .status()
            .unwrap()
            .success()
    );
    let free = format!("exec 9>'{}'; flock -n 9", lock.display());
    assert!(
        team.command("bash", ["-c", &free])
            .status()
            .unwrap()
            .success(),
        "the daemon holds the lock"
    );
}

#[test]
fn a_stop_waits_for_no_longer_than_was_asked_and_names_who_holds_it_up() {
    let team = Team::started();
    team.spawn("alice", "");
    let pid = team.pid("alice");
    signal(pid, Signal::SIGSTOP);
    let said = team.teamd(["stop", "--timeout", "8s"]).exits(5);
    assert!(
        said.stderr.contains("it is waiting for alice") && said.stderr.contains("--force"),
        "{said:?}"
    );
    signal(pid, Signal::SIGCONT);
    team.until_no_process_is_left();
}

#[test]
fn stops_at_the_same_time_all_end_well() {
    let team = Team::started();
    team.spawn("alice", "");
    let stops: Vec<_> = (0..3).map(|_| team.start_teamd(["stop"])).collect();
    for stop in stops {
        let ended = stop.finish();
        // A command that came when it was over already finds no daemon.
        assert!(matches!(ended.code, Some(0 | 6)), "{ended:?}");
    }
    team.until_no_process_is_left();
}

#[test]
fn a_shutdown_beside_a_stop_ends_when_the_teammate_is_gone() {
    for _ in 0..5 {
        let team = Team::started();
        team.spawn("alice", "");
        let stop = team.start_teamd(["stop"]);
        let ended = team.teamctl(["shutdown", "alice"]);
        assert!(matches!(ended.code, Some(0 | 6 | 7)), "{ended:?}");
        stop.finish().ok();
    }
}

#[test]
fn a_name_whose_files_cannot_be_archived_is_an_error_that_says_so() {
    let team = Team::started();
    team.spawn("alice", "");
    team.teamctl(["shutdown", "alice"]).ok();
    std::fs::remove_dir(team.path("archive")).unwrap();
    std::os::unix::fs::symlink(Path::new("/tmp"), team.path("archive")).unwrap();
    let said = team.teamctl(["forget", "alice"]).exits(1);
    assert!(
        said.stderr.contains("cannot be moved into the archive") && said.stderr.contains("hint: "),
        "{said:?}"
    );
}

#[test]
fn how_an_incarnation_ended_is_told_also_when_the_next_one_has_begun() {
    let team = Team::started();
    for _ in 0..10 {
        team.spawn("alice", "");
        let shutdown = team.start_teamctl(["--json", "shutdown", "alice"]);
        team.until("the next incarnation", || {
            team.teamctl(["spawn", "alice"]).is_done()
        });
        let told: serde_json::Value = serde_json::from_str(&shutdown.finish().ok().stdout).unwrap();
        assert_eq!(
            (
                &told["results"][0]["outcome"],
                &told["results"][0]["exit"]["code"]
            ),
            (&json!("shutdown"), &json!(0))
        );
        team.teamctl(["shutdown", "alice"]).ok();
    }
}
