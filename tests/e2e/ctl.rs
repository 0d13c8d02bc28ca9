//! `teamctl` as people and programs see it: results, errors, exit codes, nothing that a terminal
//! would act on.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::look::HELD;
use crate::support::{Run, Team, signal};

/// Keys of an object, sorted.
fn keys(object: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = object
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    keys
}

/// The error of a command that ran with `--json`: the only line on stderr, and nothing on stdout.
#[track_caller]
fn error(run: &Run) -> Value {
    assert!(
        run.stdout.is_empty() && run.stderr.lines().count() == 1,
        "{run:?}"
    );
    let line: Value = serde_json::from_str(&run.stderr).unwrap_or_else(|e| panic!("{e}: {run:?}"));
    assert_eq!(keys(&line), ["error"], "{run:?}");
    line["error"].clone()
}

#[test]
fn spawn_shows_the_new_teammate() {
    let team = Team::started();
    // A user who named no model is told which one it is: once.
    assert!(
        team.teamctl(["spawn", "carol"])
            .ok()
            .stderr
            .contains("script")
    );
    assert_eq!(team.teamctl(["spawn", "eve"]).ok().stderr, "");
    let spawned = team.json(["spawn", "alice", "--role", "coder"]);
    let expected =
        json!({"name": "alice", "pid": team.pid("alice"), "incarnation": 1, "status": "idle"});
    assert_eq!(spawned, expected);
    let run = team.teamctl(["spawn", "bob", "--model", "script"]).ok();
    assert_eq!(
        run.stdout,
        format!("bob is idle (pid {})\n", team.pid("bob"))
    );
    assert_eq!(run.stderr, "");
    assert_eq!(
        error(&team.teamctl(["--json", "spawn", "alice"]).exits(7))["code"],
        "conflict"
    );
    for bad in [
        &["spawn", "lead"][..],
        &["spawn", "../x"],
        &["spawn", "dave", "--model", "nonsense"],
    ] {
        team.teamctl(bad).exits(2);
    }
    team.teamctl(["spawn", "dave", "--workspace", "missing"])
        .exits(1);
    team.teamctl(["spawn", "dave", "--resume"]).exits(4);
    assert_eq!(team.member("dave"), Value::Null);
}

#[test]
fn shutdown_tells_what_became_of_each_name() {
    let team = Team::started();
    for name in ["alice", "bob"] {
        team.spawn(name, "");
    }
    let run = team
        .teamctl(["--json", "shutdown", "alice", "ghost"])
        .exits(4);
    let results = run.json()["results"].clone();
    assert_eq!(
        keys(&results[0]),
        ["exit", "name", "outcome", "reason", "request_id"]
    );
    assert_eq!(
        (&results[0]["outcome"], &results[0]["reason"]),
        (&json!("shutdown"), &json!(null))
    );
    assert_eq!(results[1]["name"], "ghost");
    assert!(run.stderr.contains("ghost"), "{run:?}");
    let run = team.teamctl(["shutdown", "bob"]).ok();
    assert!(
        run.stdout
            .ends_with("bob is gone: shutdown (exit code 0)\n")
            && run.stderr.is_empty(),
        "{run:?}"
    );
}

