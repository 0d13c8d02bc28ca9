//! What is settled for a team and its teammates: `team.toml`, the environment, flags; what it
//! costs.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::model_server::{Api, ModelServer};
use crate::support::{Team, signal};

/// A team whose daemon runs, with this `team.toml`.
fn settled(text: &str) -> Team {
    let team = Team::new();
    team.write("team.toml", text);
    team.trust();
    team.teamd(["start"]).ok();
    team
}

/// The record of a member as its last spawn left it.
fn record(team: &Team, name: &str) -> Value {
    team.journal()
        .into_iter()
        .rfind(|line| line["event"] == "spawning" && line["name"] == name)
        .unwrap_or(Value::Null)
}

#[test]
fn a_teammate_is_what_team_toml_says_of_it() {
    let team = settled(
        "max_tokens = '200k'\nsandbox.writable = ['cache']\n\
         [roles.coder]\nprompt = 'Write little.'\nplan = true\napprove_by = 'lead'\nmax_turns = 7\n\
         [members.alice]\nrole = 'coder'\nprompt = 'hello there'\nworkspace = 'web'\nrestart = 'never'\nplan = false\n\
         sandbox.network = false\n",
    );
    for folder in ["web", "cache"] {
        std::fs::create_dir(team.root().join(folder)).unwrap();
    }
    team.teamctl(["spawn", "alice"]).ok();
    team.until_finished("alice", 1);
    assert_eq!(team.notices("alice")[0]["content"], "hello there");
    let alice = record(&team, "alice");
    let root = team.root().canonicalize().unwrap();
    assert_eq!(
        (&alice["role"], &alice["instructions"]),
        (&json!("coder"), &json!("Write little."))
    );
    assert_eq!(alice["workspace"], root.join("web").to_str().unwrap());
    assert_eq!(
        (&alice["plan"], &alice["approve_by"]),
        (&json!(false), &json!("lead"))
    );
    assert_eq!(
        alice["limits"],
        json!({"max_turns": 7, "max_tokens": 200_000})
    );
    assert_eq!(alice["restart"], "never");
    assert_eq!(
        (&alice["sandbox"]["mode"], &alice["sandbox"]["no_network"]),
        (&json!("workspace-write"), &json!(true))
    );
    let cache = team.root().join("cache");
    assert_eq!(
        alice["sandbox"]["writable"],
        json!([cache.to_str().unwrap()])
    );
    // No other teammate is meant.
    team.spawn("bob", "");
    let bob = record(&team, "bob");
    assert_eq!(
        (&bob["role"], &bob["limits"]["max_turns"]),
        (&json!(""), &Value::Null)
    );
    assert_eq!(bob["limits"]["max_tokens"], 200_000);
}

#[test]
fn a_flag_goes_before_the_environment_and_that_before_the_file() {
    let team =
        settled("max_turns = 7\nmax_tokens = 7000\n[members.alice]\nrole = 'coder'\nplan = true\n")
            .with("TEAM_MAX_TURNS", "5")
            .with("TEAM_MAX_TOKENS", "5k");
    team.teamctl([
        "spawn",
        "alice",
        "--max-tokens",
        "3k",
        "--role",
        "tester",
        "--restart",
        "never",
    ])
    .ok();
    let alice = record(&team, "alice");
    assert_eq!(alice["limits"], json!({"max_turns": 5, "max_tokens": 3000}));
    assert_eq!(
        (&alice["role"], &alice["gate"]),
        (&json!("tester"), &json!("closed"))
    );
    let shown = team.teamctl(["status", "alice"]).ok().stdout;
    assert!(
        shown.contains("budget      5 model calls, 3k tokens for a piece of work"),
        "{shown}"
    );
}

