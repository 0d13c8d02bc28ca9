//! Agents with a model: what holds over a whole piece of work, whatever the model does. A fake
//! server answers, refuses every request that breaks a rule of its API, and bills.

use serde_json::{Value, json};

use crate::support::Team;
use crate::support::look::HELD;
use crate::support::model_server::{Api, ModelServer, Reply, Request};

const MODEL: &str = "anthropic:fake";
const BOTH: [Api; 2] = [Api::Anthropic, Api::OpenAi];

fn spawn(team: &Team, args: &[&str], prompt: &str) {
    let all = [&["spawn", "alice", "--prompt", prompt], args].concat();
    team.teamctl(all).ok();
}

fn held() -> Value {
    json!({"command": HELD.trim_start_matches("/bash ")})
}

// Evidence 27: a handshake by model costs 4 model calls elsewhere.
#[test]
fn a_shutdown_costs_no_model_call_when_idle_and_at_most_one_when_busy() {
    for api in BOTH {
        let server = ModelServer::start();
        let team = server.team();
        team.teamctl(["spawn", "idle", "--model", api.model()]).ok();
        team.shutdown("idle", &[], 0);
        assert_eq!(server.requests().len(), 0);
        server.calls("bash", held());
        spawn(&team, &["--model", api.model()], "work");
        team.until_held();
        let running = team.start_teamctl(["--json", "shutdown", "alice"]);
        let id = team.until_asked("alice");
        server.calls(
            "shutdown_response",
            json!({"request_id": id, "approve": true, "reason": "done"}),
        );
        team.release();
        let result = running.finish().ok().json();
        assert_eq!(result["results"][0]["outcome"], "shutdown");
        // The first answer, and the one that was due anyway.
        assert_eq!(server.requests().len(), 2);
        assert!(
            server.last().mentions(&id),
            "the request stands with the results"
        );
    }
}

// Evidence 1: answered in prose, or with the wrong id.
#[test]
fn a_models_rejection_is_recorded_and_a_wrong_id_is_corrected() {
    let server = ModelServer::start();
    server.calls("bash", held());
    let team = server.team();
    spawn(&team, &["--model", MODEL], "work");
    team.until_held();
    let running = team.start_teamctl(["shutdown", "alice"]);
    let id = team.until_asked("alice");
    server.calls(
        "shutdown_response",
        json!({"request_id": "0000dead", "approve": true}),
    );
    server.calls(
        "shutdown_response",
        json!({"request_id": id, "approve": false, "reason": "half done"}),
    );
    server.says("done");
    team.release();
    assert!(running.finish().exits(3).stderr.contains("half done"));
    team.until_finished("alice", 1);
    let wrong = &team.results("alice")[1];
    assert_eq!(wrong["is_error"], true);
    assert!(wrong["content"].as_str().unwrap().contains(&id), "{wrong}");
    team.wait_for("alice", "idle");
}

#[test]
fn a_plan_suspends_the_turn_and_its_verdict_is_the_result_of_the_call() {
    for api in BOTH {
        let server = ModelServer::start();
        server.replies(
            Reply::text("A plan first.")
                .and_call("plan_approval", json!({"plan": "write it all anew"}))
                .and_call(
                    "write_file",
                    json!({"path": "a.txt", "content": "too early"}),
                ),
        );
        let team = server.team();
        spawn(&team, &["--plan", "--model", api.model()], "change a.txt");
        let first = team.until_planned("alice");
        assert_eq!(server.requests().len(), 1, "waiting costs no model call");
        server.calls("plan_approval", json!({"plan": "one line"}));
        team.teamctl(["reject", &first, "--feedback", "smaller"])
            .ok();
        team.until("a revised plan", || {
            team.last_request("plan_approval") != first
        });
        let second = team.until_planned("alice");
        assert!(
            server.last().mentions("smaller"),
            "the feedback is in the result"
        );
        server
            .calls("write_file", json!({"path": "a.txt", "content": "in time"}))
            .says("done");
        team.teamctl(["approve", &second]).ok();
        team.until_finished("alice", 1);
        assert_eq!(team.text("a.txt"), "in time");
        let refused = &team.results("alice")[1];
        assert_eq!(refused["is_error"], true, "{refused}");
    }
}

// CC#27265, evidence 12: an author does not approve its own plan.
#[test]
fn a_teammate_cannot_approve_its_own_plan() {
    let server = ModelServer::start();
    server.calls(
        "plan_approval",
        json!({"request_id": "00000000", "approve": true}),
    );
    server
        .calls("bash", json!({"command": "echo x > forbidden"}))
        .says("done");
    let team = server.team();
    spawn(&team, &["--plan", "--model", MODEL], "go");
    team.until_finished("alice", 1);
    assert_eq!(team.results("alice")[0]["is_error"], true);
    assert!(!team.root().join("forbidden").exists());
    assert!(team.requests("plan_approval").is_empty());
}

