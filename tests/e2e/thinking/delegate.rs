//! `delegate`: a subagent in the same worker.

use serde_json::{Value, json};

use super::{content, is_refused, offer, offering};
use crate::support::Team;
use crate::support::look::HELD;
use crate::support::model_server::{Api, ModelServer, Reply};

/// The results of the teammate itself.
fn own(results: &[Value]) -> Vec<Value> {
    let own = results.iter().filter(|result| result.get("call").is_none());
    own.cloned().collect()
}

/// The entries of subagents.
fn of_subagents(team: &Team, name: &str) -> Vec<Value> {
    let mut entries = team.transcript(name);
    entries.retain(|entry| entry.get("call").is_some());
    entries
}

#[test]
fn a_subagent_uses_the_tools_of_the_machine_and_only_its_answer_returns() {
    let team = offering(&["todo", "delegate"]);
    team.spawn("alice", "");
    let prompt = "/bash echo deep\n/write_file made.txt x\n/glob {\"pattern\": \"*.txt\"}\n/send_message lead hi\n\
                  /delegate more\n/todo_write {\"todos\": []}\nFound it.";
    let orders = format!(
        "/delegate {}\n/bash echo after",
        json!({ "prompt": prompt })
    );
    let results = own(&team.does("alice", &orders));
    assert_eq!(content(&results[0]), "Found it.");
    assert_eq!((content(&results[1]), results.len()), ("after", 2));
    assert!(team.root().join("made.txt").exists());
    let entries = of_subagents(&team, "alice");
    let results: Vec<_> = entries
        .iter()
        .filter(|it| it["entry"] == "result")
        .collect();
    assert_eq!((entries.len(), results.len()), (13, 6), "{entries:?}");
    assert_eq!(content(results[0]), "deep");
    for refused in &results[3..] {
        assert!(is_refused(refused, "there is no tool"), "{refused}");
    }
    let call = team.entries("alice", "answer")[0]["content"][0]["id"].clone();
    assert!(entries.iter().all(|entry| entry["call"] == call));
    // People see it further in.
    let shown = team.teamctl(["transcript", "alice"]).ok().stdout;
    assert!(shown.contains("    ▸ bash echo deep"), "{shown}");
    let lint = team.teamctl(["lint", "transcript/alice.jsonl"]);
    assert!(
        !lint.stdout.contains("result of no call"),
        "{}",
        lint.stdout
    );
}

#[test]
fn a_gate_that_refuses_its_call_ends_it_and_a_closed_one_lets_it_look() {
    let team = offering(&["delegate"]);
    team.teamctl(["spawn", "alice", "--plan"]).ok();
    let orders =
        "/delegate /bash echo look; touch made\\nlooked\n/delegate /write_file made x\\nwritten";
    let results = own(&team.does("alice", orders));
    assert_eq!(content(&results[0]), "looked");
    let why = "interrupted: its call of write_file was refused: your gate is closed";
    assert!(is_refused(&results[1], why), "{results:?}");
    assert!(!team.root().join("made").exists());
}

#[test]
fn an_interrupt_and_a_kill_end_it_and_the_teammate_goes_on() {
    let team = offering(&["delegate"]);
    team.spawn("alice", &format!("/delegate {HELD}\\nheld"));
    team.until_held();
    team.teamctl(["interrupt", "alice"]).ok();
    team.until_finished("alice", 1);
    let results = own(&team.results("alice"));
    assert!(
        is_refused(&results[0], "interrupted by the lead; the subagent"),
        "{results:?}"
    );
    std::fs::remove_file(team.root().join("held")).unwrap();
    team.send("alice", &format!("/delegate {HELD}\\nheld"));
    team.until_held();
    team.kill_and_wait_for_restart("alice");
    team.until_finished("alice", 2);
    let results = own(&team.results("alice"));
    assert!(
        is_refused(&results[1], "interrupted: the worker was restarted"),
        "{results:?}"
    );
    assert_eq!(
        content(&own(&team.does("alice", "/delegate yes"))[0]),
        "yes"
    );
}

#[test]
fn its_model_call_is_dropped_when_a_shutdown_is_not_answered_in_time() {
    let server = ModelServer::start();
    server
        .replies(Reply::call("delegate", json!({"prompt": "look around"})))
        .replies(Reply::text("I look").stalled());
    let team = server.team();
    offer(&team, &["delegate"]);
    let model = Api::Anthropic.model();
    team.teamctl(["spawn", "alice", "--model", model, "--prompt", "go"])
        .ok();
    team.until("the subagent to be asked", || server.requests().len() == 2);
    let answered = team.shutdown("alice", &["--decide-within", "0.5"], 0);
    assert_eq!(answered["outcome"], "shutdown", "{answered}");
    let results = own(&team.results("alice"));
    assert!(is_refused(&results[0], "interrupted: "), "{results:?}");
}

