//! The real programs, with a fake service: `scripts/test-agents`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::channel::{TAKE_OVER, check};
use super::{ACP, CLAUDE, CODEX, Stub, agent_if_any, agent_of, spawn};
use crate::checkouts::{REPOSITORY, add, git, until, user};
use crate::support::model_server::{Api, ModelServer, Reply, Request};
use crate::support::{Team, is_alive, signal};

/// A real program, and what its model calls its tools.
pub(super) struct Real {
    pub(super) stub: Stub,
    /// The variable that has its path, and what follows that.
    pub(super) variable: &'static str,
    pub(super) arguments: &'static [&'static str],
    pub(super) bash: fn(&str) -> Reply,
    plan_approval: &'static str,
    /// Whether its model is told a message in the turn that runs.
    joins: bool,
    /// Whether it shows what its commands print.
    shows_output: bool,
    /// What names a model that does not exist, where its own ones have tools of their own.
    pub(super) flags: &'static [&'static str],
}

const REAL_CLAUDE: Real = Real {
    stub: CLAUDE,
    variable: "TEAM_REAL_CLAUDE",
    arguments: &[],
    bash: |command| Reply::call("Bash", json!({"command": command, "description": "a test"})),
    plan_approval: "mcp__team__plan_approval",
    joins: true,
    shows_output: true,
    flags: &[],
};

const REAL_CODEX: Real = Real {
    stub: CODEX,
    variable: "TEAM_REAL_CODEX",
    arguments: &[],
    bash: |command| Reply::call("exec_command", json!({"cmd": command})),
    plan_approval: "plan_approval",
    joins: true,
    shows_output: true,
    flags: &["--model", "openai:fake"],
};

pub(super) const REAL_OPENCODE: Real = Real {
    stub: ACP,
    variable: "TEAM_REAL_OPENCODE",
    arguments: &["acp"],
    bash: |command| Reply::call("bash", json!({"command": command, "description": "a test"})),
    plan_approval: "team_plan_approval",
    joins: false,
    shows_output: true,
    flags: &["--model", "anthropic:claude-sonnet-4-5"],
};

/// Its shell shows a grid of cells (`ansiOutput`), and what is no string is left out of its updates
/// (`toToolCallContent`, version 0.61.0). Its model is told the output.
pub(super) const REAL_GEMINI: Real = Real {
    stub: Stub {
        agent: "gemini",
        key: "GEMINI_API_KEY",
        ..ACP
    },
    variable: "TEAM_REAL_GEMINI",
    arguments: &["--acp"],
    bash: |command| {
        Reply::call(
            "run_shell_command",
            json!({"command": command, "description": "a test"}),
        )
    },
    plan_approval: "mcp_team_plan_approval",
    joins: false,
    shows_output: false,
    flags: &["--model", "google:gemini-2.5-flash"],
};

/// The adapter of Claude Code to ACP, as an agent that no line of ours knows.
pub(super) const REAL_CLAUDE_ACP: Real = Real {
    stub: Stub {
        agent: "claude-acp",
        key: "ANTHROPIC_API_KEY",
        ..ACP
    },
    variable: "TEAM_REAL_CLAUDE_ACP",
    arguments: &[],
    ..REAL_CLAUDE
};

