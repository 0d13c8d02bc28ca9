//! What a start makes of journal and roster: torn, unreadable, damaged, of a newer program.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::support::Team;
use crate::support::process::let_pass;

#[test]
fn a_torn_last_line_of_the_journal_is_set_aside_and_said() {
    let team = Team::started();
    team.spawn("alice", "");
    team.teamctl(["shutdown", "alice"]).ok();
    team.kill_daemon();
    let whole = team.file("journal.jsonl");
    let torn = r#"{"seq":99,"at":17637"#;
    team.put("journal.jsonl", &format!("{whole}{torn}"));
    team.teamd(["start"]).ok();
    assert_eq!(team.status("alice"), "shutdown");
    assert_eq!(team.file("journal.torn"), format!("{torn}\n"));
    let journal = team.file("journal.jsonl");
    assert!(journal.starts_with(&whole) && !journal.contains(torn));
    team.until("it to be said", || {
        team.file("log/teamd.log").contains("journal.torn")
    });
    // And again, and again.
    team.kill_daemon();
    team.put("journal.jsonl", &format!("{journal}{torn}"));
    team.teamd(["start"]).ok();
    assert_eq!(team.file("journal.torn"), format!("{torn}\n{torn}\n"));
    team.spawn("alice", "");
}

/// Found by reading: the next line was glued to it.
#[test]
fn what_others_write_into_the_journal_of_a_running_daemon_is_set_aside() {
    let team = Team::started();
    for (name, foreign) in [("alice", "a cat"), ("bob", "walked\n"), ("carol", "\n\n")] {
        let mut journal = std::fs::OpenOptions::new()
            .append(true)
            .open(team.path("journal.jsonl"))
            .unwrap();
        journal.write_all(foreign.as_bytes()).unwrap();
        team.spawn(name, "");
    }
    assert_eq!(team.file("journal.torn"), "a cat\nwalked\n\n");
    assert!(
        team.file("log/teamd.log")
            .contains("set aside in journal.torn")
    );
    team.kill_daemon();
    team.teamd(["start"]).ok();
    assert_eq!(
        ["alice", "bob", "carol"].map(|name| team.status(name)),
        ["idle"; 3]
    );
}

#[test]
fn a_journal_that_is_unreadable_further_up_is_refused_and_left_as_it_is() {
    let team = Team::started();
    team.spawn("alice", "");
    team.teamd(["stop"]).ok();
    let good = team.file("journal.jsonl");
    let mut lines: Vec<&str> = good.lines().collect();
    let config = team.file("config.json");
    lines[1] = "{\"seq\":2, a cat walked over this";
    let first = lines[0];
    let last = lines.len() - 1;
    let mut twice = lines.clone();
    twice[1] = first;
    let mut of_another_kind = lines.clone();
    of_another_kind[1] = "{\"seq\":2,\"at\":1.0,\"done\":0,\"record\":\"weather\"}";
    let mut gap: Vec<&str> = good.lines().collect();
    gap.remove(1);
    for bad in [lines, twice, of_another_kind, gap] {
        let bad = bad.join("\n") + "\n";
        team.put("journal.jsonl", &bad);
        let said = team.teamd(["start"]).exits(1);
        assert!(said.stderr.contains("line 2 of journal.jsonl"), "{said:?}");
        assert!(said.stderr.contains("hint: "), "{said:?}");
        assert_eq!(team.file("journal.jsonl"), bad, "it is left as it is");
        assert_eq!(team.file("config.json"), config);
        assert!(!team.path("run/teamd.sock").exists());
        // What can be read from the files still is.
        assert_eq!(team.json(["status"])["members"][0]["name"], "alice");
    }
    team.until_no_process_is_left();
    // Mended, all is as before.
    team.put("journal.jsonl", &good);
    team.teamd(["start"]).ok();
    assert_eq!(team.status("alice"), "shutdown");
    assert!(last > 1);
}

