//! `teamctl mcp`: the team as a server that another agent leads by, spoken to in raw JSON-RPC.

mod claude_code;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::hooks::{configure, told};
use crate::support::mcp_client::McpClient;
use crate::support::{Team, process};

/// Far less than a wait lasts that nothing ends.
const AT_ONCE: Duration = Duration::from_secs(10);

/// The tools: their names, the bytes that each costs, and r for reads, d for destructive, i for
/// idempotent, o for open world.
const LISTED: &str = "\
team_status 458 ri
spawn_teammate 2150 do
shutdown_teammate 752 d
send_message 755 -
request_plan 639 di
review_plan 969 di
task_create 1157 -
task_update 1375 d
task_list 344 ri
task_get 472 ri
task_diff 476 ri
task_review 829 di
wait_for_events 581 ri
";

/// A team whose lead may answer plans and reviews.
fn led() -> Team {
    let team = Team::new();
    team.write("team.toml", "approve_by = \"lead\"\n");
    team.trust();
    team.teamd(["start"]).ok();
    team
}

fn spawn(client: &mut McpClient, name: &str, prompt: &str) -> String {
    let input = json!({"name": name, "role": "coder", "prompt": prompt, "model": "script"});
    let spawned = client.call("spawn_teammate", input).ok();
    spawned.said().to_owned()
}

/// The id of the request that a message of this kind names.
fn id_in(text: &str, kind: &str) -> String {
    let begin = format!("<{kind} ");
    let tag = text
        .split(&begin)
        .nth(1)
        .unwrap_or_else(|| panic!("{text}"));
    let id = tag.split("request_id=\"").nth(1).unwrap();
    id.split('"').next().unwrap().to_owned()
}

