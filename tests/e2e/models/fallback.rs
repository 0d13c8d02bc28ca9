//! `fallback_model`: another model of the same service answers while that is overloaded.

#![expect(clippy::disallowed_methods, reason = "a test writes plain files")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{ended, spawn};
use crate::support::Team;
use crate::support::look::HELD;
use crate::support::model_server::{ModelServer, Reply, Request};

/// A dollar for a token of one model, ten cents for one of the other.
const PRICES: &str = "[\"anthropic:fake\"]\ninput = 1e6\noutput = 1e6\ncache_write = 1e6\ncache_read = 1e6\n\
                      [\"anthropic:small\"]\ninput = 1e5\noutput = 1e5\ncache_write = 1e5\ncache_read = 1e5\n";

const OWN: &str = "anthropic:fake";
const SMALL: &str = "anthropic:small";

/// Whether the service has no room for the member's own model.
type Overloaded = Arc<AtomicBool>;

fn is_small(request: &Request) -> bool {
    request.body["model"] == "small"
}

/// A server that is overloaded for one model as long as that is said: it asks for more time than is
/// waited. The other model does what `small` says.
fn server(mut small: impl FnMut(&Request) -> Reply + Send + 'static) -> (ModelServer, Overloaded) {
    let overloaded = Overloaded::new(AtomicBool::new(true));
    let is_overloaded = Arc::clone(&overloaded);
    let server = ModelServer::answering(move |request| {
        if is_small(request) {
            return small(request);
        }
        if is_overloaded.load(Ordering::SeqCst) {
            return Reply::fail(529).with_header("retry-after", "7200");
        }
        Reply::text("My own words.")
    });
    (server, overloaded)
}

fn team_of(server: &ModelServer) -> Team {
    let team = server.team();
    let folder = team.home().join(".config/teamd");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("prices.toml"), PRICES).unwrap();
    team.write("team.toml", "fallback_model = \"anthropic:small\"\n");
    team
}

fn tokens(usage: &Value) -> f64 {
    let counts = usage.as_object().unwrap().values();
    counts.map(|count| count.as_f64().unwrap()).sum()
}

/// What the entries of a transcript cost, each at the price of its model.
fn cost(team: &Team) -> f64 {
    let entries = team.transcript("alice");
    let paid = entries.iter().filter(|entry| entry.get("usage").is_some());
    paid.map(|entry| {
        let price = if entry["model"] == SMALL { 0.1 } else { 1.0 };
        tokens(&entry["usage"]) * price
    })
    .sum()
}

fn is_about(shown: &Value, expected: f64) -> bool {
    shown
        .as_f64()
        .is_some_and(|shown| (shown - expected).abs() < 1e-5)
}

#[test]
fn it_answers_until_the_piece_of_work_ends_and_each_model_has_its_price() {
    let (server, overloaded) = server(|request| {
        if request.mentions("tool_result") {
            Reply::text("It is done.")
        } else {
            Reply::call(
                "bash",
                json!({"command": HELD.trim_start_matches("/bash ")}),
            )
        }
    });
    let team = team_of(&server);
    spawn(&team, "alice", OWN, "find it");
    team.until_held();
    team.until("the model that answers to be told", || {
        let shown = team.teamctl(["status", "alice"]).ok().stdout;
        shown.contains("anthropic:small answers now")
    });
    // Neither a restart of the worker, nor one of the daemon ends that.
    overloaded.store(false, Ordering::SeqCst);
    team.kill_and_wait_for_restart("alice");
    team.until_finished("alice", 1);
    assert!(server.requests().iter().skip(1).all(is_small));
    let switched = &team.entries("alice", "fallback");
    assert_eq!(
        (switched.len(), &switched[0]["answers"]),
        (1, &json!(SMALL))
    );
    assert!(
        switched[0]["reason"]
            .as_str()
            .unwrap()
            .contains("Overloaded")
    );
    let transcript = team.teamctl(["transcript", "alice"]).ok().stdout;
    assert!(
        transcript.contains("anthropic:small answers until this piece of work ends: "),
        "{transcript}"
    );
    // The next piece of work asks its own model again.
    team.send("alice", "go on");
    team.until_finished("alice", 2);
    assert!(!is_small(&server.last()));
    let answers = team.entries("alice", "answer");
    let of_small = answers.iter().filter(|answer| answer["model"] == SMALL);
    assert_eq!((answers.len(), of_small.count()), (3, 2));
    assert!(answers[2].get("model").is_none());
    let expected = cost(&team);
    let status = || team.json(["status"]);
    team.until("the cost of both to be told", || {
        is_about(&status()["cost"], expected) && is_about(&status()["members"][0]["cost"], expected)
    });
    let shown = team.teamctl(["status", "alice"]).ok().stdout;
    assert!(
        !shown.contains("answers now") && shown.contains(SMALL),
        "{shown}"
    );
    let stats = team.json(["stats"]);
    assert!(is_about(&stats["members"][0]["cost"], expected), "{stats}");
    // The record of its end keeps both, and so does a daemon that starts.
    team.teamctl(["shutdown", "alice"]).ok();
    assert!(is_about(&status()["cost"], expected), "{}", status());
    team.teamd(["stop"]).ok();
    team.teamd(["start"]).ok();
    assert!(is_about(&status()["cost"], expected), "{}", status());
}

