//! `teamctl schema` and `teamctl lint`: what a team has written holds for both, and what is broken
//! for neither.

use serde_json::{Value, json};

use teamd_shared::schema::Of;

use crate::support::Team;

/// A team that has done a bit of everything, and whose files are at rest.
fn busy() -> Team {
    let team = Team::started();
    team.spawn(
        "alice",
        "/bash echo one\n/write_file notes.txt hello\n/send_message bob hi",
    );
    team.spawn("bob", "");
    team.teamctl([
        "spawn",
        "carol",
        "--plan",
        "--prompt",
        "/plan_approval Drop the cache\nthen rebuild",
    ])
    .ok();
    team.wait_for("carol", "awaiting_approval");
    let plan = team.last_request("plan_approval");
    team.teamctl(["reject", &plan, "--feedback", "not today"])
        .ok();
    team.echo("bob", "no message at all");
    team.echo(
        "bob",
        r#"{"type":"note","from":"user","text":"hello","id":7}"#,
    );
    team.spawn_rejecting("dave", "still writing");
    team.teamctl(["shutdown", "dave"]).exits(3);
    team.teamctl(["shutdown", "dave", "--force", "--timeout", "0s"])
        .ok();
    team.teamctl(["broadcast", "good night"]).ok();
    team.teamctl(["request-plan", "bob"]).ok();
    team.until("the work to be done", || {
        team.inbox("lead")
            .iter()
            .any(|line| line["from"] == "alice")
    });
    team.kill_and_wait_for_restart("bob");
    team.teamctl(["shutdown", "alice"]).ok();
    team.teamctl(["forget", "alice"]).ok();
    team.spawn("alice", "again");
    team.teamd(["stop", "--force"]).ok();
    team
}

fn validator(team: &Team, of: &str) -> jsonschema::Validator {
    let schema = team.json(["schema", of]);
    assert!(jsonschema::meta::is_valid(&schema), "{of}");
    jsonschema::validator_for(&schema).unwrap()
}

#[track_caller]
fn takes(validator: &jsonschema::Validator, value: &Value) {
    let errors: Vec<String> = validator
        .iter_errors(value)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{value}: {errors:?}");
}

/// Each of these is changed to something of another type, in each object that has it: the schema
/// must notice.
fn refuses_when_broken(validator: &jsonschema::Validator, values: &[Value], fields: &[&str]) {
    for field in fields {
        let with = values.iter().find(|value| !value[*field].is_null());
        let mut broken = with
            .unwrap_or_else(|| panic!("nothing has {field}"))
            .clone();
        broken[*field] = json!([{"what": "ever"}]);
        assert!(!validator.is_valid(&broken), "{field} of {broken}");
    }
}

#[test]
fn the_schemas_take_all_that_a_team_writes_and_nothing_broken() {
    let team = busy();
    let journal = team.journal();
    let schema = validator(&team, "journal");
    for line in journal.iter() {
        takes(&schema, line);
    }
    let fields = [
        "seq",
        "at",
        "record",
        "event",
        "team_name",
        "name",
        "incarnation",
        "begins_at",
        "phase",
        "gate",
        "pid",
        "exit",
        "request_id",
        "kind",
        "status",
        "payload",
        "tell",
        "lead",
        "version",
    ];
    refuses_when_broken(&schema, &journal, &fields);
    let mut without = journal[0].clone();
    without.as_object_mut().unwrap().remove("seq");
    assert!(!schema.is_valid(&without));

    let roster = team.roster();
    let schema = validator(&team, "roster");
    takes(&schema, &roster);
    refuses_when_broken(
        &schema,
        std::slice::from_ref(&roster),
        &["version", "seq", "team_name"],
    );
    for field in ["name", "status", "gate", "exit", "incarnation"] {
        let mut broken = roster.clone();
        broken["members"][0][field] = json!("Not a name!");
        assert!(!schema.is_valid(&broken), "{field}");
    }

    let schema = validator(&team, "transcript");
    let entries: Vec<Value> = ["alice", "bob", "carol", "dave"]
        .iter()
        .flat_map(|name| team.transcript(name))
        .collect();
    for entry in entries.iter() {
        takes(&schema, entry);
    }
    refuses_when_broken(
        &schema,
        &entries,
        &[
            "at",
            "inbox",
            "entry",
            "content",
            "usage",
            "tool_use_id",
            "is_error",
            "idle_reason",
        ],
    );

    let schema = validator(&team, "message");
    let inboxes: Vec<Value> = ["lead", "alice", "bob", "carol", "dave"]
        .iter()
        .flat_map(|name| team.inbox(name))
        .collect();
    for message in inboxes.iter() {
        takes(&schema, message);
    }
    refuses_when_broken(
        &schema,
        &inboxes,
        &[
            "type",
            "from",
            "to",
            "content",
            "request_id",
            "approve",
            "plan",
            "idle_reason",
        ],
    );
    let schema = validator(&team, "rejected");
    let rejected = team.lines("inbox/bob.rejected.jsonl");
    for entry in rejected.iter() {
        takes(&schema, entry);
    }
    refuses_when_broken(&schema, &rejected, &["line", "offset", "reason", "at"]);
    let all = team.json(["schema"]);
    let names: Vec<&str> = Of::all().map(Of::as_str).collect();
    assert_eq!(all.as_object().unwrap().keys().collect::<Vec<_>>(), names);
}

