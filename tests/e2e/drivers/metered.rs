//! The tools of an agent find its gateway as the agent does: what they ask of a model is counted,
//! and held to the budget.

use crate::support::Team;
use crate::support::model_server::{ModelServer, Reply};

use super::{LIVE, SETS, Stub, runs, spawn, team_around};

/// Asks the model so many times, when it may begin, and writes down each status.
const LOOP: &str = r#"
import json, os, sys, time, urllib.error, urllib.request
count, out, base, key = int(sys.argv[1]), sys.argv[2], os.environ["BASE"], os.environ["KEY"]
if len(sys.argv) > 3:
    while not os.path.exists(sys.argv[3]):
        time.sleep(0.02)
path = "/v1/messages" if "anthropic" in base else "/responses"
text = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 9} if "anthropic" in base else {"input": "hello"}
for _ in range(count):
    headers = {"x-api-key": key, "authorization": "Bearer " + key, "content-type": "application/json", "anthropic-version": "2023-06-01"}
    request = urllib.request.Request(base + path, json.dumps({"model": "fake", **text}).encode(), headers)
    try:
        answer = urllib.request.urlopen(request)
        said = (answer.status, answer.read())
    except urllib.error.HTTPError as error:
        said = (error.code, error.read())
    with open(out, "a") as file:
        file.write(f"{said[0]} {said[1][:180]!r}\n")
os.rename(out, out + ".done")
"#;

/// A team of that agent whose model is the server; none without Python.
fn team(stub: &Stub, server: &ModelServer, layers: &str) -> Option<Team> {
    let team = Team::new().with("ANTHROPIC_BASE_URL", &server.url());
    let team = team.with("OPENAI_BASE_URL", &format!("{}/v1", server.url()));
    let team = team_around(team, &[stub], layers)?;
    team.write("loop.py", LOOP);
    Some(team)
}

fn server() -> ModelServer {
    ModelServer::answering_any_client(|_| Reply::text(&"hi ".repeat(400)))
}

/// The command that asks so many times.
fn asks(stub: &Stub, arguments: &str) -> String {
    let provider = stub.key.trim_end_matches("_API_KEY");
    format!("BASE=${provider}_BASE_URL KEY=${provider}_API_KEY python3 loop.py {arguments}")
}

fn statuses(team: &Team, out: &str) -> Vec<String> {
    team.until("the end of the loop", || team.made(&format!("{out}.done")));
    let said = std::fs::read_to_string(team.root().join(format!("{out}.done"))).unwrap();
    said.lines().map(str::to_owned).collect()
}

fn count(said: &[String], status: &str) -> usize {
    said.iter().filter(|line| line.starts_with(status)).count()
}

pub(super) fn what_a_tool_asks_of_a_model_counts_and_is_refused_over_the_budget(stub: &Stub) {
    let server = server();
    let Some(team) = team(stub, &server, LIVE) else {
        return;
    };
    spawn(&team, stub, &["--max-turns", "4"]);
    let notice = runs(&team, &format!("$ {}", asks(stub, "12 turns")));
    let said = statuses(&team, "turns");
    // The call that the agent has told of is one of the four.
    assert_eq!(
        (count(&said, "200"), count(&said, "429")),
        (3, 9),
        "{said:?}"
    );
    assert_eq!(server.asked(), 3);
    let shape = if stub.agent == "claude" {
        "rate_limit_error"
    } else {
        "rate_limit_exceeded"
    };
    assert!(
        said[11].contains(shape) && said[11].contains("max_turns"),
        "{said:?}"
    );
    assert_eq!(
        notice["idle_reason"], "available",
        "it has asked no more itself: {notice}"
    );
    // A message lets it go on with as much again.
    runs(&team, &format!("$ {}", asks(stub, "2 again")));
    assert_eq!(count(&statuses(&team, "again"), "200"), 2);
}

pub(super) fn what_a_tool_asks_of_a_model_is_held_to_the_tokens(stub: &Stub) {
    let server = server();
    let Some(team) = team(stub, &server, LIVE) else {
        return;
    };
    spawn(&team, stub, &["--max-tokens", "800"]);
    let notice = runs(&team, &format!("$ {}", asks(stub, "40 tokens")));
    let said = statuses(&team, "tokens");
    assert!(
        count(&said, "200") > 0 && count(&said, "429") > 0,
        "{said:?}"
    );
    assert!(said[39].contains("max_tokens"), "{said:?}");
    assert_eq!(server.asked(), count(&said, "200"));
    assert_eq!(notice["idle_reason"], "max_tokens", "{notice}");
    let spent = || {
        let usage = &team.member("carol")["usage"];
        usage["input_tokens"].as_u64().unwrap_or(0) + usage["output_tokens"].as_u64().unwrap_or(0)
    };
    team.until("the usage to be told", || spent() >= 800);
}

pub(super) fn no_model_is_asked_while_no_turn_runs(stub: &Stub) {
    for (layers, flags) in [(LIVE, &[][..]), (SETS[1], &[][..]), (LIVE, &["--plan"])] {
        let server = server();
        let Some(team) = team(stub, &server, layers) else {
            return;
        };
        spawn(&team, stub, flags);
        if !flags.is_empty() {
            // Behind a closed gate it writes where it always may.
            let command =
                asks(stub, "10 $TEAM_AGENT_STATE/idle go").replace("python3 ", "setsid python3 ");
            runs_until_planned(
                &team,
                &format!("$ {command} >/dev/null 2>&1 &\n@plan_approval {{\"plan\": \"a plan\"}}"),
            );
            team.write("go", "");
            let found = || {
                let cat = "cat $HOME/.local/state/teamd/agents/*/carol/idle.done";
                String::from_utf8(team.command("bash", ["-c", cat]).output().unwrap().stdout)
                    .unwrap()
            };
            team.until("the end of the loop", || !found().is_empty());
            assert_eq!(
                (found().matches("429 ").count(), server.asked()),
                (10, 0),
                "{}",
                found()
            );
            continue;
        }
        let command = asks(stub, "10 idle go").replace("python3 ", "setsid python3 ");
        runs(&team, &format!("$ {command} >/dev/null 2>&1 &"));
        team.wait_for("carol", "idle");
        team.write("go", "");
        let said = statuses(&team, "idle");
        assert_eq!((count(&said, "429"), server.asked()), (10, 0), "{said:?}");
        assert!(said[0].contains("no turn"), "{said:?}");
        assert!(
            team.teamctl(["status", "carol"])
                .ok()
                .stdout
                .contains("idle")
        );
    }
}

fn runs_until_planned(team: &Team, message: &str) {
    team.send("carol", message);
    team.until_planned("carol");
}
