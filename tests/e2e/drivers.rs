//! Claude Code and Codex as teammates. Each scenario runs with a stub of each, which speaks the protocol of its agent, and does what the
//! messages say (`tests/fixtures/orders.py`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::checkouts::{REPOSITORY, add, git, until, user};
use crate::support::cgroup::note;
use crate::support::model_server::{Api, ModelServer, Reply};
use crate::support::process::{descendants, is_agent};
use crate::support::{Team, is_alive, signal};

const KEY: &str = "sk-fake-0123456789-never-to-be-seen";

/// An agent, and its stub.
struct Stub {
    agent: &'static str,
    program: &'static str,
    /// The variable of its key.
    key: &'static str,
    /// Where its sessions are, below its state directory.
    sessions: &'static str,
    /// What its model calls the tool that runs a command.
    command: &'static str,
}

const CLAUDE: Stub = Stub {
    agent: "claude",
    program: include_str!("../fixtures/claude-stub.py"),
    key: "ANTHROPIC_API_KEY",
    sessions: "claude/projects/*/*.jsonl",
    command: "Bash",
};

const CODEX: Stub = Stub {
    agent: "codex",
    program: include_str!("../fixtures/codex-stub.py"),
    key: "OPENAI_API_KEY",
    sessions: "codex/sessions/*/*/*/*.jsonl",
    command: "exec_command",
};

