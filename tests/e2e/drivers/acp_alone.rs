//! What holds for agents that speak ACP alone.

use nix::sys::signal::Signal;
use serde_json::json;

use super::{ACP, KEY, LIVE, SETS, STEERED, agent_of, runs, session, spawn, team_around, team_of};
use crate::sandbox::slots::{OPEN, TAKE, team_of_two};
use crate::support::{Team, is_alive, signal};

/// A team whose agent is started by this command line of a shell.
fn team_behind(shell: &str, layers: &str) -> Option<Team> {
    let team = team_of(&[&ACP], layers)?;
    let stub = team.root().join("opencode-stub.py");
    let line = shell.replace("STUB", &format!("python3 -S {} acp", stub.display()));
    team.write(
        "team.toml",
        &format!("[agents.opencode]\ncommand = ['sh', '-c', '{line}']\nprotocol = 'acp'\n"),
    );
    team.trust();
    Some(team)
}

/// An agent hands no descriptors on to its commands: they find their jobserver by its path.
#[test]
fn the_commands_of_an_agent_take_slots() {
    for layers in SETS {
        let Some(team) = team_around(team_of_two("fifo:"), &[&ACP], layers) else {
            continue;
        };
        spawn(&team, &ACP, &[]);
        let said = runs(&team, &format!("$ {OPEN}; {TAKE}; printf + >&9; {TAKE}"));
        let content = said["content"].as_str().unwrap();
        assert_eq!(content.matches("took +").count(), 2, "{said}");
    }
    let Some(team) = team_around(team_of_two("--jobserver-fds="), &[&ACP], LIVE) else {
        return;
    };
    spawn(&team, &ACP, &[]);
    let said = runs(&team, "$ echo \"[$CARGO_MAKEFLAGS]\"");
    assert!(said["content"].as_str().unwrap().contains("[]"), "{said}");
}

/// A prompt that comes during a turn cancels that, with some agents.
#[test]
fn mail_during_a_turn_is_the_next_prompt() {
    let Some(team) = team_of(&[&ACP], LIVE) else {
        return;
    };
    spawn(&team, &ACP, &[]);
    team.send(
        "carol",
        "$ touch ready; until [ -e go ]; do sleep 0.01; done; echo first",
    );
    team.until("the command", || team.made("ready"));
    team.send("carol", "say second");
    team.send("carol", "say third");
    team.until("the mail", || {
        team.file("transcript/carol.jsonl").contains("say third")
    });
    assert!(!session(&team, &ACP).contains("say second"));
    team.write("go", "");
    team.until_finished("carol", 1);
    let content = team.notices("carol").pop().unwrap()["content"].to_string();
    for said in ["first", "second", "third"] {
        assert!(content.contains(said), "{content}");
    }
    let kept = session(&team, &ACP);
    assert!(!kept.contains("cancelled"), "{kept}");
    let prompts = kept.matches("\"role\": \"user\"").count();
    assert_eq!(prompts, 2, "what has come meanwhile is one prompt: {kept}");
}

/// An agent that announces it takes mail into its turn, in which its model reads it. What it refuses
/// is the next prompt.
#[test]
fn mail_joins_the_turn_of_an_agent_that_takes_it() {
    for (abilities, prompts) in [("resume load", 1), ("resume load refused", 2)] {
        let Some(team) = team_of(&[&STEERED], LIVE) else {
            return;
        };
        team.write("abilities", abilities);
        spawn(&team, &STEERED, &[]);
        team.send(
            "carol",
            "$ touch ready; until [ -e go ]; do sleep 0.01; done; echo first",
        );
        team.until("the command", || team.made("ready"));
        team.send("carol", "say second");
        let joined = || session(&team, &STEERED).contains("{\"steering\": true}");
        let mail = || team.file("transcript/carol.jsonl").contains("say second");
        team.until("the mail", || mail() && (joined() || prompts == 2));
        team.write("go", "");
        team.until_finished("carol", 1);
        let content = team.notices("carol").pop().unwrap()["content"].to_string();
        assert!(
            content.contains("first") && content.contains("second"),
            "{content}"
        );
        let kept = session(&team, &STEERED);
        assert!(!kept.contains("cancelled"), "{kept}");
        assert_eq!(kept.matches("say second").count(), 1, "{kept}");
        assert_eq!(runs(&team, "say third")["content"], "third");
    }
}

