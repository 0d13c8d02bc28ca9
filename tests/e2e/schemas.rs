//! `teamctl schema` and `teamctl lint`: what a team has written holds for both, and what is broken for neither.

use serde_json::{Value, json};

use crate::support::Team;

/// A team that has done a bit of everything, and whose files are at rest.
fn busy() -> Team {
    let team = Team::started();
    team.spawn("alice", "/bash echo one\n/write_file notes.txt hello\n/send_message bob hi");
    team.spawn("bob", "");
    team.teamctl(["spawn", "carol", "--plan", "--prompt", "/plan_approval Drop the cache\nthen rebuild"])
        .ok();
    team.wait_for("carol", "awaiting_approval");
    let plan = team.last_request("plan_approval");
    team.teamctl(["reject", &plan, "--feedback", "not today"]).ok();
    team.echo("bob", "no message at all");
    team.echo("bob", r#"{"type":"note","from":"user","text":"hello","id":7}"#);
    team.spawn_rejecting("dave", "still writing");
    team.teamctl(["shutdown", "dave"]).exits(3);
    team.teamctl(["shutdown", "dave", "--force", "--timeout", "0s"]).ok();
    team.teamctl(["broadcast", "good night"]).ok();
    team.teamctl(["request-plan", "bob"]).ok();
    team.until("the work to be done", || team.inbox("lead").iter().any(|line| line["from"] == "alice"));
    team.kill_and_wait_for_the_next_life("bob");
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
    let errors: Vec<String> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{value}: {errors:?}");
}

/// Each of these is changed to something of another type, in each object that has it: the schema must notice.
fn refuses_when_broken(validator: &jsonschema::Validator, values: &[Value], fields: &[&str]) {
    for field in fields {
        let with = values.iter().find(|value| !value[*field].is_null());
        let mut broken = with.unwrap_or_else(|| panic!("nothing has {field}")).clone();
        broken[*field] = json!([{"what": "ever"}]);
        assert!(!validator.is_valid(&broken), "{field} of {broken}");
    }
}

#[test]
fn the_schemas_take_all_that_a_team_writes_and_nothing_broken() {
    let team = busy();
    let journal = team.journal();
    let schema = validator(&team, "journal");
    journal.iter().for_each(|line| takes(&schema, line));
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

    let (roster, schema) = (team.roster(), validator(&team, "roster"));
    takes(&schema, &roster);
    refuses_when_broken(&schema, std::slice::from_ref(&roster), &["version", "seq", "team_name"]);
    for field in ["name", "status", "gate", "exit", "incarnation"] {
        let mut broken = roster.clone();
        broken["members"][0][field] = json!("Nobody!");
        assert!(!schema.is_valid(&broken), "{field}");
    }

    let schema = validator(&team, "transcript");
    let entries: Vec<Value> =
        ["alice", "bob", "carol", "dave"].iter().flat_map(|name| team.transcript(name)).collect();
    entries.iter().for_each(|entry| takes(&schema, entry));
    refuses_when_broken(
        &schema,
        &entries,
        &["at", "inbox", "entry", "content", "usage", "tool_use_id", "is_error", "idle_reason"],
    );

    let schema = validator(&team, "message");
    let inboxes: Vec<Value> =
        ["lead", "alice", "bob", "carol", "dave"].iter().flat_map(|name| team.inbox(name)).collect();
    inboxes.iter().for_each(|message| takes(&schema, message));
    refuses_when_broken(
        &schema,
        &inboxes,
        &["type", "from", "to", "content", "request_id", "approve", "plan", "idle_reason"],
    );
    let all = team.json(["schema"]);
    assert_eq!(
        all.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["message", "journal", "roster", "transcript"]
    );
}

#[test]
fn lint_says_what_our_readers_make_of_each_file() {
    let team = busy();
    let good = ["journal.jsonl", "config.json", "inbox/lead.jsonl", "transcript/carol.jsonl"];
    let paths = good.map(|file| format!(".team/{file}"));
    let run = team.teamctl(["lint"].into_iter().chain(paths.iter().map(String::as_str))).ok();
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", ""));
    let run = team.teamctl(["lint", ".team/inbox/bob.jsonl"]).exits(1);
    let lines: Vec<&str> = run.stdout.lines().collect();
    let rejected = lines.iter().find(|line| line.contains("error: not JSON")).unwrap();
    assert!(rejected.starts_with(".team/inbox/bob.jsonl:") && rejected.contains("(rejected: "), "{run:?}");
    assert!(run.stdout.contains("warning: the type \"note\" is unknown (delivered as text)"), "{run:?}");
    assert!(run.stdout.contains("warning: text is another writer's spelling (read as content)"), "{run:?}");
    // What lint calls an error is what the reader has put into quarantine.
    assert_eq!(
        team.lines("inbox/bob.rejected.jsonl").len(),
        lines.iter().filter(|line| line.contains("error:")).count()
    );
}

#[test]
fn lint_reads_stdin_and_names_each_place_for_programs() {
    let team = Team::new();
    let run = team.teamctl_with(["--json", "lint", "--as", "journal", "-"], "{\"seq\":1\n{}\n").exits(1);
    let remarks: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(remarks.len(), 2);
    assert_eq!(remarks[0]["file"], "-");
    assert_eq!((&remarks[0]["line"], &remarks[0]["severity"]), (&json!(1), &json!("error")));
    assert!(remarks[0]["reader"].as_str().unwrap().contains("refuses"), "{remarks:?}");
    let warned = team
        .teamctl_with(["lint", "-"], "{\"type\":\"message\",\"from\":\"user\",\"content\":\"hi\"}\n")
        .ok();
    assert_eq!(
        warned.stdout,
        "-:1:1: warning: no id (taken: but a line that is written twice is read twice)\n"
    );
    let settings = team.teamctl_with(["lint", "--as", "settings", "-"], "grase = 1\n").exits(1);
    assert!(settings.stdout.starts_with("-:1:1: error: "), "{settings:?}");
    assert!(team.teamctl(["lint", "nowhere.jsonl"]).exits(1).stdout.contains("cannot be read"));
    team.teamctl(["lint", "a.rejected.jsonl"]).exits(2);
}