#[test]
fn the_tools_are_listed_with_what_each_does() {
    let team = Team::started();
    let mut client = McpClient::start(&team);
    let hello = &client.initialized;
    assert_eq!(hello["protocolVersion"], "2025-11-25");
    assert_eq!(hello["serverInfo"]["name"], "teamd");
    let instructions = hello["instructions"].as_str().unwrap();
    assert!((5..=20).contains(&instructions.lines().count()));
    let listed = client.ask("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let mut shown = String::new();
    for tool in tools {
        let hints = &tool["annotations"];
        let hint = |name: &str, yes: &'static str| if hints[name] == true { yes } else { "" };
        let none = if hints
            .as_object()
            .unwrap()
            .values()
            .any(|is_so| is_so == true)
        {
            ""
        } else {
            "-"
        };
        shown.push_str(&format!(
            "{} {} {none}{}{}{}{}\n",
            tool["name"].as_str().unwrap(),
            tool.to_string().len(),
            hint("readOnlyHint", "r"),
            hint("destructiveHint", "d"),
            hint("idempotentHint", "i"),
            hint("openWorldHint", "o"),
        ));
        assert_eq!(tool["outputSchema"], Value::Null);
        assert_eq!(tool["inputSchema"]["type"], "object");
    }
    // Each byte costs the client's model tokens in every call.
    assert_eq!(shown, LISTED);
    client.close();
}

#[test]
fn a_server_starts_the_daemon_unless_that_is_forbidden() {
    let team = Team::new();
    let mut client =
        McpClient::run(team.command(env!("CARGO_BIN_EXE_teamctl"), ["mcp", "--no-start"]));
    let refused = client.call("team_status", json!({})).failed();
    assert!(refused.text.contains("`teamd start`"), "{refused:?}");
    client.close();
    assert!(!team.root().join(".team").exists());
    let mut client = McpClient::start(&team);
    let status = client.call("team_status", json!({})).ok();
    assert!(
        status.said().starts_with("there are no teammates"),
        "{status:?}"
    );
    assert!(process::command_line(team.daemon_pid()).contains("teamd"));
    client.close();
}

#[test]
fn a_lead_spawns_answers_a_plan_writes_and_shuts_down() {
    let team = led();
    let mut client = McpClient::start(&team);
    let report = spawn(
        &mut client,
        "alice",
        "/plan_approval Drop it\n/bash touch made",
    );
    assert_eq!(
        report,
        "alice has started (incarnation 1) and works on your prompt"
    );
    let asked = client.call(
        "request_plan",
        json!({"teammate": "alice", "content": "how"}),
    );
    assert!(asked.ok().text.contains("is asked for a plan"));
    let mut cursor = 0;
    let mut came = String::new();
    while !came.contains("<plan_approval_request") {
        let input = json!({"timeout": 50, "cursor": cursor});
        let waited = client.call("wait_for_events", input).ok();
        cursor = waited.cursor();
        came = waited.text;
    }
    let id = id_in(&came, "plan_approval_request");
    let status = client.call("team_status", json!({"cursor": cursor})).ok();
    assert!(status.said().contains("waits for you: "), "{status:?}");
    let answer = json!({"request_id": id, "approve": true, "feedback": "mind it"});
    let answered = client.call("review_plan", answer).ok();
    assert!(answered.text.starts_with("approved: "), "{answered:?}");
    team.until("the command to run", || team.root().join("made").exists());
    assert_eq!(team.request(&id)["reason"], "mind it");

    let sent = client.call("send_message", json!({"to": "alice", "content": "hello"}));
    assert_eq!(sent.ok().said(), "sent to alice");
    team.until("the message to be read", || {
        team.has_consumed("alice", "hello")
    });
    let line = team.inbox("alice").pop().unwrap();
    assert_eq!(
        (&line["from"], &line["to"]),
        (&json!("lead"), &json!("alice"))
    );
    let left = client.call(
        "shutdown_teammate",
        json!({"teammate": "alice", "reason": "done"}),
    );
    assert!(left.ok().text.starts_with("alice is asked to leave"));
    team.until("alice to leave", || team.status("alice") == "shutdown");
    let mut came = String::new();
    while !came.contains("<teammate_terminated") {
        let input = json!({"timeout": 50, "cursor": cursor});
        let waited = client.call("wait_for_events", input).ok();
        cursor = waited.cursor();
        came = waited.text;
    }
    client.close();
}

#[test]
fn a_lead_makes_tasks_and_reviews_the_work() {
    let team = led();
    let mut client = McpClient::start(&team);
    let task = json!({"subject": "build it", "description": "all of it", "review": "lead"});
    let made = client.call("task_create", task).ok();
    assert_eq!(made.said(), "task 1 (build it) is created");
    let changed = client.call("task_update", json!({"task_id": 1, "priority": 3}));
    assert_eq!(changed.ok().said(), "task 1 (build it) is pending");
    let listed = client.call("task_list", json!({})).ok();
    assert_eq!(listed.said(), "1. build it [pending]");
    let unsubmitted = client.call("task_review", json!({"task_id": 1, "approve": true}));
    let why = "no review of task 1 waits for an answer";
    assert!(unsubmitted.failed().text.starts_with(why));
    let orders = "/claim_task {\"task_id\": 1}\n/task_update {\"task_id\": 1, \"status\": \"completed\", \"summary\": \"built\"}";
    spawn(&mut client, "alice", orders);
    let mut cursor = 0;
    let mut came = String::new();
    while !came.contains("<review_request") {
        let input = json!({"timeout": 50, "cursor": cursor});
        let waited = client.call("wait_for_events", input).ok();
        cursor = waited.cursor();
        came = waited.text;
    }
    let shown = client.call("task_get", json!({"task_id": 1})).ok();
    let id = id_in(&came, "review_request");
    assert!(
        shown.text.contains(&format!("its review {id} waits")),
        "{shown:?}"
    );
    // She has no checkout, so there is no diff.
    let diff = client.call("task_diff", json!({"task_id": 1})).failed();
    assert!(diff.text.contains("task 1"), "{diff:?}");
    let reviewed = json!({"task_id": 1, "approve": true, "feedback": "good", "cursor": cursor});
    assert!(
        client
            .call("task_review", reviewed)
            .ok()
            .text
            .starts_with("approved: ")
    );
    let empty = client.call("task_list", json!({})).ok();
    assert_eq!(empty.said(), "there are no tasks to do");
    client.close();
}

#[test]
fn a_cursor_gives_what_came_after_it_once_and_consumes_nothing() {
    let team = Team::started();
    team.spawn("alice", "");
    team.teamctl(["send", "lead", "before the server"]).ok();
    let mut client = McpClient::start(&team);
    let mut other = McpClient::start(&team);
    let none = client.call("task_list", json!({})).ok();
    assert_eq!(
        none.text,
        format!("there are no tasks to do\n\ncursor: {}", none.cursor())
    );
    team.echo(
        "lead",
        r#"{"type":"message","from":"alice","content":"one"}"#,
    );
    let first = client.call("task_list", json!({})).ok();
    let one = "<message from=\"alice\">\none\n</message>";
    assert!(first.text.contains(one), "{first:?}");
    assert!(!first.text.contains("before the server"), "{first:?}");
    team.echo(
        "lead",
        r#"{"type":"message","from":"alice","content":"two"}"#,
    );
    let second = client.call("task_list", json!({"cursor": first.cursor()}));
    assert!(
        !second.text.contains(one) && second.text.contains("two"),
        "{second:?}"
    );
    let third = client
        .call("task_list", json!({"cursor": second.cursor()}))
        .ok();
    assert_eq!(third.cursor(), second.cursor());
    assert!(!third.text.contains("<message"), "{third:?}");
    // Without one, and for another lead, everything is still there.
    for client in [&mut client, &mut other] {
        let all = client.call("task_list", json!({})).ok();
        assert!(
            all.text.contains(one) && all.text.contains("two"),
            "{all:?}"
        );
    }
    let wrong = client.call("task_list", json!({"cursor": first.cursor() + 1}));
    assert!(
        wrong
            .failed()
            .text
            .contains("is no cursor that a result gave")
    );
    // A message ends a wait that has begun, and other calls are answered meanwhile.
    let wait =
        json!({"name": "wait_for_events", "arguments": {"timeout": 50, "cursor": second.cursor()}});
    let began = Instant::now();
    let id = client.send("tools/call", wait);
    client.call("task_list", json!({})).ok();
    team.echo(
        "lead",
        r#"{"type":"message","from":"alice","content":"three"}"#,
    );
    let woken = client.answer_to(id);
    assert!(woken.to_string().contains("three"), "{woken}");
    assert!(began.elapsed() < AT_ONCE);
    // Nothing comes: the time ends it.
    let cursor = client.call("task_list", json!({})).cursor();
    let idle = client.call("wait_for_events", json!({"timeout": 0.1, "cursor": cursor}));
    assert_eq!(idle.ok().text, format!("cursor: {cursor}"));
    client.close();
    other.close();
}

#[test]
fn a_server_may_be_killed_at_any_time() {
    let team = Team::started();
    let mut client = McpClient::start(&team);
    spawn(&mut client, "alice", "hello");
    let mut other = McpClient::start(&team);
    let connected = |client: &mut McpClient| {
        let status = client.call("team_status", json!({})).ok();
        let line = status
            .said()
            .lines()
            .find(|line| line.starts_with("connected leads: "));
        line.unwrap().matches("(pid ").count()
    };
    // The test itself runs both.
    assert_eq!(connected(&mut other), 1);
    let wait = json!({"name": "wait_for_events", "arguments": {"timeout": 50}});
    client.send("tools/call", wait);
    client.kill();
    assert!(
        other
            .call("send_message", json!({"to": "alice", "content": "go on"}))
            .ok()
            .said()
            == "sent to alice"
    );
    team.until("the message to be read", || {
        team.has_consumed("alice", "go on")
    });
    // So may the daemon: the next one knows the lead again.
    team.kill_daemon();
    let status = other.call("team_status", json!({})).ok();
    assert!(
        status.text.contains("the daemon is not running"),
        "{status:?}"
    );
    team.teamd(["start"]).ok();
    team.until("the lead to connect again", || connected(&mut other) == 1);
    other.close();
}

#[test]
fn what_is_no_call_is_said_to_the_model_and_ends_nothing() {
    let team = Team::started();
    let mut client = McpClient::start(&team);
    for (tool, input, why) in [
        (
            "spawn_teammate",
            json!({}),
            "spawn_teammate: missing field `name`",
        ),
        (
            "spawn_teammate",
            json!({"name": "../x", "role": "r", "prompt": "p"}),
            "is not a name",
        ),
        (
            "spawn_teammate",
            json!({"name": "a", "role": "r", "prompt": "p", "sandbox": "off"}),
            "`sandbox`",
        ),
        (
            "spawn_teammate",
            json!({"name": "a", "role": "r", "prompt": "p", "workspace": "/"}),
            "is not in yours",
        ),
        ("wait_for_events", json!({"timeout": 51}), "from 0 to 50"),
        ("wait_for_events", json!({"timeout": "x"}), "`timeout`"),
        ("team_status", json!({"cursor": "x"}), "the field `cursor`"),
        (
            "team_status",
            json!({"verbose": true}),
            "unknown field `verbose`",
        ),
        ("task_get", json!({"task_id": 9}), "task 9"),
        (
            "send_message",
            json!({"to": "ghost", "content": "x"}),
            "ghost",
        ),
        (
            "shutdown_teammate",
            json!({"teammate": "lead"}),
            "that is you",
        ),
        (
            "review_plan",
            json!({"request_id": "a1b2c3d4", "approve": true}),
            "no such request",
        ),
    ] {
        let refused = client.call(tool, input.clone()).failed();
        assert!(refused.text.contains(why), "{tool} {input}: {refused:?}");
    }
    let unknown = client.ask("tools/call", json!({"name": "bash", "arguments": {}}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    let unknown = client.ask("resources/list", json!({}));
    assert!(unknown["result"]["resources"] == json!([]) || unknown["error"].is_object());
    client.call("team_status", json!({})).ok();
    client.close();
}

/// A shell that runs a server, and that runs a command of its own when a test says which.
fn shell_that_leads(team: &Team) -> std::process::Command {
    let teamctl = env!("CARGO_BIN_EXE_teamctl");
    let script = format!(
        "exec 3<&0; setsid {teamctl} mcp <&3 3<&- & exec 3<&- >/dev/null\n\
         until [ -e order ]; do sleep 0.01; done\n\
         {teamctl} $(cat order) >said 2>&1; echo $? >code.new; mv code.new code\n\
         wait"
    );
    team.command("sh", ["-c", &script])
}

#[test]
fn where_a_person_decides_no_answer_of_a_lead_counts() {
    let team = Team::started();
    configure(&team.home(), &["on_answer"]);
    let mut client = McpClient::run(shell_that_leads(&team));
    let planner = json!({
        "name": "alice", "role": "coder", "prompt": "/plan_approval Drop it\n/bash touch made", "model": "script",
        "plan": true,
    });
    let spawned = client.call("spawn_teammate", planner).ok();
    assert!(
        spawned.said().ends_with("which a person answers"),
        "{spawned:?}"
    );
    let id = team.until_planned("alice");
    let status = client.call("team_status", json!({})).ok();
    assert!(status.text.contains("waits for a person"), "{status:?}");
    assert!(
        status.text.contains("connected leads: sh (pid "),
        "{status:?}"
    );
    let refused = client
        .call("review_plan", json!({"request_id": id, "approve": true}))
        .failed();
    assert!(
        refused
            .text
            .starts_with("not decided: a person decides; they were asked."),
        "{refused:?}"
    );
    // Nor does that of a command that the lead runs.
    team.write("order", &format!("approve {id}"));
    team.until("the command to end", || team.root().join("code").exists());
    assert_eq!(team.text("code"), "3\n", "{}", team.text("said"));
    assert!(
        team.text("said")
            .contains("a person decides, and this command runs below sh (pid "),
        "{}",
        team.text("said")
    );
    assert_eq!(team.request(&id)["status"], "pending");
    assert!(!team.root().join("made").exists());
    team.teamctl(["approve", &id]).ok();
    team.until("the command to run", || team.root().join("made").exists());
    // While a lead is connected, it is shown which process has answered.
    let process = team.request(&id)["answered_from"].clone();
    let process = process.as_str().unwrap();
    assert!(
        process.starts_with("teamctl (pid ") && process.contains(", run by "),
        "{process}"
    );
    let events = team.teamctl(["events"]).ok();
    let line = format!("plan of alice ({id}) approved from {process}");
    assert!(events.stdout.contains(&line), "{events:?}");
    team.until("the hook", || !told(&team.home(), "on_answer").is_empty());
    let facts = told(&team.home(), "on_answer").remove(0);
    assert_eq!(facts["request"]["answered_from"], process, "{facts}");
    assert_eq!(facts["request"]["status"], "approved", "{facts}");
    client.close();
}

#[test]
fn an_answer_is_no_news_where_no_lead_is_connected() {
    let team = Team::started();
    let prompt = "/plan_approval Drop it";
    team.teamctl(["spawn", "alice", "--plan", "--prompt", prompt])
        .ok();
    let id = team.until_planned("alice");
    team.teamctl(["approve", &id]).ok();
    assert_eq!(team.request(&id)["answered_from"], Value::Null);
}

#[test]
fn a_lead_that_waits_is_woken_by_what_it_has_not_got() {
    let team = Team::started();
    team.spawn("alice", "");
    let mut client = McpClient::start(&team);
    // The hook of the plugin runs below the process that runs the server: here that is the test.
    let waiting = |team: &Team| team.start_teamctl(["wait", "--events", "--below-lead"]);
    let write = |text: &str| {
        let line = json!({"type": "message", "from": "alice", "content": text});
        team.echo("lead", &line.to_string());
    };
    write("seen");
    let seen = client.call("task_list", json!({})).ok();
    assert!(seen.text.contains("seen"), "{seen:?}");
    // What came between the last call and the wait counts, what a call gave does not.
    write("missed");
    let woken = waiting(&team).finish().ok();
    assert!(
        woken.stdout.contains("missed") && !woken.stdout.contains("seen"),
        "{woken:?}"
    );
    assert!(
        woken.stdout.lines().last().unwrap().starts_with("cursor: "),
        "{woken:?}"
    );
    // Each stop of the agent starts one: only one waits.
    let mut first = waiting(&team);
    let mut second = waiting(&team);
    team.until("one to replace the other", || {
        !first.is_running() || !second.is_running()
    });
    let (replaced, waits) = if first.is_running() {
        (second, first)
    } else {
        (first, second)
    };
    let replaced = replaced.finish().exits(7);
    assert!(
        replaced.stderr.contains("another command waits"),
        "{replaced:?}"
    );
    write("news");
    let woken = waits.finish().ok();
    assert!(
        woken.stdout.contains("news") && !woken.stdout.contains("missed"),
        "{woken:?}"
    );
    // It ends with the server, whether it waits already or not.
    let mut last = waiting(&team);
    client.kill();
    team.until("the wait to end", || !last.is_running());
    last.finish().exits(7);
    waiting(&team).finish().exits(7);
    // A person waits for what comes from now on.
    let person = team.teamctl(["wait", "--events", "--timeout", "50ms"]);
    assert!(
        person
            .exits(5)
            .stderr
            .contains("nothing has come for the lead")
    );
}

#[test]
fn a_lead_that_waits_is_let_go_when_no_teammate_runs() {
    let team = Team::started();
    team.spawn("alice", "");
    let mut client = McpClient::start(&team);
    client.call("team_status", json!({})).ok();
    let mut waits = team.start_teamctl(["wait", "--events", "--below-lead"]);
    let end = json!({"teammate": "alice"});
    let asked = client.call("shutdown_teammate", end).ok();
    team.until("the wait to end", || !waits.is_running());
    // Its end is told by the call or by the wait; where both look at the same moment, by both.
    let waited = waits.finish();
    let mark = "<teammate_terminated name=\"alice\">";
    assert!(
        asked.text.contains(mark) || waited.stdout.contains(mark),
        "{asked:?} {waited:?}"
    );
    let over = team.teamctl(["wait", "--events", "--below-lead"]).exits(7);
    assert!(over.stderr.contains("no teammate runs"), "{over:?}");
    client.close();
}

#[test]
fn the_plugin_has_the_server_the_hook_and_the_skill() {
    let team = Team::started();
    let printed = team.teamctl(["mcp", "--print-plugin", "plugin"]).ok();
    assert_eq!(printed.stdout, "wrote the plugin to plugin\n");
    let read = |name: &str| -> Value {
        let text = team.text(&format!("plugin/{name}"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    assert_eq!(read(".claude-plugin/plugin.json")["name"], "teamd");
    let server = &read(".mcp.json")["mcpServers"]["team"];
    let program = server["command"].as_str().unwrap();
    let mut client = McpClient::run(team.command(program, ["mcp"]));
    client.call("team_status", json!({})).ok();
    let hook = &read("hooks/hooks.json")["hooks"]["Stop"][0]["hooks"][0];
    assert_eq!(hook["asyncRewake"], true);
    // It wakes by ending with 2 and its text on stderr.
    team.teamctl(["send", "lead", "wake up"]).ok();
    let command = hook["command"].as_str().unwrap();
    let woken = team.run_program("sh", ["-c", command]).exits(2);
    assert!(
        woken.stderr.contains("wake up") && woken.stdout.is_empty(),
        "{woken:?}"
    );
    // And it wakes nobody where no server runs.
    client.close();
    assert_eq!(team.run_program("sh", ["-c", command]).exits(0).stdout, "");
    let skill = team.text("plugin/skills/lead-a-team/SKILL.md");
    assert!(skill.starts_with("---\nname: lead-a-team\ndescription: "));
}
