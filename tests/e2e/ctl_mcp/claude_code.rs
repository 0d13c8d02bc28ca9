//! Claude Code as the lead, as it is published, with the plugin and a fake model service:
//! `scripts/test-agents claude-lead`.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::Team;
use crate::support::model_server::{KEY, ModelServer, Reply, Request};

/// Claude Code with the plugin.
fn claude(team: &Team, server: &ModelServer, words: &[&str]) -> Command {
    // `scripts/test-agents` sets it.
    let program = std::env::var("TEAM_REAL_CLAUDE").unwrap();
    let mut command = team.command(&program, words);
    command
        .env("ANTHROPIC_BASE_URL", server.url())
        .env("ANTHROPIC_API_KEY", KEY)
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    command
}

/// The prefix that Claude Code gives to our tools.
const PREFIX: &str = "mcp__plugin_teamd_team__";

/// Whether a request is of the conversation: other requests have no tools.
fn is_turn(request: &Request) -> bool {
    let tools = request.body["tools"].as_array();
    tools.is_some_and(|tools| !tools.is_empty())
}

/// A step of the scripted lead. After the last it says that the team has done it.
enum Step {
    Call(&'static str, fn(&str) -> Value),
    /// It ends its turn, and the teammate goes on when the file is there.
    Wait(PathBuf),
}

/// A model that leads a team by these steps, one for each request of the conversation. A call is
/// given the id of the plan that it was told last. Claude Code shows the names of our tools, and
/// their schemas when the model asks: so it asks first.
fn leading(steps: Vec<Step>) -> ModelServer {
    let mut steps = steps.into_iter();
    let mut has_schemas = false;
    ModelServer::answering_any_client(move |request| {
        if !is_turn(request) {
            return Reply::text("a title");
        }
        if !has_schemas {
            has_schemas = true;
            let tools = [
                "team_status",
                "spawn_teammate",
                "wait_for_events",
                "review_plan",
                "shutdown_teammate",
            ];
            let wanted = tools.map(|tool| format!("{PREFIX}{tool}")).join(",");
            return Reply::call(
                "ToolSearch",
                json!({"query": format!("select:{wanted}"), "max_results": 9}),
            );
        }
        match steps.next() {
            Some(Step::Call(name, input)) => {
                let plan = request.plan_id().unwrap_or_default();
                Reply::call(&format!("{PREFIX}{name}"), input(&plan))
            }
            Some(Step::Wait(file)) => {
                drop(File::create(file).unwrap());
                Reply::text("I am told when something comes.")
            }
            None => Reply::text("The team has done it."),
        }
    })
}

/// Runs Claude Code until it ends, and returns what it said last.
fn lead(team: &Team, server: &ModelServer) -> String {
    team.write("team.toml", "approve_by = \"lead\"\n");
    team.trust();
    team.teamctl(["mcp", "--print-plugin", "plugin"]).ok();
    let words = [
        "--plugin-dir",
        "plugin",
        "--allowedTools",
        "mcp__plugin_teamd_team",
        "-p",
        "Have alice write it",
    ];
    let output = claude(team, server, &words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn spawn(prompt: &str) -> Value {
    json!({"name": "alice", "role": "coder", "model": "script", "plan": true, "prompt": prompt})
}
const APPROVE: Step = Step::Call(
    "review_plan",
    |id| json!({"request_id": id, "approve": true}),
);
const WAIT: Step = Step::Call("wait_for_events", |_| json!({"timeout": 50}));
const SHUT_DOWN: Step = Step::Call("shutdown_teammate", |_| json!({"teammate": "alice"}));

/// Asserts that the team has done its work, and that nothing of it is left.
fn is_done(team: &Team, said: &str) {
    assert_eq!(said, "The team has done it.\n");
    assert_eq!(team.text("made.txt"), "hello");
    team.wait_for("alice", "shutdown");
    team.until("all to be gone", || team.processes().len() == 1);
}

#[test]
#[ignore = "scripts/test-agents"]
fn it_runs_a_whole_team() {
    let status = Step::Call("team_status", |_| json!({}));
    let first = Step::Call("spawn_teammate", |_| {
        spawn("/plan_approval Write it\n/write_file made.txt hello")
    });
    let server = leading(vec![status, first, WAIT, APPROVE, WAIT, SHUT_DOWN]);
    let team = Team::new();
    let said = lead(&team, &server);
    is_done(&team, &said);
}

#[test]
#[ignore = "scripts/test-agents"]
fn the_plugin_wakes_it_for_a_plan_and_for_the_end_of_work() {
    let team = Team::new();
    let plan = team.root().join("plan");
    let work = team.root().join("work");
    let first = Step::Call("spawn_teammate", |_| {
        spawn(
            "/bash until [ -e plan ]; do sleep 0.05; done\n/plan_approval Write it\n\
             /bash until [ -e work ]; do sleep 0.05; done\n/write_file made.txt hello",
        )
    });
    let steps = vec![
        first,
        Step::Wait(plan),
        APPROVE,
        Step::Wait(work),
        SHUT_DOWN,
    ];
    let server = leading(steps);
    let said = lead(&team, &server);
    is_done(&team, &said);
    let mut turns = server.requests().into_iter().filter(is_turn);
    let last = turns.next_back().unwrap();
    assert!(
        last.mentions("wrote 5 bytes to made.txt"),
        "{:?}",
        last.body
    );
}