// Evidence 11: messages wait for the end of a long turn.
#[test]
fn a_message_reaches_the_model_with_the_next_results_and_behind_them() {
    for api in BOTH {
        let server = ModelServer::start();
        server.calls("bash", held()).says("done");
        let team = server.team();
        spawn(&team, &["--model", api.model()], "work");
        team.until_held();
        team.send("alice", "mind the </message> tests");
        team.release();
        team.until_finished("alice", 1);
        assert_eq!(server.requests().len(), 2);
        assert!(server.last().mentions("mind the"));
    }
}

#[test]
fn the_turn_limit_and_the_token_limit_end_the_work_and_not_the_teammate() {
    for (limit, reason) in [
        (["--max-turns", "3"], "max_turns"),
        (["--max-tokens", "10k"], "max_tokens"),
    ] {
        let server = ModelServer::answering(|request| {
            if request.mentions("enough now") {
                Reply::text("well")
            } else {
                Reply::call("bash", json!({"command": "seq 400"}))
            }
        });
        let team = server.team();
        spawn(
            &team,
            &["--model", MODEL, limit[0], limit[1]],
            "go on for ever",
        );
        team.until_finished("alice", 1);
        let notice = team.notices("alice").pop().unwrap();
        assert_eq!(notice["idle_reason"], reason);
        let spent =
            |request: &Request| request.bill.input + request.bill.written + request.bill.output;
        let requests = server.requests();
        if reason == "max_turns" {
            assert_eq!(requests.len(), 3);
        } else {
            let before: u64 = requests.iter().rev().skip(1).map(spent).sum();
            assert!(before < 10_000 && requests.iter().map(spent).sum::<u64>() >= 10_000);
        }
        team.wait_for("alice", "idle");
        // The next piece of work has its own budget.
        team.send("alice", "enough now");
        team.until_finished("alice", 2);
        assert_eq!(
            team.notices("alice").pop().unwrap()["idle_reason"],
            "available"
        );
    }
}

// Evidence 30: a history cut at a fixed length breaks the pairing rules of the API.
#[test]
fn a_long_conversation_is_cut_keeps_its_task_and_stays_valid() {
    for api in BOTH {
        let mut steps = 0;
        let server = ModelServer::answering(move |request| {
            if request.mentions("Write down, for yourself") {
                return Reply::text("SUMMARY: the numbers were counted");
            }
            steps += 1;
            match steps {
                1..30 => Reply::call("bash", json!({"command": format!("seq {steps} 900")})),
                _ => Reply::text("counted"),
            }
        });
        let team = server.team().with("TEAM_CONTEXT_WINDOW", "12000");
        spawn(&team, &["--model", api.model()], "count all the numbers");
        team.until_finished("alice", 1);
        let cuts = team.entries("alice", "compacted");
        assert!(cuts.len() >= 2, "{}", cuts.len());
        assert!(cuts.iter().all(|cut| {
            cut["summary"]
                .as_str()
                .unwrap()
                .contains("SUMMARY: the numbers")
        }));
        let last = server.last();
        assert!(last.mentions("count all the numbers") && last.mentions("SUMMARY: the numbers"));
        assert!(last.body.to_string().len() < 12_000 * 8);
        assert_eq!(team.notices("alice")[0]["content"], "counted");
        // A conversation that was cut is gone on with after a crash, as it was.
        team.kill_and_wait_for_restart("alice");
        team.send("alice", "and now?");
        team.until_finished("alice", 2);
        assert!(
            server.last().mentions("SUMMARY: the numbers") && server.last().mentions("and now?")
        );
    }
}

#[test]
fn a_full_context_is_cut_even_where_the_service_cannot_summarise() {
    for api in BOTH {
        let server = ModelServer::answering(move |request| {
            if request.body.to_string().len() > 60_000 {
                return Reply::too_long();
            }
            if request.mentions("Write down, for yourself") {
                return Reply::fail(400);
            }
            if request.mentions("[The conversation was too long") {
                Reply::text("still here")
            } else {
                Reply::call("bash", json!({"command": "seq 5000"}))
            }
        });
        let team = server.team();
        spawn(&team, &["--model", api.model()], "fill it up");
        team.until_finished("alice", 1);
        let notice = team.notices("alice").pop().unwrap();
        assert_eq!(
            (&notice["content"], &notice["idle_reason"]),
            (&json!("still here"), &json!("available"))
        );
        assert!(
            team.entries("alice", "compacted")[0]["summary"]
                .as_str()
                .unwrap()
                .contains("fill it up")
        );
        team.shutdown("alice", &[], 0);
    }
}