#[test]
fn both_overloaded_fail_the_work_and_a_subagent_falls_back_for_its_member() {
    let (server, _) = server(|_| Reply::fail(529).with_header("retry-after", "7200"));
    let team = team_of(&server);
    spawn(&team, "alice", OWN, "find it");
    team.until_finished("alice", 1);
    let (reason, told) = ended(&team, "alice");
    assert!(
        reason == "failed" && told.contains("did not answer"),
        "{told}"
    );
    assert_eq!(server.requests().len(), 2);

    let asked = AtomicBool::new(false);
    let server = ModelServer::answering(move |request| {
        let is_first = !asked.swap(true, Ordering::SeqCst);
        if is_small(request) && request.mentions("It is deep.") {
            Reply::text("All done.")
        } else if is_small(request) {
            Reply::text("It is deep.")
        } else if is_first {
            Reply::call("delegate", json!({"prompt": "look"}))
        } else {
            Reply::fail(529).with_header("retry-after", "7200")
        }
    });
    let team = team_of(&server);
    let tools = "fallback_model = \"anthropic:small\"\n[tools]\ngroups = [\"delegate\"]\n";
    team.write("team.toml", tools);
    spawn(&team, "alice", OWN, "go");
    team.until_finished("alice", 1);
    assert_eq!(ended(&team, "alice").1, "All done.");
    assert_eq!(team.results("alice")[0]["content"], "It is deep.");
    let requests = server.requests();
    let small: Vec<bool> = requests.iter().map(is_small).collect();
    assert_eq!(small, [false, false, true, true]);
    assert!(team.entries("alice", "fallback")[0].get("call").is_none());
}

#[test]
fn a_fallback_that_makes_no_sense_is_refused_and_a_table_for_all_says_nothing_to_others() {
    let server = ModelServer::start();
    let team = team_of(&server);
    let with = |model: &str, flags: &[&str]| {
        let spawn = ["spawn", "bob", "--model", model];
        team.teamctl(spawn.iter().chain(flags))
    };
    for (model, fallback) in [
        (OWN, "openai:small"),
        (OWN, OWN),
        ("script", "script"),
        ("script", SMALL),
    ] {
        let refused = with(model, &["--fallback-model", fallback]).exits(2);
        assert!(
            refused.stderr.contains("fallback") && refused.stderr.contains("hint: "),
            "{}",
            refused.stderr
        );
    }
    team.write(
        "team.toml",
        "model = \"anthropic:fake\"\nfallback_model = \"openai:x\"\n",
    );
    let refused = team.teamctl(["spawn", "bob"]).exits(2);
    assert!(
        refused.stderr.contains("fallback_model"),
        "{}",
        refused.stderr
    );
    team.write("team.toml", "fallback_model = \"anthropic:small\"\n");
    with("script", &[]).ok();
    assert!(team.member("bob").get("fallback_model").is_none());
    // A limit of cost needs both prices.
    std::fs::write(
        team.home().join(".config/teamd/prices.toml"),
        PRICES.split("[\"anthropic:small").next().unwrap(),
    )
    .unwrap();
    let limited = ["spawn", "carol", "--model", OWN, "--max-cost", "5"];
    let refused = team.teamctl(limited).exits(2);
    assert!(
        refused.stderr.contains("the price of anthropic:small"),
        "{}",
        refused.stderr
    );
}
