//! `teamctl acp`: a teammate for an editor, spoken to in raw JSON-RPC.

mod acpx;

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::Team;
use crate::support::acp_client::AcpClient;
use crate::support::process::{let_pass, wakes};

fn messages(team: &Team, name: &str, text: &str) -> usize {
    let inbox = team.inbox(name);
    let same = inbox.iter().filter(|message| message["content"] == text);
    same.count()
}

/// The reason of the answer to a prompt.
#[track_caller]
fn stop(answer: &Value) -> &str {
    let reason = answer["result"]["stopReason"].as_str();
    reason.unwrap_or_else(|| panic!("{answer}"))
}

#[track_caller]
fn error(answer: &Value) -> &str {
    let message = answer["error"]["message"].as_str();
    message.unwrap_or_else(|| panic!("{answer}"))
}

fn cancel(client: &mut AcpClient, session: &str) {
    let params = json!({"sessionId": session});
    client
        .rpc
        .write(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params}));
}

#[test]
fn a_prompt_is_a_message_of_the_user_and_its_work_is_streamed() {
    let team = Team::started();
    team.spawn("alice", "");
    let mut client = AcpClient::start(&team, ["alice"]);
    assert_eq!(client.initialized["protocolVersion"], 1);
    assert_eq!(client.initialized["agentCapabilities"]["loadSession"], true);
    let session = client.open(&team);
    let answer = client.prompt(&session, "/bash cat ../nothing");
    assert_eq!(stop(&answer), "end_turn");
    let sent = team.inbox("alice").pop().unwrap();
    assert_eq!(
        (&sent["from"], &sent["to"]),
        (&json!("user"), &json!("alice"))
    );
    let call = client.updates.first().unwrap();
    assert_eq!(call["sessionUpdate"], "tool_call", "{}", client.told());
    assert_eq!(
        (&call["kind"], &call["status"]),
        (&json!("execute"), &json!("in_progress"))
    );
    let result = &client.updates[1];
    assert_eq!(result["toolCallId"], call["toolCallId"]);
    assert_eq!(result["status"], "failed");
    let last = client.updates.last().unwrap();
    assert_eq!(last["sessionUpdate"], "agent_message_chunk");
    // What a terminal would act on is visible.
    client.prompt(&session, "clear \x1b[2J");
    let told = client.told();
    assert!(told.contains("clear \\\\u{1b}[2J"), "{told}");
    assert!(!told.contains("\\u001b"), "{told}");
    client.rpc.close();
}

#[test]
fn mail_of_others_in_the_same_work_is_streamed_and_work_of_others_is_not() {
    let team = Team::started();
    team.spawn("alice", "");
    let mut client = AcpClient::start(&team, ["alice"]);
    let session = client.open(&team);
    team.echo("alice", "alone");
    let id = client.send_prompt(
        &session,
        "/bash while ! test -e go; do read -t 0.05 <> <(:); done",
    );
    client.until_told("tool_call");
    team.teamctl(["send", "alice", "with it"]).ok();
    team.write("go", "");
    assert_eq!(stop(&client.answer_to(id)), "end_turn");
    let told = client.told();
    assert!(told.contains("lead: with it"), "{told}");
    assert!(!told.contains("alone"), "{told}");
    client.rpc.close();
}