#[test]
fn status_shows_the_roster_and_what_is_unread() {
    let team = Team::started();
    assert_eq!(team.json(["status"])["members"], json!([]));
    team.teamctl(["spawn", "alice", "--role", "coder", "--prompt", HELD])
        .ok();
    team.until_held();
    for text in ["one", "two"] {
        team.send("alice", text);
    }
    team.until("the roster to show the command", || {
        team.member("alice")["activity"]
            .as_str()
            .is_some_and(|activity| activity.starts_with("bash"))
    });
    let status = team.json(["status"]);
    assert_eq!(
        keys(&status),
        ["daemon", "members", "sandbox", "team_name", "usage"]
    );
    assert_eq!(
        status["daemon"],
        json!({"running": true, "pid": team.daemon_pid(), "trouble": null})
    );
    let mut expected = team.member("alice");
    expected["unread"] = json!(2);
    // What it uses of the machine changes all the time.
    for shown in [&status, &team.json(["ls", "alice"])] {
        let mut shown = shown["members"][0].clone();
        let resources = shown.as_object_mut().unwrap().remove("resources").unwrap();
        assert!(
            resources["processes"].as_u64() >= Some(2),
            "worker and command: {resources}"
        );
        assert_eq!(shown, expected);
    }
    let human = team.teamctl(["status"]).ok().stdout;
    let row: Vec<&str> = human.lines().nth(1).unwrap().split_whitespace().collect();
    let pid = team.pid("alice").to_string();
    assert_eq!(
        (row[0], row[1], row[2], row[4], row[5], row[6]),
        ("alice", "coder", "working", "2", "open", pid.as_str())
    );
    assert!(
        team.teamctl(["status", "alice"])
            .ok()
            .stdout
            .contains(team.root().to_str().unwrap())
    );
    assert_eq!(
        error(&team.teamctl(["--json", "status", "ghost"]).exits(4))["code"],
        "not_found"
    );
}

#[test]
fn status_needs_no_daemon_and_looks_at_the_processes() {
    let team = Team::started();
    team.spawn("alice", "");
    team.spawn("bob", "");
    team.kill_daemon();
    let bob = team.pid("bob");
    signal(bob, Signal::SIGKILL);
    team.until("bob to be gone", || !crate::support::is_alive(bob));
    let status = team.json(["status"]);
    assert_eq!(
        status["daemon"],
        json!({"running": false, "pid": null, "trouble": null})
    );
    assert_eq!(status["members"].as_array().unwrap().len(), 2);
    let run = team.teamctl(["status"]).ok();
    assert!(
        run.stderr.contains("not running") && run.stderr.contains("bob"),
        "{run:?}"
    );
    // Where there is no team at all it says how to begin.
    let nowhere = Team::new();
    assert!(
        nowhere
            .teamctl(["status"])
            .exits(6)
            .stderr
            .contains("teamd start")
    );
    assert!(!nowhere.root().join(".team").exists());
}

#[test]
fn what_needs_a_daemon_says_so_where_none_runs() {
    let team = Team::started();
    team.spawn("alice", "");
    team.shutdown("alice", &[], 0);
    team.teamd(["stop"]).ok();
    for command in [
        &["spawn", "bob", "--no-start"][..],
        &["shutdown", "alice"],
        &["interrupt", "alice"],
        &["request-plan", "alice"],
        &["forget", "alice"],
        &["wait", "alice", "--for", "idle"],
    ] {
        let run = team.teamctl(command);
        // One that has ended can be refused from the files alone.
        assert!(
            [Some(6), Some(7)].contains(&run.code),
            "{command:?}: {run:?}"
        );
        assert!(
            run.stderr.contains("error: ") && run.stderr.contains("hint: "),
            "{run:?}"
        );
    }
    assert_eq!(
        error(
            &team
                .teamctl(["--json", "spawn", "bob", "--no-start"])
                .exits(6)
        )["code"],
        "not_running"
    );
    let nowhere = Team::new();
    assert!(
        nowhere
            .teamctl(["spawn", "bob", "--no-start"])
            .exits(6)
            .stderr
            .contains("teamd start")
    );
    // What only reads needs none.
    for command in [
        &["inbox"][..],
        &["events"],
        &["requests"],
        &["plans"],
        &["transcript", "alice"],
        &["log", "teamd"],
    ] {
        team.teamctl(command).ok();
    }
}

