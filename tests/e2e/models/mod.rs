//! Models over HTTP: real teammates, and a fake server for both APIs that refuses every request the
//! real ones would.

mod compact;
mod failures;
mod fallback;
mod network;
mod pauses;

use serde_json::json;

use crate::support::Team;
use crate::support::look::HELD;
use crate::support::model_server::{Api, ModelServer, Reply, Request};

const BOTH: [Api; 2] = [Api::Anthropic, Api::OpenAi];

/// Starts a teammate with a model.
fn spawn(team: &Team, name: &str, model: &str, prompt: &str) {
    team.teamctl(["spawn", name, "--model", model, "--prompt", prompt])
        .ok();
}

/// A team whose alice has been asked for something, and has ended that piece of work.
fn alice_did(server: &ModelServer, api: Api, prompt: &str) -> Team {
    let team = server.team();
    spawn(&team, "alice", api.model(), prompt);
    team.until_finished("alice", 1);
    team
}

/// How the last piece of work ended: the reason, and all of the text.
fn ended(team: &Team, name: &str) -> (String, String) {
    let notice = team.notices(name).pop().unwrap();
    let text = |field: &str| notice[field].as_str().unwrap_or_default().to_owned();
    (text("idle_reason"), text("content"))
}

#[test]
fn a_prompt_leads_to_a_call_its_result_and_an_answer() {
    for api in BOTH {
        let server = ModelServer::start();
        server.replies(
            Reply::text("I look.").and_call("bash", json!({"command": "echo 'grüße 🦀'"})),
        );
        server.says("All of it is done.\nIn detail.");
        let team = alice_did(&server, api, "greet them");
        assert_eq!(
            ended(&team, "alice"),
            (
                "available".to_owned(),
                "All of it is done.\nIn detail.".to_owned()
            )
        );
        let requests = server.requests();
        assert_eq!(requests.len(), 2);
        assert!(requests[0].mentions("greet them") && !requests[0].mentions("grüße 🦀\""));
        assert!(requests[1].mentions("grüße 🦀"), "{}", requests[1].body);
        assert_eq!(team.results("alice")[0]["content"], "grüße 🦀");
        let usage = &team.entries("alice", "answer")[1]["usage"];
        assert_eq!(
            usage["output_tokens"].as_u64(),
            Some(requests[1].bill.output),
            "{usage}"
        );
        let input = [
            "input_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
        ];
        let sum: u64 = input.iter().filter_map(|name| usage[name].as_u64()).sum();
        assert_eq!(sum, requests[1].bill.all_input());
    }
}

#[test]
fn an_answer_in_one_piece_is_as_good_as_a_stream() {
    for api in BOTH {
        let server = ModelServer::start();
        server.replies(Reply::call("bash", json!({"command": "echo whole"})).whole());
        server.replies(Reply::text("done at once").whole());
        let team = alice_did(&server, api, "go");
        assert_eq!(ended(&team, "alice").1, "done at once");
        assert_eq!(team.results("alice")[0]["content"], "whole");
    }
}