/// What a command prints is valid, and is not with one of its fields changed.
#[track_caller]
pub(crate) fn valid(team: &Team, of: &str, output: &Value, fields: &[&str]) {
    let schema = validator(team, of);
    takes(&schema, output);
    refuses_when_broken(&schema, std::slice::from_ref(output), fields);
}

#[test]
fn the_schemas_take_figures_and_diagrams() {
    let team = Team::started();
    team.spawn("alice", "");
    team.teamctl(["task", "add", "Build it"]).ok();
    let stats = team.json(["stats"]);
    valid(&team, "stats", &stats, &["members", "tasks", "servers"]);
    for (of, field) in [
        ("members", "turns"),
        ("members", "name"),
        ("tasks", "status"),
        ("tasks", "usage"),
    ] {
        let mut broken = stats.clone();
        broken[of][0][field] = json!(["none!"]);
        assert!(!validator(&team, "stats").is_valid(&broken), "{of} {field}");
    }
    valid(
        &team,
        "diagram",
        &team.json(["diagram"]),
        &["format", "diagram"],
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "one row a command")]
fn the_schemas_take_what_each_command_prints_for_programs() {
    let team = Team::new();
    let order = "[[order]]\nname = 'tick'\nevery = '1s'\ntask = {subject = 'x', no_check = true}\n";
    team.write("team.toml", order);
    team.trust();
    valid(
        &team,
        "teamd-status",
        &team.teamd(["--json", "status"]).exits(6).json(),
        &["daemon", "team_dir"],
    );
    let started = team.teamd(["--json", "start"]).ok().json();
    valid(
        &team,
        "teamd-start",
        &started,
        &["pid", "already_running", "team_dir"],
    );
    valid(
        &team,
        "teamd-status",
        &team.teamd(["--json", "status"]).ok().json(),
        &["team_name", "daemon"],
    );
    valid(&team, "agents", &team.json(["agents"]), &[]);
    team.until("the order to make a task", || {
        team.json(["orders"])[0]["task"] == 1
    });
    valid(&team, "orders", &team.json(["orders"]), &[]);
    valid(&team, "memory", &team.json(["memory"]), &[]);
    valid(
        &team,
        "spawn",
        &team.spawn("alice", ""),
        &["name", "pid", "incarnation", "status"],
    );
    team.teamctl([
        "spawn",
        "carol",
        "--plan",
        "--prompt",
        "/plan_approval Drop it",
    ])
    .ok();
    team.wait_for("carol", "awaiting_approval");
    team.spawn_rejecting("dave", "still writing");
    valid(
        &team,
        "send",
        &team.json(["send", "alice", "hi"]),
        &["id", "to", "offset"],
    );
    valid(
        &team,
        "broadcast",
        &team.json(["broadcast", "hi"]),
        &["id", "to"],
    );
    valid(
        &team,
        "wait",
        &team.json(["wait", "alice", "--for", "idle"]),
        &["name", "status"],
    );
    valid(
        &team,
        "wait",
        &team.json(["wait", "--all", "--for", "idle,working,awaiting_approval"]),
        &["results"],
    );
    valid(
        &team,
        "request-plan",
        &team.json(["request-plan", "alice"]),
        &["name", "incarnation", "gate"],
    );
    valid(
        &team,
        "interrupt",
        &team.json(["interrupt", "dave"]),
        &["name", "interrupted"],
    );
    let plans = team.json(["plans"]);
    valid(&team, "requests", &plans, &[]);
    let plan = plans[0]["request_id"].as_str().unwrap().to_owned();
    let answer = team.json(["approve", &plan]);
    valid(
        &team,
        "answer",
        &answer,
        &["request_id", "from", "status", "repeated"],
    );
    let status = team.json(["status"]);
    valid(
        &team,
        "status",
        &status,
        &["team_name", "daemon", "usage", "members"],
    );
    for field in ["unread", "resources", "name", "status", "pid"] {
        let mut broken = status.clone();
        broken["members"][0][field] = json!("none!");
        assert!(!validator(&team, "status").is_valid(&broken), "{field}");
    }
    team.spawn_rejecting("erin", "still writing");
    let refused = team.teamctl(["--json", "shutdown", "erin"]).exits(3).json();
    valid(&team, "shutdown", &refused, &["results"]);
    valid(
        &team,
        "shutdown",
        &team.json(["shutdown", "alice"]),
        &["results"],
    );
    team.teamctl(["--json", "shutdown", "nosuch"]).exits(4);
    let mut requests = team.json(["requests"]);
    valid(&team, "requests", &requests, &[]);
    requests[0]["status"] = json!("lost");
    assert!(!validator(&team, "requests").is_valid(&requests));
    valid(
        &team,
        "forget",
        &team.json(["forget", "alice"]),
        &["name", "files"],
    );
    valid(
        &team,
        "forget",
        &team.json(["forget", "--ended"]),
        &["results"],
    );
    valid(&team, "inbox", &team.json(["inbox"]), &[]);
    valid(
        &team,
        "transcript-output",
        &team.json(["transcript", "carol"]),
        &[],
    );
    valid(&team, "events", &team.json(["events"]), &[]);
    valid(&team, "logs", &team.json(["log", "teamd"]), &[]);
    let logs = team.json(["logs", "--last", "1"]);
    valid(&team, "logs", &logs, &[]);
    assert!(!validator(&team, "logs").is_valid(&json!([{"line": "of whom?"}])));
    let remark = team
        .teamctl_with(["--json", "lint", "-"], "no message\n")
        .exits(1)
        .json();
    valid(
        &team,
        "lint",
        &remark,
        &["file", "line", "column", "severity", "what", "reader"],
    );
    let doctor = team.teamctl(["--json", "doctor"]);
    valid(&team, "doctor", &doctor.json(), &["findings"]);
    let error: Value =
        serde_json::from_str(&team.teamctl(["--json", "status", "nosuch"]).exits(4).stderr)
            .unwrap();
    valid(&team, "error", &error, &["error"]);
    team.write(
        "team.toml",
        "[members.alice]\n[members.dave]\n[members.carol]\nmodel = \"anthropic\"\n",
    );
    team.teamctl(["shutdown", "carol"]).ok();
    let up = team.teamctl(["--json", "up"]).exits(2).json();
    valid(&team, "up", &up, &["results"]);
    for field in ["pid", "already_running", "error"] {
        let mut broken = up.clone();
        for it in broken["results"].as_array_mut().unwrap().iter_mut() {
            it[field] = json!("none!");
        }
        assert!(!validator(&team, "up").is_valid(&broken), "{field}");
    }
    let down = team.teamctl(["--json", "down", "--force"]).ok().json();
    valid(&team, "down", &down, &["stopped", "team_dir"]);
    team.teamd(["start"]).ok();
    let stopped = team.teamd(["--json", "stop", "--force"]).ok().json();
    valid(&team, "teamd-stop", &stopped, &["stopped", "team_dir"]);
    team.write("team.toml", "[sandbox]\nwritable = [\"/srv\"]\n");
    let trusted = team.teamd(["--json", "trust"]).ok().json();
    assert_eq!(trusted["keys"][0]["trusted"], true, "{trusted}");
    valid(&team, "teamd-trust", &trusted, &["path", "keys"]);
}

