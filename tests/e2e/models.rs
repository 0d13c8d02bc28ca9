//! Models over HTTP: real teammates, and a fake server for both APIs that refuses every request the real ones would.

use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::look::HELD;
use crate::support::model_server::{Api, KEY, ModelServer, Reply, Request};
use crate::support::{Running, Team, poll_until};

const BOTH: [Api; 2] = [Api::Anthropic, Api::OpenAi];

/// Starts a teammate with a model.
fn spawn(team: &Team, name: &str, model: &str, prompt: &str) {
    team.teamctl(["spawn", name, "--model", model, "--prompt", prompt]).ok();
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
        server.replies(Reply::text("I look.").and_call("bash", json!({"command": "echo 'grüße 🦀'"})));
        server.says("All of it is done.\nIn detail.");
        let team = alice_did(&server, api, "greet them");
        assert_eq!(
            ended(&team, "alice"),
            ("available".to_owned(), "All of it is done.\nIn detail.".to_owned())
        );
        let requests = server.requests();
        assert_eq!(requests.len(), 2);
        assert!(requests[0].mentions("greet them") && !requests[0].mentions("grüße 🦀\""));
        assert!(requests[1].mentions("grüße 🦀"), "{}", requests[1].body);
        assert_eq!(team.results("alice")[0]["content"], "grüße 🦀");
        let usage = &team.entries("alice", "answer")[1]["usage"];
        assert_eq!(usage["output_tokens"].as_u64(), Some(requests[1].bill.output), "{usage}");
        let input = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
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

fn what_passes_is_tried_again(api: Api) {
    let server = ModelServer::start();
    let half = || Reply::text("this one does not come to its end, whatever it says");
    server.fails(500).says("there you are");
    for failure in [
        Reply::fail(529),
        Reply::fail(429).with_header("retry-after-ms", "50"),
        Reply::reset(),
        half().cut(),
        half().broken(),
        half().stalled(),
        half().then_error("overloaded_error"),
        Reply::garbage("text/event-stream", "data: {oops\n\n"),
    ] {
        server.replies(failure).says("there you are");
    }
    let team = server.team().with("TEAM_MODEL_TIMEOUT", "300ms");
    spawn(&team, "alice", api.model(), "go");
    team.until_finished("alice", 1);
    for count in 2..=9 {
        team.send("alice", "again");
        team.until_finished("alice", count);
    }
    assert!(team.notices("alice").iter().all(|notice| notice["content"] == "there you are"));
    assert_eq!((server.requests().len(), team.answers("alice")), (18, 9));
    let log = team.file("log/alice.log");
    assert_eq!(log.matches("attempt 1 failed").count(), 9, "{log}");
    assert!(log.contains("nothing came for") && log.contains("Internal server error"), "{log}");
}

#[test]
fn what_passes_is_tried_again_with_anthropic() {
    what_passes_is_tried_again(Api::Anthropic);
}

#[test]
fn what_passes_is_tried_again_with_openai() {
    what_passes_is_tried_again(Api::OpenAi);
}

/// How many services are left alone.
fn overloads(team: &Team) -> usize {
    let names = std::fs::read_dir(team.path("run")).unwrap().map(|entry| entry.unwrap().file_name());
    let told = |name: &std::ffi::OsString| {
        name.to_str().is_some_and(|name| name.starts_with("overload-anthropic-") && !name.contains(".tmp"))
    };
    names.filter(told).count()
}

// One answer that says "overloaded" must not make every worker hammer.
#[test]
fn a_team_leaves_an_overloaded_service_alone_together() {
    let mut asked = 0;
    let server = ModelServer::answering(move |_| {
        asked += 1;
        if asked == 1 { Reply::fail(529).with_header("retry-after", "1") } else { Reply::text("done") }
    });
    let team = server.team();
    spawn(&team, "alice", Api::Anthropic.model(), "go");
    team.until("the first request", || !server.requests().is_empty());
    team.until("the others to be told", || overloads(&team) == 1);
    spawn(&team, "bob", Api::Anthropic.model(), "go");
    spawn(&team, "carol", Api::OpenAi.model(), "go");
    for name in ["alice", "bob", "carol"] {
        team.until_finished(name, 1);
    }
    let requests = server.requests();
    let first = requests[0].at;
    let of = |api: Api| requests[1..].iter().filter(move |request| request.api == api);
    assert_eq!((of(Api::Anthropic).count(), of(Api::OpenAi).count()), (2, 1));
    assert!(of(Api::Anthropic).all(|request| request.at - first >= Duration::from_millis(990)));
    assert!(
        of(Api::OpenAi).all(|request| request.at - first < Duration::from_millis(990)),
        "it waits for others"
    );
}

#[test]
fn what_a_worker_waits_for_and_how_long_is_shown_and_reaches_no_model() {
    // Each pause is far longer than it takes to see it, and ended by an interrupt.
    let server = ModelServer::answering(|request| match request {
        it if it.mentions("again") => Reply::text("done"),
        it if it.mentions("bob's") => Reply::text("half of it").stalled(),
        it if it.mentions("carol's") => Reply::reset(),
        _ => Reply::fail(529).with_header("retry-after", "60"),
    });
    let team = server.team().with("TEAM_MODEL_TIMEOUT", "8s");
    let waits = |name: &str| team.member(name)["waiting"]["why"].as_str().map(str::to_owned);
    for (name, api) in [("bob", Api::OpenAi), ("carol", Api::OpenAi), ("alice", Api::Anthropic)] {
        spawn(&team, name, api.model(), &format!("{name}'s work"));
    }
    team.until("alice to wait", || waits("alice").as_deref() == Some("overloaded (529)"));
    let shown = team.teamctl(["status", "alice"]).ok().stdout;
    let told = |seconds: u32| shown.contains(&format!("waiting {seconds} s: overloaded (529)\n"));
    assert!((2..=90).any(told), "{shown}");
    let json: Value = serde_json::from_str(&team.teamctl(["--json", "status", "alice"]).ok().stdout).unwrap();
    assert_eq!(json["members"][0]["activity"], team.member("alice")["activity"]);
    assert!(json["members"][0]["waiting"]["until"].as_f64().unwrap() > 1.7e9);
    spawn(&team, "dave", Api::Anthropic.model(), "dave's work");
    let mut seen = BTreeSet::new();
    let expected = [
        "bob the service is silent",
        "carol the service cannot be reached",
        "dave overloaded; the team leaves it alone",
    ];
    let seen_all = poll_until(&mut || {
        seen.extend(
            ["bob", "carol", "dave"].into_iter().filter_map(|name| Some(format!("{name} {}", waits(name)?))),
        );
        expected.iter().all(|pause| seen.contains(*pause))
    });
    assert!(seen_all, "{seen:?}");
    for name in ["alice", "bob", "carol", "dave"] {
        team.teamctl(["interrupt", name]).ok();
        team.until_finished(name, 1);
        team.until("it to be over", || team.member(name)["waiting"].is_null());
    }
    for name in ["bob", "carol"] {
        team.send(name, "again");
        team.until_finished(name, 2);
        assert_eq!(ended(&team, name).1, "done");
    }
    let asked = server.requests().iter().map(|request| request.body.to_string()).collect::<String>();
    assert!(!asked.contains("waiting") && !asked.contains("overloaded"));
}

/// No file below a directory holds the text.
fn nowhere_in(directory: &Path, text: &str) {
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            nowhere_in(&entry.path(), text);
        } else if kind.is_file() {
            let bytes = std::fs::read(entry.path()).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains(text), "{}", entry.path().display());
        }
    }
}

