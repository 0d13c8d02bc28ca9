//! The conformance suite of the protocol, against the worker as a client of HTTP servers:
//! `scripts/test-mcp`.
//!
//! Each scenario starts a server and a command that gets its address. The command is a shell that
//! hands the address to the test, and waits until a teammate has used the server.

use serde_json::{Value, json};

use super::content;
use super::real::program;
use crate::support::{Running, Team};

/// The command of a scenario: it passes on what the suite gives it, and ends with the test's word.
const CLIENT: &str = "#!/bin/sh
printf '%s' \"${MCP_CONFORMANCE_CONTEXT:-null}\" >context
printf '%s' \"$1\" >url.new
mv url.new url
until [ -e used ]; do sleep 0.05; done
";

/// What is left out, and why.
const LEFT_OUT: [(&str, &str); 5] = [
    ("auth/", "needs OAuth, which is not supported"),
    ("sep-2640-", "an extension: skills"),
    ("elicitation-", "no person is asked for what a server wants"),
    (
        "sep-2322-client-request-state",
        "no person is asked for what a server wants",
    ),
    ("authorization-", "about authorization servers"),
];

/// A teammate whose only server is that of a scenario.
struct Client {
    team: Team,
    sent: usize,
}

impl Client {
    /// Sends an order, and returns the result of its call.
    fn order(&mut self, order: &str) -> Value {
        let before = self.team.results("alice").len();
        self.team.send("alice", order);
        self.sent += 1;
        self.team.until_finished("alice", self.sent);
        let mut results = self.team.results("alice");
        assert!(results.len() > before, "{order}: {results:?}");
        results.remove(before)
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let input = json!({"name": tool, "arguments": arguments});
        self.order(&format!("/mcp_call {input}"))
    }

    /// The tools as the model sees them.
    fn tools(&mut self) -> Vec<String> {
        let listed = self.order("/mcp_search {}");
        if listed["is_error"] == true {
            return Vec::new();
        }
        let lines = content(&listed).lines().map(str::to_owned);
        let named = lines.filter_map(|line| {
            let name = line.split([':', ' ']).next()?;
            name.starts_with("mcp__").then(|| name.to_owned())
        });
        named.collect()
    }

    /// The schema of a tool, as the model sees it.
    fn schema(&mut self, tool: &str) -> Value {
        let looked = self.order(&format!("/mcp_tool {}", json!({"name": tool})));
        let text = content(&looked);
        let (_, schema) = text.rsplit_once("\narguments: ").unwrap();
        serde_json::from_str(schema).unwrap()
    }

    /// Does what a scenario asks of a client.
    fn use_server(&mut self, scenario: &str, context: &Value) {
        match scenario {
            "tools_call" => {
                self.call("mcp__suite__add_numbers", &json!({"a": 1, "b": 2}));
            }
            "http-custom-headers" => {
                self.tools();
                for call in context["toolCalls"].as_array().unwrap() {
                    let tool = format!("mcp__suite__{}", call["name"].as_str().unwrap());
                    self.call(&tool, &call["arguments"]);
                }
            }
            "json-schema-2020-12-preservation" => {
                let tools = self.tools();
                let echo = tools.iter().find(|tool| tool.contains("echo")).unwrap();
                let rich = tools.iter().find(|tool| *tool != echo).unwrap();
                let schema = self.schema(rich);
                self.call(echo, &json!({"schema": schema}));
            }
            // Whatever is listed is called.
            _ => {
                for tool in self.tools() {
                    self.schema(&tool);
                    self.call(&tool, &json!({"region": "us-west1", "value": "x"}));
                }
            }
        }
    }
}

fn suite(team: &Team, arguments: &[&str]) -> std::process::Command {
    let suite = program("conformance");
    let suite = suite.canonicalize().unwrap();
    let node = std::env::var("TEAM_REAL_NODE").unwrap_or_else(|_| "node".to_owned());
    let mut command = team.command(&node, [suite.to_str().unwrap()]);
    command.args(arguments);
    command
}

/// Runs a scenario; returns what the suite says if it fails.
fn run(scenario: &str) -> Result<(), String> {
    let team = Team::new();
    team.write("client", CLIENT);
    let running = Running::start(suite(
        &team,
        &["client", "--command", "sh client", "--scenario", scenario],
    ));
    team.until("the address", || team.root().join("url").exists());
    let url = team.text("url");
    let context: Value = serde_json::from_str(&team.text("context")).unwrap();
    team.write("team.toml", &format!("[mcp.suite]\nurl = '{url}'\n"));
    team.trust();
    team.teamd(["start"]).ok();
    team.teamctl(["spawn", "alice", "--model", "script", "--mcp", "suite"])
        .ok();
    let mut client = Client { team, sent: 0 };
    client.use_server(scenario, &context);
    let team = client.team;
    team.teamctl(["shutdown", "alice"]).ok();
    team.write("used", "");
    let ended = running.finish();
    if ended.code == Some(0) {
        return Ok(());
    }
    let results: Vec<Value> = team.results("alice");
    Err(format!(
        "{}\n{}\nwhat the teammate got: {results:#?}",
        ended.stdout, ended.stderr
    ))
}

#[test]
#[ignore = "scripts/test-mcp"]
fn the_worker_is_a_client_as_the_suite_wants_it() {
    let team = Team::new();
    let listed = suite(&team, &["list"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let named = |section: &str| {
        let begin = listed.find(section).unwrap_or_else(|| panic!("{listed}"));
        let lines = listed[begin..].lines().skip(1);
        let names = lines.take_while(|line| !line.is_empty()).map(|line| {
            let name = line.trim_start_matches(" - ").trim_start_matches("  - ");
            name.split(' ').next().unwrap().to_owned()
        });
        names.collect::<Vec<_>>()
    };
    for scenario in named("Server scenarios") {
        println!(
            "left out: server {scenario}: `teamctl mcp` speaks on its standard input and output, and the suite over HTTP"
        );
    }
    let mut failed = Vec::new();
    for scenario in named("Client scenarios") {
        let reason = LEFT_OUT
            .iter()
            .find(|(begin, _)| scenario.starts_with(begin));
        if let Some((_, why)) = reason {
            println!("left out: client {scenario}: {why}");
            continue;
        }
        match run(&scenario) {
            Ok(()) => println!("passed: client {scenario}"),
            Err(why) => {
                println!("failed: client {scenario}: {why}");
                failed.push(scenario);
            }
        }
    }
    assert_eq!(failed, [""; 0]);
}