#[test]
fn a_line_as_common_foreign_writers_write_it_is_consumed() {
    let team = Team::started();
    team.spawn("alice", "");
    // Python's json.dumps of a text that was cut inside an emoji; Lua's numbers.
    team.echo(
        "alice",
        r#"{"type":"message","from":"bob","content":"cut \ud83d"}"#,
    );
    team.echo("alice", r#"{"type":"shutdown_request","from":"lead","request_id":"a1b2c3d4","incarnation":1.0,"decide_within":30}"#);
    team.echo(
        "alice",
        r#"{"type":"shutdown_response","from":"bob","request_id":"a1b2c3d4","approve":true}"#,
    );
    team.until("all three", || team.consumed("alice").len() == 3);
    let consumed = team.consumed("alice");
    assert_eq!(consumed[0]["content"], "cut \u{fffd}");
    assert_eq!(consumed[1]["incarnation"], 1);
    assert_eq!(
        consumed[2].get("answered_by"),
        None,
        "its writer has not said who answered"
    );
    assert_eq!(team.lines("inbox/alice.rejected.jsonl").len(), 0);
}

#[test]
fn lint_says_what_our_readers_make_of_each_file() {
    let team = busy();
    let good = [
        "journal.jsonl",
        "config.json",
        "inbox/lead.jsonl",
        "transcript/carol.jsonl",
    ];
    let paths = good.map(|file| format!(".team/{file}"));
    let run = team
        .teamctl(["lint"].into_iter().chain(paths.iter().map(String::as_str)))
        .ok();
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", ""));
    let run = team.teamctl(["lint", ".team/inbox/bob.jsonl"]).exits(1);
    let lines: Vec<&str> = run.stdout.lines().collect();
    let rejected = lines
        .iter()
        .find(|line| line.contains("error: not JSON"))
        .unwrap();
    assert!(
        rejected.starts_with(".team/inbox/bob.jsonl:") && rejected.contains("(rejected: "),
        "{run:?}"
    );
    assert!(
        run.stdout
            .contains("warning: the type \"note\" is unknown (delivered as text)"),
        "{run:?}"
    );
    // What lint calls an error is what the reader has put into quarantine.
    assert_eq!(
        team.lines("inbox/bob.rejected.jsonl").len(),
        lines.iter().filter(|line| line.contains("error:")).count()
    );
}

#[test]
fn lint_reads_stdin_and_names_each_place_for_programs() {
    let team = Team::new();
    let run = team
        .teamctl_with(
            ["--json", "lint", "--as", "journal", "-"],
            "{\"seq\":1\n{}\n",
        )
        .exits(1);
    let remarks: Vec<Value> = run
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(remarks.len(), 2);
    assert_eq!(remarks[0]["file"], "-");
    assert_eq!(
        (&remarks[0]["line"], &remarks[0]["severity"]),
        (&json!(1), &json!("error"))
    );
    assert!(
        remarks[0]["reader"].as_str().unwrap().contains("refuses"),
        "{remarks:?}"
    );
    let warned = team
        .teamctl_with(
            ["lint", "-"],
            "{\"type\":\"message\",\"from\":\"user\",\"content\":\"hi\"}\n",
        )
        .ok();
    assert_eq!(
        warned.stdout,
        "-:1:1: warning: no id (taken: but a line that is written twice is read twice)\n"
    );
    let settings = team
        .teamctl_with(["lint", "--as", "settings", "-"], "grase = 1\n")
        .exits(1);
    assert!(
        settings.stdout.starts_with("-:1:1: error: "),
        "{settings:?}"
    );
    assert!(
        team.teamctl(["lint", "nowhere.jsonl"])
            .exits(1)
            .stdout
            .contains("cannot be read")
    );
    team.teamctl(["lint", "a.rejected.jsonl"]).exits(2);
}
