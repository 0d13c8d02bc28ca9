//! What grows is bounded: logs begin anew, and a start or a verdict does not read a long journal
//! whole.

use std::fs::OpenOptions;

use serde_json::json;
use teamd_shared::logging::MAX_SIZE;

use crate::support::Team;

/// Makes a file as long as a log may be.
fn grow(team: &Team, log: &str) {
    OpenOptions::new()
        .write(true)
        .open(team.path(log))
        .unwrap()
        .set_len(MAX_SIZE)
        .unwrap();
}

fn size(team: &Team, file: &str) -> Option<u64> {
    std::fs::metadata(team.path(file)).ok().map(|it| it.len())
}

#[test]
fn a_log_that_has_grown_large_begins_anew_and_one_older_file_stays() {
    let team = Team::new().with("TEAM_LOG", "debug");
    team.teamd(["start"]).ok();
    for _ in 0..2 {
        grow(&team, "log/teamd.log");
        team.teamd(["stop"]).ok();
        assert_eq!(size(&team, "log/teamd.log.1"), Some(MAX_SIZE));
        let log = std::fs::read_to_string(team.path("log/teamd.log")).unwrap();
        assert!(log.contains("the daemon ends"), "{log}");
        team.teamd(["start"]).ok();
    }
    team.spawn("alice", "");
    grow(&team, "log/alice.log");
    team.kill_daemon();
    team.teamd(["start"]).ok();
    team.until("its log to begin anew", || {
        size(&team, "log/alice.log.1") == Some(MAX_SIZE)
    });
    assert!(size(&team, "log/alice.log").is_some_and(|size| size < MAX_SIZE));
    team.teamctl(["shutdown", "alice"]).ok();
    team.teamctl(["forget", "alice"]).ok();
    assert_eq!(
        size(&team, "log/alice.log.1"),
        None,
        "the older file goes with its teammate"
    );
}

#[test]
fn a_start_behind_a_snapshot_knows_verdicts_and_leaves_damage_to_doctor() {
    const PLANS: u32 = 2_000;
    let team = Team::started();
    team.teamd(["stop"]).ok();
    team.write_long_journal(PLANS);
    team.teamd(["start"]).ok();
    // The first plans are in no snapshot any more.
    let again = team.json(["approve", "00000000"]);
    assert_eq!(
        (&again["status"], &again["repeated"]),
        (&json!("approved"), &json!(true))
    );
    team.teamctl(["reject", "00000000"]).exits(7);
    team.teamctl(["approve", "00000001"]).exits(7);
    team.teamctl(["approve", "ffffffff"]).exits(4);
    let all = team.json(["requests"]);
    assert_eq!(all.as_array().map(Vec::len), usize::try_from(PLANS).ok());
    assert_eq!(team.json(["requests", "00000001"])[0]["status"], "rejected");
    team.teamd(["stop"]).ok();
    team.teamctl(["doctor"]).ok();

    let journal = team.file("journal.jsonl");
    team.put(
        "journal.jsonl",
        &journal.replacen("\"record\":\"request\"", "\"record\":\"riddle\"", 1),
    );
    team.teamd(["start"]).ok();
    assert!(
        team.teamctl(["requests"])
            .exits(1)
            .stderr
            .contains("cannot be read")
    );
    assert!(
        team.teamctl(["doctor"])
            .exits(1)
            .stdout
            .contains("journal.jsonl")
    );
    team.teamctl(["lint", team.path("journal.jsonl").to_str().unwrap()])
        .exits(1);
}