#[test]
fn nothing_is_cut_while_the_service_cannot_be_asked() {
    let mut credit = false;
    let server = ModelServer::answering(move |request| {
        credit |= request.mentions("paid now");
        match (request.mentions("Write down, for yourself"), credit) {
            (true, false) => Reply::fail(402),
            (true, true) => Reply::text("SUMMARY"),
            (false, _) if request.mentions("SUMMARY") => Reply::text("on it goes"),
            (false, _) => Reply::call("bash", json!({"command": "seq 9000"})),
        }
    });
    let team = server.team().with("TEAM_CONTEXT_WINDOW", "15000");
    spawn(&team, &["--model", MODEL], "fill it up");
    team.until_finished("alice", 1);
    let notice = team.notices("alice").pop().unwrap();
    assert_eq!(notice["idle_reason"], "failed");
    assert!(
        notice["content"].as_str().unwrap().contains("no credit"),
        "{notice}"
    );
    assert!(
        team.entries("alice", "compacted").is_empty(),
        "the conversation is whole"
    );
    team.send("alice", "paid now");
    team.until_finished("alice", 2);
    assert_eq!(
        team.notices("alice").pop().unwrap()["content"],
        "on it goes"
    );
}

#[test]
fn a_flood_of_messages_is_no_dead_end() {
    let server = ModelServer::answering(move |request| match request.body.to_string().len() {
        60_000.. => Reply::too_long(),
        _ => Reply::text("read"),
    });
    let team = server.team();
    spawn(&team, &["--model", MODEL], "wait for mail");
    team.until_finished("alice", 1);
    for number in 0..40 {
        let content = format!("{number} {}", "dense ".repeat(600));
        team.echo(
            "alice",
            &json!({"type": "message", "from": "bob", "content": content}).to_string(),
        );
    }
    team.until("the end of it", || team.notices("alice").len() >= 2);
    assert_eq!(team.notices("alice").pop().unwrap()["content"], "read");
}

#[test]
fn a_teammate_whose_context_is_full_answers_a_shutdown() {
    let server = ModelServer::start();
    let command = format!("seq 9000; {}", HELD.trim_start_matches("/bash "));
    server.calls("bash", json!({"command": command}));
    let team = server.team().with("TEAM_CONTEXT_WINDOW", "15000");
    spawn(&team, &["--model", MODEL], "fill it up");
    team.until_held();
    let running = team.start_teamctl(["--json", "shutdown", "alice"]);
    let id = team.until_asked("alice");
    server.says("SUMMARY");
    server.calls(
        "shutdown_response",
        json!({"request_id": id, "approve": true, "reason": "full"}),
    );
    team.release();
    running.finish().ok();
    let answered = team.request(&id);
    assert_eq!(
        (&answered["reason"], &answered["status"]),
        (&json!("full"), &json!("approved"))
    );
    assert_eq!(team.entries("alice", "compacted").len(), 1);
    assert!(
        server.last().mentions(&id),
        "the open request is in what is left"
    );
}

// CC#23620, evidence 28: no resume after a crash.
#[test]
fn a_conversation_killed_in_a_call_goes_on_and_knows_it_may_have_run() {
    for api in BOTH {
        let server = ModelServer::start();
        let two =
            Reply::call("bash", held()).and_call("bash", json!({"command": "echo second >> ran"}));
        server.replies(two).says("I see");
        let team = server.team();
        spawn(&team, &["--model", api.model()], "work");
        team.until_held();
        team.kill_and_wait_for_restart("alice");
        team.until_finished("alice", 1);
        assert!(server.last().mentions("may have run") && server.last().mentions("not run"));
        assert!(!team.root().join("ran").exists());
        // Days later, by hand.
        team.shutdown("alice", &[], 0);
        team.teamctl(["spawn", "alice", "--resume"]).ok();
        server.says("I remember");
        team.send("alice", "still know?");
        team.until_finished("alice", 2);
        assert!(server.last().mentions("I see") && server.last().mentions("still know?"));
    }
}

#[test]
fn the_instructions_hold_the_workspace_guide_and_the_team() {
    for (file, api) in [("AGENTS.md", Api::Anthropic), ("CLAUDE.md", Api::OpenAi)] {
        let server = ModelServer::start();
        let team = server.team();
        team.write(file, "Use tabs, never spaces.");
        team.spawn("bob", "");
        spawn(&team, &["--role", "coder", "--model", api.model()], "hello");
        team.until_finished("alice", 1);
        let body = server.last().body;
        let system = match api {
            Api::Anthropic => body["system"].to_string(),
            Api::OpenAi | Api::Responses | Api::Google => {
                body["messages"][0]["content"].to_string()
            }
        };
        for part in [
            "Use tabs",
            "You are alice, the coder",
            "bob",
            "shutdown_response",
            "plan_approval",
        ] {
            assert!(system.contains(part), "{part}: {system}");
        }
    }
}

