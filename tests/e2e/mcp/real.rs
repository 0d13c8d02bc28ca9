//! Servers and a client as they are published: `scripts/test-mcp`.

use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::content;
use crate::support::process::command_line;
use crate::support::{Team, signal};

/// The folder of the installed programs.
pub(super) fn program(name: &str) -> PathBuf {
    // `scripts/test-mcp` sets it.
    let folder = std::env::var("TEAM_REAL_MCP").unwrap();
    PathBuf::from(folder).join("node_modules/.bin").join(name)
}

/// How a server is started.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Launch {
    Direct,
    /// By a shell that stays: the server is not the process that is started.
    ByShell,
}

/// A team whose teammate alice has three servers of others.
fn team(launch: Launch) -> Team {
    let team = Team::new();
    let mut file = String::new();
    for (name, arguments) in [("everything", ""), ("filesystem", ", '.'"), ("memory", "")] {
        let program = program(&format!("mcp-server-{name}"));
        let program = program.display();
        let command = match launch {
            Launch::Direct => format!("'{program}'{arguments}"),
            Launch::ByShell => format!("'sh', '-c', '\"$0\" \"$@\"; exit', '{program}'{arguments}"),
        };
        file.push_str(&format!("[mcp.{name}]\ncommand = [{command}]\n"));
    }
    team.write("team.toml", &file);
    team.trust();
    team.teamd(["start"]).ok();
    team
}

fn spawn(team: &Team, flags: &[&str]) {
    let command = [
        "spawn",
        "alice",
        "--model",
        "script",
        "--mcp",
        "everything",
        "--mcp",
        "filesystem",
        "--mcp",
        "memory",
    ];
    team.teamctl(command.iter().chain(flags)).ok();
}

fn call(name: &str, arguments: &Value) -> String {
    let input = json!({"name": format!("mcp__{name}"), "arguments": arguments});
    format!("/mcp_call {input}")
}

/// The processes of the servers, with the shells that start them: those have the program in their
/// command line.
fn servers(team: &Team) -> usize {
    let all = team.processes();
    all.into_iter()
        .filter(|pid| command_line(*pid).contains("mcp-server-"))
        .count()
}

#[test]
#[ignore = "scripts/test-mcp"]
fn servers_of_others_work_behind_the_gate() {
    let team = team(Launch::Direct);
    spawn(&team, &["--plan"]);
    let write = call(
        "filesystem__write_file",
        &json!({"path": "made", "content": "x"}),
    );
    let orders = [
        call("filesystem__list_directory", &json!({"path": "."})),
        call("everything__echo", &json!({"message": "hello"})),
        write.clone(),
        "/plan_approval write it".to_owned(),
        write,
        call("memory__read_graph", &json!({})),
        call("everything__get-sum", &json!({"a": 1, "b": 2})),
    ];
    team.send("alice", &orders.join("\n"));
    let plan = team.until_planned("alice");
    let results = team.results("alice");
    assert!(content(&results[0]).contains("team.toml"), "{results:?}");
    assert_eq!(results[2]["is_error"], true, "{results:?}");
    assert!(!team.made("made"));
    team.teamctl(["approve", &plan]).ok();
    team.until_finished("alice", 1);
    let results = team.results("alice");
    assert!(team.made("made"), "{}", content(&results[4]));
    assert!(content(&results[5]).contains("entities"), "{results:?}");
    assert!(content(&results[6]).contains('3'), "{results:?}");
    assert_eq!(servers(&team), 3);
    let listed = team.json(["mcp", "list"]);
    for server in listed.as_array().unwrap() {
        println!(
            "{}: {} tools, {} tokens in each model call",
            server["name"], server["tools"], server["tokens"]
        );
        let tools = server["tools"].as_u64().unwrap();
        assert!(server["tokens"].as_u64().unwrap() <= 30 * tools, "{server}");
    }
    team.teamctl(["shutdown", "alice"]).ok();
    team.until("the end of the servers", || servers(&team) == 0);
}

#[test]
#[ignore = "scripts/test-mcp"]
fn nothing_of_them_is_left_by_a_kill() {
    let kills = std::env::var("TEAM_MCP_KILLS").map_or(20, |kills| kills.parse().unwrap());
    for launch in [Launch::Direct, Launch::ByShell] {
        let left = left_after(kills / 2, launch);
        println!(
            "{launch:?}: {left} processes were left after {} kills",
            kills / 2
        );
        assert_eq!(left, 0);
    }
}

/// Kills the worker so often; returns how many processes of servers, and shells of theirs, were
/// left.
fn left_after(kills: usize, launch: Launch) -> usize {
    let team = team(launch);
    // How many processes of three servers there can be, or none yet.
    let moments = if launch == Launch::Direct { 4 } else { 7 };
    let mut left = 0;
    for kill in 0..kills {
        spawn(&team, &["--restart", "never"]);
        let calls = [
            call("filesystem__list_directory", &json!({"path": "."})),
            call("memory__read_graph", &json!({})),
            call(
                "everything__trigger-long-running-operation",
                &json!({"duration": 30, "steps": 30}),
            ),
        ];
        team.send("alice", &calls.join("\n"));
        // A different moment each time: while they start, and while they are called.
        let begun = kill % moments;
        team.until("the servers", || servers(&team) >= begun);
        let pid = team.pid("alice");
        signal(pid, Signal::SIGKILL);
        team.until_gone("alice", pid);
        team.until("the roster", || team.status("alice") == "crashed");
        left += servers(&team);
    }
    left
}

/// The inspector asks for the tools of the team, and calls one.
#[test]
#[ignore = "scripts/test-mcp"]
fn a_client_of_others_leads_the_team() {
    let team = Team::started();
    let inspect = |more: &[&str]| {
        let mut arguments = vec!["--cli", env!("CARGO_BIN_EXE_teamctl"), "mcp"];
        arguments.extend(more);
        let run = team.run_program(program("mcp-inspector").to_str().unwrap(), arguments);
        serde_json::from_str::<Value>(&run.ok().stdout).unwrap()
    };
    let listed = inspect(&["--method", "tools/list"]);
    assert_eq!(listed["tools"].as_array().unwrap().len(), 13, "{listed}");
    let spawn = [
        "--method",
        "tools/call",
        "--tool-name",
        "spawn_teammate",
        "--tool-arg",
        "name=bob",
        "--tool-arg",
        "role=coder",
        "--tool-arg",
        "prompt=hello",
        "--tool-arg",
        "model=script",
    ];
    let spawned = inspect(&spawn);
    assert_eq!(spawned["isError"], false, "{spawned}");
    team.wait_for("bob", "idle");
    let status = inspect(&["--method", "tools/call", "--tool-name", "team_status"]);
    assert!(status.to_string().contains("bob"), "{status}");
}
