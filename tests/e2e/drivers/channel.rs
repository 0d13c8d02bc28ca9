//! What an agent's tools start runs as the same user in the same sandbox: it must not speak as the
//! agent, with any set of layers.

use serde_json::json;

use super::{CLAUDE, Stub, runs, spawn, team_of};
use crate::sandbox::agents::{ordered, shell_of};
use crate::support::Team;
use crate::support::python;

/// Each set of layers that holds what is tried here. Where this machine has no `bwrap`, that set is
/// the one without namespaces.
const EACH: [&str; 4] = [
    "namespaces,landlock,seccomp",
    "namespaces,seccomp",
    "bwrap,landlock,seccomp",
    "landlock,seccomp",
];

pub(super) const TAKE_OVER: &str = include_str!("../../fixtures/take-over.py");

pub(super) fn check(said: &str, layers: &str) {
    assert!(!said.contains("BROKEN"), "{layers}: {said}");
    let count: u32 = said
        .lines()
        .find_map(|line| line.strip_prefix("tried ")?.parse().ok())
        .unwrap_or(0);
    assert!(count > 20, "{layers}: {said}");
}

pub(super) fn no_program_that_a_tool_starts_speaks_as_the_agent(stub: &Stub) {
    for layers in EACH {
        let Some(team) = team_of(&[stub], layers) else {
            return;
        };
        team.write("take-over.py", TAKE_OVER);
        spawn(&team, stub, &[]);
        let said = runs(&team, "$ python3 take-over.py stub.py 0,1,2")["content"]
            .as_str()
            .unwrap()
            .to_owned();
        check(&said, layers);
        let well = runs(&team, "say well")["content"].clone();
        assert_eq!(well, "well", "{layers}: its channel is as it was");
        assert!(
            !team.file("inbox/lead.jsonl").contains("forged"),
            "{layers}"
        );
        assert_eq!(team.shutdown("carol", &[], 0)["outcome"], "shutdown");
    }
}

/// An agent that runs once for each piece of work shares its output with what it starts if it wants
/// to; no other process gets it.
#[test]
fn no_program_that_an_agent_starts_changes_what_it_reads_or_opens_its_output() {
    for layers in EACH {
        let team = Team::new().with("TEAM_SANDBOX_LAYERS", layers);
        team.teamd(["start"]).ok();
        let Some(team) = shell_of(team, "", &[]) else {
            return;
        };
        team.write("take-over.py", TAKE_OVER);
        if !python::is_here() {
            return;
        }
        team.send(
            "carol",
            &ordered("python3 take-over.py eval 0,1\ncat /dev/stdin > /dev/null && echo read"),
        );
        team.until_finished("carol", 1);
        let told = team.notices("carol").pop().unwrap();
        assert_eq!(told["idle_reason"], json!("available"), "{layers}: {told}");
        let said = told["content"].as_str().unwrap();
        check(said, layers);
        assert!(said.ends_with("read"), "{layers}: {said}");
    }
}

/// However often an agent speaks, its team is not flooded.
#[test]
fn a_flood_of_calls_is_refused() {
    let Some(team) = team_of(&[&CLAUDE], super::LIVE) else {
        return;
    };
    spawn(&team, &CLAUDE, &["--max-turns", "5000"]);
    let said = runs(&team, &flood("@"));
    check_flood(&team, said["content"].as_str().unwrap());
}

#[test]
fn a_flood_of_calls_of_the_built_in_agent_is_refused() {
    let team = Team::new().with("TEAM_MAX_TURNS", "5000");
    team.teamd(["start"]).ok();
    team.spawn("carol", "");
    team.send("carol", &flood("/"));
    team.until_finished("carol", 1);
    let said: Vec<String> = team
        .results("carol")
        .iter()
        .map(|it| it["content"].to_string())
        .collect();
    check_flood(&team, &said.join("\n"));
    // The next piece of work begins anew, but for the tasks.
    let results = team.does(
        "carol",
        "/send_message {\"to\": \"lead\", \"content\": \"well\"}\n/task_create {\"subject\": \"one more\"}",
    );
    assert_eq!(
        (&results[0]["is_error"], &results[1]["is_error"]),
        (&json!(false), &json!(true)),
        "{results:?}"
    );
}

fn flood(call: &str) -> String {
    let create = format!("{call}task_create {{\"subject\": \"x\"}}\n").repeat(201);
    create + &format!("{call}send_message {{\"to\": \"lead\", \"content\": \"y\"}}\n").repeat(830)
}

fn check_flood(team: &Team, said: &str) {
    let refusals = [
        "carol has made 200 tasks that are open",
        "in one piece of work may hold 4 MiB",
    ];
    let told = refusals.map(|refusal| said.matches(refusal).count());
    assert_eq!(told, [1, 7], "{}", &said[said.len().saturating_sub(2000)..]);
    let tasks = team.json(["task", "list"]);
    assert_eq!(tasks.as_array().map_or(0, Vec::len), 200, "{tasks}");
    let sent = team
        .inbox("lead")
        .iter()
        .filter(|line| line["content"] == "y")
        .count();
    assert_eq!(
        sent,
        1024 - 201,
        "a refused call counts, too, where it was asked for"
    );
}

/// Without seccomp nothing keeps what an agent starts from its memory: what is said in its name may
/// not be its own.
#[test]
fn a_lead_whose_tools_could_speak_as_it_only_recommends() {
    let stub = &CLAUDE;
    let Some(team) = team_of(&[stub], super::LIVE) else {
        return;
    };
    team.teamd(["stop"]).ok();
    let team = team.with("TEAM_SANDBOX_LAYERS", "namespaces,landlock");
    let agents = std::fs::read_to_string(team.root().join("team.toml")).unwrap();
    team.write(
        "team.toml",
        &format!("agent = '{}'\napprove_by = 'lead'\n{agents}", stub.agent),
    );
    team.trust();
    team.teamd(["start", "--allow-weak-sandbox"]).ok();
    let doctor = team.teamctl(["doctor"]).stdout;
    assert!(doctor.contains("no tool speaks as its agent"), "{doctor}");
    spawn(
        &team,
        stub,
        &[
            "--plan",
            "--prompt",
            "@plan_approval {\"plan\": \"make it\"}",
        ],
    );
    let id = team.until_planned("carol");
    team.teamctl_with(
        ["chat", "--agent", stub.agent, "--timeout", "20s"],
        "say hello",
    )
    .ok();
    let verdict = json!({"request_id": id, "approve": true});
    let spawns = json!({"name": "dan", "role": "coder", "prompt": "say x"});
    team.send(
        "lead",
        &format!("@plan_approval {verdict}\n@spawn_teammate {spawns}"),
    );
    team.until("both to be refused", || {
        team.file("transcript/lead.jsonl")
            .matches("in your name, so a person decides")
            .count()
            >= 2
    });
    assert_eq!(team.request(&id)["status"], "pending");
    assert!(!team.file("config.json").contains("\"dan\""));
    team.teamctl(["approve", &id]).ok();
}