#[test]
fn what_a_user_can_mend_is_told_in_plain_words_and_the_worker_stays() {
    for api in BOTH {
        let server = ModelServer::start();
        server.replies(Reply::fail(403).saying("not for you"));
        server.replies(Reply::fail(402).saying("Your credit balance is too low"));
        server.replies(Reply::fail(400).saying("tools.0: \u{1b}[31mbad"));
        server.replies(Reply::fail(404).saying("model: fake"));
        server.replies(Reply::garbage("text/html", "<html>login</html>"));
        server.says("there you are");
        let team = server.team();
        spawn(&team, "alice", api.model(), "go");
        for (count, (told, hint)) in [
            ("does not allow this: not for you (403)", "use a key that may"),
            ("has no credit left: Your credit balance is too low", "add credit"),
            ("refuses the request: tools.0: \\u{1b}[31mbad (400)", "another model"),
            ("has no model \"fake\": model: fake (404)", "MODEL_ID"),
            ("a page (text/html) is no answer", "_BASE_URL"),
        ]
        .into_iter()
        .enumerate()
        {
            team.until_finished("alice", count + 1);
            let (reason, content) = ended(&team, "alice");
            assert!(reason == "failed" && content.contains(told) && content.contains(hint), "{content}");
            team.send("alice", "again");
        }
        team.until_finished("alice", 6);
        assert_eq!(ended(&team, "alice").1, "there you are");
        assert_eq!(server.requests().len(), 6, "none of these is tried again");
        let log = team.teamctl(["log", "alice"]).ok().stdout;
        assert!(log.contains("has no credit left"), "{log}");
    }
}

