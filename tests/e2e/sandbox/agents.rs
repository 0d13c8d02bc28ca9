//! A whole agent in the sandbox: a program of the user's own, here a shell that carries out the
//! lines of its messages that begin with `$ `. Its gate opens and closes while it runs.

use std::net::TcpListener;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{TRIED, With, has};
use crate::support::model_server::ModelServer;
use crate::support::process::children;
use crate::support::{Team, is_alive, signal};

/// A team with a teammate whose agent carries out the messages that it reads.
fn shell(with: With, flags: &[&str]) -> Option<Team> {
    shell_of(with.team(&[])?, "", flags)
}

pub(crate) fn shell_of(team: Team, more: &str, flags: &[&str]) -> Option<Team> {
    let shell = "[agents.shell]\ncommand = ['bash', '-c', '''eval \"$(sed -n 's/^[$] //p')\"''']\nprotocol = 'run'\n";
    team.write("team.toml", &format!("{shell}{more}"));
    let refused = team
        .teamctl(["spawn", "carol", "--agent", "shell"])
        .exits(3);
    assert!(
        refused
            .stderr
            .contains(r#"agents."shell".command = ["bash", "-c""#),
        "{}",
        refused.stderr
    );
    team.teamd(["trust"]).ok();
    team.teamctl(["spawn", "carol", "--agent", "shell"].iter().chain(flags))
        .ok();
    Some(team)
}

/// A script as a message.
pub(crate) fn ordered(script: &str) -> String {
    script.lines().map(|line| format!("$ {line}\n")).collect()
}

/// Orders carol to run a script.
fn order(team: &Team, script: &str) {
    team.send("carol", &ordered(script));
}

/// Sends a script to carol, and returns what she told the lead when it had ended.
pub(super) fn runs(team: &Team, script: &str) -> Value {
    let before = team.notices("carol").len();
    order(team, script);
    team.until_finished("carol", before + 1);
    team.notices("carol").pop().unwrap()
}

/// Closes the gate of carol: the command returns when her worker has said that it is closed.
fn close(team: &Team) {
    team.teamctl(["request-plan", "carol", "$ echo planned"])
        .ok();
    assert_eq!(team.member("carol")["gate"], "closed");
}

const SETS: [With; 3] = [With::All, With::Bubblewrap, With::Bare];

#[test]
fn an_agent_is_run_once_for_each_piece_of_work_and_fails_as_it_says() {
    for with in SETS {
        let Some(team) = shell(with, &["--prompt", "$ echo first > made; echo hello"]) else {
            continue;
        };
        team.until_finished("carol", 1);
        let first = team.notices("carol").pop().unwrap();
        assert_eq!(
            (&first["idle_reason"], &first["content"]),
            (&json!("available"), &json!("hello")),
            "{with:?}"
        );
        assert_eq!(team.text("made"), "first\n", "{with:?}");
        let failed = runs(&team, "echo half done; echo out of ink >&2; exit 3");
        assert_eq!(failed["idle_reason"], "failed", "{with:?}");
        let told = failed["content"].as_str().unwrap();
        assert!(
            told.contains("half done")
                && told.contains("exit code 3; its error output ends: out of ink"),
            "{told}"
        );
        assert_eq!(runs(&team, "cat <<< again")["content"], "again", "{with:?}");
        let shown = team.teamctl(["status", "carol"]).ok().stdout;
        assert!(
            shown.contains("shell (a process for each piece of work: bash -c "),
            "{shown}"
        );
    }
}

/// What any command of `bash` may not do, an agent may not either, with an open gate as with a
/// closed one.
#[test]
fn an_agent_breaks_out_with_neither_gate() {
    let attacks = [
        "echo x > .team/planted && echo BROKEN",
        "ls -A .team | grep -q journal && echo BROKEN",
        "echo x > $HOME/planted && echo BROKEN",
        "cat $HOME/.ssh/id 2>/dev/null && echo BROKEN",
        "mount -o remount,rw,bind . 2>/dev/null && echo BROKEN",
        "umount -l . 2>/dev/null && echo BROKEN",
        "unshare -Ur true 2>/dev/null && echo BROKEN",
        "nsenter -t 1 -m true 2>/dev/null && echo BROKEN",
        "ls /proc/1/root/ 2>/dev/null | grep -q . && echo BROKEN",
        "kill -KILL $PPID 2>/dev/null",
        "env | grep -q KEY= && echo BROKEN",
        "echo x > .git/hooks/post-commit && echo BROKEN",
        "echo x > /dev/tcp/127.0.0.1/PORT && echo BROKEN",
    ];
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port().to_string();
    for with in SETS {
        // Without namespaces of our own these two are not promised while the gate is open; `bwrap`
        // makes mounts.
        let tried = attacks.map(|attack| attack.replace("PORT", &port));
        let tried: Vec<&str> = tried
            .iter()
            .filter(|attack| {
                let is_of_git = attack.contains(".git");
                let is_of_network = attack.contains("/dev/tcp");
                (with.has_mounts() || !is_of_git) && (with == With::All || !is_of_network)
            })
            .map(String::as_str)
            .collect();
        for plan in [false, true] {
            let flags: &[&str] = if plan { &["--plan"] } else { &[] };
            let Some(team) = shell(with, flags) else {
                continue;
            };
            std::fs::create_dir_all(team.root().join(".git/hooks")).unwrap();
            let tried = tried.join("\n");
            let writes = "\necho x > made && echo written\n(setsid bash -c 'sleep 0.1; echo x > late') & exit 0";
            order(&team, &format!("{tried}{writes}"));
            let told = if plan {
                let id = team.until_planned("carol");
                team.request(&id)["payload"]["plan"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            } else {
                team.until_finished("carol", 1);
                team.notices("carol").pop().unwrap()["content"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            };
            assert!(!told.contains("BROKEN"), "{with:?} {plan}: {told}");
            assert_eq!(
                (told.contains("written"), team.made("made")),
                (!plan, !plan),
                "{with:?}: {told}"
            );
            assert!(
                !team.made("late") && !team.made(".git/hooks/post-commit"),
                "{with:?} {plan}"
            );
        }
    }
}

/// What an agent prints behind a closed gate is its plan. Approved, it is run again, and reads the
/// verdict.
#[test]
fn an_agent_plans_behind_a_closed_gate_and_works_behind_an_open_one() {
    let Some(team) = shell(
        With::All,
        &[
            "--plan",
            "--prompt",
            "$ echo x > made || echo I would make a file",
        ],
    ) else {
        return;
    };
    let id = team.until_planned("carol");
    assert_eq!(team.request(&id)["payload"]["plan"], "I would make a file");
    assert!(!team.made("made"));
    team.teamctl([
        "approve",
        &id,
        "--feedback",
        "\n$ echo done > made; echo made",
    ])
    .ok();
    team.until_finished("carol", 1);
    assert_eq!(team.text("made"), "done\n");
}

const KEY: &str = crate::support::model_server::KEY;

/// What a person would type to ask a model: the base and the key are those of the agent's
/// variables.
const ASKS: &str = r#"curl -sS --max-time 20 "$ANTHROPIC_BASE_URL/v1/messages" -H "x-api-key: $ANTHROPIC_API_KEY" \
  -H 'anthropic-version: 2023-06-01' -H 'content-type: application/json' -d '{"model":"fake","max_tokens":64,"messages":[{"role":"user","content":[{"type":"text","text":"hello"}]}]}'"#;

/// An agent asks its model behind a closed gate as behind an open one. The key is added outside: it
/// is in no variable, no file and no process of the sandbox.
#[test]
fn an_agent_reaches_its_model_through_the_gateway_and_never_has_the_key() {
    // The pattern does not match itself.
    let pattern = format!("'[s]{}'", &KEY[1..]);
    let looks = format!(
        "{}; echo; tr '\\0' '\\n' < /proc/self/environ | grep -c -- {pattern}; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | grep -ac -- {pattern}; \
         grep -rlas -- {pattern} $TMPDIR $TEAM_AGENT_STATE /dev/shm | head",
        ASKS.replace("\\\n", "")
    );
    for with in SETS {
        let server = ModelServer::start();
        let Some(team) = asking(with, &server) else {
            continue;
        };
        if !has(&team, "curl") {
            return;
        }
        server.says("hello yourself").says("and again");
        let said = runs(&team, &looks)["content"].as_str().unwrap().to_owned();
        assert!(said.contains("hello yourself"), "{with:?}: {said}");
        assert_eq!(
            said.lines().skip(1).collect::<Vec<_>>(),
            ["0", "0"],
            "{with:?}: {said}"
        );
        // It does not say what that cost: the gateway counts.
        team.until("its cost", || {
            team.member("carol")["usage"]["output_tokens"].as_u64() > Some(0)
        });
        let request = server.last();
        assert_eq!(
            (
                request.header("x-api-key"),
                request.header("anthropic-version")
            ),
            (KEY, "2023-06-01")
        );
        assert!(!request.header("content-length").is_empty() && request.mentions("hello"));
        assert!(
            !team.file("transcript/carol.jsonl").contains(KEY)
                && !team.file("log/carol.log").contains(KEY)
        );
        // Behind a closed gate the model is all that it reaches.
        team.teamctl(["request-plan", "carol", &ordered(&looks)])
            .ok();
        let id = team.until_planned("carol");
        let plan = team.request(&id)["payload"]["plan"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(plan.contains("and again"), "{with:?}: {plan}");
        let wrong = "curl -sS -m 20 -o /dev/null -w '%{http_code}' $ANTHROPIC_BASE_URL/v1/models -H 'x-api-key: wrong'";
        team.teamctl([
            "reject",
            &id,
            "--feedback",
            &format!("\n{}", ordered(wrong)),
        ])
        .ok();
        team.until("another plan", || team.last_request("plan_approval") != id);
        let id = team.until_planned("carol");
        assert_eq!(team.request(&id)["payload"]["plan"], "401", "{with:?}");
    }
}

/// A team with the agent of [`shell`], whose key and service are in the environment of each
/// command.
fn asking(with: With, server: &ModelServer) -> Option<Team> {
    let team = Team::new()
        .with("ANTHROPIC_BASE_URL", &server.url())
        .with("ANTHROPIC_API_KEY", KEY);
    shell_of(with.confine(team, &[])?, "", &[])
}

/// What an agent keeps outlives its process and the incarnation, is writable behind a closed gate,
/// and goes with `forget`. No other teammate sees it.
#[test]
fn an_agent_has_a_state_directory_of_its_own_that_forget_removes() {
    for with in SETS {
        let Some(team) = shell(with, &[]) else {
            continue;
        };
        let keeps = "echo kept >> $TEAM_AGENT_STATE/notes; cat $TEAM_AGENT_STATE/notes; echo x > $CLAUDE_CONFIG_DIR/y && echo $TEAM_AGENT_STATE";
        let said = runs(&team, keeps)["content"].as_str().unwrap().to_owned();
        let path = std::path::PathBuf::from(said.lines().nth(1).unwrap());
        assert!(
            path.starts_with(team.home().canonicalize().unwrap()),
            "{with:?}: {said}"
        );
        team.teamctl(["request-plan", "carol", &ordered(keeps)])
            .ok();
        let id = team.until_planned("carol");
        let plan = team.request(&id)["payload"]["plan"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(plan.starts_with("kept\nkept\n"), "{with:?}: {plan}");
        team.teamctl(["spawn", "dave", "--agent", "shell"]).ok();
        team.send(
            "dave",
            &ordered(&format!(
                "cat {} || echo hidden",
                path.join("notes").display()
            )),
        );
        team.until_finished("dave", 1);
        assert_eq!(
            team.notices("dave").pop().unwrap()["content"],
            "hidden",
            "{with:?}"
        );
        team.shutdown("carol", &[], 0);
        assert!(path.join("notes").is_file());
        team.teamctl(["forget", "carol"]).ok();
        team.until("it to be gone", || !path.exists());
        assert!(
            path.with_file_name("dave").is_dir(),
            "{with:?}: what others keep stays"
        );
    }
}

#[test]
fn status_says_where_no_gate_is_live() {
    for with in SETS {
        let Some(team) = shell(with, &[]) else {
            continue;
        };
        let said = team.teamctl(["status"]).ok().stderr;
        assert_eq!(
            said.contains(
                "no live gate on this machine: a gate that closes ends the agent of carol"
            ),
            with != With::All,
            "{with:?}: {said}"
        );
        let spawned = team
            .teamctl(["spawn", "dave", "--agent", "shell"])
            .ok()
            .stderr;
        for said in [said, spawned, team.teamctl(["doctor"]).stdout] {
            let is_said = said.contains("that has a key also reaches the");
            assert_eq!(is_said, with != With::All, "{with:?}: {said}");
        }
    }
}

/// Whether the workspace is read-only where the agent of carol runs, as the kernel says.
fn is_read_only(team: &Team) -> bool {
    let below = |pids: Vec<i32>| pids.into_iter().flat_map(children).collect::<Vec<_>>();
    let Some(agent) = below(below(children(team.pid("carol")))).first().copied() else {
        return false;
    };
    let mounts = std::fs::read_to_string(format!("/proc/{agent}/mountinfo")).unwrap_or_default();
    let root = team.root().to_str().unwrap();
    let of_workspace = mounts
        .lines()
        .rfind(|line| line.split(' ').nth(4) == Some(root));
    of_workspace.is_some_and(|line| line.split(' ').nth(5).unwrap().starts_with("ro"))
}

/// Writes a line a moment until it cannot, each time with a file that it opens anew.
const WRITES: &str = "n=0; while [ ! -e stop ]; do n=$((n+1)); { echo $n >> lines; } 2>/dev/null || refused=1; \
     [ -n \"$refused\" ] && { echo $n > $TMPDIR/refused; break; }; sleep 0.002; done; ";

#[test]
fn a_gate_closes_in_the_middle_of_writes_and_the_agent_goes_on() {
    let Some(team) = shell(With::All, &[]) else {
        return;
    };
    order(&team, &format!("{WRITES} echo still here"));
    team.until("some lines", || team.text("lines").lines().count() > 20);
    close(&team);
    let lines = team.text("lines").lines().count();
    // It is asked for a plan next, and what it prints then is that.
    let id = team.until_planned("carol");
    assert_eq!(team.request(&id)["payload"]["plan"], "planned");
    assert_eq!(team.results("carol")[0]["content"], "still here");
    assert_eq!(
        team.text("lines").lines().count(),
        lines,
        "closed is closed"
    );
}

/// A program that keeps a file open, or mapped, is ended; the agent itself is not.
#[test]
fn what_holds_a_file_for_writing_is_ended_when_the_gate_closes() {
    let mapped = format!(
        "{TRIED}import mmap, os, time\nf = open('mapped', 'w+b'); f.write(b'x' * 4096); f.flush()\n\
         m = mmap.mmap(f.fileno(), 4096); f.close(); open('ready', 'w').close()\n\
         while True:\n    m[0:1] = b'y'; time.sleep(0.001)\n"
    );
    let holders = [
        ("sleep 300 >> held", true),
        (
            "exec 9>>held2; touch ready; while :; do echo x >&9; sleep 0.001; done",
            true,
        ),
        ("python3 mapped.py", false),
    ];
    for (holder, plain) in holders {
        let Some(team) = shell(With::All, &[]) else {
            return;
        };
        team.write("mapped.py", &mapped);
        if !plain && !has(&team, "python3") {
            continue;
        }
        let script = format!(
            "({holder}) &\nuntil [ -e ready ]; do sleep 0.01; touch ready; done\nwait; echo ended"
        );
        let script = if plain {
            script
        } else {
            script.replace("; touch ready; done", "; done")
        };
        order(&team, &script);
        team.until("the holder", || team.made("ready"));
        close(&team);
        team.until_planned("carol");
        assert_eq!(team.results("carol")[0]["content"], "ended", "{holder}");
    }
}

/// The agent's own open file is in the way of a closed gate: the agent is ended, and the lead is
/// told.
#[test]
fn an_agent_that_holds_a_file_itself_is_ended_when_the_gate_closes() {
    let Some(team) = shell(With::All, &[]) else {
        return;
    };
    order(
        &team,
        "exec 9>>held; touch ready; while :; do echo x >&9; sleep 0.001; done",
    );
    team.until("the agent", || team.made("ready"));
    close(&team);
    let held = team.text("held").len();
    team.until_planned("carol");
    let ended = &team.results("carol")[0];
    assert_eq!(ended["is_error"], true);
    assert!(
        ended["content"]
            .as_str()
            .unwrap()
            .contains("its gate was closed"),
        "{ended}"
    );
    assert_eq!(team.text("held").len(), held);
}

/// Without Landlock an agent can stop what closes its gate: that stands in its pid namespace for a
/// moment. And an open file can be on its way through a socket, where no process holds it.
#[test]
fn an_agent_that_keeps_its_gate_from_closing_is_ended() {
    let sends = format!(
        "{TRIED}import socket, time\none, other = socket.socketpair()\nf = open('held', 'ab', 0)\n\
         socket.send_fds(one, [b'x'], [f.fileno()])\nf.close()\nopen('ready', 'w').close()\ntime.sleep(300)\n"
    );
    // What closes the gate can be quicker than the signal: then nothing more is written.
    let stops = "touch ready; while { echo x >> held; } 2>/dev/null; do kill -STOP -1 2>/dev/null; done; echo outrun";
    for (with, keeps) in [
        (With::NoLandlock, stops),
        (With::All, "exec python3 sends.py"),
    ] {
        let Some(team) = shell(with, &[]) else {
            continue;
        };
        if keeps.contains("python3") && !has(&team, "python3") {
            continue;
        }
        team.write("sends.py", &sends);
        order(&team, keeps);
        team.until("the agent", || team.made("ready"));
        close(&team);
        let held = team.text("held").len();
        team.until_planned("carol");
        let ended = team.results("carol")[0]["content"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            ended.contains("its gate was closed") || keeps == stops && ended == "outrun",
            "{with:?} {keeps}: {ended}"
        );
        assert_eq!(team.text("held").len(), held, "{with:?}: closed is closed");
    }
}

/// Without namespaces of our own the gate does not change while an agent runs: it is ended.
#[test]
fn where_the_gate_cannot_change_a_closed_gate_ends_the_agent() {
    for with in [With::Bubblewrap, With::Bare] {
        let Some(team) = shell(with, &[]) else {
            continue;
        };
        order(&team, &format!("{WRITES} echo still here"));
        team.until("some lines", || team.text("lines").lines().count() > 20);
        close(&team);
        let lines = team.text("lines").lines().count();
        team.until_planned("carol");
        let ended = &team.results("carol")[0];
        assert!(
            ended["content"]
                .as_str()
                .unwrap()
                .contains("its gate was closed"),
            "{with:?} {ended}"
        );
        assert_eq!(team.text("lines").lines().count(), lines, "{with:?}");
    }
}

/// A line in the inbox closes the gate while the daemon is away; the next daemon opens it again,
/// and the agent goes on writing.
#[test]
fn a_gate_opens_and_closes_and_opens_while_the_agent_runs() {
    let Some(team) = shell(With::All, &[]) else {
        return;
    };
    let writes = "while [ ! -e stop ]; do { echo x >> lines; } 2>/dev/null && echo o || echo c; sleep 0.002; done | uniq";
    order(&team, writes);
    let lines = || team.text("lines").lines().count();
    team.until("some lines", || lines() > 20);
    for _ in 0..2 {
        team.kill_daemon();
        let closed_at = team.journal().last().unwrap()["seq"].as_u64().unwrap() + 1;
        let line = json!({"type": "plan_request", "from": "lead", "content": "a plan", "gate_closed": closed_at});
        team.echo("carol", &line.to_string());
        team.until("the gate to close", || is_read_only(&team));
        let closed_at = lines();
        team.teamd(["start"]).ok();
        team.until("more lines", || lines() > closed_at + 20);
    }
    team.write("stop", "");
    team.until_finished("carol", 1);
    let told = team.notices("carol").pop().unwrap()["content"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(told.starts_with("o\nc\no\nc\no"), "{told}");
}

#[test]
fn a_busy_agent_leaves_when_the_model_would_have_had_its_time_and_leaves_nothing() {
    for with in SETS {
        let Some(team) = shell(with, &[]) else {
            continue;
        };
        assert_eq!(team.shutdown("alice", &[], 0)["outcome"], "shutdown");
        order(
            &team,
            "trap '' TERM HUP; (setsid sleep 300 &); touch ready; sleep 301",
        );
        team.until("the agent", || team.made("ready"));
        let left = team.shutdown("carol", &["--decide-within", "0.2s"], 0);
        assert_eq!(left["outcome"], "shutdown", "{with:?} {left}");
        team.until("all to be gone", || team.processes().len() == 1);
    }
}

/// The messages are consumed once: an agent that a crash has ended is not run again, and the lead
/// is told.
#[test]
fn a_killed_worker_loses_no_message_and_runs_none_twice() {
    for with in SETS {
        let Some(team) = shell(with, &[]) else {
            continue;
        };
        order(&team, "echo once >> runs; touch ready; sleep 300");
        team.until("the agent", || team.made("ready"));
        order(&team, "echo later >> runs; echo caught up");
        let worker = team.pid("carol");
        let shim = children(worker)[0];
        signal(worker, Signal::SIGKILL);
        team.until("the end of the agent", || !is_alive(shim));
        team.until_finished("carol", 1);
        team.until("the second message", || team.text("runs").contains("later"));
        team.wait_for("carol", "idle");
        assert_eq!(team.text("runs"), "once\nlater\n", "{with:?}");
        let said: Vec<String> = team
            .notices("carol")
            .iter()
            .map(|told| told["content"].to_string())
            .collect();
        assert!(
            said.iter().any(|said| said.contains("may have run")),
            "{with:?} {said:?}"
        );
    }
}

#[test]
fn an_agent_that_cannot_be_started_is_said_so() {
    let Some(team) = With::All.team(&[]) else {
        return;
    };
    let unknown = team
        .teamctl(["spawn", "carol", "--agent", "nosuch"])
        .exits(2);
    assert!(
        unknown.stderr.contains("write `[agents.NAME]`"),
        "{}",
        unknown.stderr
    );
    for (file, told) in [
        (
            "[agents.x]\ncommand = []\nprotocol = 'run'\n",
            "a program and its arguments are expected",
        ),
        (
            "[agents.builtin]\ncommand = ['x']\nprotocol = 'run'\n",
            "is the one that is built in",
        ),
        (
            "[agents.x]\ncommand = ['x']\nprotocol = 'talk'\n",
            "unknown variant `talk`",
        ),
    ] {
        team.write("team.toml", file);
        let wrong = team.teamctl(["spawn", "carol", "--agent", "x"]).exits(2);
        assert!(wrong.stderr.contains(told), "{}", wrong.stderr);
    }
    team.write(
        "team.toml",
        "[agents.x]\ncommand = ['no-such-program']\nprotocol = 'run'\n",
    );
    team.teamd(["trust"]).ok();
    let missing = team.teamctl(["spawn", "carol", "--agent", "x"]).exits(1);
    assert!(
        missing
            .stderr
            .contains("there is no program no-such-program"),
        "{}",
        missing.stderr
    );
    // It can be gone, too, when the teammate wants it.
    team.write(
        "team.toml",
        "[agents.x]\ncommand = ['bin/agent']\nprotocol = 'run'\n",
    );
    team.teamd(["trust"]).ok();
    team.teamctl(["spawn", "carol", "--agent", "x", "--prompt", "hi"])
        .ok();
    team.until_finished("carol", 1);
    let told = team.notices("carol").pop().unwrap();
    assert!(
        told["content"]
            .as_str()
            .unwrap()
            .contains("cannot start bin/agent"),
        "{told}"
    );
}

#[test]
fn the_agents_are_listed_with_what_keeps_each_from_being_started() {
    let team = Team::started();
    let state = |name: &str| {
        let all = team.json(["agents"]);
        let found = all
            .as_array()
            .unwrap()
            .iter()
            .find(|agent| agent["name"] == name)
            .cloned();
        found
            .map(|agent| agent["state"].clone())
            .unwrap_or_default()
    };
    assert_eq!(
        (state("builtin"), state("x")),
        (json!("ready"), Value::Null)
    );
    team.write("team.toml", "[agents.x]\ncommand = ['sh']\nprotocol = 'run'\n[agents.y]\ncommand = ['no-such']\nprotocol = 'run'\n");
    assert_eq!(
        (state("x"), state("y")),
        (json!("not trusted"), json!("missing"))
    );
    team.teamd(["trust"]).ok();
    assert_eq!((state("x"), state("y")), (json!("ready"), json!("missing")));
    let shown = team.teamctl(["agents"]).ok().stdout;
    assert!(
        shown
            .lines()
            .any(|line| line.starts_with("x ") && line.ends_with(" sh")),
        "{shown}"
    );
}

#[test]
fn an_agent_that_is_too_old_is_refused_and_a_newer_one_than_tested_is_noted() {
    let team = Team::started();
    team.run_program("mkdir", ["-p", "codex/bin"]).ok();
    let program = team.root().join("codex/bin/codex");
    team.run_program("cp", ["/bin/true", program.to_str().unwrap()])
        .ok();
    team.write(
        "team.toml",
        &format!(
            "[agents.codex]\ncommand = ['{}']\nprotocol = 'codex'\n",
            program.display()
        ),
    );
    team.teamd(["trust"]).ok();
    let is = |team: &Team, version: &str| {
        team.write(
            "codex/package.json",
            &json!({"name": "@openai/codex", "version": version}).to_string(),
        );
        let all = team.json(["agents"]);
        let codex = all
            .as_array()
            .unwrap()
            .iter()
            .find(|agent| agent["name"] == "codex")
            .unwrap()
            .clone();
        (codex["state"].clone(), codex["version"].clone())
    };
    let spawn = |team: &Team| {
        team.teamctl(["spawn", "carol", "--agent", "codex", "--restart", "never"])
            .exits(1)
            .stderr
    };
    assert_eq!(is(&team, "999.0.0"), (json!("no key"), json!("999.0.0")));
    assert!(spawn(&team).contains("needs OPENAI_API_KEY"));
    assert_eq!(is(&team, "0.1.0"), (json!("too old"), json!("0.1.0")));
    let refused = spawn(&team);
    assert!(
        refused.contains("0.1.0 is too old") && refused.contains("npm install -g @openai/codex"),
        "{refused}"
    );
    let team = team.with("OPENAI_API_KEY", "sk-1");
    is(&team, "999.0.0");
    let noted = spawn(&team);
    assert!(
        noted.contains("note: codex 999.0.0 is newer than what was tested"),
        "{noted}"
    );
}