/// It knows nothing of the conversation, and costs what its member may spend.
#[test]
fn its_conversation_is_its_own_and_its_cost_is_that_of_its_member() {
    for api in [Api::Anthropic, Api::OpenAi] {
        let server = ModelServer::start();
        server
            .replies(Reply::call(
                "delegate",
                json!({"prompt": "count the files"}),
            ))
            .calls("bash", json!({"command": "echo seven"}))
            .says("There are seven.")
            .says("done");
        let team = server.team();
        offer(&team, &["todo", "delegate"]);
        team.teamctl([
            "spawn",
            "alice",
            "--model",
            api.model(),
            "--prompt",
            "ask another",
        ])
        .ok();
        team.until_finished("alice", 1);
        let requests = server.requests();
        assert_eq!(requests.len(), 4);
        assert!(requests[1].mentions("count the files") && !requests[1].mentions("ask another"));
        assert!(requests[2].mentions("seven"));
        assert!(requests[3].mentions("There are seven.") && !requests[3].mentions("echo seven"));
        let tools = requests[1].body["tools"].to_string();
        assert!(
            tools.contains("grep") && !tools.contains("delegate") && !tools.contains("task_list")
        );
        let output: u64 = requests.iter().map(|request| request.bill.output).sum();
        team.until("all of it to be counted", || {
            team.member("alice")["usage"]["output_tokens"].as_u64() == Some(output)
        });
        assert_eq!(server.broken_rules(), Vec::<String>::new());
    }
}

#[test]
fn it_ends_at_the_limit_of_its_member() {
    let team = offering(&["delegate"]);
    team.teamctl(["spawn", "alice", "--max-turns", "4"]).ok();
    let prompt = "/bash echo one\\n/bash echo two\\n/bash echo three\\n/bash echo four\\nend";
    let results = own(&team.does("alice", &format!("/delegate {prompt}")));
    assert!(
        is_refused(&results[0], "interrupted: a limit"),
        "{results:?}"
    );
    assert_eq!(team.notices("alice")[0]["idle_reason"], "max_turns");
}

#[test]
fn a_call_in_a_cut_answer_of_it_does_not_run() {
    let server = ModelServer::start();
    let touch = Reply::call("bash", json!({"command": "touch made"})).stopped("max_tokens");
    server
        .replies(Reply::call("delegate", json!({"prompt": "look around"})))
        .replies(touch)
        .says("nothing there")
        .says("done");
    let team = server.team();
    offer(&team, &["delegate"]);
    let model = Api::Anthropic.model();
    team.teamctl(["spawn", "alice", "--model", model, "--prompt", "go"])
        .ok();
    team.until_finished("alice", 1);
    assert!(!team.made("made"));
    assert!(server.requests()[2].mentions("not run: your answer reached the limit"));
}

#[test]
fn its_text_goes_on_where_it_was_cut_and_is_one_answer() {
    let server = ModelServer::start();
    let piece = |text: &str| Reply::text(text).stopped("max_tokens");
    server
        .replies(Reply::call("delegate", json!({"prompt": "look around"})))
        .replies(piece("One, "))
        .replies(piece("two, "))
        .says("three.")
        .replies(Reply::call("delegate", json!({"prompt": "look again"})));
    for number in 1..=4 {
        server.replies(piece(&format!("{number} ")));
    }
    server.says("done");
    let team = server.team();
    offer(&team, &["delegate"]);
    let model = Api::Anthropic.model();
    team.teamctl(["spawn", "alice", "--model", model, "--prompt", "go"])
        .ok();
    team.until_finished("alice", 1);
    let results = own(&team.results("alice"));
    assert_eq!(content(&results[0]), "One, two, three.");
    let most = "1 2 3 4 \n[the answer was cut here]";
    assert_eq!(content(&results[1]), most, "three times are enough");
    let told = "Continue exactly where it ended";
    let requests = server.requests();
    let is_told: Vec<bool> = requests.iter().map(|it| it.mentions(told)).collect();
    let expected = [
        false, false, true, true, false, false, true, true, true, false,
    ];
    assert_eq!(is_told, expected, "the member is told nothing of it");
    let entries = of_subagents(&team, "alice");
    assert!(entries.iter().any(|entry| entry["entry"] == "messages"));
    assert!(
        team.entries("alice", "messages")
            .iter()
            .all(|entry| entry.get("call").is_some())
    );
}