#[test]
fn no_key_and_a_wrong_one_are_told_and_a_key_is_shown_to_nobody() {
    for (api, variable) in [(Api::Anthropic, "ANTHROPIC_API_KEY"), (Api::OpenAi, "OPENAI_API_KEY")] {
        let server = ModelServer::start();
        let team = server.team_with_key("");
        spawn(&team, "alice", api.model(), "go");
        team.until_finished("alice", 1);
        let (reason, content) = ended(&team, "alice");
        assert!(reason == "failed" && content.contains(&format!("{variable} is not set")), "{content}");
        assert!(content.contains("teamctl spawn NAME --resume"), "{content}");

        let wrong = "sk-wrong-9876543210";
        let team = server.team_with_key(wrong);
        spawn(&team, "alice", api.model(), "go");
        team.until_finished("alice", 1);
        let (reason, content) = ended(&team, "alice");
        assert!(reason == "failed" && content.contains("refuses the key"), "{content}");
        // The server repeats the key in its error, as some do.
        assert!(content.contains("[the key]") && content.contains(variable), "{content}");
        nowhere_in(&team.path(""), wrong);
        team.wait_for("alice", "idle");
    }
}

// CC: API keys are inherited by tool children.
#[test]
fn a_key_reaches_no_tool_and_no_file() {
    let server = ModelServer::start();
    let look = "env; cat /proc/self/environ; tr '\\0' '\\n' < /proc/$PPID/environ; true";
    server.calls("bash", json!({"command": look})).says("done");
    let team = alice_did(&server, Api::Anthropic, "look");
    assert!(team.results("alice")[0]["content"].as_str().unwrap().contains("ANTHROPIC_BASE_URL"));
    assert_eq!(server.last().header("x-api-key"), KEY);
    nowhere_in(team.root(), KEY);
}

fn nonsense() -> Vec<Reply> {
    let command = json!({"command": "echo fine"}).to_string();
    vec![
        Reply::call("no_such_tool", json!({})),
        Reply::call("bash", json!({"command": 7})),
        Reply::call("bash", json!([1, 2])),
        Reply::empty().and_raw_call("", "bash", "{\"command\": \"ec"),
        Reply::empty().and_raw_call("", "bash", "nonsense"),
        Reply::empty().and_raw_call("same", "bash", &command).and_raw_call("same", "bash", &command),
        Reply::empty().and_raw_call("same", "bash", &command),
        Reply::text("\u{1b}[2J\u{0}\u{202e}evil").and_raw_call("x", "ba\u{1b}sh\n\u{1f980}", "{}"),
        Reply::empty().and_raw_call("functions.bash:0", "", "{}"),
        Reply::text(&"long ".repeat(20_000)).and_call("bash", json!({"command": "echo y"})),
        Reply::call("shutdown_response", json!({"request_id": "shutdown-0000", "approve": true})),
        Reply::call("plan_approval", json!({"request_id": "plan-0000", "approve": true})),
        Reply::call("spawn_teammate", json!({"name": "bob"})),
        Reply::call("bash", json!({"command": "yes | head -c 3000000"})),
        Reply::text(" \n ").and_call("bash", json!({"command": "echo z"})),
    ]
}