/// A message that joined a turn is told once, whatever cuts the turn off: its model may have read it
/// or not.
#[test]
fn mail_that_joined_a_turn_is_told_once() {
    super::a_message_joins_the_work_that_is_done_and_so_does_a_shutdown_request(&STEERED);
    super::a_message_that_an_interrupted_call_was_told_is_the_next_work(&STEERED);
    super::a_killed_agent_goes_on_with_its_session_and_is_told_nothing_twice(&STEERED);
}

/// What it shows of its turn is in the transcript: texts, calls with what they are given, plans; a
/// call of a team tool once.
#[test]
fn what_it_shows_is_in_the_transcript() {
    let Some(team) = team_of(&[&ACP], LIVE) else {
        return;
    };
    spawn(&team, &ACP, &[]);
    let said = runs(
        &team,
        "plan read it first\n$ echo out\n@task_list\n@no_such_tool\nsay done with it",
    );
    assert!(
        said["content"].as_str().unwrap().ends_with("done with it"),
        "{said}"
    );
    let entries = team.transcript("carol");
    let calls: Vec<_> = entries
        .iter()
        .filter_map(|entry| entry["content"].as_array())
        .flatten()
        .filter(|block| block["type"] == "tool_use")
        .map(|block| (block["name"].clone(), block["input"].clone()))
        .collect();
    let plan = json!({"entries": [{"content": "read it first", "status": "pending"}]});
    assert_eq!(
        calls,
        [
            (json!("plan"), plan),
            (json!("execute"), json!({"command": "echo out"})),
            (json!("task_list"), json!({})),
            (
                json!("team_no_such_tool"),
                json!({"title": "team_no_such_tool"})
            ),
        ]
    );
    assert!(team.results("carol")[1]["content"] == "out\n");
    team.teamctl([
        "lint",
        team.path("transcript/carol.jsonl").to_str().unwrap(),
    ])
    .ok();
}

/// It announces that it takes the server of the team tools, and does not use it.
#[test]
fn an_agent_that_ignores_the_team_tools_fails_and_is_told_what_to_do() {
    for abilities in ["resume toolless", "resume toolless connect"] {
        let Some(team) = team_of(&[&ACP], LIVE) else {
            return;
        };
        team.write("abilities", abilities);
        spawn(&team, &ACP, &[]);
        let failed = runs(&team, "say all well");
        assert_eq!(failed["idle_reason"], "failed", "{failed}");
        let content = failed["content"].as_str().unwrap();
        for told in ["has no team tools", "all well", "hint: have it use MCP"] {
            assert!(content.contains(told), "{content}");
        }
    }
}

/// At the deadline of a shutdown its turn is cancelled before it is ended; one that does not obey is
/// ended all the same. So it is with a worker that leaves in the middle of a turn.
#[test]
fn a_turn_is_cancelled_before_its_agent_is_ended() {
    for (order, ends) in [
        ("$ touch begun; sleep 600", "shutdown"),
        ("hang", "shutdown"),
        ("deaf", "shutdown"),
        ("$ touch begun; sleep 600", "SIGTERM"),
    ] {
        let Some(team) = team_of(&[&ACP], LIVE) else {
            return;
        };
        spawn(&team, &ACP, &["--prompt", order]);
        team.until("its turn", || session(&team, &ACP).contains(order));
        team.until("its command", || {
            !order.starts_with('$') || team.made("begun")
        });
        let agent = agent_of(&team);
        if ends == "shutdown" {
            team.teamctl(["shutdown", "carol", "--decide-within", "0.1s"])
                .ok();
        } else {
            signal(team.pid("carol"), Signal::SIGTERM);
        }
        team.until("its end", || !is_alive(agent));
        assert!(
            session(&team, &ACP).contains("\"cancel\""),
            "{order} {ends}"
        );
        if ends == "shutdown" {
            team.until("all to be gone", || team.processes().len() == 1);
        }
    }
}

/// A service that fails looks like that with some agents.
#[test]
fn a_turn_without_an_answer_is_a_failed_piece_of_work() {
    let Some(team) = team_of(&[&ACP], LIVE) else {
        return;
    };
    spawn(&team, &ACP, &[]);
    let failed = runs(&team, "nothing");
    assert_eq!(failed["idle_reason"], "failed", "{failed}");
    assert!(
        failed["content"]
            .as_str()
            .unwrap()
            .contains("without an answer"),
        "{failed}"
    );
    assert_eq!(runs(&team, "say well")["content"], "well");
}

/// A line without an end is cut, and the agent is started again.
#[test]
fn a_line_that_has_no_end_fills_no_memory() {
    let Some(team) = team_of(&[&ACP], LIVE) else {
        return;
    };
    spawn(&team, &ACP, &[]);
    let agent = agent_of(&team);
    assert_eq!(runs(&team, "endless")["content"], "done");
    assert!(!is_alive(agent));
}

