//! The life of an agent that behaves.

use nix::sys::signal::Signal;
use serde_json::json;

use super::{CLAUDE, CODEX, KEY, LIVE, SETS, Stub, agent_if_any, runs, session, spawn, team_of};
use crate::checkouts::{REPOSITORY, add, git, until, user};
use crate::mcp::PNG;
use crate::support::{python, signal};

pub(super) fn one_process_works_through_many_messages_and_leaves_at_once_when_idle(stub: &Stub) {
    let Some(team) = team_of(&[stub], LIVE) else {
        return;
    };
    spawn(
        &team,
        stub,
        &["--prompt", "$ echo first > made; echo $PPID\nsay hello"],
    );
    team.until_finished("carol", 1);
    let first = team.notices("carol").pop().unwrap();
    assert_eq!(first["idle_reason"], "available", "{first}");
    let content = first["content"].as_str().unwrap();
    assert!(
        content.ends_with("hello") && team.text("made") == "first\n",
        "{content}"
    );
    let calls = team.results("carol");
    assert_eq!(calls.len(), 1, "the call is in the transcript: {calls:?}");
    let again = runs(&team, "$ echo $PPID");
    assert_eq!(
        again["content"].as_str().unwrap().lines().next(),
        content.lines().next(),
        "it is the same process"
    );
    // 500 of each turn, and what each answer has written.
    let usage = |what: &str| team.member("carol")["usage"][what].clone();
    team.until("all to be counted", || {
        (usage("input_tokens"), usage("output_tokens")) == (json!(1000), json!(120))
    });
    let said = runs(
        &team,
        "@send_message {\"to\": \"lead\", \"content\": \"done with it\"}\n@task_list\n@no_such_tool",
    );
    assert!(said["content"].as_str().unwrap().contains("sent"), "{said}");
    assert!(team.file("inbox/lead.jsonl").contains("done with it"));
    let before = session(&team, stub).len();
    assert_eq!(team.shutdown("carol", &[], 0)["outcome"], "shutdown");
    assert_eq!(
        session(&team, stub).len(),
        before,
        "its model was not asked"
    );
    team.until("all to be gone", || team.processes().len() == 1);
    assert!(
        !team.file("transcript/carol.jsonl").contains(KEY) && !session(&team, stub).contains(KEY)
    );
}