/// Makes a test of each scenario, for each stub.
macro_rules! scenarios {
    ($($scenario:ident)*) => {
        mod claude { $( #[test] fn $scenario() { super::$scenario(&super::CLAUDE); } )* }
        mod codex { $( #[test] fn $scenario() { super::$scenario(&super::CODEX); } )* }
    };
}

scenarios! {
    one_process_works_through_many_messages_and_leaves_at_once_when_idle
    a_message_joins_the_work_that_is_done_and_so_does_a_shutdown_request
    a_plan_ends_the_turn_and_its_verdict_arrives_as_a_message
    a_busy_agent_that_does_not_answer_is_ended_at_the_deadline
    a_killed_agent_goes_on_with_its_session_and_is_told_nothing_twice
    a_session_that_is_gone_is_begun_anew_and_told_so
    what_an_agent_does_wrong_fails_a_piece_of_work_at_most
    what_it_says_is_seen_at_once_and_what_it_waits_for
    the_lead_agent_is_one_with_the_tools_of_a_lead
    an_agent_that_cannot_begin_is_an_error_of_spawn
    a_question_of_the_agent_is_a_request_that_a_person_answers
    a_question_is_over_when_the_agent_has_ended
}

/// A team whose agents are these stubs; none without Python.
fn team_of(stubs: &[&Stub], layers: &str) -> Option<Team> {
    let team = Team::new().with("TEAM_SANDBOX_LAYERS", layers);
    let team = stubs.iter().fold(team, |team, stub| team.with(stub.key, KEY));
    if !team.command("python3", ["-c", ""]).status().is_ok_and(|status| status.success()) {
        note("skipped: the stub of an agent needs python3");
        return None;
    }
    team.write("orders.py", include_str!("../fixtures/orders.py"));
    let table = |stub: &&Stub| {
        let (agent, path) = (stub.agent, team.root().join(format!("{}-stub.py", stub.agent)));
        team.write(path.to_str().unwrap(), stub.program);
        format!("[agents.{agent}]\ncommand = ['python3', '{}']\nprotocol = '{agent}'\n", path.display())
    };
    team.write("team.toml", &stubs.iter().map(table).collect::<String>());
    team.trust();
    team.teamd(["start"]).ok();
    Some(team)
}

const LIVE: &str = "namespaces,landlock,seccomp";
const SETS: [&str; 2] = [LIVE, "landlock,seccomp"];

fn spawn(team: &Team, stub: &Stub, flags: &[&str]) {
    team.teamctl(["spawn", "carol", "--agent", stub.agent].iter().chain(flags)).ok();
}

/// Sends a message, and returns what carol told the lead when that piece of work had ended.
fn runs(team: &Team, message: &str) -> Value {
    let before = team.notices("carol").len();
    team.send("carol", message);
    team.until_finished("carol", before + 1);
    team.notices("carol").pop().unwrap()
}

/// What the stub has kept of its session.
fn session(team: &Team, stub: &Stub) -> String {
    let cat = format!("cat $HOME/.local/state/teamd/agents/*/carol/{}", stub.sessions);
    let mut found = team.command("bash", ["-c", &cat]);
    String::from_utf8(found.output().unwrap().stdout).unwrap()
}

/// The process of the agent itself.
fn agent_of(team: &Team) -> i32 {
    agent_if_any(team).unwrap_or_else(|| panic!("no agent: {:?}", team.processes()))
}

fn agent_if_any(team: &Team) -> Option<i32> {
    descendants(team.pid("carol")).into_iter().find(|&pid| is_agent(pid))
}

fn one_process_works_through_many_messages_and_leaves_at_once_when_idle(stub: &Stub) {
    for layers in SETS {
        let Some(team) = team_of(&[stub], layers) else { return };
        spawn(&team, stub, &["--prompt", "$ echo first > made; echo $PPID\nsay hello"]);
        team.until_finished("carol", 1);
        let first = team.notices("carol").pop().unwrap();
        assert_eq!(first["idle_reason"], "available", "{layers}: {first}");
        let content = first["content"].as_str().unwrap();
        assert!(content.ends_with("hello") && team.text("made") == "first\n", "{content}");
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
        assert_eq!(session(&team, stub).len(), before, "its model was not asked");
        team.until("all to be gone", || team.processes().len() == 1);
        assert!(!team.file("transcript/carol.jsonl").contains(KEY) && !session(&team, stub).contains(KEY));
    }
}

fn a_message_joins_the_work_that_is_done_and_so_does_a_shutdown_request(stub: &Stub) {
    let Some(team) = team_of(&[stub], LIVE) else { return };
    spawn(&team, stub, &[]);
    team.send("carol", "$ touch ready; until [ -e go ]; do sleep 0.01; done; echo first");
    team.until("the command", || team.made("ready"));
    team.send("carol", "say second");
    team.write("go", "");
    team.until_finished("carol", 1);
    let content = team.notices("carol").pop().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(content.contains("first") && content.contains("second"), "{content}");
    assert_eq!(team.notices("carol").len(), 1);
    // A message that `read_inbox` delivers is told once, as any other: not in the result, too.
    team.send("carol", "$ touch third; until [ -e go3 ]; do sleep 0.01; done; touch asks\n@read_inbox");
    team.until("the command", || team.made("third"));
    let worker = team.pid("carol");
    signal(worker, Signal::SIGSTOP);
    team.send("carol", "say fourth");
    team.write("go3", "");
    team.until("the call", || team.made("asks"));
    signal(worker, Signal::SIGCONT);
    team.until_finished("carol", 2);
    let content = team.notices("carol").pop().unwrap()["content"].as_str().unwrap().to_owned();
    assert_eq!(content.matches("fourth").count(), 1, "{content}");
    team.send("carol", "$ touch again; until [ -e go2 ]; do sleep 0.01; done; echo third");
    team.until("the command", || team.made("again"));
    let running = team.start_teamctl(["--json", "shutdown", "carol"]);
    let id = team.until_asked("carol");
    team.write("go2", "");
    assert_eq!(running.finish().ok().json()["results"][0]["outcome"], "shutdown");
    let answered = team.request(&id);
    assert_eq!(
        (&answered["answered_by"], &answered["reason"]),
        (&json!("model"), &json!("voted")),
        "{answered}"
    );
}

fn a_plan_ends_the_turn_and_its_verdict_arrives_as_a_message(stub: &Stub) {
    for layers in SETS {
        let Some(team) = team_of(&[stub], layers) else { return };
        let plans = "$ echo x > made 2>/dev/null || echo closed\n@plan_approval {\"plan\": \"make it\"}";
        spawn(&team, stub, &["--plan", "--prompt", plans]);
        let id = team.until_planned("carol");
        assert_eq!(team.request(&id)["payload"]["plan"], "make it");
        assert!(!team.made("made"), "{layers}");
        team.until("the end of its turn", || session(&team, stub).contains("\"said\""));
        team.teamctl(["approve", &id, "--feedback", "\n$ echo done > made\n"]).ok();
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
        team.teamctl(["approve", &id, "--feedback", "\n$ echo y > more\n"]).ok();
        team.until_finished("carol", 2);
        assert_eq!(team.text("more"), "y\n", "{layers}");
    }
}

fn a_busy_agent_that_does_not_answer_is_ended_at_the_deadline(stub: &Stub) {
    let Some(team) = team_of(&[stub], LIVE) else { return };
    for order in ["hang", "$ (setsid sleep 300 &); touch ready; sleep 301"] {
        spawn(&team, stub, &[]);
        team.send("carol", order);
        team.until("its turn", || session(&team, stub).contains(order.split(' ').next_back().unwrap()));
        assert_eq!(team.shutdown("carol", &["--decide-within", "0.2s"], 0)["outcome"], "shutdown");
        team.until("all to be gone", || team.processes().len() == 1);
        team.teamctl(["forget", "carol"]).ok();
    }
}

/// Killed, the agent or its worker, in the middle of a turn: the session goes on, no message is lost, and none is told twice.
fn a_killed_agent_goes_on_with_its_session_and_is_told_nothing_twice(stub: &Stub) {
    for (layers, kills_worker) in [(LIVE, false), (LIVE, true), ("landlock,seccomp", false)] {
        let Some(team) = team_of(&[stub], layers) else { return };
        spawn(&team, stub, &["--prompt", "say first-words"]);
        team.until_finished("carol", 1);
        team.send("carol", "$ echo once >> runs; touch ready; until [ -e go ]; do sleep 0.01; done");
        team.until("the command", || team.made("ready"));
        team.send("carol", "$ echo later >> runs");
        let (agent, worker) = (agent_of(&team), team.pid("carol"));
        signal(if kills_worker { worker } else { agent }, Signal::SIGKILL);
        team.until("its end", || !is_alive(agent));
        team.write("go", "");
        team.until("the second message", || team.text("runs").contains("later"));
        team.wait_for("carol", "idle");
        assert_eq!(team.text("runs"), "once\nlater\n", "{layers} {kills_worker}");
        let kept = session(&team, stub);
        for told in ["say first-words", "echo once >> runs", "echo later >> runs"] {
            let users =
                kept.lines().filter(|line| line.contains("\"type\": \"user\"") && line.contains(told));
            assert_eq!(users.count(), 1, "{told}: {kept}");
        }
        assert!(kept.contains("may have run"), "it is told that it was interrupted: {kept}");
    }
}

fn a_session_that_is_gone_is_begun_anew_and_told_so(stub: &Stub) {
    for (breaks, kills_worker) in [("rm", false), ("echo damaged >>", false), ("echo damaged >>", true)] {
        let Some(team) = team_of(&[stub], LIVE) else { return };
        spawn(&team, stub, &["--prompt", "say first-words"]);
        team.until_finished("carol", 1);
        team.send("carol", "$ echo once >> runs; touch ready; until [ -e go ]; do sleep 0.01; done");
        team.until("the command", || team.made("ready"));
        let broken = format!(
            "for file in $HOME/.local/state/teamd/agents/*/carol/{}; do {breaks} $file; done",
            stub.sessions
        );
        assert!(team.command("bash", ["-c", &broken]).status().unwrap().success());
        team.write("go", "");
        signal(if kills_worker { team.pid("carol") } else { agent_of(&team) }, Signal::SIGKILL);
        team.until_finished("carol", 2);
        assert_eq!(team.text("runs"), "once\nonce\n", "its work is told anew");
        let kept = session(&team, stub);
        assert!(kept.contains("session is gone") && kept.contains("[answered] first-words"), "{kept}");
        assert_eq!(runs(&team, "say third")["content"], "third");
        let kept = session(&team, stub);
        let told = kept.lines().filter(|line| line.contains("\"user\"") && line.contains("session is gone"));
        assert_eq!(told.count(), 1, "{kept}");
        let recorded =
            team.file("transcript/carol.jsonl").matches("could not go on with its session").count();
        assert_eq!(recorded, usize::from(breaks != "rm"), "{breaks} {kills_worker}");
    }
}

fn what_an_agent_does_wrong_fails_a_piece_of_work_at_most(stub: &Stub) {
    let Some(team) = team_of(&[stub], LIVE) else { return };
    spawn(&team, stub, &[]);
    for (order, content) in [
        ("garbage\nsay still here", "still here"),
        ("twice\nsay once or twice", "once or twice"),
        ("flood\nsay afloat", "afloat"),
        ("forged", "not known"),
        ("subagent\nsay mine", "mine"),
        // It ends, and goes on with its session.
        ("half", "done"),
        ("die", "done"),
        // It lives on, and is ended.
        ("closes", "done"),
        ("untold", "done"),
    ] {
        let told = runs(&team, order);
        assert_eq!(told["idle_reason"], "available", "{order}: {told}");
        let said = told["content"].as_str().unwrap();
        assert!(said.contains(content) && !said.contains("of a subagent"), "{order}: {told}");
    }
    let failed = runs(&team, "fail 529");
    assert_eq!(failed["idle_reason"], "failed");
    assert!(failed["content"].as_str().unwrap().contains("status 529"), "{failed}");
    team.until("status to say so", || team.teamctl(["status"]).ok().stdout.contains("failed"));
    // Interrupted, it ends its turn; only one that does not obey is ended itself.
    for (order, is_same) in [("hang", true), ("$ touch begun; sleep 600", true), ("deaf", false)] {
        let (before, agent) = (team.notices("carol").len(), agent_of(&team));
        team.send("carol", order);
        team.wait_for("carol", "working");
        team.until("its turn", || session(&team, stub).contains(order));
        team.until("its command", || is_same || !order.starts_with('$') || team.made("begun"));
        team.teamctl(["interrupt", "carol"]).ok();
        team.until_finished("carol", before + 1);
        assert_eq!(team.notices("carol").pop().unwrap()["idle_reason"], "interrupted", "{order}");
        assert_eq!(runs(&team, &format!("say after {order}"))["content"], format!("after {order}"));
        assert_eq!(agent_of(&team) == agent, is_same, "{order}");
    }
    team.send("carol", "forks");
    assert_eq!(team.shutdown("carol", &[], 0)["outcome"], "shutdown");
    team.until("all to be gone", || team.processes().len() == 1);
}

/// What its model says is seen while it says it; what its service does, and that it does nothing, is told in plain words.
fn what_it_says_is_seen_at_once_and_what_it_waits_for(stub: &Stub) {
    let Some(team) = team_of(&[stub], LIVE) else { return };
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
        move || team.member("carol")["waiting"]["why"].as_str().is_some_and(|why| why.contains(what))
    };
    interrupted("stream the beginning of it\nhang", &|| {
        std::fs::read_to_string(team.path("run/carol.live")).is_ok_and(|live| live == "the beginning of it")
    });
    interrupted("retrying 529", &waits_for("529"));
    interrupted("hang", &waits_for("has said nothing for 1s"));
    for (order, told) in [("fail 401", "refuses the key (status 401)"), ("fail 529", "overloaded")] {
        let failed = runs(&team, order);
        assert_eq!(failed["idle_reason"], "failed");
        assert!(failed["content"].as_str().unwrap().contains(told), "{failed}");
        team.until("status to say so", || team.teamctl(["status"]).ok().stdout.contains(told));
    }
}

/// The lead agent is one, too: it has the tools of a lead, and starts others of its kind.
fn the_lead_agent_is_one_with_the_tools_of_a_lead(stub: &Stub) {
    let Some(team) = team_of(&[stub], LIVE) else { return };
    let agents = std::fs::read_to_string(team.root().join("team.toml")).unwrap();
    team.write("team.toml", &format!("agent = '{}'\napprove_by = 'lead'\n{agents}", stub.agent));
    team.trust();
    let plan = "@plan_approval {\\\"plan\\\": \\\"make it\\\"}";
    let spawn = format!(
        "@spawn_teammate {{\"name\": \"dan\", \"role\": \"coder\", \"prompt\": \"{plan}\", \"plan\": true}}"
    );
    let said = team.teamctl_with(["chat", "--agent", stub.agent, "--timeout", "20s"], &spawn);
    assert!(said.stdout.contains("dan"), "{} {}", said.stdout, said.stderr);
    let id = team.until_planned("dan");
    for name in ["lead", "dan"] {
        assert_eq!(team.member(name)["agent"]["name"], stub.agent, "{name}");
    }
    let verdict = json!({"request_id": id, "approve": true, "feedback": "go on"});
    team.teamctl_with(["chat", "--timeout", "20s"], &format!("@plan_approval {verdict}")).ok();
    team.until("the verdict", || team.request(&id)["status"] == "approved");
    let told = team.teamctl_with(["chat", "--agent", "builtin"], "say no").exits(7).stderr;
    assert!(told.contains(stub.agent), "{told}");
}

/// With `permissions = "ask"` each question of the agent is a request, which a person answers; the runtime answers in time.
fn a_question_of_the_agent_is_a_request_that_a_person_answers(stub: &Stub) {
    for layers in SETS {
        let Some(team) = team_of(&[stub], layers) else { return };
        spawn(
            &team,
            stub,
            &["--permissions", "ask", "--prompt", "$ echo yes > first\n$ echo no > second\n@task_list"],
        );
        let asked = |team: &Team| {
            let pending = || team.teamctl(["--json", "requests"]).ok().json().as_array().unwrap().clone();
            let open =
                || pending().into_iter().find(|it| it["kind"] == "permission" && it["status"] == "pending");
            team.until("a question", || open().is_some());
            open().unwrap()
        };
        let first = asked(&team);
        assert_eq!(first["payload"], json!({"tool": stub.command, "input": {"command": "echo yes > first"}}));
        team.wait_for("carol", "awaiting_approval");
        let shown = team.teamctl(["status"]).ok().stdout;
        assert!(shown.contains(&format!("{}: echo yes > first", stub.command)), "{shown}");
        assert!(!team.made("first"), "{layers}");
        team.teamctl(["approve", first["request_id"].as_str().unwrap()]).ok();
        let second = asked(&team);
        assert_eq!(team.text("first"), "yes\n");
        team.teamctl(["reject", second["request_id"].as_str().unwrap(), "--feedback", "not that one"]).ok();
        team.until_finished("carol", 1);
        let told = team.notices("carol").pop().unwrap()["content"].as_str().unwrap().to_owned();
        assert!(told.contains("refused") && !team.made("second"), "{layers}: {told}");
        let results = team.results("carol");
        let kept = session(&team, stub);
        assert!(kept.contains("not that one"), "{results:?} {kept}");

        // Asked while it is asked to leave: nothing is waited for. And with its incarnation a question ends.
        team.send("carol", "$ echo x > third");
        let third = asked(&team);
        assert_eq!(team.shutdown("carol", &[], 0)["outcome"], "shutdown");
        let id = third["request_id"].as_str().unwrap();
        assert_eq!(team.request(id)["status"], "expired");
        team.teamctl(["approve", id]).exits(7);
        assert!(!team.made("third"));
    }
}

/// It will not hear the answer: it goes on without one.
fn a_question_is_over_when_the_agent_has_ended(stub: &Stub) {
    for layers in SETS {
        let Some(team) = team_of(&[stub], layers) else { return };
        spawn(&team, stub, &["--permissions", "ask", "--prompt", "$ echo yes > first"]);
        team.wait_for("carol", "awaiting_approval");
        signal(agent_of(&team), Signal::SIGKILL);
        team.until_finished("carol", 1);
        assert_eq!(team.notices("carol").pop().unwrap()["idle_reason"], "available", "{layers}");
        assert!(!team.made("first") && session(&team, stub).contains("may have run"), "{layers}");
        let open = team.teamctl(["--json", "requests"]).ok().json();
        let statuses: Vec<_> = open.as_array().unwrap().iter().map(|it| it["status"].clone()).collect();
        assert_eq!(statuses, ["expired"], "{layers}");
    }
}

#[test]
fn a_question_that_is_not_answered_in_time_is_refused_and_an_approval_can_end_them() {
    let Some(team) = team_of(&[&CLAUDE], LIVE) else { return };
    team.teamd(["stop"]).ok();
    let team = team.with("TEAM_PERMISSION_TIMEOUT", "0.2s");
    team.teamd(["start"]).ok();
    spawn(
        &team,
        &CLAUDE,
        &["--plan", "--permissions", "ask", "--prompt", "$ true\n@plan_approval {\"plan\": \"make it\"}"],
    );
    team.until("the end of its time", || team.file("transcript/carol.jsonl").contains("no answer within"));
    team.until("its plan", || !team.requests("plan_approval").is_empty());
    let plan = team.last_request("plan_approval");
    team.teamctl(["approve", &plan, "--permissions", "allow", "--feedback", "\n$ echo done > made\n"]).ok();
    team.until_finished("carol", 1);
    assert_eq!(team.text("made"), "done\n");
    let statuses: Vec<_> = team.requests("permission").iter().map(|it| it["status"].clone()).collect();
    assert_eq!(statuses, ["rejected"]);
}

fn an_agent_that_cannot_begin_is_an_error_of_spawn(stub: &Stub) {
    let Some(team) = team_of(&[stub], LIVE) else { return };
    let keyless = team.with(stub.key, "");
    let refused = keyless.teamctl(["spawn", "carol", "--agent", stub.agent]).exits(1);
    assert!(
        refused.stderr.contains(&format!("needs {}", stub.key)) && refused.stderr.contains("login"),
        "{}",
        refused.stderr
    );
    let team = keyless.with(stub.key, KEY);
    for (command, told) in
        [("['echo', 'hello']", "hello"), ("['sh', '-c', 'echo out of ink >&2; exit 3']", "out of ink")]
    {
        team.write(
            "team.toml",
            &format!("[agents.{0}]\ncommand = {command}\nprotocol = '{0}'\n", stub.agent),
        );
        team.trust();
        team.teamctl(["spawn", "carol", "--agent", stub.agent, "--restart", "never"]).exits(1);
        let log = team.file("log/carol.log");
        assert!(log.contains(told), "{command}: {log}");
    }
    let Some(team) = team_of(&[stub], LIVE) else { return };
    team.write("version", "0.1.9");
    team.teamctl(["spawn", "carol", "--agent", stub.agent, "--restart", "never"]).exits(1);
    let log = team.file("log/carol.log");
    assert!(log.contains("version 0.1.9 is too old") && log.contains("npm install -g"), "{log}");
}

/// One of each kind: every one submits work of its own, and gives the next one its work.
#[test]
fn claude_code_codex_and_the_built_in_agent_work_on_one_repository() {
    let Some(team) = team_of(&[&CLAUDE, &CODEX], LIVE) else { return };
    user(&team, REPOSITORY);
    for (name, agent) in [("alice", "claude"), ("bob", "codex")] {
        team.teamctl(["spawn", name, "--checkout", "--agent", agent]).ok();
    }
    team.teamctl(["spawn", "dan", "--checkout", "--model", "script"]).ok();
    let commit = |file: &str| format!("echo {file} > {file}; git add {file}; git commit -qm {file}");
    let submit = |id: u64| json!({"task_id": id, "status": "completed"});
    let work = |id: u64, file: &str, next: &str, told: &str| {
        add(&team, &[file, "--check", &format!("test -e {file}")]);
        let tell = json!({"to": next, "content": told});
        let claim = json!({"task_id": id});
        format!("@claim_task {claim}\n$ {}\n@task_update {}\n@send_message {tell}", commit(file), submit(id))
    };
    add(&team, &["three", "--check", "test -e three"]);
    let of_dan = format!("/claim_task 1\n/bash {}\n/task_update {}", commit("three"), submit(1));
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
    assert_eq!(git(&team, &["ls-tree", "--name-only", "integration"]), "a.txt\none\nthree\ntwo");
    team.until("dan to be told", || team.file("transcript/dan.jsonl").contains("two is done"));
    for name in ["alice", "bob", "dan"] {
        assert_eq!(team.shutdown(name, &[], 0)["outcome"], "shutdown");
    }
    team.until("all to be gone", || team.processes().len() == 1);
}

/// A real program, and what its model calls its tools.
struct Real {
    stub: Stub,
    /// The variable that has its path.
    variable: &'static str,
    bash: fn(&str) -> Reply,
    plan_approval: &'static str,
    /// What names a model that does not exist, where its own ones have tools of their own.
    flags: &'static [&'static str],
}

const REAL_CLAUDE: Real = Real {
    stub: CLAUDE,
    variable: "TEAM_REAL_CLAUDE",
    bash: |command| Reply::call("Bash", json!({"command": command, "description": "a test"})),
    plan_approval: "mcp__team__plan_approval",
    flags: &[],
};

const REAL_CODEX: Real = Real {
    stub: CODEX,
    variable: "TEAM_REAL_CODEX",
    bash: |command| Reply::call("exec_command", json!({"cmd": command})),
    plan_approval: "plan_approval",
    flags: &["--model", "openai:fake"],
};

/// As [`scenarios`], with the real programs.
macro_rules! real_scenarios {
    ($($scenario:ident)*) => {
        mod real_claude { $( #[test] #[ignore = "scripts/test-agents"] fn $scenario() { super::$scenario(&super::REAL_CLAUDE); } )* }
        mod real_codex { $( #[test] #[ignore = "scripts/test-agents"] fn $scenario() { super::$scenario(&super::REAL_CODEX); } )* }
    };
}

real_scenarios! {
    it_obeys_the_gate_resumes_and_leaves_without_a_request
    it_is_told_each_message_once_whenever_it_is_killed
}

impl Real {
    /// A team of that service whose agent is the program.
    fn team(&self, server: &ModelServer) -> Team {
        let (agent, program) = (self.stub.agent, std::env::var(self.variable).unwrap());
        let team = server.team();
        team.write(
            "team.toml",
            &format!("[agents.{agent}]\ncommand = ['{program}']\nprotocol = '{agent}'\n"),
        );
        team.trust();
        team
    }
}

/// A closed gate, a plan, an open and again a closed gate, a kill, a shutdown.
fn it_obeys_the_gate_resumes_and_leaves_without_a_request(real: &Real) {
    let Real { stub, bash, .. } = real;
    let replies = Arc::new(Mutex::new(VecDeque::new()));
    let queue = Arc::clone(&replies);
    let server = ModelServer::answering_any_client(move |request| {
        let is_turn = request.body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
        let next = if is_turn { queue.lock().unwrap().pop_front() } else { None };
        next.unwrap_or_else(|| Reply::text("done"))
    });
    let replies_are = |next: Vec<Reply>| replies.lock().unwrap().extend(next);
    let plan = |text: &str| Reply::call(real.plan_approval, json!({"plan": text}));
    let team = real.team(&server);

    replies_are(vec![bash("echo x > closed"), plan("write a file")]);
    spawn(&team, stub, &[&["--plan", "--prompt", "the first work"], real.flags].concat());
    let id = team.until_planned("carol");
    replies_are(vec![bash("echo yes > open; env"), Reply::text("written")]);
    team.teamctl(["approve", &id]).ok();
    team.until("the write behind the open gate", || team.made("open"));
    team.wait_for("carol", "idle");
    assert!(!team.made("closed"));

    replies_are(vec![bash("echo x > closed"), plan("write another")]);
    team.teamctl(["request-plan", "carol", "a plan for more"]).ok();
    let id = team.until_planned("carol");
    team.teamctl(["approve", &id]).ok();
    team.wait_for("carol", "idle");
    assert!(!team.made("closed"));
    let refused =
        team.results("carol").iter().filter(|it| it.to_string().contains("ead-only file system")).count();
    assert_eq!(refused, 2, "{:?}", team.results("carol"));

    let agent = agent_of(&team);
    signal(agent, Signal::SIGKILL);
    team.until("its end", || !is_alive(agent));
    team.send("carol", "the work after the kill");
    team.until("the request", || server.requests().iter().any(|it| it.mentions("the work after the kill")));
    team.wait_for("carol", "idle");
    let after: Vec<_> =
        server.requests().into_iter().filter(|it| it.mentions("the work after the kill")).collect();
    assert!(after[0].mentions("the first work"), "it goes on with its session");

    let asked = server.requests().len();
    assert_eq!(team.shutdown("carol", &[], 0)["outcome"], "shutdown");
    team.until("all to be gone", || team.processes().len() == 1);
    assert_eq!(server.requests().len(), asked);
    let key = crate::support::model_server::KEY;
    let leaked = team.command("grep", ["-rl", key, team.root().to_str().unwrap()]).output().unwrap().stdout;
    let leaked = String::from_utf8(leaked).unwrap();
    assert!(!leaked.contains("/carol/") && !leaked.contains("transcript"), "{leaked}");
    assert!(!team.file("transcript/carol.jsonl").contains(key), "it is in no variable of its commands");
}

/// Killed after 0 to 400 ms, again and again: its model has each message once in the end.
fn it_is_told_each_message_once_whenever_it_is_killed(real: &Real) {
    let (Real { bash, stub, .. }, mut turn) = (real, 0);
    let bash = *bash;
    let server = ModelServer::answering_any_client(move |_| {
        turn += 1;
        if turn % 2 == 1 { bash("sleep 0.1") } else { Reply::text("done") }
    });
    let team = real.team(&server);
    spawn(&team, stub, &[&["--prompt", "message 00;"], real.flags].concat());
    let rounds: u64 = std::env::var("TEAM_KILLS").map_or(20, |rounds| rounds.parse().unwrap());
    for round in 1..=rounds {
        team.send("carol", &format!("message {round:02};"));
        let (sent, moment) = (Instant::now(), Duration::from_millis(round * 137 % 400));
        team.until("the moment", || sent.elapsed() >= moment);
        team.until("its process", || agent_if_any(&team).is_some());
        signal(agent_of(&team), Signal::SIGKILL);
        team.until("its turn", || {
            server.requests().iter().any(|it| it.mentions(&format!("message {round:02};")))
        });
        team.wait_for("carol", "idle");
    }
    team.send("carol", "the last message");
    team.until("the request", || server.requests().iter().any(|it| it.mentions("the last message")));
    team.wait_for("carol", "idle");
    let asked = server.requests().into_iter().rfind(|it| it.mentions("the last message")).unwrap();
    let body = asked.body.to_string();
    for round in 0..=rounds {
        assert_eq!(body.matches(&format!("message {round:02};")).count(), 1, "message {round}: {body}");
    }
    assert_eq!(team.shutdown("carol", &[], 0)["outcome"], "shutdown");
}

/// Claude Code, Codex and the built-in agent, each with its own service: each claims a task, commits, and submits.
#[test]
#[ignore = "scripts/test-agents"]
fn real_claude_and_real_codex_and_the_built_in_agent_work_on_one_repository() {
    let apis = [(Api::Anthropic, "alice"), (Api::Responses, "bob"), (Api::OpenAi, "dan")];
    let replies: Mutex<Vec<VecDeque<Reply>>> = Mutex::new(
        (1..)
            .zip(apis)
            .map(|(id, (api, name))| {
                let commit = format!("echo {name} > {name}; git add {name}; git commit -qm {name}");
                let (prefix, work) = match api {
                    Api::Anthropic => ("mcp__team__", (REAL_CLAUDE.bash)(&commit)),
                    Api::Responses => ("", (REAL_CODEX.bash)(&commit)),
                    Api::OpenAi => ("", Reply::call("bash", json!({"command": commit}))),
                };
                let of_team = |tool: &str, input: Value| Reply::call(&format!("{prefix}{tool}"), input);
                let claim = of_team("claim_task", json!({"task_id": id}));
                let submit = of_team("task_update", json!({"task_id": id, "status": "completed"}));
                [claim, work, submit].into()
            })
            .collect(),
    );
    let server = ModelServer::answering_any_client(move |request| {
        let is_turn = request.body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
        let place = apis.iter().position(|(api, _)| *api == request.api).unwrap();
        let next = if is_turn { replies.lock().unwrap()[place].pop_front() } else { None };
        next.unwrap_or_else(|| Reply::text("done"))
    });
    let team = server.team();
    let table = |real: &Real| {
        let (agent, program) = (real.stub.agent, std::env::var(real.variable).unwrap());
        format!("[agents.{agent}]\ncommand = ['{program}']\nprotocol = '{agent}'\n")
    };
    team.write("team.toml", &(table(&REAL_CLAUDE) + &table(&REAL_CODEX)));
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
        team.teamctl(["spawn", name, "--checkout", "--prompt", "do your task"].iter().chain(flags)).ok();
    }
    for (id, (_, name)) in (1..).zip(apis) {
        assert_eq!(until(&team, id, "completed")["submission"]["by"], name);
    }
    assert_eq!(git(&team, &["ls-tree", "--name-only", "integration"]), "a.txt\nalice\nbob\ndan");
    for (_, name) in apis {
        assert_eq!(team.shutdown(name, &[], 0)["outcome"], "shutdown");
    }
    team.until("all to be gone", || team.processes().len() == 1);
}