#[test]
fn nonsense_stops_nobody_and_breaks_no_conversation() {
    for api in BOTH {
        let server = ModelServer::start();
        let replies = nonsense();
        let count = replies.len();
        for reply in replies {
            server.replies(reply);
        }
        server.says("enough");
        let team = server.team().with("TEAM_CONTEXT_WINDOW", "200000");
        spawn(&team, "alice", api.model(), "go");
        team.until_finished("alice", 1);
        // The server has refused none of the requests: it would fail this test.
        assert_eq!((server.requests().len(), ended(&team, "alice").1.as_str()), (count + 1, "enough"));
        let results = team.results("alice");
        assert_eq!(results.len(), count + 1, "{results:#?}");
        for result in results.iter().take(5).chain(&results[8..10]).chain(&results[11..14]) {
            assert_eq!(result["is_error"], true, "{result}");
        }
        for result in &results[5..8] {
            assert_eq!(result["content"], "fine");
        }
        team.wait_for("alice", "idle");
        assert!(team.requests("plan_approval").is_empty());
    }
}

#[test]
fn an_empty_answer_a_refusal_and_a_cut_one_end_the_work_and_not_the_worker() {
    for (api, refusal, length) in
        [(Api::Anthropic, "refusal", "max_tokens"), (Api::OpenAi, "content_filter", "length")]
    {
        let server = ModelServer::start();
        server.replies(Reply::empty());
        server.replies(Reply::empty().stopped(refusal));
        server.replies(Reply::text("I will not do that").stopped(refusal));
        server.replies(Reply::text("and then").stopped(length));
        let half = Reply::empty().and_raw_call("", "bash", "{\"command\": \"rm -r").stopped(length);
        server.replies(half).says("mended");
        let team = alice_did(&server, api, "go");
        for count in 2..=5 {
            team.send("alice", "and now?");
            team.until_finished("alice", count);
        }
        assert_eq!(ended(&team, "alice").1, "mended");
        let cuts: Vec<Value> =
            team.entries("alice", "answer").into_iter().map(|entry| entry["cut"].clone()).collect();
        let cut = |word: &str| json!(word);
        let expected =
            [Value::Null, cut("refusal"), cut("refusal"), cut("length"), cut("length"), Value::Null];
        assert_eq!(cuts, expected);
    }
}