#[test]
fn send_and_broadcast_name_the_message() {
    let team = Team::started();
    team.spawn("alice", "");
    let sent = team.json(["send", "alice", "hello"]);
    assert_eq!(
        (&sent["to"], &sent["id"]),
        (&json!("alice"), &team.inbox("alice")[0]["id"])
    );
    let human = team
        .teamctl_with(["send", "alice", "-"], "from\nstdin\n")
        .ok();
    let line = team.inbox("alice")[1].clone();
    assert_eq!(line["content"], "from\nstdin");
    assert_eq!(
        human.stdout,
        format!("sent to alice ({})\n", line["id"].as_str().unwrap())
    );
    let all = team.json(["broadcast", "stand up"]);
    assert_eq!(
        (&all["to"], &all["id"]),
        (&json!(["alice"]), &team.inbox("alice")[2]["id"])
    );
    team.json(["send", "user", "for people"]);
    assert_eq!(
        team.inbox("lead")
            .iter()
            .rfind(|line| line["type"] == "message")
            .unwrap()["to"],
        "user"
    );
    for blank in ["", "  \n"] {
        assert_ne!(
            team.teamctl(["send", "alice", blank]).code,
            Some(0),
            "{blank:?}"
        );
    }
}

#[test]
fn records_are_shown_as_they_stand_in_the_files() {
    let team = Team::started();
    team.spawn("alice", "/bash echo hi\nfirst");
    team.until_finished("alice", 1);
    for text in ["one", "two", "three"] {
        team.does("alice", text);
    }
    team.shutdown("alice", &[], 0);
    assert_eq!(team.json(["inbox", "alice"]), json!(team.inbox("alice")));
    assert_eq!(team.json(["inbox"]), json!(team.inbox("lead")));
    assert_eq!(
        team.json(["inbox", "--last", "2"]),
        json!(team.inbox("lead").split_off(team.inbox("lead").len() - 2))
    );
    assert_eq!(
        team.json(["transcript", "alice"]),
        json!(team.transcript("alice"))
    );
    assert_eq!(team.json(["events"]), json!(team.journal()));
    let request = team.json(["requests"])[0].clone();
    let mut journaled = team.request(request["request_id"].as_str().unwrap());
    for key in [
        "seq", "at", "done", "lead", "record", "event", "expired", "tell",
    ] {
        journaled.as_object_mut().unwrap().shift_remove(key);
    }
    assert_eq!(request, journaled);
    assert_eq!(
        team.json(["requests", &request["request_id"].as_str().unwrap()[..5]]),
        json!([request])
    );
    // And for people, a line each.
    let inbox = team.teamctl(["inbox", "alice"]).ok().stdout;
    assert!(
        inbox.lines().next().unwrap().ends_with("lead → alice  one"),
        "{inbox}"
    );
    let events = team.teamctl(["events", "--last", "1"]).ok().stdout;
    assert!(
        events.contains("alice shut down (exit code 0)") && events.lines().count() == 1,
        "{events}"
    );
    let transcript = team.teamctl(["transcript", "alice"]).ok().stdout;
    assert!(
        transcript.contains("▸ bash echo hi") && transcript.contains("result: hi"),
        "{transcript}"
    );
    assert!(
        team.teamctl(["log", "teamd"])
            .ok()
            .stdout
            .contains("runs for")
    );
    let requests = team.teamctl(["requests"]).ok().stdout;
    assert!(
        requests.contains("shutdown") && requests.contains("approved"),
        "{requests}"
    );
    // Looking consumes nothing, and an unknown name is an error.
    assert_eq!(team.json(["inbox", "alice"]), json!(team.inbox("alice")));
    for command in ["inbox", "transcript", "log"] {
        let run = team.teamctl([command, "ghost"]).exits(4);
        assert!(
            run.stderr.contains("error: ") && run.stderr.contains("hint: "),
            "{run:?}"
        );
    }
    team.teamctl(["requests", "zzzz"]).exits(4);
}

#[test]
fn a_malformed_line_of_an_inbox_is_shown_and_stops_nothing() {
    let team = Team::started();
    team.spawn("alice", "");
    team.echo("alice", "nonsense");
    team.send("alice", "hello");
    let human = team.teamctl(["inbox", "alice"]).ok().stdout;
    assert!(
        human.contains("nonsense") && human.contains("hello"),
        "{human}"
    );
    assert_eq!(team.json(["inbox", "alice"])[1]["content"], "hello");
}

