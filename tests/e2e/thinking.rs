//! What the built-in agent is offered by group: the list of steps, skills, a subagent.

mod delegate;
mod skills;

use serde_json::{Value, json};

use crate::support::Team;
use crate::support::look::HELD;
use crate::support::model_server::{Api, ModelServer};

/// A team whose new conversations are offered these groups; nobody runs yet.
fn offering(groups: &[&str]) -> Team {
    let team = Team::new();
    offer(&team, groups);
    team.teamd(["start"]).ok();
    team
}

fn offer(team: &Team, groups: &[&str]) {
    team.write(
        "team.toml",
        &format!("[tools]\ngroups = {}\n", json!(groups)),
    );
}

fn content(result: &Value) -> &str {
    result["content"].as_str().unwrap()
}

fn is_refused(result: &Value, why: &str) -> bool {
    result["is_error"] == true && content(result).contains(why)
}

fn steps() -> String {
    let steps = json!({"todos": [
        {"content": "Read the code", "status": "completed"},
        {"content": "Write the parser", "status": "in_progress"},
        {"content": "Test it", "status": "pending"},
    ]});
    format!("/todo_write {steps}")
}

#[test]
fn a_conversation_keeps_the_tools_that_it_began_with() {
    let team = Team::started();
    team.spawn("alice", "");
    offer(&team, &["search", "todo"]);
    team.spawn("bob", "");
    let refused = "no tool \"todo_write\" in this conversation";
    assert!(is_refused(&team.does("alice", &steps())[0], refused));
    assert_eq!(
        content(&team.does("bob", &steps())[0]),
        "1/3, now: Write the parser"
    );
    // Neither a restart, nor another team.toml changes that.
    offer(&team, &["delegate"]);
    for name in ["alice", "bob"] {
        team.kill_and_wait_for_restart(name);
    }
    assert!(is_refused(&team.does("alice", &steps())[0], refused));
    assert_eq!(team.does("bob", &steps())[0]["is_error"], false);
    let unknown = team.does("bob", "/delegate look");
    assert!(
        is_refused(&unknown[0], "no tool \"delegate\""),
        "{unknown:?}"
    );
    let begun = |name: &str| team.entries(name, "incarnation")[0].clone();
    assert!(begun("alice").get("tools").is_none());
    assert_eq!(begun("bob")["tools"], json!({"groups": ["todo"]}));
    assert!(team.entries("bob", "incarnation")[1].get("tools").is_none());
}

#[test]
fn the_model_is_sent_the_same_bytes_after_a_restart() {
    let server = ModelServer::start();
    server.says("one").says("two").says("three");
    let team = server.team();
    offer(&team, &["todo", "skills", "delegate"]);
    std::fs::create_dir_all(team.root().join(".agents/skills/pdf")).unwrap();
    let skill = "---\nname: pdf\ndescription: Fills forms.\n---\nDo it.\n";
    team.write(".agents/skills/pdf/SKILL.md", skill);
    let model = Api::Anthropic.model();
    team.teamctl(["spawn", "alice", "--model", model, "--prompt", "go"])
        .ok();
    team.until_finished("alice", 1);
    // The conversation goes on as it began, whatever stands there now.
    team.write(
        ".agents/skills/pdf/SKILL.md",
        &skill.replace("forms", "everything"),
    );
    offer(&team, &[]);
    team.kill_and_wait_for_restart("alice");
    team.send("alice", "go on");
    team.until_finished("alice", 2);
    let requests = server.requests();
    for part in ["tools", "system"] {
        assert_eq!(requests[0].body[part], requests[1].body[part], "{part}");
    }
    let tools = requests[0].body["tools"].to_string();
    for tool in ["todo_write", "load_skill", "delegate"] {
        assert!(tools.contains(&format!("\"{tool}\"")), "{tools}");
    }
    let system = requests[0].body["system"].to_string();
    assert!(system.contains("- pdf: Fills forms."), "{system}");
    // A conversation that begins anew takes what is there then.
    team.teamctl(["spawn", "bob", "--model", model, "--prompt", "go"])
        .ok();
    team.until_finished("bob", 1);
    let request = server.last();
    assert!(!request.body["tools"].to_string().contains("todo_write"));
    assert!(!request.body["system"].to_string().contains("pdf"));
}

#[test]
fn the_steps_are_shown_while_it_works_and_survive_a_kill() {
    let team = offering(&["todo"]);
    team.spawn("alice", &format!("{}\n{HELD}", steps()));
    team.until_held();
    let shows = || team.member("alice")["activity"].to_string();
    team.until("the steps to be shown", || {
        shows().contains("bash") && shows().contains("1/3, now: Write the parser")
    });
    let status = team.teamctl(["status"]).ok().stdout;
    assert!(status.contains("1/3, now: Write the parser"), "{status}");
    team.kill_and_wait_for_restart("alice");
    team.until_finished("alice", 1);
    team.until("it to be idle", || team.status("alice") == "idle");
    assert!(!shows().contains("1/3"), "{}", shows());
    team.send(
        "alice",
        "/bash touch again; until [ -e go ]; do sleep 0.01; done",
    );
    team.until("the next command", || team.root().join("again").exists());
    team.until("the steps to be shown again", || {
        shows().contains("1/3, now: Write the parser")
    });
    team.release();
    team.until_finished("alice", 2);
    let transcript = team.teamctl(["transcript", "alice"]).ok().stdout;
    assert!(
        transcript.contains("todo 1/3, now: Write the parser")
            && transcript.contains("[>] Write the parser"),
        "{transcript}"
    );
}

#[test]
fn what_is_no_list_of_steps_is_refused_and_changes_nothing() {
    let team = offering(&["todo"]);
    team.spawn("alice", "");
    let step = |status: &str| json!({"content": "x", "status": status});
    let many: Vec<_> = (0..51).map(|_| step("pending")).collect();
    let orders = [
        steps(),
        format!(
            "/todo_write {}",
            json!({"todos": [step("in_progress"), step("in_progress")]})
        ),
        format!("/todo_write {}", json!({"todos": many})),
        format!("/todo_write {}", json!({"todos": [step("later")]})),
        format!(
            "/todo_write {}",
            json!({"todos": [{"content": "x".repeat(201), "status": "pending"}]})
        ),
        "/todo_write {\"todos\": 7}".to_owned(),
        "/todo_write".to_owned(),
    ];
    let results = team.does("alice", &orders.join("\n"));
    let why = [
        "",
        "at most one step",
        "at most 50 steps",
        "later",
        "at most 200",
        "todos",
        "todos",
    ];
    assert_eq!(results.len(), why.len());
    for (result, why) in results.iter().zip(why).skip(1) {
        assert!(is_refused(result, why), "{result}: {why}");
    }
}