/// As [`scenarios`], with the real programs.
macro_rules! real_scenarios {
    ($($module:ident $real:ident { $($scenario:ident)* })*) => {
        $( mod $module { $( #[test] #[ignore = "scripts/test-agents"] fn $scenario() { super::$scenario(&super::$real); } )* } )*
    };
}

real_scenarios! {
    claude REAL_CLAUDE {
        it_obeys_the_gate_resumes_and_leaves_without_a_request
        a_message_during_a_call_comes_with_its_outcome_and_outlives_a_kill
        it_is_told_each_message_once_whenever_it_is_killed
        no_program_that_its_shell_starts_speaks_as_it
        its_model_calls_are_held_to_the_budget_and_its_tools_share_it
        settings_of_a_project_do_not_lead_its_calls_past_the_gateway
    }
    codex REAL_CODEX {
        it_obeys_the_gate_resumes_and_leaves_without_a_request
        a_message_during_a_call_comes_with_its_outcome_and_outlives_a_kill
        it_is_told_each_message_once_whenever_it_is_killed
        no_program_that_its_shell_starts_speaks_as_it
        its_model_calls_are_held_to_the_budget_and_its_tools_share_it
        settings_of_a_project_do_not_lead_its_calls_past_the_gateway
    }
    opencode REAL_OPENCODE {
        it_obeys_the_gate_resumes_and_leaves_without_a_request
        a_message_during_a_call_comes_with_its_outcome_and_outlives_a_kill
        it_is_told_each_message_once_whenever_it_is_killed
    }
    gemini REAL_GEMINI {
        it_obeys_the_gate_resumes_and_leaves_without_a_request
        a_message_during_a_call_comes_with_its_outcome_and_outlives_a_kill
        it_is_told_each_message_once_whenever_it_is_killed
    }
    claude_acp REAL_CLAUDE_ACP {
        it_obeys_the_gate_resumes_and_leaves_without_a_request
        a_message_during_a_call_comes_with_its_outcome_and_outlives_a_kill
        it_is_told_each_message_once_whenever_it_is_killed
    }
}

impl Real {
    /// A team of that service whose agent is the program.
    fn team(&self, server: &ModelServer) -> Team {
        let team = server.team();
        team.write("team.toml", &self.table());
        team.trust();
        team
    }

    /// Its table in team.toml.
    fn table(&self) -> String {
        let agent = self.stub.agent;
        let protocol = self.stub.protocol;
        let mut command = vec![std::env::var(self.variable).unwrap()];
        command.extend(self.arguments.iter().map(|&argument| argument.to_owned()));
        format!("[agents.{agent}]\ncommand = {command:?}\nprotocol = '{protocol}'\n")
    }
}

/// Whether a request is of a turn: some agents name their sessions with a request of its own.
pub(super) fn is_turn(request: &Request) -> bool {
    let tools = request.body["tools"].as_array();
    tools.is_some_and(|tools| !tools.is_empty())
}

/// A closed gate, a plan, an open and again a closed gate, a kill, a shutdown.
fn it_obeys_the_gate_resumes_and_leaves_without_a_request(real: &Real) {
    let Real { stub, bash, .. } = real;
    let replies = Arc::new(Mutex::new(VecDeque::new()));
    let queue = Arc::clone(&replies);
    let server = ModelServer::answering_any_client(move |request| {
        let next = if is_turn(request) {
            queue.lock().unwrap().pop_front()
        } else {
            None
        };
        next.unwrap_or_else(|| Reply::text("done"))
    });
    let turns = || server.requests().into_iter().filter(is_turn);
    let replies_are = |next: Vec<Reply>| replies.lock().unwrap().extend(next);
    let plan = |text: &str| Reply::call(real.plan_approval, json!({"plan": text}));
    let team = real.team(&server);

    replies_are(vec![bash("echo x > closed"), plan("write a file")]);
    spawn(
        &team,
        stub,
        &[&["--plan", "--prompt", "the first work"], real.flags].concat(),
    );
    let id = team.until_planned("carol");
    let first = turns().find(|it| it.mentions("the first work")).unwrap();
    assert!(
        first.body["tools"].to_string().contains(real.plan_approval),
        "{}",
        first.body["tools"]
    );
    // Its model is told that the plan is submitted: what it answers then is no part of what
    // follows.
    let ended = || team.file("transcript/carol.jsonl").contains("\"done\"");
    team.until("the end of its turn", || turns().count() >= 3 && ended());
    replies_are(vec![bash("echo yes > open; env"), Reply::text("written")]);
    team.teamctl(["approve", &id]).ok();
    team.until("the write behind the open gate", || team.made("open"));
    team.wait_for("carol", "idle");
    assert!(!team.made("closed"));

    replies_are(vec![bash("echo x > closed"), plan("write another")]);
    team.teamctl(["request-plan", "carol", "a plan for more"])
        .ok();
    let id = team.until_planned("carol");
    team.teamctl(["approve", &id]).ok();
    team.wait_for("carol", "idle");
    assert!(!team.made("closed"));
    let is_read_only = "ead-only file system";
    let refused = if real.shows_output {
        let results = team.results("carol");
        let refused = results.iter().map(Value::to_string);
        refused.filter(|it| it.contains(is_read_only)).count()
    } else {
        let told = turns().next_back().unwrap().body;
        let contents = told["contents"].as_array().unwrap();
        let parts = contents
            .iter()
            .filter_map(|content| content["parts"].as_array());
        let outcomes = parts
            .flatten()
            .map(|part| part["functionResponse"].to_string());
        outcomes.filter(|it| it.contains(is_read_only)).count()
    };
    assert_eq!(refused, 2, "{:?}", team.results("carol"));

    let agent = agent_of(&team);
    signal(agent, Signal::SIGKILL);
    team.until("its end", || !is_alive(agent));
    team.send("carol", "the work after the kill");
    let after = || turns().find(|it| it.mentions("the work after the kill"));
    team.until("the request", || after().is_some());
    team.wait_for("carol", "idle");
    assert!(
        after().unwrap().mentions("the first work"),
        "it goes on with its session"
    );

    let asked = server.requests().len();
    assert_eq!(team.shutdown("carol", &[], 0)["outcome"], "shutdown");
    team.until("all to be gone", || team.processes().len() == 1);
    assert_eq!(server.requests().len(), asked);
    let key = crate::support::model_server::KEY;
    let leaked = team
        .command("grep", ["-rl", key, team.root().to_str().unwrap()])
        .output()
        .unwrap()
        .stdout;
    let leaked = String::from_utf8(leaked).unwrap();
    assert!(
        !leaked.contains("/carol/") && !leaked.contains("transcript"),
        "{leaked}"
    );
    assert!(
        !team.file("transcript/carol.jsonl").contains(key),
        "it is in no variable of its commands"
    );
}

/// As with the stubs: its own descriptors are out of reach, and so are those of what started it.
fn no_program_that_its_shell_starts_speaks_as_it(real: &Real) {
    let Real { bash, stub, .. } = real;
    let mut turn = 0;
    let bash = *bash;
    let agent = stub.agent;
    let server = ModelServer::answering_any_client(move |_| {
        turn += 1;
        match turn {
            1 => bash(&format!(
                "ls -l /proc/self/fd; python3 take-over.py {agent} 0,1,2 > said; grep -e BROKEN -e '^tried [0-9]' said"
            )),
            _ => Reply::text("done"),
        }
    });
    let team = real.team(&server);
    team.write("take-over.py", TAKE_OVER);
    // A project that leads it to another model, which nothing answers for.
    std::fs::create_dir(team.root().join(".claude")).unwrap();
    team.write(
        ".claude/settings.json",
        r#"{"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "HTTPS_PROXY": "http://127.0.0.1:1"}}"#,
    );
    spawn(
        &team,
        stub,
        &[&["--prompt", "message 00;"], real.flags].concat(),
    );
    team.until_finished("carol", 1);
    let said = team.text("said");
    check(&said, agent);
    assert_eq!(team.shutdown("carol", &[], 0)["outcome"], "shutdown");
}

/// A message arrives while a command runs. The next request has it, or the next turn begins with it;
/// and once, if the agent is killed before.
fn a_message_during_a_call_comes_with_its_outcome_and_outlives_a_kill(real: &Real) {
    let Real { bash, stub, .. } = real;
    let mut turn = 0;
    let bash = *bash;
    let server = ModelServer::answering_any_client(move |request| {
        let command = |name: &str| {
            bash(&format!(
                "touch ready{name}; until [ -e go{name} ]; do sleep 1; done"
            ))
        };
        turn += u32::from(is_turn(request));
        match turn {
            1 if is_turn(request) => command("1"),
            _ if is_turn(request) && is_last(request, "message 02;") => command("3"),
            _ => Reply::text("done"),
        }
    });
    let team = real.team(&server);
    let turns = || server.requests().into_iter().filter(is_turn);
    spawn(
        &team,
        stub,
        &[&["--prompt", "message 00;"], real.flags].concat(),
    );
    team.until("the command", || team.made("ready1"));
    team.send("carol", "message 01;");
    let told = |number: u32| {
        team.file("transcript/carol.jsonl")
            .contains(&format!("message 0{number};"))
    };
    team.until("the message", || told(1));
    team.write("go1", "");
    team.until("the request", || {
        turns().any(|it| it.mentions("message 01;"))
    });
    assert_eq!(
        turns().nth(1).unwrap().mentions("message 01;"),
        real.joins,
        "the model is asked with the outcome"
    );
    team.wait_for("carol", "idle");
    team.send("carol", "message 02;");
    team.until("the command", || team.made("ready3"));
    team.send("carol", "message 03;");
    team.until("the message", || told(3));
    let agent = agent_of(&team);
    signal(agent, Signal::SIGKILL);
    team.until("its end", || !is_alive(agent));
    team.write("go3", "");
    team.until("the request", || {
        turns().any(|it| it.mentions("message 03;"))
    });
    team.wait_for("carol", "idle");
    let body = turns().next_back().unwrap().body.to_string();
    for number in 0..=3 {
        told_once(real, &body, &format!("message 0{number};"));
    }
}

/// Whether the last that its model is told is this, and not what came of a call.
fn is_last(request: &Request, text: &str) -> bool {
    let told = request.body["messages"].as_array();
    let told = told.or_else(|| request.body["input"].as_array());
    let told = told.or_else(|| request.body["contents"].as_array());
    told.and_then(|told| told.last())
        .is_some_and(|last| last.to_string().contains(text))
}

/// Checks that a conversation has a message once. What speaks ACP does not show what it has kept: so
/// after a kill it may be told a message again, as a quotation.
fn told_once(real: &Real, body: &str, message: &str) {
    let all = body.matches(message).count();
    if real.stub.protocol != "acp" {
        assert_eq!(all, 1, "{message}: {body}");
        return;
    }
    let quoted = body.matches(&format!("> {message}")).count();
    assert!(
        all >= 1 && all - quoted <= 1,
        "{message}: {all}, quoted {quoted}: {body}"
    );
}

/// Killed after 0 to 400 ms, again and again, with a second message on the way: its model has each
/// message once in the end.
fn it_is_told_each_message_once_whenever_it_is_killed(real: &Real) {
    let Real { bash, stub, .. } = real;
    let mut turn = 0;
    let bash = *bash;
    let server = ModelServer::answering_any_client(move |request| {
        turn += u32::from(is_turn(request));
        if is_turn(request) && turn % 2 == 1 {
            bash("sleep 0.2")
        } else {
            Reply::text("done")
        }
    });
    let team = real.team(&server);
    let turns = || server.requests().into_iter().filter(is_turn);
    spawn(
        &team,
        stub,
        &[&["--prompt", "message 00;"], real.flags].concat(),
    );
    let rounds: u64 = std::env::var("TEAM_KILLS").map_or(20, |rounds| rounds.parse().unwrap());
    for round in 1..=rounds {
        let before = server.asked();
        team.send("carol", &format!("message {round:02};"));
        let sent = Instant::now();
        let moment = Duration::from_millis(round * 137 % 400);
        team.until("a moment before", || sent.elapsed() >= moment / 2);
        team.send("carol", &format!("another {round:02};"));
        team.until("the moment", || sent.elapsed() >= moment);
        team.until("its process", || agent_if_any(&team).is_some());
        signal(agent_of(&team), Signal::SIGKILL);
        let is_told = |what| server.mentioned(before, &format!("{what} {round:02};"));
        team.until("its turn", || is_told("message") && is_told("another"));
        team.wait_for("carol", "idle");
    }
    team.send("carol", "the last message");
    let last = || turns().rfind(|it| it.mentions("the last message"));
    team.until("the request", || last().is_some());
    team.wait_for("carol", "idle");
    let body = last().unwrap().body.to_string();
    for (round, what) in (0..=rounds)
        .flat_map(|round| [(round, "message"), (round, "another")])
        .filter(|it| *it != (0, "another"))
    {
        told_once(real, &body, &format!("{what} {round:02};"));
    }
    assert_eq!(team.shutdown("carol", &[], 0)["outcome"], "shutdown");
    team.until("all to be gone", || team.processes().len() == 1);
}

/// The agent asks its model in a turn alone, and as often as it may; a command of it that asks
/// counts as well.
fn its_model_calls_are_held_to_the_budget_and_its_tools_share_it(real: &Real) {
    let Real { stub, bash, .. } = real;
    let bash = *bash;
    let is_claude = stub.agent == "claude";
    let variable = stub.key.trim_end_matches("_API_KEY");
    let (path, body) = if is_claude {
        (
            "/v1/messages",
            r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"of a command"}]}"#,
        )
    } else {
        ("/responses", r#"{"model":"m","input":"of a command"}"#)
    };
    let ask = format!(
        "curl -s -o /dev/null -w '%{{http_code}} ' -H \"x-api-key: ${variable}_API_KEY\" -H \"authorization: Bearer ${variable}_API_KEY\" \
         -H 'content-type: application/json' -H 'anthropic-version: 2023-06-01' -d '{body}' ${variable}_BASE_URL{path} >> asked"
    );
    let server = ModelServer::answering_any_client(move |request| {
        let is_turn = is_turn(request);
        let is_long = request.mentions("on and on") && !request.mentions("the last work");
        if is_turn && is_long {
            bash(&ask)
        } else {
            Reply::text("done")
        }
    });
    let team = real.team(&server);
    spawn(
        &team,
        stub,
        &[&["--max-turns", "6", "--prompt", "do it once"], real.flags].concat(),
    );
    team.wait_for("carol", "idle");
    assert_eq!(server.asked(), 1, "no call but that of the turn");
    team.send("carol", "go on and on");
    team.until_finished("carol", 2);
    let notice = team.notices("carol").pop().unwrap();
    assert_eq!(notice["idle_reason"], "max_turns", "{notice}");
    assert_eq!(
        server.asked(),
        7,
        "{:?}",
        std::fs::read_to_string(team.root().join("asked"))
    );
    // It can go on.
    team.send("carol", "the last work");
    team.until_finished("carol", 3);
}

/// What a project sets of addresses, keys and proxies holds for neither agent.
fn settings_of_a_project_do_not_lead_its_calls_past_the_gateway(real: &Real) {
    let server = ModelServer::answering_any_client(|_| Reply::text("reached"));
    let team = real.team(&server);
    for folder in [".claude", ".codex"] {
        std::fs::create_dir_all(team.root().join(folder)).unwrap();
    }
    let of_claude = json!({
        "apiKeyHelper": "echo of-the-project",
        "env": {
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "ANTHROPIC_AUTH_TOKEN": "of-the-project", "HTTP_PROXY": "http://127.0.0.1:9",
            "CLAUDE_CODE_USE_BEDROCK": "1", "ANTHROPIC_CUSTOM_HEADERS": "x-api-key: of-the-project",
        },
    });
    team.write(".claude/settings.json", &of_claude.to_string());
    team.write(".claude/settings.local.json", &of_claude.to_string());
    let of_codex = "model_provider = 'other'\nprofile = 'p'\n[model_providers.other]\nname = 'other'\nbase_url = 'http://127.0.0.1:9'\n\
                    [model_providers.team]\nname = 'other'\nbase_url = 'http://127.0.0.1:9'\n[profiles.p]\nmodel_provider = 'other'\n";
    team.write(".codex/config.toml", of_codex);
    spawn(
        &team,
        &real.stub,
        &[&["--prompt", "a work"], real.flags].concat(),
    );
    team.until_finished("carol", 1);
    assert_eq!(team.notices("carol").pop().unwrap()["content"], "reached");
    assert_eq!(server.asked(), 1);
}

/// Claude Code, Codex and the built-in agent, each with its own service: each claims a task,
/// commits, and submits.
#[test]
#[ignore = "scripts/test-agents"]
fn real_claude_and_real_codex_and_the_built_in_agent_work_on_one_repository() {
    let apis = [
        (Api::Anthropic, "alice"),
        (Api::Responses, "bob"),
        (Api::OpenAi, "dan"),
    ];
    let replies: Mutex<Vec<VecDeque<Reply>>> = Mutex::new(
        (1..)
            .zip(apis)
            .map(|(id, (api, name))| {
                let commit = format!("echo {name} > {name}; git add {name}; git commit -qm {name}");
                let (prefix, work) = match api {
                    Api::Anthropic => ("mcp__team__", (REAL_CLAUDE.bash)(&commit)),
                    Api::Responses => ("", (REAL_CODEX.bash)(&commit)),
                    Api::OpenAi | Api::Google => {
                        ("", Reply::call("bash", json!({"command": commit})))
                    }
                };
                let of_team =
                    |tool: &str, input: Value| Reply::call(&format!("{prefix}{tool}"), input);
                let claim = of_team("claim_task", json!({"task_id": id}));
                let submit = of_team("task_update", json!({"task_id": id, "status": "completed"}));
                [claim, work, submit].into()
            })
            .collect(),
    );
    let server = ModelServer::answering_any_client(move |request| {
        let is_turn = is_turn(request);
        let place = apis
            .iter()
            .position(|(api, _)| *api == request.api)
            .unwrap();
        let next = if is_turn {
            replies.lock().unwrap()[place].pop_front()
        } else {
            None
        };
        next.unwrap_or_else(|| Reply::text("done"))
    });
    let team = server.team();
    team.write("team.toml", &(REAL_CLAUDE.table() + &REAL_CODEX.table()));
    team.trust();
    user(&team, REPOSITORY);
    for (_, name) in apis {
        add(&team, &[name, "--check", &format!("test -e {name}")]);
    }
    for (name, flags) in [
        ("alice", ["--agent", "claude"].as_slice()),
        ("bob", &["--agent", "codex", "--model", "openai:fake"]),
        ("dan", &["--model", "openai:fake"]),
    ] {
        team.teamctl(
            ["spawn", name, "--checkout", "--prompt", "do your task"]
                .iter()
                .chain(flags),
        )
        .ok();
    }
    for (id, (_, name)) in (1..).zip(apis) {
        assert_eq!(until(&team, id, "completed")["submission"]["by"], name);
    }
    assert_eq!(
        git(&team, &["ls-tree", "--name-only", "integration"]),
        "a.txt\nalice\nbob\ndan"
    );
    for (_, name) in apis {
        assert_eq!(team.shutdown(name, &[], 0)["outcome"], "shutdown");
    }
    team.until("all to be gone", || team.processes().len() == 1);
}