#[test]
fn an_answer_that_its_service_pauses_goes_on_and_is_one_answer() {
    let search =
        json!({"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []});
    let half = || Reply::text("I look.").and_opaque(search.clone()).stopped("pause_turn");
    let server = ModelServer::start();
    server.replies(half()).replies(Reply::fail(500));
    server.replies(Reply::empty().and_opaque(found).and_text("More.").stopped("pause_turn"));
    server.says("It is there.");
    let team = alice_did(&server, Api::Anthropic, "find it");
    assert_eq!(ended(&team, "alice").1, "I look.\nMore.\nIt is there.");
    let usage = &team.entries("alice", "answer")[0]["usage"];
    let billed: u64 = server.requests().iter().map(|request| request.bill.output).sum();
    assert_eq!((team.answers("alice"), usage["output_tokens"].as_u64()), (1, Some(billed)));
    let roles = |request: &Request| request.body["messages"].as_array().unwrap().len();
    assert_eq!(server.requests().iter().map(roles).collect::<Vec<_>>(), [1, 2, 2, 2]);
    // Who dies before it goes on asks anew, and nothing half is sent.
    server.replies(half()).replies(Reply::text("It is ").stalled());
    team.send("alice", "and the other one?");
    team.until("it to be gone on with", || server.requests().len() == 6);
    server.says("There, too.");
    team.kill_and_wait_for_the_next_life("alice");
    team.until_finished("alice", 2);
    assert_eq!(ended(&team, "alice").1, "There, too.");
    assert!(server.last().mentions("srv_1") && roles(&server.last()) == 3);
    // One that is paused for ever is given up; what a cut one holds that is half is not sent back.
    for _ in 0..=10 {
        server.replies(Reply::text("on").stopped("pause_turn"));
    }
    server.replies(half().stopped("max_tokens"));
    team.send("alice", "and all of them?");
    team.until_finished("alice", 3);
    let (reason, content) = ended(&team, "alice");
    assert!(reason == "failed" && content.contains("has paused this answer"), "{content}");
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
    server.calls("bash", json!({"command": held})).says("Sure, I am leaving now. Goodbye!");
    let team = server.team();
    spawn(&team, "alice", Api::Anthropic.model(), "go");
    team.until_held();
    let running = team.start_teamctl(["--json", "shutdown", "alice"]);
    team.until("the request", || !team.requests("shutdown").is_empty());
    team.until("the worker to know", || team.status("alice") == "shutting_down");
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
    server.replies(reply.and_call("bash", json!({"command": "true"}))).says("done");
    let _team = alice_did(&server, Api::Anthropic, "think");
    let content = server.last().body["messages"][1]["content"].clone();
    assert_eq!((&content[0], &content[1]["data"]), (&thought, &json!("x")));
}

#[test]
fn most_of_a_long_conversation_is_read_from_the_cache() {
    for api in BOTH {
        let server = ModelServer::start();
        for turn in 0..10 {
            server.calls("bash", json!({"command": format!("seq {turn} {}", turn + 60)}));
        }
        server.says("done");
        let team = alice_did(&server, api, "count");
        let bills: Vec<_> = server.requests().iter().skip(1).map(|request| request.bill).collect();
        let (read, all): (u64, u64) =
            bills.iter().fold((0, 0), |(read, all), bill| (read + bill.read, all + bill.all_input()));
        assert!(bills.len() == 10 && read * 100 >= all * 80, "{api:?}: {read} of {all}: {bills:?}");
        drop(team);
    }
}

#[test]
fn a_turn_of_many_calls_still_finds_the_cache() {
    let server = ModelServer::start();
    for _ in 0..2 {
        let many = |reply: Reply, n: usize| reply.and_call("bash", json!({"command": format!("echo {n}")}));
        server.replies((0..25).fold(Reply::empty(), many));
    }
    server.says("done");
    let _team = alice_did(&server, Api::Anthropic, "many");
    let bills: Vec<_> = server.requests().iter().map(|request| request.bill).collect();
    for pair in bills.windows(2) {
        assert_eq!(pair[1].read, pair[0].read + pair[0].written, "{bills:?}");
    }
}

#[test]
fn a_call_to_the_model_that_is_interrupted_leaves_nothing_behind() {
    let server = ModelServer::start();
    server.replies(Reply::text(&"a long answer ".repeat(500)).stalled()).says("here I am");
    let team = server.team();
    spawn(&team, "alice", Api::Anthropic.model(), "go");
    team.until("the model to be asked", || server.requests().len() == 1);
    team.until("the text to come", || team.file("run/alice.live").starts_with("a long"));
    team.teamctl(["interrupt", "alice"]).ok();
    team.until_finished("alice", 1);
    assert_eq!((ended(&team, "alice").0.as_str(), team.answers("alice")), ("interrupted", 0));
    team.send("alice", "still there?");
    team.until_finished("alice", 2);
    assert_eq!(ended(&team, "alice").1, "here I am");
}

#[test]
fn a_worker_that_is_killed_in_the_middle_of_an_answer_asks_again_with_a_valid_conversation() {
    for api in BOTH {
        let server = ModelServer::start();
        server.calls("bash", json!({"command": "echo one"}));
        server.replies(Reply::text("half of an answer that is lost").stalled()).says("done");
        let team = server.team();
        spawn(&team, "alice", api.model(), "go");
        team.until("the second question", || server.requests().len() == 2);
        team.kill_and_wait_for_the_next_life("alice");
        team.until_finished("alice", 1);
        assert_eq!((ended(&team, "alice").1.as_str(), server.requests().len()), ("done", 3));
    }
}

#[test]
fn a_base_url_that_is_none_is_told_at_once_and_a_closed_port_after_some_attempts() {
    let server = ModelServer::start();
    let team = server.team().with("ANTHROPIC_BASE_URL", "localhost:1");
    let refused = |team: &Team, said: &str| {
        let run = team.teamctl(["spawn", "alice", "--model", "anthropic:x", "--prompt", "go"]).exits(2);
        assert!(run.stderr.contains(said), "{}", run.stderr);
        assert!(team.file("log/alice.log").is_empty(), "a worker was started");
    };
    refused(&team, "ANTHROPIC_BASE_URL=\"localhost:1\" is not the address");
    let team = team.with("ANTHROPIC_BASE_URL", "http://user:PW@host");
    refused(&team, "keys belong into ANTHROPIC_API_KEY");
    let team = team.with("ANTHROPIC_BASE_URL", &server.url()).with("TEAM_CONTEXT_WINDOW", "abc");
    refused(&team, "TEAM_CONTEXT_WINDOW=\"abc\" is not");
    let team = team.with("TEAM_CONTEXT_WINDOW", "8k").with("TEAM_MODEL_TIMEOUT", "abc");
    refused(&team, "TEAM_MODEL_TIMEOUT=\"abc\" is not");
    let team = team.with("TEAM_MODEL_TIMEOUT", "2m");
    let team = team.with("ANTHROPIC_BASE_URL", "http://127.0.0.1:1");
    spawn(&team, "bob", "anthropic:x", "go");
    let log = || team.file("log/bob.log");
    team.until("an attempt", || log().contains("attempt 1 failed") && log().contains("refused"));
    assert_eq!(team.status("bob"), "working");
}

#[test]
fn a_proxy_of_the_spawning_shell_is_used_and_no_other() {
    // What the fake server is asked as a proxy, it answers as the service itself.
    let server = ModelServer::start();
    let base = "http://models.invalid";
    let team = server.team().with("ANTHROPIC_BASE_URL", base).with("http_proxy", &server.url());
    spawn(&team, "alice", Api::Anthropic.model(), "go");
    team.until_finished("alice", 1);
    assert_eq!(ended(&team, "alice").1, "done");
    assert_eq!(server.last().header("host"), "models.invalid");
    let team = team.with("NO_PROXY", "models.invalid");
    spawn(&team, "bob", Api::Anthropic.model(), "go");
    team.until("an attempt without it", || team.file("log/bob.log").contains("attempt 1 failed"));
    assert_eq!(server.requests().len(), 1);
}

/// A server with a certificate of its own, made by `openssl`; none where there is no such program.
fn tls_server(team: &Team) -> Option<(Running, u16)> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout key.pem -out ca.pem -subj /CN=localhost \
                -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE 2>/dev/null";
    if !team.command("bash", ["-c", make]).status().is_ok_and(|status| status.success()) {
        return None;
    }
    let body =
        json!({"content": [{"type": "text", "text": "safely"}], "stop_reason": "end_turn"}).to_string();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    team.write("answer", &answer);
    // It answers every connection with the file.
    let serve = format!(
        "while :; do (cat answer; sleep 1) | openssl s_server -quiet -naccept 1 -accept {port} -cert ca.pem -key key.pem; done"
    );
    let running = Running::start(team.command("bash", ["-c", &serve]));
    Some((running, port))
}

#[test]
fn the_root_of_an_organisation_is_trusted_if_it_is_named() {
    let server = ModelServer::start();
    let team = server.team();
    let Some((_tls, port)) = tls_server(&team) else { return };
    team.until("the server to listen", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let team = team.with("ANTHROPIC_BASE_URL", &format!("https://localhost:{port}"));
    spawn(&team, "alice", Api::Anthropic.model(), "go");
    team.until_finished("alice", 1);
    let (reason, content) = ended(&team, "alice");
    assert!(reason == "failed" && content.contains("TEAM_CA=FILE"), "{content}");
    let ca = team.root().join("ca.pem").display().to_string();
    let team = team.with("TEAM_CA", &ca);
    spawn(&team, "bob", Api::Anthropic.model(), "go");
    team.until_finished("bob", 1);
    assert_eq!(ended(&team, "bob"), ("available".to_owned(), "safely".to_owned()));
}