#[test]
fn errors_name_what_failed_and_what_to_do_next() {
    let team = Team::started();
    team.spawn("alice", "");
    for (command, code, kind) in [
        (&["send", "ghost", "hi"][..], 4, "not_found"),
        (&["interrupt", "ghost"], 4, "not_found"),
        (&["approve", "zzzz"], 4, "not_found"),
        (&["wait", "ghost", "--for", "idle"], 4, "not_found"),
        (&["spawn", "alice"], 7, "conflict"),
        (&["forget", "alice"], 7, "conflict"),
        (
            &["wait", "alice", "--for", "working", "--timeout", "50ms"],
            5,
            "timed_out",
        ),
        (&["spawn", "Alice"], 2, "usage"),
        (&["dance"], 2, "usage"),
        (&["wait", "alice", "--for", "gone"], 2, "usage"),
        (&["send", "alice"], 2, "usage"),
        (&["shutdown"], 2, "usage"),
        (&["shutdown", "alice", "--timeout", "soon"], 2, "usage"),
    ] {
        let told = error(&team.teamctl([&["--json"], command].concat()).exits(code));
        assert_eq!(
            (told["code"].as_str(), keys(&told)),
            (Some(kind), vec!["code", "hint", "message"]),
            "{command:?}"
        );
        let human = team.teamctl(command).exits(code);
        assert!(human.stdout.is_empty(), "{human:?}");
        let message = told["message"].as_str().unwrap();
        let hint = told["hint"].as_str().unwrap();
        assert!(
            human.stderr.starts_with(&format!("error: {message}\n")),
            "{human:?}"
        );
        assert!(
            human.stderr.contains(&format!("hint: {hint}\n")),
            "{human:?}"
        );
    }
    // A setting that makes no sense is an error, too.
    let team = Team::new().with("TEAM_GRACE", "soon");
    assert!(
        team.teamctl(["status"])
            .exits(2)
            .stderr
            .contains("TEAM_GRACE")
    );
}

#[test]
fn nothing_that_a_terminal_would_act_on_is_printed() {
    let evil = "\u{1b}[31mred\u{7}\u{9b}2J\u{202e}txt.exe\rover";
    let team = Team::started();
    team.write(
        "prompt.txt",
        &format!("/bash printf '\\033[2Jcleared'\n/plan_approval {evil}\n{evil}"),
    );
    assert!(
        team.teamctl(["spawn", "alice", "--role", evil])
            .exits(2)
            .stderr
            .contains("visible characters")
    );
    team.teamctl(["spawn", "alice", "--prompt-file", "prompt.txt"])
        .ok();
    let id = team.until_planned("alice");
    team.teamctl(["approve", &id, "--feedback", evil]).ok();
    team.until_finished("alice", 1);
    team.teamctl(["send", "alice", evil]).ok();
    team.echo("alice", &format!("not json {evil}"));
    team.until_finished("alice", 2);
    let before = [&["plans", id.as_str()][..], &["requests", &id]].map(<[&str]>::to_vec);
    team.teamctl(["shutdown", "alice", "--reason", evil]).ok();
    let mut commands = before.to_vec();
    for command in [
        &["status"][..],
        &["status", "alice"],
        &["inbox", "--last", "50"],
        &["inbox", "alice"],
        &["transcript", "alice"],
        &["events"],
        &["requests"],
        &["log", "alice"],
        &["log", "teamd"],
        &["send", evil, "hi"],
        &["--help"],
        &["spawn", "--help"],
    ] {
        commands.push(command.to_vec());
    }
    for command in commands {
        for json in [false, true] {
            let run = team.teamctl(if json {
                [&["--json"], &command[..]].concat()
            } else {
                command.clone()
            });
            let printed = run.stdout + &run.stderr;
            let active = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}';
            assert!(
                !printed.is_empty() && !printed.contains(active),
                "{command:?}: {printed:?}"
            );
        }
    }
    // What the JSON means is what was said.
    assert_eq!(team.json(["requests", &id])[0]["reason"], evil);
    assert!(
        team.teamctl(["inbox", "alice"])
            .ok()
            .stdout
            .contains("\\u{1b}[31mred")
    );
}