#[test]
fn a_mistake_in_team_toml_is_located_and_stops_no_reader_or_sender() {
    let team = settled("[members.alice]\nrole = 'coder'\n");
    team.spawn("alice", "");
    team.teamctl_with(["chat"], "begin").ok();
    team.write(
        "team.toml",
        "poll = false\n[members.alice]\nrloe = 'coder'\n",
    );
    let before = team.file("journal.jsonl");
    let wrong = team.root().join("team.toml").display().to_string() + ":3:1: unknown key `rloe`";
    for command in [&["spawn", "bob"][..], &["shutdown", "alice"]] {
        let said = team.teamctl(command).exits(2);
        assert!(said.stderr.contains(&format!("error: {wrong}")), "{said:?}");
        assert!(
            said.stderr.contains("hint: did you mean `role`?"),
            "{said:?}"
        );
    }
    let said = team.teamctl(["--json", "spawn", "bob"]).exits(2);
    let error: Value = serde_json::from_str(&said.stderr).unwrap();
    assert_eq!(error["error"]["code"], "usage");
    let said = team.teamd(["start"]).exits(2);
    assert!(said.stderr.contains(&wrong), "{said:?}");
    assert_eq!(team.file("journal.jsonl"), before, "nothing was begun");
    // What reads or sends says it, and goes on; so does each running teammate.
    let said = team.teamctl(["status"]).ok();
    assert!(
        said.stdout.contains("alice") && said.stderr.contains(&wrong),
        "{said:?}"
    );
    team.teamctl(["send", "alice", "/bash echo there"]).ok();
    team.until_finished("alice", 1);
    let said = team.teamctl_with(["chat"], "still there").ok();
    // What alice said at the end of her work may be a turn before it.
    assert!(
        said.stdout.ends_with("still there\n") && said.stderr.contains(&wrong),
        "{said:?}"
    );
    let said = team
        .teamctl_with(["chat", "--model", "openai:m"], "not sent")
        .exits(7);
    assert!(said.stderr.contains(&wrong), "{said:?}");
    team.kill_and_wait_for_restart("alice");
    team.teamctl(["shutdown", "alice", "--force"]).ok();
    team.teamd(["stop"]).ok();
    team.teamd(["start"]).exits(2);
    team.write("team.toml", "poll = false\n");
    team.teamd(["start"]).ok();
}

#[test]
fn a_value_that_makes_no_sense_is_refused_before_anything_happens() {
    let team = settled("max_turns = 9\n");
    let before = team.file("journal.jsonl");
    for flags in [
        &["--model", "gpt"][..],
        &["--sandbox", "none"],
        &["--max-turns", "0"],
        &["--max-tokens", "many"],
        &["--writable", "nowhere"],
        &["--writable", ".team/inbox"],
        &["--ca", "nowhere.pem"],
    ] {
        let said = team
            .teamctl(["spawn", "alice"].iter().chain(flags))
            .exits(2);
        assert!(said.stderr.contains("hint: "), "{said:?}");
    }
    team.write("team.toml", "max_turns = 0\n");
    let said = team.teamctl(["spawn", "alice"]).exits(2);
    assert!(
        said.stderr.contains(
            "team.toml:1:13: invalid value: integer `0`, expected a whole number above 0"
        ),
        "{said:?}"
    );
    team.write("team.toml", "");
    let team = team.with("TEAM_MODEL", "gpt");
    let said = team.teamctl(["spawn", "alice"]).exits(2);
    assert!(
        said.stderr
            .contains("TEAM_MODEL=\"gpt\" is not script, anthropic[:MODEL]"),
        "{said:?}"
    );
    assert_eq!(team.file("journal.jsonl"), before);
}

#[test]
fn the_model_is_the_one_that_is_named_else_the_one_whose_key_is_there() {
    let team = Team::started();
    let said = team.teamctl(["spawn", "first"]).ok();
    assert!(
        said.stderr.contains("the built-in `script` model"),
        "{said:?}"
    );
    team.write("team.toml", "[roles.tester]\nmodel = 'openai:role'\n");
    let model = |team: &Team, name: &str, flags: &[&str]| {
        let said = team.teamctl(["spawn", name].iter().chain(flags)).ok();
        (
            team.member(name)["model"].as_str().unwrap().to_owned(),
            said.stderr,
        )
    };
    // Nothing is asked of a service before there is work.
    let team = team.with("OPENAI_BASE_URL", "http://127.0.0.1:9/v1");
    assert_eq!(model(&team, "a", &[]), ("openai".to_owned(), String::new()));
    assert_eq!(model(&team, "b", &["--role", "tester"]).0, "openai:role");
    assert_eq!(model(&team, "c", &["--model", "script"]).0, "script");
    let team = team.with("MODEL_ID", "qwen3:8b");
    assert_eq!(model(&team, "d", &[]).0, "openai:qwen3:8b");
    let said = team
        .teamctl(["spawn", "e", "--model", "anthropic"])
        .exits(2)
        .stderr;
    assert!(
        said.contains("ANTHROPIC_API_KEY is not set")
            && said.contains("hint: set ANTHROPIC_API_KEY")
    );
    assert!(
        team.roster()["members"]
            .as_array()
            .unwrap()
            .iter()
            .all(|member| member["name"] != "e")
    );
    let team = team.with("TEAM_MODEL", "script");
    assert_eq!(model(&team, "f", &["--role", "tester"]).0, "script");
    let team = team.with("TEAM_MODEL", "").with("ANTHROPIC_API_KEY", "k");
    assert_eq!(model(&team, "g", &[]).0, "anthropic:qwen3:8b");
}

