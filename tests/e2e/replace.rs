//! The daemon becomes another program, and no worker is stopped.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::socket::{GREETING, PING, connect, frame};
use crate::support::look::HELD;
use crate::support::process::{descriptors, let_pass, parent};
use crate::support::{Run, Running, Team, is_alive, poll_until, signal};

/// The programs, installed a second time: those of a newer version, say.
fn installed(team: &Team, folder: &str) -> PathBuf {
    let folder = team.root().join(folder);
    std::fs::create_dir(&folder).unwrap();
    for program in [
        env!("CARGO_BIN_EXE_teamd"),
        env!("CARGO_BIN_EXE_team-worker"),
    ] {
        let to = folder.join(PathBuf::from(program).file_name().unwrap());
        if std::fs::hard_link(program, &to).is_err() {
            // By another process: one that another test starts just then could inherit what is open
            // for writing here.
            assert!(
                team.command("cp", [Path::new(program), &to])
                    .status()
                    .unwrap()
                    .success()
            );
        }
    }
    folder.join("teamd")
}

fn program_of(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Failure 22 (CC#73670, CC#79569).
#[test]
fn a_newer_daemon_replaces_the_running_one_and_no_worker_is_stopped() {
    let team = Team::started();
    team.spawn(
        "alice",
        "/bash echo ran >> ran; until [ -e go ]; do sleep 0.02; done",
    );
    team.spawn("bob", "");
    team.teamctl([
        "spawn",
        "carol",
        "--plan",
        "--prompt",
        "/plan_approval drop the cache",
    ])
    .ok();
    team.wait_for("carol", "awaiting_approval");
    team.until("the call to run", || team.made("ran"));
    let waits = team.start_teamctl(["wait", "alice", "--for", "idle"]);
    let daemon = team.daemon_pid();
    let pids = ["alice", "bob", "carol"].map(|name| team.pid(name));
    let newer = installed(&team, "newer");
    let replaced = team
        .run_program(newer.to_str().unwrap(), ["--json", "start", "--replace"])
        .ok()
        .json();
    assert_eq!(replaced["replaced"], true, "{replaced}");
    assert_eq!(replaced["adopted"], json!(["alice", "bob", "carol"]));
    assert_eq!(
        (
            &replaced["ended"],
            replaced["pending"].as_array().unwrap().len()
        ),
        (&json!([]), 1)
    );
    assert_eq!(
        replaced["pid"], daemon,
        "a service manager sees no other process"
    );
    assert_eq!(program_of(daemon), Some(newer.canonicalize().unwrap()));
    assert_eq!(["alice", "bob", "carol"].map(|name| team.pid(name)), pids);
    assert_eq!(
        ["alice", "bob", "carol"].map(|name| team.status(name)),
        ["working", "idle", "awaiting_approval"]
    );
    drop(std::fs::File::create(team.root().join("go")).unwrap());
    waits.finish().ok();
    assert_eq!(
        std::fs::read_to_string(team.root().join("ran")).unwrap(),
        "ran\n",
        "the call ran once"
    );
    team.teamctl(["approve", &team.last_request("plan_approval")])
        .ok();
    team.wait_for("carol", "idle");
    team.teamctl(["spawn", "dora"]).ok();
    team.teamctl(["shutdown", "--all"]).ok();
    team.teamd(["stop"]).ok();
    team.until_no_process_is_left();
}

#[test]
fn the_workers_stay_children_of_the_daemon_that_was_replaced() {
    let team = Team::started();
    team.teamctl(["spawn", "alice", "--restart", "never"]).ok();
    team.spawn("bob", "");
    team.teamd(["start", "--replace"]).ok();
    signal(team.pid("alice"), Signal::SIGKILL);
    team.wait_for("alice", "crashed");
    assert_eq!(
        team.member("alice")["exit"]["signal"],
        9,
        "seen by the parent alone"
    );
    // Bob gives its environment to the daemon when it comes again, and is started with it. That it
    // has come shows where it acts on a word.
    team.teamctl(["request-plan", "bob"]).ok();
    team.kill_and_wait_for_restart("bob");
}

#[test]
fn a_daemon_is_replaced_again_and_again_and_leaves_nothing_behind() {
    let team = Team::started();
    team.spawn("alice", "");
    let daemon = team.daemon_pid();
    let alice = team.pid("alice");
    let before = descriptors(daemon).unwrap();
    for _ in 0..6 {
        team.teamd(["start", "--replace"]).ok();
        team.teamctl(["send", "alice", "hello"]).ok();
        team.wait_for("alice", "idle");
    }
    assert_eq!((team.daemon_pid(), team.pid("alice")), (daemon, alice));
    // Six times one that stays open would be six; a connection that is being closed is open for a
    // moment.
    team.until("as few descriptors as before", || {
        descriptors(daemon).is_some_and(|open| open <= before + 2)
    });
}

#[test]
fn no_worker_is_lost_that_begins_while_the_daemon_is_replaced() {
    let team = Team::started();
    let names: Vec<String> = (0..12).map(|n| format!("t{n}")).collect();
    std::thread::scope(|scope| {
        let replacing =
            scope.spawn(|| (0..6).for_each(|_| drop(team.teamd(["start", "--replace"]).ok())));
        for name in &names {
            // A command that is told to try again does.
            let spawned = poll_until(&mut || {
                let run = team.teamctl(["spawn", name]);
                run.is_done() || team.member(name)["status"] == "idle"
            });
            assert!(spawned);
        }
        replacing.join().unwrap();
    });
    for name in &names {
        team.wait_for(name, "idle");
        assert_eq!(team.incarnation(name), 1, "{name} has ended in between");
    }
    team.teamd(["stop"]).ok();
    team.until_no_process_is_left();
}

#[test]
fn a_daemon_does_not_hand_over_to_a_program_that_could_not_begin() {
    let team = Team::started();
    team.spawn("alice", "");
    let daemon = team.daemon_pid();
    // There is no worker beside it.
    let newer = installed(&team, "newer");
    std::fs::remove_file(newer.with_file_name("team-worker")).unwrap();
    let run = team
        .run_program(
            newer.to_str().unwrap(),
            ["start", "--replace", "--allow-weak-sandbox"],
        )
        .run_failed();
    assert!(run.stderr.contains("hint: "), "{run:?}");
    assert!(is_alive(daemon));
    // A journal that another program has damaged is whole again before the next program reads it.
    let journal = team.file("journal.jsonl");
    team.put("journal.jsonl", &format!("{{\"seq\": 7\n{journal}"));
    team.until("the damaged journal to be set aside", || {
        std::fs::read_dir(team.path("")).unwrap().any(|it| {
            it.unwrap()
                .file_name()
                .to_string_lossy()
                .contains("jsonl.replaced-")
        })
    });
    team.teamd(["start", "--replace"]).ok();
    assert!(is_alive(daemon));
    team.teamctl(["shutdown", "alice"]).ok();
}

/// The programs at the paths were replaced when the daemon looked: it becomes the one that asked,
/// and starts the worker that this one had opened.
#[test]
fn a_daemon_hands_over_to_the_asking_program_whatever_its_path_holds() {
    let team = Team::started();
    team.spawn("alice", "");
    let daemon = team.daemon_pid();
    let newer = installed(&team, "newer");
    let start = Running::start(team.command(newer.to_str().unwrap(), ["start", "--replace"]));
    let has_opened = |pid: i32| {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        let mut links = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        links.any(|link| link.to_string_lossy().contains("memfd:team-worker"))
    };
    // Mostly before it has asked the daemon. What follows holds either way.
    while !has_opened(start.pid()) && is_alive(start.pid()) {
        std::hint::spin_loop();
    }
    start.signal(Signal::SIGSTOP);
    for program in ["teamd", "team-worker"] {
        std::fs::remove_file(newer.with_file_name(program)).unwrap();
        std::os::unix::fs::symlink("/bin/false", newer.with_file_name(program)).unwrap();
    }
    start.signal(Signal::SIGCONT);
    start.finish().ok();
    assert_eq!(team.daemon_pid(), daemon);
    let program = program_of(daemon).unwrap();
    assert!(
        program.to_string_lossy().contains("newer/teamd"),
        "{program:?}"
    );
    team.spawn("bob", "");
    assert_eq!(team.does("bob", "/bash echo on")[0]["content"], "on");
    team.teamctl(["shutdown", "--all"]).ok();
}

#[test]
fn a_start_with_replace_where_no_daemon_runs_is_a_start() {
    let team = Team::new();
    let run = team.teamd(["start", "--replace"]).ok();
    assert!(run.stdout.starts_with("teamd is running for "), "{run:?}");
    assert_eq!(
        run.stdout.lines().count(),
        1,
        "there was nothing to take over: {run:?}"
    );
    team.spawn("alice", "");
    team.kill_daemon();
    let run = team.teamd(["start"]).ok();
    assert_eq!(run.stdout.lines().nth(1), Some("adopted alice"), "{run:?}");
}

#[test]
fn a_daemon_that_stops_is_not_replaced() {
    let team = Team::started();
    team.spawn(
        "alice",
        &format!("/reject_shutdown still writing\n{HELD}\n/bash echo written > out"),
    );
    team.until_held();
    let stopping = team.start_teamd(["stop"]);
    team.until_asked("alice");
    let replacing = team.start_teamd(["start", "--replace"]);
    team.release();
    stopping.finish().exits(3);
    // It waits for the stop: either it gave up meanwhile, or alice had rejected by then.
    let run = replacing.finish();
    assert!(matches!(run.code, Some(0 | 7)), "{run:?}");
    team.wait_for("alice", "idle");
}

fn exchange(one: &Path, other: &Path) {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

/// Found by reading: the daemon neither handed over nor refused, and spawned no worker from then
/// on.
#[test]
fn a_daemon_with_unfinished_decisions_does_not_hand_over() {
    let team = Team::started();
    team.spawn("alice", "");
    team.teamctl(["spawn", "bob", "--restart", "never"]).ok();
    // At once: a worker makes an inbox again that is gone.
    std::fs::create_dir(team.path("inbox/aside")).unwrap();
    exchange(&team.path("inbox/alice.jsonl"), &team.path("inbox/aside"));
    signal(team.pid("bob"), Signal::SIGKILL);
    team.wait_for("bob", "crashed");
    let run = team.teamd(["start", "--replace"]).exits(7);
    assert!(
        run.stderr.contains("does not hand over") && run.stderr.contains("hint: "),
        "{run:?}"
    );
    team.spawn("carol", "");
    exchange(&team.path("inbox/alice.jsonl"), &team.path("inbox/aside"));
    team.until("alice to be told", || {
        team.inbox("alice").iter().any(|line| line["name"] == "bob")
    });
    team.teamd(["start", "--replace"]).ok();
}

/// Found by reading: a helper thread took the signal, and no code asked for it any more.
#[test]
fn a_sigterm_during_a_hand_over_reaches_the_next_program() {
    let team = Team::started();
    let daemon = team.daemon_pid();
    let socket = team.path("run/teamd.sock");
    // It does not read what it is told: the daemon waits a second for it.
    let mut deaf = connect(&team);
    deaf.write_all(&[frame(GREETING), frame(PING).repeat(2000)].concat())
        .unwrap();
    let replacing = team.start_teamd(["start", "--replace"]);
    // A look that comes too late finds the socket of the next program.
    team.until("it to hand over", || {
        UnixStream::connect(&socket).is_err()
            || team.file("log/teamd.log").contains("hands over to")
    });
    // It would start another daemon where this one has ended.
    replacing.signal(Signal::SIGKILL);
    signal(daemon, Signal::SIGTERM);
    team.until("the daemon to end", || !is_alive(daemon));
    team.until_no_process_is_left();
}

#[test]
fn a_sigterm_ends_a_daemon_that_is_replaced_whenever_it_comes() {
    for round in 0..8 {
        let team = Team::started();
        let daemon = team.daemon_pid();
        let replacing = team.start_teamd(["start", "--replace"]);
        let_pass(Duration::from_millis(round * 5));
        signal(daemon, Signal::SIGTERM);
        team.until("the daemon to end", || !is_alive(daemon));
        drop(replacing.finish());
    }
}

/// Done, or refused with nothing done.
#[track_caller]
fn is_known(run: &Run) -> bool {
    assert!(matches!(run.code, Some(0 | 7)), "{run:?}");
    run.is_done()
}

/// Found by reading: what the daemon had received when it handed over was lost.
#[test]
fn what_becomes_of_a_command_is_known_although_the_daemon_is_replaced() {
    let team = Team::started();
    let authors = ["p0", "p1", "p2", "p3", "p4", "p5"];
    for name in authors {
        team.teamctl([
            "spawn",
            name,
            "--plan",
            "--prompt",
            "/plan_approval drop the cache",
        ])
        .ok();
    }
    for name in authors.iter() {
        team.wait_for(name, "awaiting_approval");
    }
    let plans: Vec<String> = team.journal().iter().filter_map(plan_in).collect();
    assert_eq!(plans.len(), authors.len());
    std::thread::scope(|scope| {
        let replacing =
            scope.spawn(|| (0..8).for_each(|_| drop(team.teamd(["start", "--replace"]).ok())));
        scope.spawn(|| {
            for plan in &plans {
                assert!(poll_until(&mut || is_known(
                    &team.teamctl(["approve", plan])
                )));
            }
        });
        let mut number = 0;
        while !replacing.is_finished() {
            let name = format!("t{number}");
            for command in ["spawn", "shutdown", "forget"] {
                assert!(poll_until(&mut || is_known(
                    &team.teamctl([command, &name])
                )));
            }
            number += 1;
        }
        replacing.join().unwrap();
    });
    for name in authors {
        team.wait_for(name, "idle");
    }
}

fn plan_in(line: &serde_json::Value) -> Option<String> {
    let asks =
        line["record"] == "request" && line["event"] == "asked" && line["kind"] == "plan_approval";
    asks.then(|| line["request_id"].as_str().unwrap().to_owned())
}

#[test]
fn a_stop_ends_a_daemon_that_is_replaced_whenever_it_comes() {
    for round in 0..8 {
        let team = Team::started();
        team.spawn("alice", "");
        let daemon = team.daemon_pid();
        let replacing = team.start_teamd(["start", "--replace"]);
        let_pass(Duration::from_millis(round * 5));
        team.teamd(["stop"]).ok();
        assert!(!is_alive(daemon));
        drop(replacing.finish());
    }
}

/// A shell that has started something, and then became the daemon.
#[test]
fn neither_daemon_ends_processes_that_were_started_beside_it() {
    let team = Team::new();
    let script = "sleep 1000 >/dev/null 2>&1 & echo $! > beside; exec \"$0\" start --foreground";
    let daemon = Running::start(team.command("sh", ["-c", script, env!("CARGO_BIN_EXE_teamd")]));
    team.until("the daemon to run", || team.path("config.json").exists());
    team.teamd(["start"]).ok();
    let beside: i32 = std::fs::read_to_string(team.root().join("beside"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert_eq!(
        (team.daemon_pid(), parent(beside)),
        (daemon.pid(), Some(daemon.pid()))
    );
    for name in ["alice", "bob"] {
        team.spawn(name, "");
        team.teamctl(["shutdown", name]).ok();
        assert_eq!(
            team.member(name)["exit"]["emptied"],
            team.emptied(json!("tree")),
            "{name}"
        );
        assert!(is_alive(beside), "{name}");
        team.teamd(["start", "--replace"]).ok();
    }
    assert_eq!(team.daemon_pid(), daemon.pid());
    team.teamd(["stop"]).ok();
    daemon.finish().ok();
    assert!(is_alive(beside));
    signal(beside, Signal::SIGKILL);
}