#[test]
fn wait_returns_when_the_status_is_reached_or_cannot_be() {
    let team = Team::started();
    team.spawn("alice", HELD);
    team.until_held();
    let waiting = team.start_teamctl(["--json", "wait", "alice", "--for", "idle,shutdown"]);
    team.release();
    assert_eq!(
        waiting.finish().ok().json(),
        json!({"name": "alice", "status": "idle"})
    );
    let waiting = team.start_teamctl(["wait", "alice", "--for", "shutdown"]);
    team.shutdown("alice", &[], 0);
    assert_eq!(waiting.finish().ok().stdout, "alice is shutdown\n");
    team.teamctl(["wait", "alice", "--for", "shutdown"]).ok();
    team.teamctl(["wait", "alice", "--for", "idle"]).exits(7);
    // A plan that waits for an answer ends the waiting for all, and not that for a status.
    team.teamctl([
        "spawn",
        "ana",
        "--plan",
        "--prompt",
        "/plan_approval Drop the cache",
    ])
    .ok();
    let id = team.until_planned("ana");
    let run = team.teamctl(["wait", "--all", "--timeout", "20s"]).exits(7);
    assert!(
        run.stderr.contains("ana waits for an answer to its plan"),
        "{run:?}"
    );
    let waiting = team.start_teamctl(["wait", "ana", "--for", "idle"]);
    team.teamctl(["approve", &id]).ok();
    waiting.finish().ok();
    team.spawn("bob", "");
    let waiting = team.start_teamctl(["wait", "bob", "--for", "working"]);
    signal(team.pid("bob"), Signal::SIGTERM);
    waiting.finish().exits(7);
    assert_eq!(team.status("bob"), "killed");
}

