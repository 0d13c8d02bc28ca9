//! Failures that another attempt does not help, and answers that make no sense: they are reported,
//! and end no worker.

use std::path::Path;

use serde_json::{Value, json};

use super::{BOTH, alice_did, ended, spawn};
use crate::support::model_server::{Api, KEY, ModelServer, Reply, Request};

/// No file below a directory holds the text.
fn nowhere_in(directory: &Path, text: &str) {
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            nowhere_in(&entry.path(), text);
        } else if kind.is_file() {
            let bytes = match std::fs::read(entry.path()) {
                // A live team writes beside a file, and renames.
                Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => continue,
                bytes => bytes.unwrap(),
            };
            assert!(
                !String::from_utf8_lossy(&bytes).contains(text),
                "{}",
                entry.path().display()
            );
        }
    }
}

#[test]
fn what_a_user_can_repair_is_reported_and_the_worker_stays() {
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
            (
                "does not allow this: not for you (403)",
                "use a key that may",
            ),
            (
                "has no credit left: Your credit balance is too low",
                "add credit",
            ),
            (
                "refuses the request: tools.0: \\u{1b}[31mbad (400)",
                "another model",
            ),
            ("has no model \"fake\": model: fake (404)", "MODEL_ID"),
            ("a page (text/html) is no answer", "_BASE_URL"),
        ]
        .into_iter()
        .enumerate()
        {
            team.until_finished("alice", count + 1);
            let (reason, content) = ended(&team, "alice");
            assert!(
                reason == "failed" && content.contains(told) && content.contains(hint),
                "{content}"
            );
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
fn a_missing_and_a_wrong_key_are_reported_and_no_key_is_shown() {
    for (api, variable) in [
        (Api::Anthropic, "ANTHROPIC_API_KEY"),
        (Api::OpenAi, "OPENAI_API_KEY"),
    ] {
        let server = ModelServer::start();
        let team = server.team_with_key("");
        // A server of one's own may ask for no key (openai): only its answer tells. Without it
        // nothing can work.
        let is_refused = api.model().starts_with("anthropic");
        let run = team.teamctl(["spawn", "alice", "--model", api.model(), "--prompt", "go"]);
        let content = if is_refused {
            run.exits(2).stderr
        } else {
            run.ok();
            team.until_finished("alice", 1);
            let (reason, content) = ended(&team, "alice");
            assert!(
                reason == "failed" && content.contains("teamctl spawn NAME --resume"),
                "{content}"
            );
            content
        };
        assert!(
            content.contains(&format!("{variable} is not set")),
            "{content}"
        );

        let wrong = "sk-wrong-9876543210";
        let team = server.team_with_key(wrong);
        spawn(&team, "alice", api.model(), "go");
        team.until_finished("alice", 1);
        let (reason, content) = ended(&team, "alice");
        assert!(
            reason == "failed" && content.contains("refuses the key"),
            "{content}"
        );
        // The server repeats the key in its error, as some do.
        assert!(
            content.contains(&format!("[the value of {variable}]")),
            "{content}"
        );
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
    assert!(
        team.results("alice")[0]["content"]
            .as_str()
            .unwrap()
            .contains("ANTHROPIC_BASE_URL")
    );
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
        Reply::empty()
            .and_raw_call("same", "bash", &command)
            .and_raw_call("same", "bash", &command),
        Reply::empty().and_raw_call("same", "bash", &command),
        Reply::text("\u{1b}[2J\u{0}\u{202e}evil").and_raw_call("x", "ba\u{1b}sh\n\u{1f980}", "{}"),
        Reply::empty().and_raw_call("functions.bash:0", "", "{}"),
        Reply::text(&"long ".repeat(20_000)).and_call("bash", json!({"command": "echo y"})),
        Reply::call(
            "shutdown_response",
            json!({"request_id": "shutdown-0000", "approve": true}),
        ),
        Reply::call(
            "plan_approval",
            json!({"request_id": "plan-0000", "approve": true}),
        ),
        Reply::call("spawn_teammate", json!({"name": "bob"})),
        Reply::call("bash", json!({"command": "yes | head -c 3000000"})),
        Reply::text(" \n ").and_call("bash", json!({"command": "echo z"})),
    ]
}

#[test]
fn nonsense_stops_no_worker_and_breaks_no_conversation() {
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
        assert_eq!(
            (server.requests().len(), ended(&team, "alice").1.as_str()),
            (count + 1, "enough")
        );
        let results = team.results("alice");
        assert_eq!(results.len(), count + 1, "{results:#?}");
        for result in results
            .iter()
            .take(5)
            .chain(&results[8..10])
            .chain(&results[11..14])
        {
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
fn an_empty_or_refused_answer_ends_the_work_and_a_cut_one_goes_on() {
    for (api, refusal, length) in [
        (Api::Anthropic, "refusal", "max_tokens"),
        (Api::OpenAi, "content_filter", "length"),
    ] {
        let server = ModelServer::start();
        server.replies(Reply::empty());
        server.replies(Reply::empty().stopped(refusal));
        server.replies(Reply::text("I will not do that").stopped(refusal));
        for piece in ["and ", "then ", "and "] {
            server.replies(Reply::text(piece).stopped(length));
        }
        server.says("done");
        for _ in 0..4 {
            server.replies(Reply::text("on ").stopped(length));
        }
        let half = Reply::empty()
            .and_raw_call("", "bash", "{\"command\": \"rm -r")
            .stopped(length);
        server.replies(half).says("mended");
        let team = alice_did(&server, api, "go");
        for count in 2..=6 {
            team.send("alice", "and now?");
            team.until_finished("alice", count);
            let content = ended(&team, "alice").1;
            match count {
                4 => assert_eq!(content, "and then and done"),
                5 => assert!(
                    content.starts_with("on on on on \n[the answer ends here"),
                    "{content}"
                ),
                6 => assert_eq!(content, "mended"),
                _ => {}
            }
        }
        assert!(server.mentioned(0, "Continue exactly where it ended"));
        let results = team.entries("alice", "result");
        assert!(
            results[0]["content"]
                .as_str()
                .unwrap()
                .contains("not run: your answer reached"),
            "{results:?}"
        );
        // A resume sends the same.
        let before = server.last();
        team.kill_and_wait_for_restart("alice");
        server.says("again");
        team.send("alice", "and now?");
        team.until_finished("alice", 7);
        let sent = |request: &Request| request.body["messages"].as_array().unwrap().len();
        assert!(sent(&server.last()) > sent(&before));
        let cuts: Vec<Value> = team
            .entries("alice", "answer")
            .into_iter()
            .map(|entry| entry["cut"].clone())
            .collect();
        let cut = |word: &str| json!(word);
        let expected = [
            Value::Null,
            cut("refusal"),
            cut("refusal"),
            cut("length"),
            cut("length"),
            cut("length"),
            Value::Null,
            cut("length"),
            cut("length"),
            cut("length"),
            cut("length"),
            cut("length"),
            Value::Null,
            Value::Null,
        ];
        assert_eq!(cuts, expected);
    }
}
