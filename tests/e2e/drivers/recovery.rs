//! What an agent does wrong, how it dies, and how it goes on.

use nix::sys::signal::Signal;

use super::{KEY, LIVE, Stub, agent_of, runs, session, spawn, team_of};
use crate::support::{is_alive, signal};

/// Killed, the agent or its worker, in the middle of a turn: the session goes on, no message is
/// lost, and none is told twice.
pub(super) fn a_killed_agent_goes_on_with_its_session_and_is_told_nothing_twice(stub: &Stub) {
    for (layers, kills_worker) in [(LIVE, false), (LIVE, true), ("landlock,seccomp", false)] {
        let Some(team) = team_of(&[stub], layers) else {
            return;
        };
        spawn(&team, stub, &["--prompt", "say first-words"]);
        team.until_finished("carol", 1);
        team.send(
            "carol",
            "$ echo once >> runs; touch ready; until [ -e go ]; do sleep 0.01; done",
        );
        team.until("the command", || team.made("ready"));
        team.send("carol", "$ echo later >> runs");
        let agent = agent_of(&team);
        let worker = team.pid("carol");
        signal(if kills_worker { worker } else { agent }, Signal::SIGKILL);
        team.until("its end", || !is_alive(agent));
        team.write("go", "");
        team.until("the second message", || team.text("runs").contains("later"));
        team.wait_for("carol", "idle");
        assert_eq!(
            team.text("runs"),
            "once\nlater\n",
            "{layers} {kills_worker}"
        );
        let kept = session(&team, stub);
        for told in ["say first-words", "echo once >> runs", "echo later >> runs"] {
            let users = kept.lines().filter(|line| {
                // What is quoted is told as what was told before, or may have been.
                let doubtful = line.split_once("they are a message to you:");
                let (before, doubtful) = doubtful.unwrap_or((line, ""));
                let unquoted = before.replace("\\n> $ echo", "") + doubtful;
                line.contains("\"role\": \"user\"") && unquoted.contains(told)
            });
            assert_eq!(users.count(), 1, "{told}: {kept}");
        }
        assert!(
            kept.contains("may have run"),
            "it is told that it was interrupted: {kept}"
        );
    }
}

pub(super) fn a_worker_that_is_killed_behind_a_plan_tells_its_agent_the_verdict_at_once(
    stub: &Stub,
) {
    let Some(team) = team_of(&[stub], LIVE) else {
        return;
    };
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
    team.until("the end of its turn", || {
        session(&team, stub).contains("\"said\"")
    });
    let worker = team.pid("carol");
    signal(worker, Signal::SIGKILL);
    team.until("the next worker", || team.incarnation("carol") == 2);
    team.until_planned("carol");
    team.teamctl(["approve", &id, "--feedback", "\n$ echo done > made\n"])
        .ok();
    team.until_finished("carol", 1);
    let kept = session(&team, stub);
    let told: Vec<_> = kept
        .lines()
        .filter(|line| line.contains("\"role\": \"user\""))
        .collect();
    assert!(
        told.len() == 2 && told[1].contains("was restarted") && told[1].contains("approved"),
        "{kept}"
    );
    assert_eq!(team.text("made"), "done\n");
}

pub(super) fn a_session_that_is_gone_is_begun_anew_and_told_so(stub: &Stub) {
    for (breaks, kills_worker) in [
        ("rm", false),
        ("echo damaged >>", false),
        ("echo damaged >>", true),
    ] {
        let Some(team) = team_of(&[stub], LIVE) else {
            return;
        };
        spawn(&team, stub, &["--prompt", "say first-words"]);
        team.until_finished("carol", 1);
        team.send(
            "carol",
            "$ echo once >> runs; touch ready; until [ -e go ]; do sleep 0.01; done",
        );
        team.until("the command", || team.made("ready"));
        let broken = format!(
            "for file in $HOME/.local/state/teamd/agents/*/carol/{}; do {breaks} $file; done",
            stub.sessions
        );
        assert!(
            team.command("bash", ["-c", &broken])
                .status()
                .unwrap()
                .success()
        );
        // Killed before the command can end: else its turn may end, too.
        signal(
            if kills_worker {
                team.pid("carol")
            } else {
                agent_of(&team)
            },
            Signal::SIGKILL,
        );
        team.write("go", "");
        team.until_finished("carol", 2);
        assert_eq!(team.text("runs"), "once\nonce\n", "its work is told anew");
        let kept = session(&team, stub);
        assert!(
            kept.contains("session is lost") && kept.contains("[answered] first-words"),
            "{kept}"
        );
        assert_eq!(runs(&team, "say third")["content"], "third");
        let kept = session(&team, stub);
        let told = kept
            .lines()
            .filter(|line| line.contains("\"user\"") && line.contains("session is lost"));
        assert_eq!(told.count(), 1, "{kept}");
        let recorded = team
            .file("transcript/carol.jsonl")
            .matches("could not resume its session")
            .count();
        assert_eq!(
            recorded,
            // What speaks ACP keeps its sessions where the worker does not look.
            usize::from(breaks != "rm" || stub.protocol == "acp"),
            "{breaks} {kills_worker}"
        );
    }
}