#[test]
fn several_are_waited_for_and_forgotten_at_once() {
    let team = Team::started();
    team.spawn("w10", HELD);
    for name in ["w2", "gus", "ida"] {
        team.spawn(name, "");
    }
    team.until_held();
    let both = team.start_teamctl(["wait", "w2", "w10", "--for", "idle"]);
    let all = team.start_teamctl(["--json", "wait", "--all"]);
    team.teamctl(["wait", "w10", "w2", "--for", "idle", "--timeout", "50ms"])
        .exits(5);
    team.release();
    assert_eq!(both.finish().ok().stdout, "w2 is idle\nw10 is idle\n");
    assert_eq!(
        all.finish().ok().json()["results"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
    let run = team
        .teamctl(["wait", "w2", "ghost", "--for", "idle"])
        .exits(4);
    assert!(
        run.stdout == "w2 is idle\n" && run.stderr.contains("ghost"),
        "{run:?}"
    );
    team.teamctl(["shutdown", "gus", "ida"]).ok();
    let run = team.teamctl(["forget", "w2", "ghost"]).exits(4);
    assert!(
        run.stderr.contains("w2") && run.stderr.contains("ghost"),
        "{run:?}"
    );
    assert_eq!(
        team.json(["forget", "--ended"])["results"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert!(
        team.teamctl(["forget", "--ended"])
            .ok()
            .stderr
            .contains("no teammate has ended")
    );
    assert_eq!(team.roster()["members"].as_array().unwrap().len(), 2);
}

#[test]
fn an_event_is_one_line_and_events_begin_where_they_are_wanted() {
    let team = Team::started();
    let plan = r"/plan_approval # Plan\n\nDrop the cache\nThen rebuild";
    team.teamctl(["spawn", "alice", "--plan", "--prompt", plan])
        .ok();
    team.until_planned("alice");
    let events = team.teamctl(["events"]).ok().stdout;
    assert_eq!(events.lines().count(), team.journal().len(), "{events}");
    assert!(
        events.contains("asked: Drop the cache (+ 3 lines)"),
        "{events}"
    );
    assert!(
        team.teamctl(["plans"])
            .ok()
            .stdout
            .contains("Drop the cache")
    );
    assert_eq!(
        team.teamctl(["events", "--since", "1h"]).ok().stdout,
        events
    );
    assert_eq!(
        team.teamctl(["events", "--since", "2099-01-01"])
            .ok()
            .stdout,
        ""
    );
    team.teamctl(["events", "--since", "soon"]).exits(2);
    let none = team.teamctl(["inbox", "--last", "0"]).ok();
    assert_eq!((none.stdout.as_str(), none.stderr.as_str()), ("", ""));
}

#[test]
fn a_forgotten_member_is_off_the_roster_and_its_files_are_kept() {
    let team = Team::started();
    team.spawn("alice", "/bash echo hello");
    team.until_finished("alice", 1);
    assert!(team.path("log/alice.command.log").exists());
    team.teamctl(["forget", "alice"]).exits(7);
    team.shutdown("alice", &[], 0);
    let forgotten = team.json(["forget", "alice"]);
    let files = forgotten["files"].as_array().unwrap();
    assert!(files.len() >= 2, "{forgotten}");
    for file in files {
        assert!(team.path(file.as_str().unwrap()).exists(), "{file}");
    }
    assert!(
        !team.path("inbox/alice.jsonl").exists() && !team.path("transcript/alice.jsonl").exists()
    );
    // The next one of that name would be shown with it.
    assert!(!team.path("log/alice.command.log").exists());
    assert_eq!(team.member("alice"), Value::Null);
    team.teamctl(["forget", "alice"]).exits(4);
    team.teamctl(["send", "--queue", "alice", "hi"]).exits(4);
    // The name is free for another teammate.
    team.spawn("alice", "");
    assert!(team.transcript("alice").len() == 1 && team.inbox("alice").is_empty());
}

#[test]
fn commands_that_change_something_say_what() {
    let team = Team::started();
    team.teamctl([
        "spawn",
        "alice",
        "--plan",
        "--prompt",
        "/plan_approval Something",
    ])
    .ok();
    let id = team.until_planned("alice");
    let approved = team.json(["approve", &id]);
    assert_eq!(
        (&approved["request_id"], &approved["status"]),
        (&json!(id), &json!("approved"))
    );
    assert!(
        team.teamctl(["approve", &id])
            .ok()
            .stdout
            .contains("already approved")
    );
    team.until_finished("alice", 1);
    assert_eq!(team.json(["request-plan", "alice"])["gate"], "closed");
    assert!(
        team.teamctl(["interrupt", "alice"])
            .ok()
            .stdout
            .contains("alice")
    );
    assert_eq!(team.json(["interrupt", "alice"])["name"], "alice");
}

#[test]
fn each_shell_asks_the_programs_for_completions() {
    let team = Team::new();
    for shell in ["bash", "zsh", "fish"] {
        for script in [
            team.teamctl(["completions", shell]).ok(),
            team.teamd(["completions", shell]).ok(),
        ] {
            assert!(script.stdout.contains("COMPLETE"), "{shell}");
            team.write("completion", &script.stdout);
            if let Ok(status) = team.command(shell, ["-n", "completion"]).status() {
                assert!(status.success(), "{shell}");
            }
        }
    }
    team.teamctl(["completions", "tcsh"]).exits(2);
}

#[test]
fn names_and_ids_are_completed_from_the_files_and_without_a_team_nothing_is() {
    let team = Team::new()
        .with("COMPLETE", "bash")
        .with("_CLAP_COMPLETE_INDEX", "2")
        .with("_CLAP_IFS", "\n");
    let ask = |words: &[&str]| -> Vec<String> {
        let run = team.teamctl(["--", "teamctl"].iter().chain(words)).ok();
        assert_eq!(run.stderr, "");
        run.stdout.lines().map(str::to_owned).collect()
    };
    assert!(!team.path("").exists() && ask(&["send", "a"]).is_empty());
    assert!(!team.path("").exists(), "nothing is started or made");
    let run = |args: &[&str]| {
        let mut command = team.command(env!("CARGO_BIN_EXE_teamctl"), args);
        assert!(
            command
                .env_remove("COMPLETE")
                .output()
                .unwrap()
                .status
                .success(),
            "{args:?}"
        );
    };
    run(&[
        "spawn",
        "alice",
        "--plan",
        "--prompt",
        "/plan_approval Drop the cache",
    ]);
    run(&["spawn", "albert"]);
    let id = team.until_planned("alice");
    assert_eq!(ask(&["send", "al"]), ["albert", "alice"]);
    assert_eq!(ask(&["approve", &id[..2]]), [id.as_str()]);
    assert!(ask(&["shutdown", "--dec"]).contains(&"--decide-within".to_owned()));
    team.write(
        "team.toml",
        "[roles.coder]\nmcp = ['files']\n[mcp.files]\ncommand = ['sh']\n[agents.fixer]\ncommand = ['sh']\nprotocol = 'run'\n",
    );
    let ask_value = |words: &[&str]| {
        let line = ["--", "teamctl"].iter().chain(words);
        let mut command = team.command(env!("CARGO_BIN_EXE_teamctl"), line);
        command.env("_CLAP_COMPLETE_INDEX", words.len().to_string());
        let output = command.output().unwrap().stdout;
        let output = String::from_utf8(output).unwrap();
        output.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(ask_value(&["spawn", "x", "--mcp", "f"]), ["files"]);
    assert_eq!(ask_value(&["spawn", "x", "--role", "c"]), ["coder"]);
    let agents = ask_value(&["spawn", "x", "--agent", ""]);
    for agent in ["builtin", "claude", "fixer", "opencode"] {
        assert!(agents.iter().any(|it| it == agent), "{agents:?}");
    }
    assert_eq!(ask_value(&["agents", "install", "fi"]), ["fixer"]);
    assert_eq!(ask_value(&["mcp", "install", "f"]), ["files"]);
}

/// `teamctl 0.1.0 (2bcfaeb 2026-11-23)`; a source archive has no repository, and knows no commit.
#[test]
fn the_version_names_the_commit_and_its_date() {
    let team = Team::new();
    // In a source archive there is no repository, and git reads none of another user.
    let mut git = std::process::Command::new("git");
    git.args([
        "-C",
        env!("CARGO_MANIFEST_DIR"),
        "rev-parse",
        "--verify",
        "HEAD",
    ]);
    let has_commit = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(".git")
        .exists()
        && git.output().is_ok_and(|asked| asked.status.success());
    let programs = [
        ("teamd", env!("CARGO_BIN_EXE_teamd")),
        ("teamctl", env!("CARGO_BIN_EXE_teamctl")),
        ("team-worker", env!("CARGO_BIN_EXE_team-worker")),
    ];
    for (name, program) in programs {
        let shown = String::from_utf8(
            team.command(program, ["--version"])
                .output()
                .unwrap()
                .stdout,
        )
        .unwrap();
        let package = format!("{name} {}", env!("CARGO_PKG_VERSION"));
        let commit = shown
            .trim_end()
            .strip_prefix(&package)
            .unwrap_or_else(|| panic!("{shown}"));
        if !has_commit {
            assert_eq!(commit, "");
            continue;
        }
        let commit = commit
            .strip_prefix(" (")
            .and_then(|rest| rest.strip_suffix(')'));
        let (hash, date) = commit
            .and_then(|it| it.split_once(' '))
            .unwrap_or_else(|| panic!("{shown}"));
        assert!(
            hash.len() >= 7 && hash.chars().all(|digit| digit.is_ascii_hexdigit()),
            "{shown}"
        );
        assert_eq!(
            date.split('-').map(str::len).collect::<Vec<_>>(),
            [4, 2, 2],
            "{shown}"
        );
    }
}

#[test]
fn help_and_version_are_results() {
    let team = Team::new();
    let help = team.teamctl(["--help"]).ok();
    assert!(
        help.stderr.is_empty() && help.stdout.contains("teamctl spawn"),
        "{help:?}"
    );
    for command in ["spawn", "shutdown", "status", "send", "approve", "wait"] {
        assert!(
            team.teamctl([command, "--help"])
                .ok()
                .stdout
                .contains("Usage: "),
            "{command}"
        );
    }
    let nothing: [&str; 0] = [];
    team.teamctl(nothing).exits(2);
}
