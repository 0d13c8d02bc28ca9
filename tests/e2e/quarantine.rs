//! Lines that are no messages: kept aside with the reason, told once, and no reader stops because
//! of them.

use nix::sys::signal::Signal;
use std::io::Write;

use crate::support::{Team, signal};

/// Bytes that are no message, and a part of the reason.
fn nonsense() -> Vec<(Vec<u8>, &'static str)> {
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    let long = format!(
        r#"{{"type":"message","from":"user","content":"{}"}}"#,
        "x".repeat(1 << 20)
    );
    vec![
        (b"{".to_vec(), "not JSON"),
        (b"no json at all".to_vec(), "not JSON"),
        (b"[1]".to_vec(), "not a JSON object"),
        (
            b"{\"type\":\"message\",\"from\":\"\xff\xfe\"}".to_vec(),
            "not UTF-8",
        ),
        (
            br#"{"from":"user","content":"no type"}"#.to_vec(),
            "\"type\" is missing",
        ),
        (
            br#"{"type":"message","content":"no sender"}"#.to_vec(),
            "\"from\" is missing",
        ),
        (
            br#"{"type":"message","from":7}"#.to_vec(),
            "\"from\" is not a string",
        ),
        (
            br#"{"type":"shutdown_request","from":"lead"}"#.to_vec(),
            "\"request_id\" is missing",
        ),
        (
            br#"{"type":"plan_approval_response","from":"lead","request_id":"../x"}"#.to_vec(),
            "\"request_id\"",
        ),
        (deep, "not JSON"),
        (long.into_bytes(), "the limit is 1048576"),
    ]
}

fn append(team: &Team, name: &str, bytes: &[u8]) -> u64 {
    let path = team.path(&format!("inbox/{name}.jsonl"));
    let mut inbox = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    let offset = inbox.metadata().unwrap().len();
    inbox.write_all(&[bytes, b"\n"].concat()).unwrap();
    offset
}

/// Failure 10 (A, B; C for the lead).
#[test]
fn a_line_that_is_no_message_is_quarantined_and_reading_goes_on() {
    let team = Team::started();
    team.spawn("alice", "");
    let mut offsets = Vec::new();
    for (number, (bytes, _)) in nonsense().iter().enumerate() {
        offsets.push(append(&team, "alice", bytes));
        team.echo(
            "alice",
            &format!(r#"{{"type":"message","from":"bob","content":"good {number}"}}"#),
        );
    }
    let count = offsets.len();
    team.until("the last good one", || {
        team.has_consumed("alice", &format!("good {}", count - 1))
    });
    assert_eq!(team.consumed("alice").len(), count);
    let rejected = team.lines("inbox/alice.rejected.jsonl");
    assert_eq!(rejected.len(), count);
    for ((entry, offset), (bytes, reason)) in rejected.iter().zip(offsets).zip(nonsense()) {
        assert_eq!(entry["offset"], offset);
        assert!(
            entry["reason"].as_str().unwrap().contains(reason),
            "{reason}: {entry}"
        );
        assert!(entry["at"].is_f64());
        let line = entry["line"].as_str().unwrap();
        assert!(
            line.len() <= 2048 && line.starts_with(char::from(bytes[0])),
            "{line}"
        );
    }
}

#[test]
fn the_lead_is_told_once_of_a_line_that_is_no_message() {
    let team = Team::started();
    team.spawn("alice", "");
    append(&team, "alice", b"nonsense");
    let told = || {
        team.inbox("lead")
            .into_iter()
            .filter(|line| {
                line["from"] == "alice"
                    && line["content"]
                        .as_str()
                        .unwrap()
                        .contains("alice.rejected.jsonl")
            })
            .count()
    };
    team.until("the lead to be told", || told() == 1);
    // Neither the next incarnation nor the next daemon finds it again.
    signal(team.pid("alice"), Signal::SIGKILL);
    team.until("the next incarnation", || {
        team.member("alice")["incarnation"] == 2
    });
    team.does("alice", "hello");
    team.kill_daemon();
    team.teamd(["start"]).ok();
    team.does("alice", "hello again");
    assert_eq!(told(), 1);
    assert_eq!(team.lines("inbox/alice.rejected.jsonl").len(), 1);
}

#[test]
fn the_daemon_keeps_aside_what_is_no_message_in_the_leads_inbox() {
    // C: one malformed line stops the lead.
    let team = Team::started();
    team.spawn("alice", "");
    for (bytes, _) in nonsense() {
        append(&team, "lead", &bytes);
    }
    let count = nonsense().len();
    team.until("the quarantine", || {
        team.lines("inbox/lead.rejected.jsonl").len() == count
    });
    for (entry, (_, reason)) in team
        .lines("inbox/lead.rejected.jsonl")
        .iter()
        .zip(nonsense())
    {
        assert!(
            entry["reason"].as_str().unwrap().contains(reason),
            "{reason}: {entry}"
        );
    }
    let told = || {
        team.inbox("lead")
            .into_iter()
            .filter(|line| line["from"] == "teamd")
            .collect::<Vec<_>>()
    };
    // "a line in …", "7 lines in …": of all of them together.
    team.until("the lead to be told", || {
        told()
            .iter()
            .map(|line| -> usize {
                line["content"]
                    .as_str()
                    .unwrap()
                    .split(' ')
                    .next()
                    .unwrap()
                    .parse()
                    .unwrap_or(1)
            })
            .sum::<usize>()
            == count
    });
    let before = told().len();
    // A torn tail, and what a worker says is still read behind it.
    let path = team.path("inbox/lead.jsonl");
    std::fs::OpenOptions::new()
        .append(true)
        .open(path)
        .unwrap()
        .write_all(b"{\"type\":")
        .unwrap();
    team.kill_daemon();
    team.teamd(["start"]).ok();
    assert_eq!(team.shutdown("alice", &[], 0)["outcome"], "shutdown");
    team.until("the torn tail", || {
        team.lines("inbox/lead.rejected.jsonl").len() == count + 1
    });
    team.until("its notice", || {
        told()
            .iter()
            .filter(|line| line["type"] == "message")
            .count()
            == before + 1
    });
}

#[test]
fn empty_lines_say_nothing_and_do_no_harm() {
    let team = Team::started();
    team.spawn("alice", "");
    for blank in ["", "   ", "\t\r"] {
        team.echo("alice", blank);
    }
    team.send("alice", "hello");
    team.until_finished("alice", 1);
    assert_eq!(team.consumed("alice").len(), 1);
    assert!(!team.path("inbox/alice.rejected.jsonl").exists());
}
