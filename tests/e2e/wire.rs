//! The lines on the wire: what is written, byte for byte, and what others write, as it is
//! understood.

use std::io::Write;

use teamd_shared::message::to_json_line;

use crate::support::Team;
use crate::support::look::HELD;

/// What this version writes: a line for each type of message (and each kind of answer).
const WRITTEN: &str = include_str!("../fixtures/wire/written.jsonl");
/// What other programs write.
const FOREIGN: &str = include_str!("../fixtures/wire/foreign.jsonl");
/// The same lines as they are understood: what a transcript holds of them.
const READ: &str = include_str!("../fixtures/wire/foreign.read.jsonl");

/// Puts a word in the place of a value that is another one each time.
fn blank(line: &str, key: &str, word: &str) -> String {
    let key = format!("\"{key}\":");
    let Some(at) = line.find(&key) else {
        return line.to_owned();
    };
    let (head, rest) = line.split_at(at + key.len());
    let end = rest.find([',', '}']).unwrap();
    if &rest[..end] == "null" {
        line.to_owned()
    } else {
        format!("{head}{word}{}", &rest[end..])
    }
}

/// The lines of an inbox without what differs from run to run.
fn normalised(team: &Team, inbox: &str) -> Vec<String> {
    let raw = std::fs::read_to_string(team.path(&format!("inbox/{inbox}.jsonl"))).unwrap();
    let blanks = [
        ("id", "\"ID\""),
        ("message_id", "\"ID\""),
        ("request_id", "\"REQUEST\""),
        ("timestamp", "TIME"),
        ("at", "TIME"),
        ("gate_closed", "SEQ"),
    ];
    raw.lines()
        .map(|line| {
            blanks
                .iter()
                .fold(line.to_owned(), |line, (key, word)| blank(&line, key, word))
        })
        .collect()
}

/// Compares line by line, so that a failure shows the one line.
fn same_lines(found: &[String], expected: &str) {
    for (found, expected) in found.iter().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(
        found.len(),
        expected.lines().count(),
        "{}",
        found.join("\n")
    );
}

#[test]
fn every_type_is_written_as_the_protocol_says() {
    let team = Team::started();
    let prompt = format!(
        "/plan_approval 1. Drop the cache\\n2. Rebuild\n/reject_shutdown still writing\n{HELD}\nDone.\nAll of it."
    );
    team.teamctl(["spawn", "alice", "--plan", "--prompt", &prompt])
        .ok();
    let id = team.until_planned("alice");
    team.teamctl(["approve", &id, "--feedback", "mind the tests"])
        .ok();
    team.until_held();
    let asking = team.start_teamctl([
        "shutdown",
        "alice",
        "--reason",
        "the work is done",
        "--decide-within",
        "20s",
    ]);
    team.until_asked("alice");
    team.release();
    asking.finish().exits(3);
    team.until_finished("alice", 1);
    team.send("alice", "hello \u{2028} \"world\"");
    team.until_finished("alice", 2);
    team.teamctl(["broadcast", "stand up"]).ok();
    team.until_finished("alice", 3);
    team.teamctl(["request-plan", "alice", "what next?"]).ok();
    team.until_finished("alice", 4);
    team.shutdown("alice", &[], 0);
    let to_alice = normalised(&team, "alice");
    team.teamctl(["send", "alice", "--queue", "too late"]).ok();
    team.teamctl(["forget", "alice"]).ok();
    let lines = [to_alice, normalised(&team, "lead")].concat();
    same_lines(&lines, WRITTEN);
}

#[test]
fn what_others_write_is_understood() {
    let team = Team::started();
    team.spawn("alice", "");
    let mut inbox = std::fs::OpenOptions::new()
        .append(true)
        .open(team.path("inbox/alice.jsonl"))
        .unwrap();
    for line in FOREIGN.lines() {
        inbox.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
    team.until_caught_up("alice");
    let read: Vec<String> = team
        .consumed("alice")
        .iter()
        .map(|message| String::from_utf8(to_json_line(message)).unwrap())
        .collect();
    same_lines(&read, READ);
    assert!(!team.path("inbox/alice.rejected.jsonl").exists());
    // Nothing of it was an answer, a request or an order.
    assert!(team.requests("shutdown").is_empty() && team.requests("plan_approval").is_empty());
    team.wait_for("alice", "idle");
}
