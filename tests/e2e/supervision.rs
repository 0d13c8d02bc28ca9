//! Supervision: crashes, hangs and resource limits: which worker is restarted and how often, and
//! what is known of an end.

use std::io::Write;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::process::{let_pass, parent};
use crate::support::{Team, is_alive, signal};

/// What `status` says of a member, as JSON.
fn shown(team: &Team, name: &str) -> Value {
    team.json(["status", name])["members"][0].clone()
}

/// What the daemon itself has written to the lead about a member, in order.
fn told(team: &Team, name: &str) -> Vec<String> {
    let lines = team
        .inbox("lead")
        .into_iter()
        .filter(|line| line["from"] == "teamd" && line["type"] == "message");
    let texts = lines.map(|line| line["content"].as_str().unwrap_or_default().to_owned());
    texts.filter(|text| text.starts_with(name)).collect()
}

fn endings(team: &Team, name: &str) -> Vec<Value> {
    team.journal()
        .into_iter()
        .filter(|line| line["event"] == "ending" && line["name"] == name)
        .map(|line| line["ending"].clone())
        .collect()
}

#[test]
fn how_often_a_worker_is_started_again_is_a_setting_and_status_tells_how_often_it_was() {
    let team = Team::new()
        .with("TEAM_RESTART_MAX", "1")
        .with("TEAM_RESTART_PERIOD", "1h");
    team.teamd(["start"]).ok();
    team.spawn("alice", "");
    let before = shown(&team, "alice");
    assert_eq!(
        (&before["restarts"], &before["last_exit"]),
        (&json!(0), &Value::Null),
        "{before}"
    );
    team.kill_and_wait_for_restart("alice");
    let after = shown(&team, "alice");
    assert_eq!(
        (&after["restarts"], &after["exit"]),
        (&json!(1), &Value::Null),
        "{after}"
    );
    assert_eq!(after["last_exit"]["signal"], 9, "{after}");
    let text = team.teamctl(["status", "alice"]).ok().stdout;
    assert!(
        text.contains("restarts    1\n") && text.contains("last exit"),
        "{text}"
    );
    assert!(team.teamctl(["status"]).ok().stdout.contains("RESTARTS"));
    signal(team.pid("alice"), Signal::SIGKILL);
    team.wait_for("alice", "crashed");
    let note = team.member("alice")["exit"]["note"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(note, "not started again: it was 1 time in 3600 s");
    assert_eq!(
        (
            team.incarnation("alice"),
            shown(&team, "alice")["last_exit"].clone()
        ),
        (2, Value::Null)
    );
}

#[test]
fn status_shows_what_the_whole_tree_of_a_teammate_uses() {
    let team = Team::started();
    team.spawn("idle", "");
    team.spawn("busy", "/bash sleep 600 & sleep 600 & sleep 600");
    team.until("three to sleep", || {
        shown(&team, "busy")["resources"]["processes"].as_u64() >= Some(5)
    });
    let idle = shown(&team, "idle")["resources"].clone();
    let busy = shown(&team, "busy")["resources"].clone();
    assert_eq!(
        (&idle["processes"], &idle["from"]),
        (&json!(1), &json!("proc")),
        "{idle}"
    );
    assert!(busy["rss"].as_u64() > idle["rss"].as_u64(), "{busy}");
    assert!(busy["cpu_seconds"].as_f64().is_some(), "{busy}");
    let text = team.teamctl(["status", "busy"]).ok().stdout;
    assert!(
        text.contains("of memory") && text.contains("(from /proc)"),
        "{text}"
    );
    signal(team.pid("busy"), Signal::SIGTERM);
    team.wait_for("busy", "killed");
    assert_eq!(shown(&team, "busy")["resources"], Value::Null);
}

#[test]
fn an_exit_says_how_it_is_known_that_nothing_is_left() {
    let team = Team::started();
    team.spawn("alice", "");
    team.teamctl(["shutdown", "alice"]).ok();
    let exit = team.member("alice")["exit"].clone();
    assert_eq!(exit["emptied"], team.emptied(json!("tree")), "{exit}");
    let means = if team.has_cgroups() {
        "its cgroup is empty"
    } else {
        "no orphan is left"
    };
    let text = team.teamctl(["status", "alice"]).ok().stdout;
    assert!(text.contains(means), "{text}");
    // Its worker is killed in the middle of a command: the shim ends the rest of it.
    team.teamctl([
        "spawn",
        "bob",
        "--restart",
        "never",
        "--prompt",
        "/bash sleep 600 & sleep 600 & touch begun; wait",
    ])
    .ok();
    team.until("the command to have begun", || team.made("begun"));
    signal(team.pid("bob"), Signal::SIGKILL);
    team.wait_for("bob", "crashed");
    let exit = team.member("bob")["exit"].clone();
    assert_eq!(exit["emptied"], team.emptied(json!("tree")), "{exit}");
    let journaled = team
        .journal()
        .into_iter()
        .rfind(|line| line["event"] == "exited")
        .unwrap();
    assert_eq!(journaled["exit"]["emptied"], exit["emptied"]);
    assert_eq!(team.processes(), [team.daemon_pid()]);
}

#[test]
fn of_an_adopted_worker_only_the_cgroup_says_that_nothing_is_left() {
    let team = Team::started();
    team.teamctl(["spawn", "alice", "--restart", "never"]).ok();
    team.kill_daemon();
    team.teamd(["start"]).ok();
    signal(team.pid("alice"), Signal::SIGKILL);
    team.wait_for("alice", "crashed");
    let exit = team.member("alice")["exit"].clone();
    assert_eq!(exit["emptied"], team.emptied(Value::Null), "{exit}");
}

/// Failure 16 (a vendor's CLI, measured): a process that hangs is not noticed.
#[test]
fn a_worker_that_hangs_is_told_of_and_then_ended_and_started_again() {
    let team = Team::new().with("TEAM_WATCHDOG", "2s");
    team.teamd(["start"]).ok();
    team.spawn("alice", "/sleep 600");
    team.wait_for("alice", "working");
    let first = team.pid("alice");
    signal(first, Signal::SIGSTOP);
    team.until("the lead to be told", || !told(&team, "alice").is_empty());
    assert!(
        told(&team, "alice")[0].starts_with("alice does not respond: it has not answered for 2s")
    );
    team.until("the next incarnation", || {
        team.incarnation("alice") == 2 && team.status("alice") != "starting"
    });
    assert!(!is_alive(first));
    assert_eq!(endings(&team, "alice"), ["hung"]);
    let events = team.journal().into_iter().map(|line| line["event"].clone());
    let order: Vec<_> = events
        .filter(|event| event == "silent" || event == "ending")
        .collect();
    assert_eq!(order, ["silent", "ending"], "the lead is told first");
    let member = shown(&team, "alice");
    assert_eq!(
        (&member["restarts"], &member["silent_since"]),
        (&json!(1), &Value::Null),
        "{member}"
    );
    assert_eq!(
        member["last_exit"]["note"], "it did not answer for 4s, and was killed",
        "{member}"
    );
    assert_eq!(told(&team, "alice").len(), 1, "told once");
    // The model is told that the call was cut off.
    team.until("the call to have a result", || {
        team.transcript("alice")
            .iter()
            .any(|entry| entry["entry"] == "result" && entry.to_string().contains("interrupted"))
    });
}

#[test]
fn a_worker_that_was_only_stopped_for_a_while_goes_on() {
    let team = Team::new().with("TEAM_WATCHDOG", "5s");
    team.teamd(["start"]).ok();
    team.spawn("alice", "/sleep 600");
    team.wait_for("alice", "working");
    let pid = team.pid("alice");
    signal(pid, Signal::SIGSTOP);
    team.until("the lead to be told", || told(&team, "alice").len() == 1);
    team.until("status to say so", || {
        team.teamctl(["status", "alice"])
            .ok()
            .stdout
            .contains("not responding for")
    });
    signal(pid, Signal::SIGCONT);
    team.until("the lead to be told that it goes on", || {
        told(&team, "alice").len() == 2
    });
    assert!(
        told(&team, "alice")[1].starts_with("alice answers again, after "),
        "{:?}",
        told(&team, "alice")
    );
    assert_eq!(
        (team.pid("alice"), team.status("alice").as_str()),
        (pid, "working")
    );
    assert_eq!(
        (team.incarnation("alice"), endings(&team, "alice")),
        (1, Vec::new())
    );
}

#[test]
fn a_daemon_that_was_stopped_itself_takes_no_worker_for_hung() {
    let team = Team::new().with("TEAM_WATCHDOG", "2s");
    team.teamd(["start"]).ok();
    for name in ["alice", "bob"] {
        team.spawn(name, "/sleep 600");
        team.wait_for(name, "working");
    }
    let daemon = team.daemon_pid();
    for _ in 0..2 {
        signal(daemon, Signal::SIGSTOP);
        // Far longer than a worker may be silent.
        let_pass(Duration::from_secs(5));
        signal(daemon, Signal::SIGCONT);
        team.teamctl(["send", "alice", "hello"]).ok();
    }
    let_pass(Duration::from_secs(3));
    for name in ["alice", "bob"] {
        assert_eq!(
            (told(&team, name), team.incarnation(name)),
            (Vec::new(), 1),
            "{name}"
        );
    }
}

#[test]
fn a_long_call_is_no_hang_and_an_idle_worker_is_left_alone() {
    let team = Team::new().with("TEAM_WATCHDOG", "2s");
    team.teamd(["start"]).ok();
    team.spawn("idle", "");
    team.spawn("busy", "/bash sleep 5; touch done");
    // Nothing is to be heard from it, and the daemon does not ask.
    signal(team.pid("idle"), Signal::SIGSTOP);
    team.until("the call to end", || team.made("done"));
    assert_eq!(
        (team.incarnation("busy"), told(&team, "busy")),
        (1, Vec::new())
    );
    assert_eq!(
        (team.incarnation("idle"), told(&team, "idle")),
        (1, Vec::new())
    );
    // Mail is a reason to ask.
    team.send("idle", "hello");
    team.until("the lead to be told", || !told(&team, "idle").is_empty());
}

#[test]
fn without_a_watchdog_no_worker_is_ended_for_being_silent() {
    let team = Team::new().with("TEAM_WATCHDOG", "off");
    team.teamd(["start"]).ok();
    team.spawn("alice", "/sleep 600");
    team.wait_for("alice", "working");
    signal(team.pid("alice"), Signal::SIGSTOP);
    let_pass(Duration::from_millis(600));
    assert_eq!(
        (team.incarnation("alice"), told(&team, "alice")),
        (1, Vec::new())
    );
}

#[test]
fn an_incarnation_at_its_time_limit_is_ended_and_the_notice_says_so() {
    let team = Team::new().with("TEAM_GRACE", "300ms");
    team.teamd(["start"]).ok();
    team.teamctl([
        "spawn",
        "alice",
        "--max-time",
        "4s",
        "--prompt",
        "/bash trap '' TERM; sleep 600",
    ])
    .ok();
    assert!(
        team.teamctl(["status", "alice"])
            .ok()
            .stdout
            .contains("4s for an incarnation")
    );
    team.wait_for("alice", "killed");
    let member = team.member("alice");
    assert_eq!(
        (&member["incarnation"], &member["exit"]["ending"]),
        (&json!(1), &json!("limit")),
        "{member}"
    );
    assert_eq!(member["exit"]["note"], "it reached its time limit: 4s");
    team.until("the lead to be told why", || {
        team.inbox("lead")
            .iter()
            .any(|line| line["content"] == "alice was killed: it reached its time limit: 4s")
    });
    team.until("only the daemon to be left", || {
        team.processes() == [team.daemon_pid()]
    });
}

/// What the model is told of the only call of a member, once it has ended.
fn result(team: &Team, name: &str) -> String {
    let results = || {
        team.transcript(name)
            .into_iter()
            .find(|entry| entry["entry"] == "result")
    };
    team.until("the call to end", || results().is_some());
    results().unwrap()["content"].as_str().unwrap().to_owned()
}

/// Spawns a teammate with a limit, confined and not; returns what its model is told of a command.
fn bounded(limit: [&str; 2], command: &str) -> Vec<String> {
    let team = Team::started();
    let told = ["workspace-write", "off"].map(|mode| {
        let name = if mode == "off" { "free" } else { "walled" };
        let prompt = format!("/bash {command}");
        team.teamctl([
            "spawn",
            name,
            "--sandbox",
            mode,
            limit[0],
            limit[1],
            "--prompt",
            &prompt,
        ])
        .ok();
        result(&team, name)
    });
    team.until("nothing to be left", || team.processes().len() == 3);
    told.to_vec()
}

#[test]
fn a_command_that_takes_too_much_memory_fails_and_its_model_is_told_of_the_limit() {
    for told in bounded(
        ["--memory", "64M"],
        "x=$(head -c 300M /dev/zero | tr '\\0' x); echo ${#x}",
    ) {
        assert!(
            told.ends_with("; each process may use at most 64M of memory (rlimit)]"),
            "{told}"
        );
    }
}

#[test]
fn a_command_that_takes_too_much_cpu_time_is_ended_and_its_model_is_told_of_the_limit() {
    for told in bounded(["--cpu-time", "1s"], "while :; do :; done") {
        assert_eq!(
            told,
            "[ended by signal 24; SIGXCPU: a process reached its limit of 1s of CPU time (rlimit)]"
        );
    }
}

#[test]
fn a_command_with_too_many_processes_is_ended_as_a_whole_and_its_model_is_told_of_the_limit() {
    for told in bounded(
        ["--max-procs", "5"],
        "for i in 1 2 3 4 5 6 7 8; do sleep 600 & done; wait",
    ) {
        let refused = told.contains("fork") && told.contains("temporarily unavailable");
        assert!(
            refused || told.contains("[it had more than 5 processes at once, which is its limit;"),
            "{told}"
        );
    }
    for told in bounded(
        ["--max-procs", "5"],
        "sleep 0.6 & sleep 0.6 & wait; echo fits",
    ) {
        assert_eq!(told, "fits");
    }
}

#[test]
fn limits_are_shown_with_the_means_that_hold_them_and_come_from_the_file_of_the_team() {
    let team = Team::new();
    let settings = "memory = '2G'\n[members.alice]\nmax_procs = 200\n";
    std::fs::File::create(team.root().join("team.toml"))
        .unwrap()
        .write_all(settings.as_bytes())
        .unwrap();
    team.teamd(["start"]).ok();
    team.teamctl(["spawn", "alice", "--cpu-time", "1h"]).ok();
    let bounds = shown(&team, "alice")["bounds"].clone();
    assert_eq!(
        bounds,
        json!({"memory": 2_u64 << 30, "cpu_time": 3600, "max_procs": 200, "max_time": null, "max_idle": null})
    );
    let text = team.teamctl(["status", "alice"]).ok().stdout;
    let limits = "memory 2G, each process (rlimit); CPU time 1h, each process (rlimit); 200 processes, each tool call (its shim)";
    assert!(text.contains(limits), "{text}");
    // A resumed incarnation keeps them, but for what is named.
    team.teamctl(["shutdown", "alice"]).ok();
    team.teamctl(["spawn", "alice", "--resume", "--cpu-time", "2h"])
        .ok();
    assert_eq!(shown(&team, "alice")["bounds"]["cpu_time"], 7200);
    assert_eq!(shown(&team, "alice")["bounds"]["memory"], 2_u64 << 30);
}

#[test]
fn a_team_is_stopped_in_reverse_order_of_its_spawns() {
    let asked = |team: &Team| -> Vec<String> {
        let lines = team
            .journal()
            .into_iter()
            .filter(|line| line["event"] == "asked" && line["kind"] == "shutdown");
        lines
            .map(|line| line["to"].as_str().unwrap().to_owned())
            .collect()
    };
    for how in ["stop", "shutdown", "signal"] {
        let team = Team::started();
        for name in ["bob", "alice", "carol"] {
            team.spawn(name, "");
        }
        match how {
            "stop" => drop(team.teamd(["stop"]).ok()),
            "shutdown" => drop(team.teamctl(["shutdown", "--all"]).ok()),
            _ => {
                let daemon = team.daemon_pid();
                signal(daemon, Signal::SIGTERM);
                team.until("the daemon to end", || !is_alive(daemon));
            }
        }
        assert_eq!(asked(&team), ["carol", "alice", "bob"], "{how}");
        for name in ["bob", "alice", "carol"] {
            assert_eq!(team.status(name), "shutdown", "{how}");
        }
    }
}

/// A second signal overrules all answers: no process is left, and the journal says why.
#[test]
fn a_second_sigterm_to_the_daemon_ends_all_workers_at_once() {
    let team = Team::started();
    team.spawn("idle", "");
    for name in ["alice", "bob"] {
        team.spawn(name, "/bash trap '' TERM; sleep 600 & sleep 600");
        team.wait_for(name, "working");
    }
    let daemon = team.daemon_pid();
    signal(daemon, Signal::SIGTERM);
    team.until("the team to be stopping", || team.events("stopping") == 1);
    signal(daemon, Signal::SIGTERM);
    team.until_no_process_is_left();
    for name in ["alice", "bob"] {
        assert_eq!(
            (team.status(name).as_str(), endings(&team, name)),
            ("killed", vec![json!("stop")]),
            "{name}"
        );
        assert_eq!(
            team.member(name)["exit"]["emptied"],
            team.emptied(json!("tree")),
            "{name}"
        );
    }
    assert_eq!(team.events("stopped"), 1);
}

/// Worker and shim die together: what they leave comes to the daemon.
#[test]
fn orphans_of_a_killed_worker_and_shim_end_before_the_end_is_recorded() {
    let team = Team::started();
    let prompt = "/bash setsid sleep 600 & sleep 600 & touch begun; wait";
    team.teamctl([
        "spawn",
        "alice",
        "--restart",
        "never",
        "--sandbox",
        "off",
        "--prompt",
        prompt,
    ])
    .ok();
    team.until("the command to have begun", || team.made("begun"));
    let worker = team.pid("alice");
    let shims: Vec<i32> = team
        .processes()
        .into_iter()
        .filter(|&pid| parent(pid) == Some(worker))
        .collect();
    assert_eq!(shims.len(), 1);
    // Stopped first, so that neither sees the other's end.
    for pid in [worker, shims[0]] {
        signal(pid, Signal::SIGSTOP);
    }
    // The shim first: the end of the worker would continue it (its process group is an orphan
    // then), and it would kill.
    for pid in [shims[0], worker] {
        signal(pid, Signal::SIGKILL);
    }
    team.wait_for("alice", "crashed");
    assert_eq!(
        team.processes(),
        [team.daemon_pid()],
        "nothing is left when the end is recorded"
    );
    let exit = team.member("alice")["exit"].clone();
    assert_eq!(exit["emptied"], team.emptied(json!("tree")), "{exit}");
}