#[test]
fn a_cancelled_prompt_interrupts_its_own_work_alone() {
    let team = Team::started();
    team.spawn("alice", "");
    let mut client = AcpClient::start(&team, ["alice"]);
    let session = client.open(&team);
    let id = client.send_prompt(&session, "/bash sleep 600");
    client.until_told("tool_call");
    cancel(&mut client, &session);
    assert_eq!(stop(&client.answer_to(id)), "cancelled");
    // Work of others goes on: before the prompt is read, and when it has joined.
    let wait = "/bash while ! test -e go; do read -t 0.05 <> <(:); done\n/bash touch done";
    team.teamctl(["send", "alice", wait]).ok();
    team.wait_for("alice", "working");
    let other = client.open(&team);
    let id = client.send_prompt(&other, "/bash touch never");
    team.until("the prompt to be in the inbox", || {
        messages(&team, "alice", "/bash touch never") == 1
    });
    cancel(&mut client, &other);
    assert_eq!(stop(&client.answer_to(id)), "cancelled");
    let id = client.send_prompt(&other, "joins");
    team.until("the prompt to be in the inbox", || {
        messages(&team, "alice", "joins") == 1
    });
    team.write("go", "");
    client.until_told("/bash touch never");
    cancel(&mut client, &other);
    let reason = client.answer_to(id);
    assert!(
        ["cancelled", "end_turn"].contains(&stop(&reason)),
        "{reason}"
    );
    team.until("the work of another to be done", || team.made("done"));
    team.wait_for("alice", "idle");
    // An interruption by a person is told likewise.
    client.updates.clear();
    let id = client.send_prompt(&session, "/bash sleep 600");
    client.until_told("bash sleep 600");
    team.teamctl(["interrupt", "alice"]).ok();
    assert_eq!(stop(&client.answer_to(id)), "cancelled");
    client.rpc.close();
}

#[test]
fn a_session_is_loaded_with_its_conversation_until_another_one_begins() {
    let team = Team::started();
    team.spawn("alice", "/bash echo from the beginning");
    team.wait_for("alice", "idle");
    let mut client = AcpClient::start(&team, ["alice"]);
    let session = client.open(&team);
    client.prompt(&session, "hello there");
    client.rpc.close();
    let mut client = AcpClient::start(&team, ["alice"]);
    let load = json!({"sessionId": session, "cwd": team.root(), "mcpServers": []});
    let answer = client.ask("session/load", load.clone());
    assert!(answer["result"].is_object(), "{answer}");
    let said: Vec<&str> = client
        .updates
        .iter()
        .filter(|update| update["sessionUpdate"] == "user_message_chunk")
        .filter_map(|update| update["content"]["text"].as_str())
        .collect();
    assert_eq!(said, ["/bash echo from the beginning", "hello there"]);
    assert_eq!(stop(&client.prompt(&session, "and more")), "end_turn");
    // A fresh spawn begins another conversation.
    team.teamctl(["shutdown", "alice", "--force"]).ok();
    let ended = client.prompt(&session, "too late");
    assert!(
        error(&ended).contains("`teamctl spawn alice --resume`"),
        "{ended}"
    );
    team.spawn("alice", "");
    let answer = client.ask("session/load", load);
    assert!(error(&answer).contains("another conversation"), "{answer}");
    let refused = client.prompt(&session, "too late");
    assert_eq!(refused["error"]["code"], -32002, "{refused}");
    assert_eq!(messages(&team, "alice", "too late"), 0);
    client.rpc.close();
}