pub(super) fn what_an_agent_does_wrong_fails_a_piece_of_work_at_most(stub: &Stub) {
    let Some(team) = team_of(&[stub], LIVE) else {
        return;
    };
    spawn(&team, stub, &[]);
    for (order, content) in [
        ("garbage\nsay still here", "still here"),
        ("twice\nsay once or twice", "once or twice"),
        ("unended\nsay unended", "unended"),
        ("flood\nsay afloat", "afloat"),
        ("forged", "does not know this call"),
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
        assert!(
            said.contains(content) && !said.contains("of a subagent"),
            "{order}: {told}"
        );
    }
    let failed = runs(&team, "fail 529");
    assert_eq!(failed["idle_reason"], "failed");
    assert!(
        failed["content"].as_str().unwrap().contains("status 529"),
        "{failed}"
    );
    team.until("status to say so", || {
        team.teamctl(["status"]).ok().stdout.contains("failed")
    });
    // Interrupted, it ends its turn; only one that does not obey is ended itself.
    for (order, is_same) in [
        ("hang", true),
        ("$ touch begun; sleep 600", true),
        ("deaf", false),
    ] {
        let before = team.notices("carol").len();
        let agent = agent_of(&team);
        team.send("carol", order);
        team.wait_for("carol", "working");
        team.until("its turn", || session(&team, stub).contains(order));
        team.until("its command", || {
            is_same || !order.starts_with('$') || team.made("begun")
        });
        team.teamctl(["interrupt", "carol"]).ok();
        team.until_finished("carol", before + 1);
        assert_eq!(
            team.notices("carol").pop().unwrap()["idle_reason"],
            "interrupted",
            "{order}"
        );
        assert_eq!(
            runs(&team, &format!("say after {order}"))["content"],
            format!("after {order}")
        );
        assert_eq!(agent_of(&team) == agent, is_same, "{order}");
    }
    team.send("carol", "forks");
    assert_eq!(team.shutdown("carol", &[], 0)["outcome"], "shutdown");
    team.until("all to be gone", || team.processes().len() == 1);
}

pub(super) fn an_agent_that_cannot_begin_is_an_error_of_spawn(stub: &Stub) {
    let Some(team) = team_of(&[stub], LIVE) else {
        return;
    };
    let keyless = team.with(stub.key, "");
    let refused = keyless
        .teamctl(["spawn", "carol", "--agent", stub.agent])
        .exits(1);
    assert!(
        refused.stderr.contains(&format!("needs {}", stub.key)) && refused.stderr.contains("login"),
        "{}",
        refused.stderr
    );
    let team = keyless.with(stub.key, KEY);
    for (command, told) in [
        ("['echo', 'hello']", "hello"),
        ("['sh', '-c', 'echo out of ink >&2; exit 3']", "out of ink"),
    ] {
        team.write(
            "team.toml",
            &format!(
                "[agents.{}]\ncommand = {command}\nprotocol = '{}'\n",
                stub.agent, stub.protocol
            ),
        );
        team.trust();
        team.teamctl([
            "spawn",
            "carol",
            "--agent",
            stub.agent,
            "--restart",
            "never",
        ])
        .exits(1);
        let log = team.file("log/carol.log");
        assert!(log.contains(told), "{command}: {log}");
    }
    if stub.agent == "claude" {
        let signs = team_of(&[stub], LIVE)
            .unwrap()
            .with("CLAUDE_CODE_USE_BEDROCK", "1");
        let refused = signs
            .teamctl(["spawn", "carol", "--agent", "claude"])
            .exits(1);
        assert!(
            refused
                .stderr
                .contains("requests of that service are signed"),
            "{}",
            refused.stderr
        );
    }
    let Some(team) = team_of(&[stub], LIVE) else {
        return;
    };
    team.write("version", "0.1.9");
    team.teamctl([
        "spawn",
        "carol",
        "--agent",
        stub.agent,
        "--restart",
        "never",
    ])
    .exits(1);
    let log = team.file("log/carol.log");
    assert!(
        log.contains("version 0.1.9 is too old") && log.contains("npm install -g"),
        "{log}"
    );
}