#[test]
fn work_that_came_to_nothing_is_told_by_status_until_other_work_begins() {
    // No key has a space in it: the worker finds that out with its first piece of work.
    let team = Team::started().with("ANTHROPIC_API_KEY", "a b");
    team.teamctl([
        "spawn",
        "alice",
        "--model",
        "anthropic:m",
        "--prompt",
        "hello",
    ])
    .ok();
    team.until_finished("alice", 1);
    team.wait_for("alice", "idle");
    let activity = |name: &str| team.member(name)["activity"].as_str().unwrap().to_owned();
    assert!(
        activity("alice").starts_with("failed: "),
        "{}",
        activity("alice")
    );
    assert!(
        activity("alice").contains("ANTHROPIC_API_KEY"),
        "{}",
        activity("alice")
    );
    team.teamctl([
        "spawn",
        "bob",
        "--model",
        "script",
        "--max-turns",
        "2",
        "--prompt",
        "/bash echo 1\n/bash echo 2\n/bash echo 3",
    ])
    .ok();
    team.until_finished("bob", 1);
    let notice = &team.notices("bob")[0];
    assert_eq!(notice["idle_reason"], "max_turns");
    let told = notice["content"].as_str().unwrap();
    assert!(
        told.contains("limit of 2 model calls") && told.contains("`--max-turns`"),
        "{told}"
    );
    assert_eq!(team.results("bob").len(), 2);
    team.until("status to tell it", || {
        activity("bob") == "stopped: turn limit"
    });
    // Also after a crash.
    team.kill_and_wait_for_restart("bob");
    assert_eq!(activity("bob"), "stopped: turn limit");
    team.send("bob", "/bash echo again").ok();
    team.until_finished("bob", 2);
    team.until("it to be over", || activity("bob").is_empty());
}

#[test]
fn the_token_limit_ends_the_work_and_the_next_piece_has_as_much_again() {
    for api in [Api::Anthropic, Api::OpenAi] {
        let server = ModelServer::start();
        server.calls("bash", json!({"command": "echo on"}));
        let team = server.team();
        let prompt = ["--max-tokens", "1", "--prompt", "go on for ever"];
        team.teamctl(
            ["spawn", "alice", "--model", api.model()]
                .iter()
                .chain(&prompt),
        )
        .ok();
        team.until_finished("alice", 1);
        let notice = &team.notices("alice")[0];
        assert_eq!(notice["idle_reason"], "max_tokens");
        let told = notice["content"].as_str().unwrap();
        assert!(
            told.contains("limit of 1 tokens") && told.contains("`--max-tokens`"),
            "{told}"
        );
        assert_eq!(
            (server.requests().len(), team.results("alice").len()),
            (1, 1)
        );
        team.until("status to tell it", || {
            team.member("alice")["activity"] == "stopped: token limit"
        });
        let cost = team.json(["status"])["usage"].clone();
        assert_eq!(
            cost["output_tokens"].as_u64(),
            Some(server.requests()[0].bill.output)
        );
        server.says("There.");
        team.send("alice", "and now?").ok();
        team.until_finished("alice", 2);
        assert_eq!(team.notices("alice")[1]["idle_reason"], "available");
        assert_eq!(server.broken_rules(), Vec::<String>::new());
    }
}

#[test]
fn a_shell_without_walls_is_said_to_be_one() {
    let team = Team::started();
    let said = team.teamctl(["spawn", "alice", "--sandbox", "off"]).ok();
    assert!(
        said.stderr
            .contains("the commands of alice are not confined (sandbox off)"),
        "{said:?}"
    );
    let shown = team.teamctl(["status"]).ok().stdout;
    assert!(shown.contains("SANDBOX OFF"), "{shown}");
    let said = team
        .teamctl(["spawn", "bob", "--no-network", "--sandbox", "read-only"])
        .ok();
    assert!(!said.stderr.contains("confined"), "{said:?}");
    assert_eq!(
        team.member("bob")["sandbox"],
        json!({"mode": "read-only", "no_network": true, "hosts": [], "ports": [], "localhost": "shared", "writable": [], "hidden": [], "visible": []})
    );
}

#[test]
fn a_resumed_teammate_keeps_what_was_recorded_and_only_flags_change_it() {
    let team =
        settled("max_turns = 7\n[members.alice]\nrole = 'coder'\nsandbox.mode = 'read-only'\n");
    let cache = team.root().join("cache");
    std::fs::create_dir(&cache).unwrap();
    team.spawn("alice", "");
    team.shutdown("alice", &[], 0);
    team.write(
        "team.toml",
        "max_turns = 1\n[members.alice]\nrole = 'other'\nprompt = 'x'\nsandbox.mode = 'off'\n",
    );
    team.trust();
    team.teamctl([
        "spawn",
        "alice",
        "--resume",
        "--max-tokens",
        "9",
        "--writable",
        "cache",
    ])
    .ok();
    let alice = record(&team, "alice");
    assert_eq!(
        (&alice["role"], &alice["incarnation"]),
        (&json!("coder"), &json!(2))
    );
    assert_eq!(alice["limits"], json!({"max_turns": 7, "max_tokens": 9}));
    assert_eq!(alice["sandbox"]["mode"], "read-only");
    assert_eq!(
        alice["sandbox"]["writable"],
        json!([cache.canonicalize().unwrap().to_str().unwrap()])
    );
}