#[test]
fn a_plan_is_asked_and_only_a_person_answers_it_where_a_person_decides() {
    let team = Team::started();
    team.teamctl(["spawn", "alice", "--plan"]).ok();
    let mut person = AcpClient::start(&team, ["alice", "--i-am-a-person"]);
    let session = person.open(&team);
    person.send_prompt(&session, "/plan_approval Write it\n/bash touch made");
    let question = person.question();
    let call = &question["params"]["toolCall"];
    assert_eq!(call["content"][0]["content"]["text"], "Write it");
    assert!(!team.made("made"));
    person.select(&question, "approve");
    team.until("the work to be done", || team.made("made"));
    person.rpc.close();
    let mut client = AcpClient::start(&team, ["alice"]);
    let session = client.open(&team);
    client.send_prompt(&session, "/plan_approval Again");
    client.until_told("waits for a person");
    assert!(client.questions.is_empty());
    client.rpc.close();
    // The client stays what it was until its process ends.
    let mut late = AcpClient::start(&team, ["alice", "--i-am-a-person"]);
    let session = late.open(&team);
    late.send_prompt(&session, "and then this");
    let question = late.question();
    late.select(&question, "approve");
    late.until_told("which leads the team");
    let again = team.last_request("plan_approval");
    assert_eq!(team.request(&again)["status"], "pending");
    late.rpc.close();
    // Where the lead may answer, so may the client.
    team.teamctl(["spawn", "bob", "--plan", "--approve-by", "lead"])
        .ok();
    let mut client = AcpClient::start(&team, ["bob"]);
    let session = client.open(&team);
    let plans = "/plan_approval First\n/plan_approval Second\n/bash touch both";
    let id = client.send_prompt(&session, plans);
    let first = client.question();
    // What is run below a client that is no person is none either.
    let below = team.teamctl(["approve", &team.last_request("plan_approval")]);
    assert!(below.exits(3).stderr.contains("which leads the team"));
    client.select(&first, "reject");
    let second = client.question();
    client.select(&second, "approve");
    assert_eq!(stop(&client.answer_to(id)), "end_turn");
    assert!(team.made("both"));
    client.rpc.close();
}

#[test]
fn a_question_is_withdrawn_when_another_one_has_answered_and_asked_again_with_the_next_prompt() {
    let team = Team::started();
    team.teamctl(["spawn", "alice", "--plan"]).ok();
    let mut client = AcpClient::start(&team, ["alice", "--i-am-a-person"]);
    let session = client.open(&team);
    let id = client.send_prompt(&session, "/plan_approval First\n/plan_approval Second");
    let first = client.question();
    let plan = team.last_request("plan_approval");
    team.teamctl(["reject", &plan, "--feedback", "no"]).ok();
    let second = client.question();
    let withdrawn = json!({"requestId": first["id"]});
    assert_eq!(client.others.pop().unwrap()["params"], withdrawn);
    client.select(&first, "approve");
    // The client leaves the answer to others, and has another prompt.
    let outcome = json!({"outcome": {"outcome": "cancelled"}});
    let left = json!({"jsonrpc": "2.0", "id": second["id"], "result": outcome});
    client.rpc.write(&left);
    let next = client.send_prompt(&session, "and now?");
    let again = client.question();
    assert_eq!(again["params"]["toolCall"], second["params"]["toolCall"]);
    client.select(&again, "approve");
    assert_eq!(stop(&client.answer_to(id)), "end_turn");
    assert_eq!(stop(&client.answer_to(next)), "end_turn");
    client.rpc.close();
}

#[test]
fn what_a_client_has_said_last_is_done_though_it_has_quit() {
    let team = Team::started();
    team.teamctl(["spawn", "alice", "--plan"]).ok();
    let mut client = AcpClient::start(&team, ["alice", "--i-am-a-person"]);
    let session = client.open(&team);
    client.send_prompt(
        &session,
        "/plan_approval Write it\n/bash touch made; sleep 600",
    );
    let question = client.question();
    client.select(&question, "approve");
    client.rpc.close();
    team.until("the work to begin", || team.made("made"));
    let mut client = AcpClient::start(&team, ["alice"]);
    let session = client.open(&team);
    team.teamctl(["interrupt", "alice"]).ok();
    client.send_prompt(&session, "/bash sleep 600");
    client.until_told("tool_call");
    cancel(&mut client, &session);
    client.rpc.close();
    team.wait_for("alice", "idle");
}