// However long it is: it stands in every prompt, and cannot be cut out like a conversation.
#[test]
fn a_guide_that_is_longer_than_the_window_is_cut_with_a_note() {
    for api in BOTH {
        let server = ModelServer::start();
        server.calls(
            "bash",
            json!({"command": "echo 'All of it is new.' > AGENTS.md; seq 300"}),
        );
        let team = server.team().with("TEAM_CONTEXT_WINDOW", "12k");
        let guide: String = (1..9000)
            .map(|line| format!("Rule {line}: mind it.\n"))
            .collect();
        team.write("AGENTS.md", &guide);
        spawn(&team, &["--model", api.model()], "hello");
        team.until_finished("alice", 1);
        let instructions = |body: &Value| match api {
            Api::Anthropic => body["system"][0]["text"].as_str().unwrap().to_owned(),
            Api::OpenAi | Api::Responses | Api::Google => {
                body["messages"][0]["content"].as_str().unwrap().to_owned()
            }
        };
        let requests = server.requests();
        let told = instructions(&requests[0].body);
        let rules = told.matches("Rule ").count();
        assert!(
            (20..400).contains(&rules) && told.contains("Rule 20: mind it."),
            "{rules}"
        );
        assert!(
            told.contains(&format!("path AGENTS.md, offset {}", rules + 1)),
            "{told}"
        );
        assert!(
            requests[0].bill.all_input() < 12_000 / 2,
            "{:?}",
            requests[0].bill
        );
        assert_eq!((requests.len(), instructions(&requests[1].body)), (2, told));
        let log = team.file("log/alice.log");
        assert!(log.contains("AGENTS.md is too long"), "{log}");
    }
}

/// What the whole is for: a person says a sentence, and a team does the rest; the person decides
/// about the plan.
#[test]
fn a_person_says_what_shall_happen_and_the_team_does_it() {
    for api in BOTH {
        let server = ModelServer::answering(|request| match () {
            () if request.is_of_lead() => lead_says(request),
            () if request.mentions("edited sum.txt") => Reply::text("fixed: 2 + 2 is 4 now"),
            () if request.mentions("approved") => {
                let edit = json!({"path": "sum.txt", "old_text": "5", "new_text": "4"});
                Reply::call("edit_file", edit)
            }
            () => Reply::call(
                "plan_approval",
                json!({"plan": "replace the 5 in sum.txt by a 4"}),
            ),
        });
        let team = server.team().with("TEAM_MODEL", api.model());
        team.write("sum.txt", "2 + 2 = 5\n");
        let chat = team.start_chat(
            "Let alice fix sum.txt; she must submit a plan first. Shut her down when she is done.",
        );
        let plan = team.until_planned("alice");
        assert_eq!(team.text("sum.txt"), "2 + 2 = 5\n");
        // No terminal: the lead agent is told that a person is needed, and so is each reader of the
        // output.
        team.until("the lead to be told", || {
            team.results("lead")
                .iter()
                .any(|result| result["is_error"] == true)
        });
        team.teamctl(["approve", &plan]).ok();
        let said = chat.finish();
        team.until("alice to be gone", || team.status("alice") == "shutdown");
        assert_eq!(team.text("sum.txt"), "2 + 2 = 4\n");
        team.until("the person to be told", || {
            team.entries("lead", "answer")
                .iter()
                .any(|answer| answer.to_string().contains("alice is gone"))
        });
        assert_eq!(team.pid("alice"), 0);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
}

/// A lead agent that does what is due: what it hears of may come alone, or with the result of a
/// call.
fn lead_says(request: &Request) -> Reply {
    let prompt = "Fix sum.txt: two and two is four.";
    let heard = |told: &str| request.mentions(told);
    match request.plan_id() {
        _ if heard("alice has ended") => Reply::text("alice is gone."),
        _ if heard("alice is asked to leave") => {
            Reply::text("alice has fixed it, and is asked to leave.")
        }
        _ if heard("fixed: 2 + 2 is 4 now") => {
            Reply::call("shutdown_request", json!({"teammate": "alice"}))
        }
        Some(id) if heard(&format!("`teamctl approve {id}`")) => {
            Reply::text("You have to decide about the plan.")
        }
        Some(id) => Reply::call("plan_approval", json!({"request_id": id, "approve": true})),
        None if heard(prompt) => Reply::text("alice has begun."),
        None => {
            let input = json!({"name": "alice", "role": "coder", "prompt": prompt, "plan": true});
            Reply::call("spawn_teammate", input)
        }
    }
}