#[test]
fn an_answer_that_its_service_pauses_goes_on_and_is_one_answer() {
    let search = json!({"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []});
    let half = || {
        Reply::text("I look.")
            .and_opaque(search.clone())
            .stopped("pause_turn")
    };
    let server = ModelServer::start();
    server.replies(half()).replies(Reply::fail(500));
    server.replies(
        Reply::empty()
            .and_opaque(found)
            .and_text("More.")
            .stopped("pause_turn"),
    );
    server.says("It is there.");
    let team = alice_did(&server, Api::Anthropic, "find it");
    assert_eq!(ended(&team, "alice").1, "I look.\nMore.\nIt is there.");
    let usage = &team.entries("alice", "answer")[0]["usage"];
    let billed: u64 = server
        .requests()
        .iter()
        .map(|request| request.bill.output)
        .sum();
    assert_eq!(
        (team.answers("alice"), usage["output_tokens"].as_u64()),
        (1, Some(billed))
    );
    let roles = |request: &Request| request.body["messages"].as_array().unwrap().len();
    assert_eq!(
        server.requests().iter().map(roles).collect::<Vec<_>>(),
        [1, 2, 2, 2]
    );
    // A worker that dies before the answer goes on asks anew, and sends nothing half.
    server
        .replies(half())
        .replies(Reply::text("It is ").stalled());
    team.send("alice", "and the other one?");
    team.until("it to be gone on with", || server.requests().len() == 6);
    server.says("There, too.");
    team.kill_and_wait_for_restart("alice");
    team.until_finished("alice", 2);
    assert_eq!(ended(&team, "alice").1, "There, too.");
    assert!(server.last().mentions("srv_1") && roles(&server.last()) == 3);
    // An answer that is paused without end is given up. What is half in a cut answer is not sent
    // back.
    for _ in 0..=10 {
        server.replies(Reply::text("on").stopped("pause_turn"));
    }
    server.replies(half().stopped("max_tokens"));
    team.send("alice", "and all of them?");
    team.until_finished("alice", 3);
    let (reason, content) = ended(&team, "alice");
    assert!(
        reason == "failed" && content.contains("has paused this answer"),
        "{content}"
    );
    for count in 4..=5 {
        team.send("alice", "well?");
        team.until_finished("alice", count);
    }
    assert!(server.last().mentions("I look.") && ended(&team, "alice").1 == "done");
}

// CC#51556: a shutdown that is answered in prose is never answered.
#[test]
fn a_shutdown_that_is_answered_in_prose_takes_one_call_of_the_model() {
    let server = ModelServer::start();
    let held = HELD.trim_start_matches("/bash ");
    server
        .calls("bash", json!({"command": held}))
        .says("Sure, I am leaving now. Goodbye!");
    let team = server.team();
    spawn(&team, "alice", Api::Anthropic.model(), "go");
    team.until_held();
    let running = team.start_teamctl(["--json", "shutdown", "alice"]);
    team.until("the request", || !team.requests("shutdown").is_empty());
    team.until("the worker to know", || {
        team.status("alice") == "shutting_down"
    });
    team.release();
    let result = running.finish().ok().json();
    assert_eq!(result["results"][0]["outcome"], "shutdown");
    assert!(server.requests().len() <= 2, "{}", server.requests().len());
}

#[test]
fn what_the_model_thought_goes_back_as_it_was() {
    let server = ModelServer::start();
    let thought = json!({"type": "thinking", "thinking": "hm 🦀", "signature": "EqQBCkYI=="});
    let reply = Reply::empty()
        .and_opaque(thought.clone())
        .and_opaque(json!({"type": "redacted_thinking", "data": "x"}));
    server
        .replies(reply.and_call("bash", json!({"command": "true"})))
        .says("done");
    let _team = alice_did(&server, Api::Anthropic, "think");
    let content = server.last().body["messages"][1]["content"].clone();
    assert_eq!((&content[0], &content[1]["data"]), (&thought, &json!("x")));
}

#[test]
fn most_of_a_long_conversation_is_read_from_the_cache() {
    for api in BOTH {
        let server = ModelServer::start();
        for turn in 0..10 {
            server.calls(
                "bash",
                json!({"command": format!("seq {turn} {}", turn + 60)}),
            );
        }
        server.says("done");
        let team = alice_did(&server, api, "count");
        let bills: Vec<_> = server
            .requests()
            .iter()
            .skip(1)
            .map(|request| request.bill)
            .collect();
        let (read, all): (u64, u64) = bills.iter().fold((0, 0), |(read, all), bill| {
            (read + bill.read, all + bill.all_input())
        });
        assert!(
            bills.len() == 10 && read * 100 >= all * 80,
            "{api:?}: {read} of {all}: {bills:?}"
        );
        drop(team);
    }
}

#[test]
fn a_turn_of_many_calls_still_finds_the_cache() {
    let server = ModelServer::start();
    for _ in 0..2 {
        server.replies((0..25).fold(Reply::empty(), |reply, n| {
            reply.and_call("bash", json!({"command": format!("echo {n}")}))
        }));
    }
    server.says("done");
    let _team = alice_did(&server, Api::Anthropic, "many");
    let bills: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.bill)
        .collect();
    for pair in bills.windows(2) {
        assert_eq!(pair[1].read, pair[0].read + pair[0].written, "{bills:?}");
    }
}

#[test]
fn a_call_to_the_model_that_is_interrupted_leaves_nothing_behind() {
    let server = ModelServer::start();
    server
        .replies(Reply::text(&"a long answer ".repeat(500)).stalled())
        .says("here I am");
    let team = server.team();
    spawn(&team, "alice", Api::Anthropic.model(), "go");
    team.until("the model to be asked", || server.requests().len() == 1);
    team.until("the text to come", || {
        team.file("run/alice.live").starts_with("a long")
    });
    team.teamctl(["interrupt", "alice"]).ok();
    team.until_finished("alice", 1);
    assert_eq!(
        (ended(&team, "alice").0.as_str(), team.answers("alice")),
        ("interrupted", 0)
    );
    team.send("alice", "still there?");
    team.until_finished("alice", 2);
    assert_eq!(ended(&team, "alice").1, "here I am");
}

#[test]
fn a_worker_killed_during_an_answer_asks_again_validly() {
    for api in BOTH {
        let server = ModelServer::start();
        server.calls("bash", json!({"command": "echo one"}));
        server
            .replies(Reply::text("half of an answer that is lost").stalled())
            .says("done");
        let team = server.team();
        spawn(&team, "alice", api.model(), "go");
        team.until("the second question", || server.requests().len() == 2);
        team.kill_and_wait_for_restart("alice");
        team.until_finished("alice", 1);
        assert_eq!(
            (ended(&team, "alice").1.as_str(), server.requests().len()),
            ("done", 3)
        );
    }
}