#[test]
fn what_the_schema_of_the_journal_refuses_lint_and_a_start_refuse_and_the_live_worker_stays() {
    let team = Team::started();
    team.spawn("alice", "");
    let pid = team.pid("alice");
    team.kill_daemon();
    let good = team.file("journal.jsonl");
    let (before, spawned) = good.trim_end().rsplit_once('\n').unwrap();
    let number = before.lines().count() + 1;
    let schema = serde_json::from_str(&team.teamctl(["schema", "journal"]).stdout).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let of_pid = format!("\"pid\":{pid}");
    let start = r#"{"offset":0,"tail":"cbf29ce484222325"}"#;
    for (right, wrong) in [
        (of_pid.as_str(), r#""pid":"closed""#),
        (of_pid.as_str(), r#""pid":null"#),
        (of_pid.as_str(), r#""process":1"#),
        (r#""record":"member""#, r#""record":1"#),
        (r#""phase":"running""#, r#""phase":{"running":null}"#),
        (start, r#"[0,"cbf29ce484222325"]"#),
        (start, r#"{"offset":0,"tail":"1"}"#),
    ] {
        assert!(spawned.contains(right), "{right} {spawned}");
        let bad = spawned.replace(right, wrong);
        assert!(
            !validator.is_valid(&serde_json::from_str(&bad).unwrap()),
            "{bad}"
        );
        let bad = format!("{before}\n{bad}\n");
        team.put("journal.jsonl", &bad);
        let file = team.path("journal.jsonl");
        let lint = team.teamctl(["lint", file.to_str().unwrap()]).exits(1);
        assert!(
            lint.stdout.contains(&format!("journal.jsonl:{number}:")),
            "{wrong}: {lint:?}"
        );
        let said = team.teamd(["start"]).exits(1);
        assert!(
            said.stderr
                .contains(&format!("line {number} of journal.jsonl")),
            "{wrong}: {said:?}"
        );
        assert_eq!(team.file("journal.jsonl"), bad, "it is left as it is");
    }
    team.put("journal.jsonl", &good);
    team.teamd(["start"]).ok();
    assert_eq!(
        (team.pid("alice"), team.status("alice").as_str()),
        (pid, "idle")
    );
}

/// Failure 20 (A, measured; CC#29127, CC#29143).
#[test]
fn a_missing_or_damaged_roster_is_written_anew_and_the_old_one_kept() {
    let team = Team::started();
    team.spawn("alice", "");
    let pid = team.pid("alice");
    let aside = || -> Vec<String> {
        let names = std::fs::read_dir(team.path(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let aside = names
            .filter_map(|name| name.into_string().ok())
            .filter(|name| name.starts_with("config.json."));
        aside.collect()
    };
    for damage in ["", "{\"version\":1,\"seq\":4,\"team_na", "[]", "\0\0\0\0"] {
        team.kill_daemon();
        team.put("config.json", damage);
        team.teamd(["start"]).ok();
        assert_eq!(team.pid("alice"), pid);
        assert!(
            aside().iter().any(|name| team.file(name) == damage),
            "{:?}",
            aside()
        );
    }
    assert_eq!(
        aside().len(),
        4,
        "none is kept in the place of another: {:?}",
        aside()
    );
    team.until("it to be said", || {
        team.file("log/teamd.log")
            .contains("config.json could not be read")
    });
    team.kill_daemon();
    std::fs::remove_file(team.path("config.json")).unwrap();
    team.teamd(["start"]).ok();
    assert_eq!(team.pid("alice"), pid);
    // While the daemon runs, too: the next change writes it.
    std::fs::remove_file(team.path("config.json")).unwrap();
    team.teamctl(["shutdown", "alice"]).ok();
    assert_eq!(team.status("alice"), "shutdown");
}

#[test]
fn what_a_newer_program_wrote_is_never_written_over() {
    let team = Team::started();
    team.spawn("alice", "");
    team.teamd(["stop"]).ok();
    let journal = team.file("journal.jsonl");
    let config = team.file("config.json");
    let newer = journal.replacen("\"version\":1", "\"version\":2", 1);
    assert_ne!(newer, journal);
    let refused = || {
        let said = team.teamd(["start"]).exits(1);
        assert!(
            said.stderr.contains("version 2") && said.stderr.contains("hint: "),
            "{said:?}"
        );
    };
    team.put("journal.jsonl", &newer);
    refused();
    assert_eq!(
        (team.file("journal.jsonl"), team.file("config.json")),
        (newer, config.clone())
    );
    // Even if its lines are not ours to read.
    let strange = "{\"seq\":1,\"version\":2,\"something\":\"else\"}\n";
    team.put("journal.jsonl", strange);
    refused();
    assert_eq!(team.file("journal.jsonl"), strange);
    team.put("journal.jsonl", &journal);
    let newer = config.replacen("\"version\":1", "\"version\":2,\"mood\":\"fine\"", 1);
    team.put("config.json", &newer);
    refused();
    assert_eq!(
        (team.file("journal.jsonl"), team.file("config.json")),
        (journal.clone(), newer.clone())
    );
    // A torn tail of a journal that is not understood is its own affair, too.
    team.put("journal.jsonl", &format!("{strange}{{\"seq\""));
    refused();
    assert!(!team.path("journal.torn").exists());
    team.put("journal.jsonl", &journal);
    refused();
    // It is read as far as possible.
    assert_eq!(team.json(["status"])["members"][0]["name"], "alice");
    for strange in [
        "{\"version\":2,\"people\":[]}",
        "{\"version\":2,\"members\":{\"alice\":{}}}",
    ] {
        team.put("config.json", strange);
        refused();
        assert_eq!(
            (team.file("journal.jsonl"), team.file("config.json")),
            (journal.clone(), strange.to_owned())
        );
    }
}

/// See above; and corrupt when two finish together (31 of 60).
/// Failure 20 (A, measured; CC#29127, CC#29143).
#[test]
fn the_roster_can_be_parsed_at_every_moment() {
    let team = Team::started();
    let path = team.path("config.json");
    let over = AtomicBool::new(false);
    let samples = AtomicU64::new(0);
    let sample = |path: &Path| -> u64 {
        let mut seq = 0;
        let mut last = false;
        while !std::mem::replace(&mut last, over.load(Ordering::Relaxed)) {
            let bytes = std::fs::read(path).unwrap();
            let roster: Value = serde_json::from_slice(&bytes)
                .unwrap_or_else(|e| panic!("{e}: {:?}", String::from_utf8_lossy(&bytes)));
            let now = roster["seq"].as_u64().unwrap();
            assert!(now >= seq, "the roster went back from {seq} to {now}");
            seq = now;
            samples.fetch_add(1, Ordering::Relaxed);
            std::thread::yield_now();
        }
        seq
    };
    let seq = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| sample(&path));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut rounds = 0;
            while !sampler.is_finished() && (rounds < 3 || samples.load(Ordering::Relaxed) <= 100) {
                rounds += 1;
                let spawns = ["a", "b", "c", "d"]
                    .map(|name| team.start_teamctl(["spawn", name, "--prompt", "/sleep 0"]));
                for spawn in spawns {
                    drop(spawn.finish().ok());
                }
                team.kill_daemon();
                team.teamd(["start"]).ok();
                let ends = ["a", "b", "c", "d"].map(|name| team.start_teamctl(["shutdown", name]));
                for end in ends {
                    drop(end.finish().ok());
                }
            }
        }));
        over.store(true, Ordering::Relaxed);
        let sampled = sampler.join().unwrap();
        outcome.unwrap();
        sampled
    });
    assert!(seq > 50, "seq {seq}");
    assert_eq!(team.roster()["members"].as_array().unwrap().len(), 4);
}

/// Found by injecting errors: the command ended with 0 while the roster still said `shutting_down`.
#[test]
fn a_command_waits_for_a_roster_that_cannot_be_written_just_now() {
    let team = Team::started();
    team.spawn("alice", "");
    std::fs::create_dir(team.path("config.json.new")).unwrap();
    let mut asked = team.start_teamctl(["shutdown", "alice"]);
    team.until("the end of alice to be journaled", || {
        team.events("exited") == 1
    });
    let_pass(Duration::from_millis(300));
    assert!(
        asked.is_running(),
        "it was told what the roster does not show"
    );
    std::fs::remove_dir(team.path("config.json.new")).unwrap();
    asked.finish().ok();
    assert_eq!(team.status("alice"), "shutdown");
}