#[test]
fn what_team_toml_settles_reaches_the_daemon_and_the_workers() {
    let team = settled(
        "grace = 0.2\ndurability = 'process'\ndecide_within = '7s'\nshutdown_timeout = '300ms'\n",
    );
    team.teamctl(["spawn", "alice", "--prompt", "/bash env"])
        .ok();
    team.until_finished("alice", 1);
    let environment = team.results("alice")[0]["content"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        environment.contains("TEAM_DURABILITY=process\n"),
        "{environment}"
    );
    assert!(environment.contains("TEAM_GRACE=0.2s\n"), "{environment}");
    signal(team.pid("alice"), Signal::SIGSTOP);
    let said = team.teamctl(["shutdown", "alice"]).exits(5);
    assert!(said.stderr.contains("alice has not left"), "{said:?}");
    let request = team.request(&team.last_request("shutdown"));
    assert_eq!(request["payload"]["decide_within"], 7.0);
    team.teamctl(["shutdown", "alice", "--force", "--timeout", "0"])
        .ok();
}

#[test]
fn beside_a_link_to_the_team_directory_is_where_the_link_stands() {
    let team = Team::new();
    let state = team.root().parent().unwrap().join("state");
    std::fs::create_dir(&state).unwrap();
    std::os::unix::fs::symlink(&state, team.root().join(".team")).unwrap();
    team.write("team.toml", "[members.alice]\nrole = 'beside the link'\n");
    // What stands beside the directory itself does not count, not even if it makes no sense.
    team.write("../team.toml", "nonsense");
    team.teamd(["start", "--adopt", ".team"]).ok();
    team.spawn("alice", "");
    assert_eq!(team.member("alice")["role"], "beside the link");
}

/// Writes into a transcript what a conversation with a model that is paid for would have cost.
fn record_usage(team: &Team, name: &str) {
    let path = format!("transcript/{name}.jsonl");
    let free = "\"input_tokens\":0,\"output_tokens\":0,\"cache_read_input_tokens\":0";
    let text = team.file(&path);
    assert_eq!(text.matches(free).count(), 2, "{text}");
    let costly = "\"input_tokens\":300,\"output_tokens\":50,\"cache_read_input_tokens\":700";
    team.put(&path, &text.replace(free, costly));
}

#[test]
fn what_a_conversation_has_cost_is_told_while_it_runs_and_after() {
    let team = Team::started();
    team.spawn("alice", "/bash true");
    team.until_finished("alice", 1);
    assert_eq!(team.answers("alice"), 2);
    team.shutdown("alice", &[], 0);
    record_usage(&team, "alice");
    team.spawn("bob", "");
    team.teamctl(["spawn", "alice", "--resume"]).ok();
    let cost = json!({"input_tokens": 600, "output_tokens": 100, "cache_read_input_tokens": 1400,
        "cache_creation_input_tokens": 0});
    let shows = |when: &str| {
        let shown = team.json(["status"]);
        assert_eq!(
            (&shown["usage"], &shown["members"][0]["usage"]),
            (&cost, &cost),
            "{when}"
        );
        assert_eq!(shown["members"][1]["usage"]["input_tokens"], 0, "{when}");
    };
    shows("while it runs");
    let shown = team.teamctl(["status"]).ok().stdout;
    assert!(
        shown.contains("tokens of the team: 2k in (70% cached) / 100 out\n"),
        "{shown}"
    );
    team.kill_daemon();
    shows("without a daemon");
    team.teamd(["start"]).ok();
    shows("after the daemon");
    team.until("alice to be connected", || {
        team.teamctl(["interrupt", "alice"]).is_done()
    });
    team.kill_and_wait_for_restart("alice");
    shows("in the next incarnation");
    team.shutdown("alice", &[], 0);
    shows("after its end");
    team.kill_daemon();
    team.teamd(["start"]).ok();
    shows("after its end, and the daemon");
    let shown = team.teamctl(["status", "alice"]).ok().stdout;
    assert!(
        shown.contains("2000 read (1400 from the cache, 0 put into it), 100 written"),
        "{shown}"
    );
    // Another conversation begins with nothing.
    team.spawn("alice", "");
    assert_eq!(team.json(["status"])["usage"]["input_tokens"], 0);
}