pub(super) fn a_message_joins_the_work_that_is_done_and_so_does_a_shutdown_request(stub: &Stub) {
    let Some(team) = team_of(&[stub], LIVE) else {
        return;
    };
    spawn(&team, stub, &[]);
    team.send(
        "carol",
        "$ touch ready; until [ -e go ]; do sleep 0.01; done; echo first",
    );
    team.until("the command", || team.made("ready"));
    team.send("carol", "say second");
    // It is told while the call runs: with the outcome of that, its model reads it.
    team.until("the message", || {
        team.file("transcript/carol.jsonl").contains("say second")
    });
    team.write("go", "");
    team.until_finished("carol", 1);
    let content = team.notices("carol").pop().unwrap()["content"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        content.contains("first") && content.contains("second"),
        "{content}"
    );
    assert_eq!(team.notices("carol").len(), 1);
    // A message that `read_inbox` delivers is told once, as any other: not in the result, too.
    team.send(
        "carol",
        "$ touch third; until [ -e go3 ]; do sleep 0.01; done; touch asks\n@read_inbox",
    );
    team.until("the command", || team.made("third"));
    let worker = team.pid("carol");
    signal(worker, Signal::SIGSTOP);
    team.send("carol", "say fourth");
    team.write("go3", "");
    team.until("the call", || team.made("asks"));
    signal(worker, Signal::SIGCONT);
    team.until_finished("carol", 2);
    let content = team.notices("carol").pop().unwrap()["content"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(content.matches("fourth").count(), 1, "{content}");
    team.send(
        "carol",
        "$ touch again; until [ -e go2 ]; do sleep 0.01; done; echo third",
    );
    team.until("the command", || team.made("again"));
    let running = team.start_teamctl(["--json", "shutdown", "carol"]);
    let id = team.until_asked("carol");
    team.until("the request", || team.entries("carol", "asked").len() == 1);
    team.write("go2", "");
    assert_eq!(
        running.finish().ok().json()["results"][0]["outcome"],
        "shutdown"
    );
    let answered = team.request(&id);
    assert_eq!(
        (&answered["answered_by"], &answered["reason"]),
        (&json!("model"), &json!("voted")),
        "{answered}"
    );
}

pub(super) fn a_plan_ends_the_turn_and_its_verdict_arrives_as_a_message(stub: &Stub) {
    for layers in SETS {
        let Some(team) = team_of(&[stub], layers) else {
            return;
        };
        let plans =
            "$ echo x > made 2>/dev/null || echo closed\n@plan_approval {\"plan\": \"make it\"}";
        spawn(&team, stub, &["--plan", "--prompt", plans]);
        let id = team.until_planned("carol");
        assert_eq!(team.request(&id)["payload"]["plan"], "make it");
        assert!(!team.made("made"), "{layers}");
        team.until("the end of its turn", || {
            session(&team, stub).contains("\"said\"")
        });
        team.teamctl(["approve", &id, "--feedback", "\n$ echo done > made\n"])
            .ok();
        team.until_finished("carol", 1);
        assert_eq!(team.text("made"), "done\n", "{layers}");
        team.teamctl([
            "request-plan",
            "carol",
            "\n$ echo x > more 2>/dev/null || echo closed again\n@plan_approval {\"plan\": \"more\"}",
        ])
        .ok();
        let id = team.until_planned("carol");
        assert!(!team.made("more"), "{layers} {}", session(&team, stub));
        team.teamctl(["approve", &id, "--feedback", "\n$ echo y > more\n"])
            .ok();
        team.until_finished("carol", 2);
        assert_eq!(team.text("more"), "y\n", "{layers}");
    }
}

/// Each answer of its model costs, and nothing follows from it before the verdict.
pub(super) fn an_agent_that_goes_on_and_on_behind_its_plan_is_stopped(stub: &Stub) {
    let Some(team) = team_of(&[stub], LIVE) else {
        return;
    };
    let orders = format!(
        "@plan_approval {{\"plan\": \"make it\"}}\n{}",
        "$ sleep 0.1\n".repeat(40)
    );
    spawn(&team, stub, &["--plan", "--prompt", &orders]);
    let id = team.until_planned("carol");
    team.until("the end of the agent", || agent_if_any(&team).is_none());
    let calls = session(&team, stub).matches("\"call\": ").count();
    assert!((8..15).contains(&calls), "{calls}");
    team.teamctl(["approve", &id, "--feedback", "\n$ echo done > made\n"])
        .ok();
    team.until_finished("carol", 1);
    assert_eq!(team.text("made"), "done\n");
}

/// It has arrived while a command ran, and its model has not seen it: as any message that waits, it
/// begins the next piece of work.
pub(super) fn a_message_that_an_interrupted_call_was_told_is_the_next_work(stub: &Stub) {
    for ends in ["interrupt", "shutdown"] {
        let Some(team) = team_of(&[stub], LIVE) else {
            return;
        };
        spawn(
            &team,
            stub,
            &[
                "--prompt",
                "$ touch ready; until [ -e go ]; do sleep 0.01; done",
            ],
        );
        team.until("the command", || team.made("ready"));
        team.send("carol", "say second");
        team.until("the message", || {
            team.file("transcript/carol.jsonl").contains("say second")
        });
        if ends == "interrupt" {
            team.teamctl(["interrupt", "carol"]).ok();
            team.until_finished("carol", 2);
            assert_eq!(team.notices("carol")[0]["idle_reason"], "interrupted");
        } else {
            team.teamctl(["shutdown", "carol", "--decide-within", "0.1s"])
                .ok();
            team.teamctl(["spawn", "carol", "--resume"]).ok();
            team.until_finished("carol", 1);
        }
        let last = team.notices("carol").pop().unwrap();
        assert!(
            last["content"].as_str().unwrap().ends_with("second"),
            "{ends}: {last}"
        );
        let kept = session(&team, stub);
        let told = kept
            .lines()
            .filter(|line| line.contains("\"role\": \"user\"") && line.contains("say second"));
        assert_eq!(told.count(), 1, "{ends}: {kept}");
    }
}

/// A limit counts what its model was asked, and the last answer runs to its end.
pub(super) fn calls_of_one_answer_are_one_turn(stub: &Stub) {
    for (most, reason) in [("2", "available"), ("1", "max_turns")] {
        let Some(team) = team_of(&[stub], LIVE) else {
            return;
        };
        let orders = "both echo one > one ; echo two > two\nsay done";
        spawn(&team, stub, &["--max-turns", most, "--prompt", orders]);
        team.until_finished("carol", 1);
        assert_eq!(team.notices("carol")[0]["idle_reason"], reason);
        assert_eq!(
            (
                team.text("one"),
                team.text("two"),
                team.results("carol").len()
            ),
            ("one\n".into(), "two\n".into(), 2)
        );
        // Each is recorded when it is made, not when the one before it has its result.
        let kinds: Vec<_> = team
            .transcript("carol")
            .iter()
            .map(|it| it["entry"].clone())
            .collect();
        let before = kinds
            .iter()
            .take_while(|kind| *kind != "result")
            .filter(|kind| *kind == "answer");
        assert_eq!(before.count(), 2, "{kinds:?}");
        let stats = team.teamctl(["--json", "stats"]).ok().json();
        assert!(stats.to_string().contains("\"turns\":2"), "{stats}");
    }
}

/// The verdict may take days: the turn ends before it, whatever the agent does, and nothing that it
/// has begun runs behind it.
pub(super) fn what_an_agent_does_behind_its_plan_is_answered_at_once(stub: &Stub) {
    for (layers, permissions) in [(SETS[0], "allow"), (SETS[0], "ask"), (SETS[1], "allow")] {
        let Some(team) = team_of(&[stub], layers) else {
            return;
        };
        let orders = "@plan_approval {\"plan\": \"make it\"}\n@plan_approval {\"plan\": \"another\"}\n@task_list\n$ echo x 2>/dev/null > made || echo closed\nsay waiting";
        spawn(
            &team,
            stub,
            &["--plan", "--permissions", permissions, "--prompt", orders],
        );
        let id = team.until_planned("carol");
        team.until("the end of its turn", || {
            session(&team, stub).contains("\"said\"")
        });
        assert!(
            !team.made("made") && team.status("carol") == "awaiting_approval",
            "{layers} {permissions}"
        );
        team.until("the cost", || {
            team.member("carol")["usage"]["output_tokens"] == json!(60)
        });
        team.teamctl([
            "approve",
            &id,
            "--permissions",
            "allow",
            "--feedback",
            "\n$ echo done > made\n",
        ])
        .ok();
        team.until_finished("carol", 1);
        assert_eq!(team.text("made"), "done\n", "{layers} {permissions}");
        let results = team.results("carol");
        let refused = results.iter().filter(|it| {
            it["content"]
                .as_str()
                .unwrap()
                .contains("not run: your plan waits")
        });
        assert_eq!(
            refused.count(),
            if permissions == "ask" && stub.agent == "claude" {
                2
            } else {
                1
            },
            "{results:?}"
        );
        assert_eq!(results.len(), 5, "{results:?}");
        assert_eq!(team.requests("plan_approval").len(), 1);
        let told = session(&team, stub)
            .lines()
            .filter(|line| line.contains("\"result\": ") && line.contains("not submitted"))
            .count();
        assert_eq!(told, 1, "{}", session(&team, stub));
    }
}

/// The transcript has it in its order and with its time, before the verdict; and what it says then
/// is not part of its final answer.
pub(super) fn what_an_agent_does_behind_its_plan_is_recorded_when_it_happens(stub: &Stub) {
    for (layers, verdict) in [
        (SETS[0], "approve"),
        (SETS[1], "approve"),
        (SETS[0], "reject"),
    ] {
        let Some(team) = team_of(&[stub], layers) else {
            return;
        };
        let orders = "@plan_approval {\"plan\": \"make it\"}\n@task_list\n$ echo x 2>/dev/null > made || echo no-way\nsay waiting";
        spawn(&team, stub, &["--plan", "--prompt", orders]);
        let id = team.until_planned("carol");
        let behind = || {
            team.transcript("carol")
                .into_iter()
                .map(|it| it.to_string())
                .collect::<Vec<_>>()
        };
        team.until("the end of its turn", || {
            behind()
                .iter()
                .any(|it| it.contains("\"answer\"") && it.contains("waiting"))
        });
        let before = behind();
        let is_result = |it: &&String| it.contains("\"entry\":\"result\"");
        let results: Vec<_> = before.iter().filter(is_result).collect();
        assert!(
            results.len() == 2 && results[1].contains("no-way"),
            "{layers}: {results:?}"
        );
        assert!(
            before
                .iter()
                .any(|it| it.contains("echo x 2>/dev/null") && it.contains(stub.command))
        );
        team.teamctl([verdict, &id, "--feedback", "\nsay made-it\n"])
            .ok();
        team.until_finished("carol", 1);
        let content = team.notices("carol").pop().unwrap()["content"].to_string();
        assert!(
            content.contains("made-it") && !content.contains("waiting"),
            "{layers}: {content}"
        );
        let all = behind();
        assert_eq!(all[..before.len()], before, "{layers}");
        let after: Vec<_> = all[before.len()..].iter().filter(is_result).collect();
        assert!(
            after.len() == 1 && after[0].contains(verdict),
            "{layers}: {after:?}"
        );
        let shown = team.teamctl(["transcript", "carol"]).ok().stdout;
        let no_way = shown.rfind("no-way");
        let judged = shown.find("made-it");
        assert!(no_way < judged, "{shown}");
        team.teamctl([
            "lint",
            team.path("transcript/carol.jsonl").to_str().unwrap(),
        ])
        .ok();
    }
}

/// The plan waits on, and the verdict is told at once.
pub(super) fn a_call_behind_a_plan_may_have_run_when_its_worker_is_killed(stub: &Stub) {
    let Some(team) = team_of(&[stub], LIVE) else {
        return;
    };
    spawn(
        &team,
        stub,
        &[
            "--plan",
            "--prompt",
            "@plan_approval {\"plan\": \"make it\"}\n$ sleep 302",
        ],
    );
    let id = team.until_planned("carol");
    team.until("the call", || {
        team.file("transcript/carol.jsonl").contains("sleep 302\"}")
    });
    assert!(team.results("carol").is_empty());
    signal(team.pid("carol"), Signal::SIGKILL);
    team.until("the next worker", || team.incarnation("carol") == 2);
    team.until("the result", || team.results("carol").len() == 1);
    assert!(
        team.results("carol")[0]["content"]
            .as_str()
            .unwrap()
            .contains("may have run")
    );
    team.until_planned("carol");
    team.teamctl(["approve", &id, "--feedback", "\n$ echo done > made\n"])
        .ok();
    team.until_finished("carol", 1);
    assert_eq!(team.text("made"), "done\n");
}

pub(super) fn a_busy_agent_that_does_not_answer_is_ended_at_the_deadline(stub: &Stub) {
    let Some(team) = team_of(&[stub], LIVE) else {
        return;
    };
    for order in ["hang", "$ (setsid sleep 300 &); touch ready; sleep 301"] {
        spawn(&team, stub, &[]);
        team.send("carol", order);
        team.until("its turn", || {
            session(&team, stub).contains(order.split(' ').next_back().unwrap())
        });
        assert_eq!(
            team.shutdown("carol", &["--decide-within", "0.2s"], 0)["outcome"],
            "shutdown"
        );
        team.until("all to be gone", || team.processes().len() == 1);
        team.teamctl(["forget", "carol"]).ok();
    }
}

/// What its model says is seen while it says it; what its service does, and that it does nothing,
/// is told in plain words.
pub(super) fn what_it_says_is_seen_at_once_and_what_it_waits_for(stub: &Stub) {
    let Some(team) = team_of(&[stub], LIVE) else {
        return;
    };
    let team = team.with("TEAM_MODEL_TIMEOUT", "1");
    spawn(&team, stub, &[]);
    let interrupted = |order: &str, is_told: &dyn Fn() -> bool| {
        let before = team.notices("carol").len();
        team.send("carol", order);
        team.until(order, is_told);
        team.teamctl(["interrupt", "carol"]).ok();
        team.until_finished("carol", before + 1);
    };
    let waits_for = |what: &'static str| {
        let team = &team;
        move || {
            team.member("carol")["waiting"]["why"]
                .as_str()
                .is_some_and(|why| why.contains(what))
        }
    };
    interrupted("stream the beginning of it\nhang", &|| {
        std::fs::read_to_string(team.path("run/carol.live"))
            .is_ok_and(|live| live == "the beginning of it")
    });
    // ACP has no word for a service that does not answer.
    if stub.protocol != "acp" {
        interrupted("retrying 529", &waits_for("529"));
    }
    interrupted("hang", &waits_for("has said nothing for 1s"));
    for (order, told) in [
        ("fail 401", "refuses the key (status 401)"),
        ("fail 529", "overloaded"),
    ] {
        let failed = runs(&team, order);
        assert_eq!(failed["idle_reason"], "failed");
        assert!(
            failed["content"].as_str().unwrap().contains(told),
            "{failed}"
        );
        team.until("status to say so", || {
            team.teamctl(["status"]).ok().stdout.contains(told)
        });
    }
}