/// An agent that cannot resume a session loads it, and its replay is no output; without both, there
/// is a new session, which is told what was.
#[test]
fn a_session_is_loaded_or_replaced_where_it_cannot_be_resumed() {
    for (abilities, is_kept) in [("load", true), ("none", false)] {
        let Some(team) = team_of(&[&ACP], LIVE) else {
            return;
        };
        team.write("abilities", abilities);
        spawn(&team, &ACP, &["--prompt", "say first-words"]);
        team.until_finished("carol", 1);
        signal(agent_of(&team), Signal::SIGKILL);
        let said = runs(&team, "say more");
        let content = said["content"].as_str().unwrap();
        assert!(content.ends_with("more"), "{abilities}: {said}");
        let entries = team.file("transcript/carol.jsonl");
        assert!(!entries.contains("replayed"), "{entries}");
        let kept = session(&team, &ACP);
        assert_eq!(kept.contains("session is lost"), !is_kept, "{kept}");
        assert_eq!(content.contains("could not resume"), !is_kept, "{content}");
    }
}

/// The gate, also for an agent behind a shell; and whatever ends it, nothing of it is left.
#[test]
fn nothing_is_left_of_an_agent_behind_a_shell() {
    for layers in SETS {
        for shell in [
            "STUB; true",
            "exec STUB",
            "(setsid sleep 4001 &) ; STUB; true",
        ] {
            let Some(team) = team_behind(shell, layers) else {
                return;
            };
            spawn(&team, &ACP, &["--prompt", "forks\nsay well"]);
            team.until_finished("carol", 1);
            assert!(team.processes().len() > 3, "{:?}", team.processes());
            // The agent alone is killed: its shell ends, or does not.
            signal(agent_of(&team), Signal::SIGKILL);
            let again = runs(&team, "forks\nsay again");
            assert!(
                again["content"].as_str().unwrap().ends_with("again"),
                "{again} {}",
                team.file("transcript/carol.jsonl")
            );
            assert_eq!(team.shutdown("carol", &[], 0)["outcome"], "shutdown");
            team.until("all to be gone", || team.processes().len() == 1);
            team.teamctl(["spawn", "carol", "--resume"]).ok();
            assert_eq!(runs(&team, "forks\nsay once more")["content"], "once more");
            signal(team.pid("carol"), Signal::SIGKILL);
            team.until("the next worker", || team.incarnation("carol") >= 3);
            assert_eq!(team.shutdown("carol", &[], 0)["outcome"], "shutdown");
            team.until("all to be gone", || team.processes().len() == 1);
        }
    }
}

/// What fetches its program each time is not run at a spawn.
#[test]
fn a_launcher_is_refused() {
    let team = Team::started().with(ACP.key, KEY);
    for (launcher, state, next) in [
        ("npx", "not installed", "`teamctl agents install mine`"),
        (
            "/usr/bin/npx",
            "not installed",
            "`teamctl agents install mine`",
        ),
        ("uvx", "not installed", "`teamctl agents install mine`"),
        ("pipx", "launcher", "install the program once"),
        ("bunx", "launcher", "install the program once"),
        ("docker", "launcher", "install the program once"),
    ] {
        team.write(
            "team.toml",
            &format!("[agents.mine]\ncommand = ['{launcher}', 'agent']\nprotocol = 'acp'\n"),
        );
        team.trust();
        let refused = team
            .teamctl(["spawn", "carol", "--agent", "mine"])
            .exits(1)
            .stderr;
        assert!(
            refused.contains("fetches a program") && refused.contains(next),
            "{refused}"
        );
        let listed = team.teamctl(["agents"]).ok().stdout;
        assert!(listed.contains(state), "{listed}");
    }
}

/// It may keep what it shows with its calls in a file that its commands read.
#[test]
fn a_lead_agent_only_recommends() {
    let Some(team) = team_of(&[&ACP], LIVE) else {
        return;
    };
    team.teamctl_with(
        ["chat", "--agent", ACP.agent, "--timeout", "20s"],
        "say hello",
    )
    .ok();
    let spawns = json!({"name": "dan", "role": "coder", "prompt": "say x"});
    team.send("lead", &format!("@spawn_teammate {spawns}"));
    team.until("it to be refused", || {
        team.file("transcript/lead.jsonl")
            .contains("in your name, so a person decides")
    });
    assert!(!team.file("config.json").contains("\"dan\""));
}