#[test]
fn the_work_goes_on_without_client_and_daemon_and_no_message_is_sent_twice() {
    let team = Team::started();
    team.spawn("alice", "");
    let mut client = AcpClient::start(&team, ["alice"]);
    let session = client.open(&team);
    client.send_prompt(
        &session,
        "/bash while ! test -e go; do read -t 0.05 <> <(:); done; touch one",
    );
    client.until_told("tool_call");
    client.rpc.kill();
    team.write("go", "");
    team.until("the work to go on", || team.made("one"));
    team.wait_for("alice", "idle");
    let mut client = AcpClient::start(&team, ["alice", "--no-start"]);
    let session = client.open(&team);
    let wait = "/bash while ! test -e on; do read -t 0.05 <> <(:); done; touch two";
    let id = client.send_prompt(&session, wait);
    client.until_told("tool_call");
    team.kill_daemon();
    let gone = client.answer_to(id);
    assert!(error(&gone).contains("do not send it again"), "{gone}");
    team.write("on", "");
    team.until("the work to go on", || team.made("two"));
    team.teamd(["start"]).ok();
    team.wait_for("alice", "idle");
    assert_eq!(stop(&client.prompt(&session, "hello")), "end_turn");
    assert_eq!(messages(&team, "alice", wait), 1);
    client.rpc.close();
}

#[test]
fn an_idle_server_is_not_woken() {
    let team = Team::started();
    team.spawn("alice", "");
    let mut client = AcpClient::start(&team, ["alice"]);
    let session = client.open(&team);
    assert_eq!(stop(&client.prompt(&session, "hello")), "end_turn");
    let pid = client.rpc.pid();
    team.until("four seconds in which it is not woken once", || {
        let before = wakes(pid);
        let_pass(Duration::from_secs(4));
        wakes(pid) == before
    });
    // What a teammate does wakes it, and so does a request.
    team.does("alice", "of another");
    assert_eq!(stop(&client.prompt(&session, "again")), "end_turn");
    client.rpc.close();
}

#[test]
fn a_client_that_asks_for_what_is_not_there_is_told_the_next_step() {
    let team = Team::new();
    let mut client = AcpClient::start(&team, ["alice"]);
    let open = |client: &mut AcpClient, cwd: &str| {
        client.ask("session/new", json!({"cwd": cwd, "mcpServers": []}))
    };
    let root = team.root().to_str().unwrap().to_owned();
    // It starts the daemon.
    let answer = open(&mut client, &root);
    assert!(
        error(&answer).contains("no teammate named alice"),
        "{answer}"
    );
    team.spawn("alice", "");
    let answer = open(&mut client, "/");
    assert!(
        error(&answer).contains("is outside the workspace of alice"),
        "{answer}"
    );
    let answer = open(&mut client, "no/absolute/path");
    assert!(error(&answer).contains("is not absolute"), "{answer}");
    let answer = client.ask("session/prompt", json!({"sessionId": "x", "prompt": []}));
    assert!(error(&answer).contains("session/new"), "{answer}");
    let session = client.open(&team);
    let image = json!([{"type": "image", "data": "", "mimeType": "image/png"}]);
    let answer = client.ask(
        "session/prompt",
        json!({"sessionId": session, "prompt": image}),
    );
    assert!(error(&answer).contains("name the file"), "{answer}");
    assert_eq!(
        client.ask("session/fork", json!({}))["error"]["code"],
        -32601
    );
    let long = "x".repeat(17 << 20);
    let answer = client.ask(
        "session/prompt",
        json!({"sessionId": session, "prompt": [{"type": "text", "text": long}]}),
    );
    assert!(error(&answer).contains("at most 16777216"), "{answer}");
    client.rpc.write_line("garbage");
    client.rpc.write_line("");
    client
        .rpc
        .write(&json!({"jsonrpc": "2.0", "id": 99, "result": {}}));
    let server = json!({"name": "files", "command": "/bin/true", "args": [], "env": []});
    let answer = client.ask("session/new", json!({"cwd": root, "mcpServers": [server]}));
    let session = answer["result"]["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(stop(&client.prompt(&session, "hello")), "end_turn");
    assert!(
        client.told().contains("`[mcp]` in team.toml"),
        "{}",
        client.told()
    );
    // What fails is an error, not an answer.
    let answer = client.prompt(&session, "/fail_model out of reach");
    assert!(error(&answer).starts_with("alice: failed: "), "{answer}");
    client.rpc.close();
}