/// The lead agent is one, too: it has the tools of a lead, and starts others of its kind.
#[test]
fn claude_code_is_a_lead_agent_with_the_tools_of_a_lead() {
    leads(&CLAUDE);
}

#[test]
fn codex_is_a_lead_agent_with_the_tools_of_a_lead() {
    leads(&CODEX);
}

fn leads(stub: &Stub) {
    let Some(team) = team_of(&[stub], LIVE) else {
        return;
    };
    let agents = std::fs::read_to_string(team.root().join("team.toml")).unwrap();
    team.write(
        "team.toml",
        &format!("agent = '{}'\napprove_by = 'lead'\n{agents}", stub.agent),
    );
    team.trust();
    let plan = "@plan_approval {\\\"plan\\\": \\\"make it\\\"}";
    let spawn = format!(
        "@spawn_teammate {{\"name\": \"dan\", \"role\": \"coder\", \"prompt\": \"{plan}\", \"plan\": true}}"
    );
    let said = team.teamctl_with(["chat", "--agent", stub.agent, "--timeout", "20s"], &spawn);
    assert!(
        said.stdout.contains("dan"),
        "{} {}",
        said.stdout,
        said.stderr
    );
    let id = team.until_planned("dan");
    for name in ["lead", "dan"] {
        assert_eq!(team.member(name)["agent"]["name"], stub.agent, "{name}");
    }
    let verdict = json!({"request_id": id, "approve": true, "feedback": "go on"});
    team.teamctl_with(
        ["chat", "--timeout", "20s"],
        &format!("@plan_approval {verdict}"),
    )
    .ok();
    team.until("the verdict", || team.request(&id)["status"] == "approved");
    let told = team
        .teamctl_with(["chat", "--agent", "builtin"], "say no")
        .exits(7)
        .stderr;
    assert!(told.contains(stub.agent), "{told}");
}

