//! What an answer costs that its service pauses: it counts though the answer fails, is broken off
//! or is given up.

use serde_json::{Value, json};

use crate::support::Team;
use crate::support::model_server::{Api, ModelServer, Reply, Request};

/// Starts alice with a task.
fn alice(server: &ModelServer, flags: &[&str]) -> Team {
    alice_in(server.team(), flags)
}

fn alice_in(team: Team, flags: &[&str]) -> Team {
    let spawn = [
        "spawn",
        "alice",
        "--model",
        Api::Anthropic.model(),
        "--prompt",
        "find it",
    ];
    team.teamctl(spawn.iter().chain(flags)).ok();
    team
}

fn piece() -> Reply {
    Reply::text("I look.").stopped("pause_turn")
}

/// All that was read and written, as a worker or the server tells it.
fn told(usage: &Value) -> u64 {
    let counters = [
        "input_tokens",
        "output_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
    ];
    counters
        .iter()
        .filter_map(|name| usage[name].as_u64())
        .sum()
}

fn billed(requests: &[Request]) -> u64 {
    requests
        .iter()
        .map(|request| request.bill.all_input() + request.bill.output)
        .sum()
}

fn last_reason(team: &Team) -> Value {
    team.notices("alice").pop().unwrap()["idle_reason"].clone()
}

/// What the transcript and status say equals what was billed.
fn all_is_counted(team: &Team, server: &ModelServer) {
    let entries = ["charged", "answer"]
        .map(|kind| team.entries("alice", kind))
        .concat();
    let recorded: u64 = entries.iter().map(|entry| told(&entry["usage"])).sum();
    assert_eq!(recorded, billed(&server.requests()));
    team.until("status to tell it", || {
        told(&team.member("alice")["usage"]) == recorded
    });
}

#[test]
fn what_a_paused_answer_cost_counts_though_it_fails_or_is_broken_off() {
    let server = ModelServer::start();
    server
        .replies(piece())
        .replies(piece())
        .replies(Reply::fail(400).saying("no more"));
    let team = alice(&server, &[]);
    team.until_finished("alice", 1);
    assert_eq!(last_reason(&team), "failed");
    assert_eq!(
        (
            team.entries("alice", "charged").len(),
            team.answers("alice")
        ),
        (1, 0)
    );
    all_is_counted(&team, &server);
    assert!(
        team.teamctl(["transcript", "alice"])
            .ok()
            .stdout
            .contains("cost (")
    );
    // The call after the last pause is counted, too.
    for _ in 0..=10 {
        server.replies(piece());
    }
    team.send("alice", "and now?").ok();
    team.until_finished("alice", 2);
    assert_eq!(last_reason(&team), "failed");
    all_is_counted(&team, &server);
    // What is broken off within a piece is not counted: the server has billed it.
    let before = billed(&server.requests());
    server
        .replies(piece())
        .replies(Reply::text("It is ").stalled());
    team.send("alice", "well?").ok();
    team.until("it to be gone on with", || server.requests().len() == 16);
    team.teamctl(["interrupt", "alice"]).ok();
    team.until_finished("alice", 3);
    assert_eq!(last_reason(&team), "interrupted");
    let usage = team.entries("alice", "charged");
    let recorded: u64 = usage.iter().map(|entry| told(&entry["usage"])).sum();
    assert_eq!(recorded, before + billed(&server.requests()[14..15]));
    // The next incarnation finds it in the transcript.
    team.kill_and_wait_for_restart("alice");
    team.send("alice", "and at last?").ok();
    team.until_finished("alice", 4);
    let all = recorded + billed(&server.requests()[16..]);
    team.until("status to tell all of it", || {
        told(&team.member("alice")["usage"]) == all
    });
}

#[test]
fn an_answer_is_not_gone_on_with_once_the_budget_is_spent() {
    let server = ModelServer::start();
    server.replies(piece());
    let team = alice(&server, &["--max-tokens", "1"]);
    team.until_finished("alice", 1);
    assert_eq!(
        (last_reason(&team), server.requests().len()),
        ("max_tokens".into(), 1)
    );
    all_is_counted(&team, &server);
    server.says("There.");
    team.send("alice", "and now?").ok();
    team.until_finished("alice", 2);
    assert_eq!(
        (last_reason(&team), team.answers("alice")),
        ("available".into(), 1)
    );
    all_is_counted(&team, &server);
}

/// Whether a summary is asked for.
fn is_order(request: &Request) -> bool {
    request.mentions("Write down, for yourself")
}

#[test]
fn what_a_summary_cost_that_did_not_come_is_part_of_the_one_that_did() {
    let mut orders = 0;
    let server = ModelServer::answering(move |request| match is_order(request) {
        true => {
            orders += 1;
            match orders {
                1 => piece(),
                2 => Reply::too_long(),
                _ => Reply::text("SUMMARY"),
            }
        }
        false if request.mentions("SUMMARY") => Reply::text("There."),
        false => Reply::call("bash", json!({"command": "seq 9000"})),
    });
    let team = alice_in(server.team().with("TEAM_CONTEXT_WINDOW", "15000"), &[]);
    team.until_finished("alice", 1);
    assert_eq!(last_reason(&team), "available");
    let orders: Vec<Request> = server.requests().into_iter().filter(is_order).collect();
    let summary = &team.entries("alice", "compacted")[0];
    assert_eq!(
        (orders.len(), told(&summary["usage"])),
        (3, billed(&orders))
    );
    assert!(team.entries("alice", "charged").is_empty() && billed(&orders[..1]) > 0);
}

#[test]
fn a_summary_is_not_gone_on_with_once_the_budget_is_spent() {
    let server = ModelServer::answering(|request| {
        if is_order(request) {
            piece()
        } else {
            Reply::call("bash", json!({"command": "seq 9000"}))
        }
    });
    let team = server.team().with("TEAM_CONTEXT_WINDOW", "15000");
    let team = alice_in(team, &["--max-tokens", "10k"]);
    team.until_finished("alice", 1);
    assert_eq!(
        (last_reason(&team), server.requests().len()),
        ("max_tokens".into(), 2)
    );
    assert!(
        team.entries("alice", "compacted").is_empty(),
        "the conversation is whole"
    );
    all_is_counted(&team, &server);
}

#[test]
fn how_long_a_conversation_is_does_not_grow_with_the_pieces_of_an_answer() {
    let server = ModelServer::start();
    server
        .replies(piece())
        .replies(piece())
        .says("It is there.")
        .says("Still there.");
    let team = alice(&server, &[]);
    team.until_finished("alice", 1);
    let answer = &team.entries("alice", "answer")[0];
    let asked = server.requests();
    assert_eq!(answer["length"].as_u64(), Some(billed(&asked[2..])));
    assert_eq!(told(&answer["usage"]), billed(&asked));
    team.send("alice", "and now?").ok();
    team.until_finished("alice", 2);
    assert!(
        team.entries("alice", "answer")[1]["length"].is_null(),
        "what it cost says it"
    );
}