/// One of each kind: every one submits work of its own, and gives the next one its work.
#[test]
fn claude_code_codex_and_the_built_in_agent_work_on_one_repository() {
    let Some(team) = team_of(&[&CLAUDE, &CODEX], LIVE) else {
        return;
    };
    user(&team, REPOSITORY);
    for (name, agent) in [("alice", "claude"), ("bob", "codex")] {
        team.teamctl(["spawn", name, "--checkout", "--agent", agent])
            .ok();
    }
    team.teamctl(["spawn", "dan", "--checkout", "--model", "script"])
        .ok();
    let commit =
        |file: &str| format!("echo {file} > {file}; git add {file}; git commit -qm {file}");
    let submit = |id: u64| json!({"task_id": id, "status": "completed"});
    let work = |id: u64, file: &str, next: &str, told: &str| {
        add(&team, &[file, "--check", &format!("test -e {file}")]);
        let tell = json!({"to": next, "content": told});
        let claim = json!({"task_id": id});
        format!(
            "@claim_task {claim}\n$ {}\n@task_update {}\n@send_message {tell}",
            commit(file),
            submit(id)
        )
    };
    add(&team, &["three", "--check", "test -e three"]);
    let of_dan = format!(
        "/claim_task {{\"task_id\": 1}}\n/bash {}\n/task_update {}",
        commit("three"),
        submit(1)
    );
    let of_bob = work(2, "two", "dan", "two is done");
    let of_alice = work(3, "one", "bob", &of_bob);
    team.send("dan", &of_dan);
    team.send("alice", &of_alice);
    for (id, author) in [(1, "dan"), (2, "bob"), (3, "alice")] {
        let done = until(&team, id, "completed");
        assert_eq!(
            (&done["submission"]["by"], &done["result"]["verified"]),
            (&json!(author), &json!("checked")),
            "{done}"
        );
    }
    assert_eq!(
        git(&team, &["ls-tree", "--name-only", "integration"]),
        "a.txt\none\nthree\ntwo"
    );
    team.until("dan to be told", || {
        team.file("transcript/dan.jsonl").contains("two is done")
    });
    for name in ["alice", "bob", "dan"] {
        assert_eq!(team.shutdown(name, &[], 0)["outcome"], "shutdown");
    }
    team.until("all to be gone", || team.processes().len() == 1);
}

/// The tools of MCP servers come by the same way as those of the team: the worker calls them.
pub(super) fn an_agent_has_the_tools_of_mcp_servers(stub: &Stub) {
    let Some(team) = team_of(&[stub], LIVE) else {
        return;
    };
    let path = team.root().join("mcp-stub.py");
    team.write("mcp-stub.py", include_str!("../../fixtures/mcp-stub.py"));
    let mut file = std::fs::read_to_string(team.root().join("team.toml")).unwrap();
    file.push_str(&format!(
        "[mcp.stub]\ncommand = [{}, '{}']\n",
        python::STUB,
        path.display()
    ));
    team.write("team.toml", &file);
    team.trust();
    spawn(&team, stub, &["--mcp", "stub", "--plan"]);
    let say = |text: &str| {
        let input = json!({"name": "mcp__stub__say", "arguments": {"text": text}});
        format!("@mcp_call {input}")
    };
    let write = json!({"name": "mcp__stub__write", "arguments": {"path": "made", "content": "x"}});
    let look = json!({"name": "mcp__stub__say", "arguments": {"text": "look", "image": PNG}});
    let orders = format!(
        "{}\n@mcp_call {write}\n@mcp_call {look}",
        say("from a server")
    );
    let said = runs(&team, &orders)["content"].to_string();
    let results = team.results("carol");
    assert!(
        results
            .iter()
            .any(|result| result["content"] == "from a server"),
        "{said} {results:?}"
    );
    assert!(
        results.iter().any(|result| result["content"]
            .as_str()
            .unwrap()
            .starts_with("refused: your gate is closed")),
        "{results:?}"
    );
    assert!(!team.made("made"));
    let kept = session(&team, stub);
    let (image, kind) = if stub.protocol == "codex" {
        (format!("data:image/png;base64,{PNG}"), "inputImage")
    } else {
        (format!("\"{PNG}\""), "image/png")
    };
    let mut lines = kept.lines();
    let is_shown = lines.any(|line| line.contains(&image) && line.contains(kind));
    assert!(is_shown, "{kept}");
}
