//! Start, status and stop of the daemon.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::process::{command_line, descriptor, stat};
use crate::support::{PATIENCE, Team, is_alive, signal};

/// The detached daemons among the live processes of a test.
fn daemons(team: &Team) -> Vec<i32> {
    team.processes()
        .into_iter()
        .filter(|&pid| command_line(pid).contains(" serve "))
        .collect()
}

#[test]
fn where_there_is_no_place_for_temporary_files_that_is_to_be_changed() {
    let team = Team::new();
    let nowhere = team.root().join("nowhere");
    let said = team.run_program(
        "env",
        [
            &format!("TMPDIR={}", nowhere.display()),
            env!("CARGO_BIN_EXE_teamd"),
            "start",
        ],
    );
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(
        said.stderr.contains("nowhere: No such file or directory"),
        "{said:?}"
    );
    assert!(
        said.stderr.contains("hint: set TMPDIR to a directory"),
        "{said:?}"
    );
    assert!(!said.stderr.contains("install"), "{said:?}");
}

#[test]
fn start_returns_when_the_daemon_answers() {
    let team = Team::new();
    let said = team.teamd(["start"]).ok();
    let status = team.json(["status"]);
    assert_eq!(status["daemon"]["running"], true, "{status}");
    assert_eq!(status["daemon"]["pid"], team.daemon_pid());
    assert!(
        said.stdout.contains(&team.daemon_pid().to_string()),
        "{said:?}"
    );
    assert_eq!(status["team_name"], "work");
}

#[test]
fn the_daemon_has_a_session_of_its_own_no_terminal_and_a_log() {
    let team = Team::new();
    // In a terminal that is closed right after: its hang-up must not reach the daemon.
    let start = format!("{} start", env!("CARGO_BIN_EXE_teamd"));
    match team
        .command("script", ["-qec", &start, "/dev/null"])
        .stdin(std::process::Stdio::null())
        .output()
    {
        Ok(in_terminal) => assert!(in_terminal.status.success(), "{in_terminal:?}"),
        Err(_no_such_program) => drop(team.teamd(["start"]).ok()),
    }
    let pid = team.daemon_pid();
    let stat = stat(pid).unwrap();
    assert_eq!(stat[3], pid.to_string(), "its session");
    assert_eq!(stat[4], "0", "its terminal");
    if let Some(stdin) = descriptor(pid, 0) {
        assert_eq!(stdin, Path::new("/dev/null"));
        for fd in [1, 2] {
            assert_eq!(
                descriptor(pid, fd).unwrap(),
                team.path("log/teamd.log").canonicalize().unwrap()
            );
        }
    }
    team.until("the log to tell of the start", || {
        team.file("log/teamd.log").contains(&format!("pid {pid}"))
    });
    assert_eq!(team.json(["status"])["daemon"]["pid"], pid);
}

/// Two daemons on one directory lose half the roster (agent-team-mail#497; a teaching system, 20 of
/// 20 runs). Failure 21 (A (20 of 20 runs), agent-team-mail#497).
#[test]
fn twenty_starts_at_once_make_one_daemon() {
    let team = Team::new();
    let starts: Vec<_> = (0..20).map(|_| team.start_teamd(["start"])).collect();
    let said: Vec<_> = starts
        .into_iter()
        .map(|start| start.finish().ok())
        .collect();
    let pid = team.daemon_pid();
    for run in &said {
        assert!(
            run.stdout.contains(&pid.to_string()),
            "the daemon is {pid}: {run:?}"
        );
    }
    assert_eq!(daemons(&team), [pid]);
    let started = team
        .journal()
        .into_iter()
        .filter(|line| line["event"] == "started")
        .count();
    assert_eq!(started, 1);
}

#[test]
fn a_second_start_says_that_it_runs_and_with_which_pid() {
    let team = Team::started();
    let pid = team.daemon_pid();
    let said = team.teamd(["start"]).ok();
    assert!(
        said.stdout.contains("running") && said.stdout.contains(&pid.to_string()),
        "{said:?}"
    );
    assert_eq!(team.daemon_pid(), pid);
    assert_eq!(daemons(&team), [pid]);
}

#[test]
fn a_start_after_kill_9_takes_over_the_stale_socket() {
    let team = Team::started();
    let first = team.daemon_pid();
    team.kill_daemon();
    assert!(team.path("run/teamd.sock").exists());
    let status = team.json(["status"]);
    assert_eq!(status["daemon"]["running"], false, "{status}");
    team.teamd(["start"]).ok();
    assert_ne!(team.daemon_pid(), first);
    assert_eq!(team.json(["status"])["daemon"]["running"], true);
    team.spawn("alice", "");
}

/// Found by reading: a socket that no process serves, from a backup, was taken for the daemon's
/// own. (It looks every 10 s.)
#[test]
fn a_socket_that_is_replaced_is_made_again() {
    let team = Team::started();
    let pid = team.daemon_pid();
    team.plant("run/teamd.sock", |at| {
        drop(std::os::unix::net::UnixListener::bind(at).unwrap())
    });
    team.spawn("alice", "");
    assert_eq!(team.json(["status"])["daemon"]["pid"], pid);
    team.teamd(["stop"]).ok();
}

/// Found by reading: the kernel keeps no exit codes for a process that ignores SIGCHLD, and so do
/// those that it starts.
#[test]
fn how_a_worker_ended_is_recorded_although_sigchld_was_ignored() {
    let team = Team::new();
    let start = r#"trap "" CHLD; exec "$0" start"#;
    team.run_program("bash", ["-c", start, env!("CARGO_BIN_EXE_teamd")])
        .ok();
    team.teamctl(["spawn", "alice", "--restart", "never"]).ok();
    signal(team.pid("alice"), Signal::SIGKILL);
    team.wait_for("alice", "crashed");
    assert_eq!(team.member("alice")["exit"]["signal"], 9);
}

/// A cleaner of temporary files, or `rm`, takes `run/` away while the daemon runs: no second
/// daemon, and the first is reachable again. (The daemon looks every 10 s: this is the one slow
/// test here.)
#[test]
fn a_deleted_socket_is_made_again_and_a_start_waits_for_it() {
    let team = Team::started();
    let pid = team.daemon_pid();
    team.spawn("alice", "");
    std::fs::remove_dir_all(team.path("run")).unwrap();
    let said = team.teamd(["start"]).ok();
    assert!(said.stdout.contains(&pid.to_string()), "{said:?}");
    assert_eq!(team.json(["status"])["daemon"]["pid"], pid);
    assert_eq!(daemons(&team), [pid]);
    team.teamctl(["shutdown", "alice"]).ok();
    team.teamd(["stop"]).ok();
}

#[test]
fn a_team_directory_deeper_than_a_socket_address_works() {
    let team = Team::below(&["d".repeat(75), "e".repeat(75)].join("/"));
    assert!(team.path("run/teamd.sock").as_os_str().len() > 150);
    team.teamd(["start"]).ok();
    team.spawn("alice", "/write_file made.txt deep");
    team.until("alice to have worked", || {
        team.root().join("made.txt").exists()
    });
    team.teamctl(["shutdown", "alice"]).ok();
    team.teamd(["stop"]).ok();
    team.until_no_process_is_left();
}

#[test]
fn the_team_directory_is_the_flag_the_variable_or_the_nearest_above() {
    let team = Team::started();
    let deep = team.root().join("a/b");
    std::fs::create_dir_all(&deep).unwrap();
    let pid_seen = |command: &mut std::process::Command| {
        let out = command.output().unwrap();
        let status: serde_json::Value =
            serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"));
        status["daemon"]["pid"].as_i64()
    };
    let here = i64::from(team.daemon_pid());
    let teamctl = env!("CARGO_BIN_EXE_teamctl");
    let status = ["--json", "status"];
    // The nearest above.
    assert_eq!(
        pid_seen(team.command(teamctl, status).current_dir(&deep)),
        Some(here)
    );
    // The variable, against the nearest above.
    let other = Team::of_the_same_user(&team);
    other.teamd(["start"]).ok();
    let there = i64::from(other.daemon_pid());
    let with_variable =
        |command: &mut std::process::Command| pid_seen(command.env("TEAM_DIR", other.path("")));
    assert_eq!(
        with_variable(team.command(teamctl, status).current_dir(&deep)),
        Some(there)
    );
    // The flag, against the variable; relative to where the command runs.
    let with_flag = ["--json", "--team-dir", "../../.team", "status"];
    assert_eq!(
        with_variable(team.command(teamctl, with_flag).current_dir(&deep)),
        Some(here)
    );
    // Where there is none: ./.team. And a command makes none that is told not to.
    let bare = Team::new();
    bare.teamctl(["spawn", "alice", "--no-start"]).exits(6);
    assert!(!bare.path("").exists());
    bare.teamd(["start"]).ok();
    assert!(bare.path("journal.jsonl").exists());
}

/// A daemon in the foreground whose readiness is told as systemd wants it.
struct Foreground {
    team: Team,
    daemon: crate::support::Running,
    notices: UnixDatagram,
    _folder: tempfile::TempDir,
}

fn foreground() -> Foreground {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let notices = UnixDatagram::bind(&socket).unwrap();
    notices.set_read_timeout(Some(PATIENCE)).unwrap();
    let team = Team::new()
        .with("NOTIFY_SOCKET", socket.to_str().unwrap())
        .with("TEAM_GRACE", "3s");
    let daemon = team.start_teamd(["start", "--foreground"]);
    let foreground = Foreground {
        team,
        daemon,
        notices,
        _folder: folder,
    };
    foreground.hears("READY=1");
    foreground
}

impl Foreground {
    fn hears(&self, what: &str) {
        let mut notice = [0; 512];
        loop {
            let length = match self.notices.recv(&mut notice) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                length => length.unwrap(),
            };
            if String::from_utf8_lossy(&notice[..length])
                .lines()
                .any(|line| line == what)
            {
                return;
            }
        }
    }
}

#[test]
fn in_the_foreground_readiness_is_told_when_it_answers() {
    let foreground = foreground();
    let Foreground { team, daemon, .. } = &foreground;
    assert_eq!(team.json(["status"])["daemon"]["pid"], daemon.pid());
    assert_eq!(team.daemon_pid(), daemon.pid());
    team.spawn("alice", "");
    daemon.signal(Signal::SIGTERM);
    foreground.hears("STOPPING=1");
    let ended = foreground.daemon.finish().ok();
    assert!(
        !ended.stderr.is_empty(),
        "in the foreground the log is on stderr"
    );
    assert_eq!(foreground.team.status("alice"), "shutdown");
    foreground.team.until_no_process_is_left();
}

#[test]
fn a_socket_that_cannot_be_taken_away_makes_no_failure_of_a_stop() {
    let Foreground { team, daemon, .. } = foreground();
    // At its first look, right after it has said that it runs, it may make the socket again in
    // between.
    team.until("a folder to stand in its place", || {
        std::fs::remove_file(team.path("run/teamd.sock")).unwrap();
        std::fs::create_dir(team.path("run/teamd.sock")).is_ok()
    });
    daemon.signal(Signal::SIGTERM);
    let ended = daemon.finish().ok();
    assert!(
        ended.stderr.contains("cannot take run/teamd.sock away"),
        "{ended:?}"
    );
    assert!(!team.path("run/teamd.pid").exists());
    assert_eq!(team.journal().pop().unwrap()["event"], "stopped");
}

#[test]
fn ctrl_c_ends_a_daemon_in_the_foreground_and_all_workers() {
    let Foreground { team, daemon, .. } = foreground();
    team.spawn("alice", "");
    team.spawn_rejecting("bob", "still writing");
    daemon.signal(Signal::SIGINT);
    daemon.finish().ok();
    assert_eq!(team.status("alice"), "shutdown");
    // A teammate that does not want to leave is ended.
    assert_eq!(team.status("bob"), "killed");
    team.until_no_process_is_left();
}

#[test]
fn sigterm_ends_the_daemon_and_all_workers() {
    let team = Team::new().with("TEAM_GRACE", "3s");
    team.teamd(["start"]).ok();
    let pid = team.daemon_pid();
    team.spawn("alice", "");
    team.spawn_rejecting("bob", "still writing");
    // Deaf to all but SIGKILL, with a child in a session of its own.
    team.spawn(
        "carol",
        "/bash trap '' TERM INT HUP; setsid sleep 600 & sleep 600",
    );
    team.wait_for("carol", "working");
    signal(pid, Signal::SIGTERM);
    team.until("the daemon to be gone", || !is_alive(pid));
    team.until_no_process_is_left();
    assert_eq!(team.status("alice"), "shutdown");
    assert_eq!(team.status("bob"), "killed");
    assert_eq!(team.status("carol"), "killed");
    assert!(team.roster()["daemon"].is_null());
    assert!(!team.path("run/teamd.sock").exists());
}

#[test]
fn a_second_signal_does_not_wait_for_the_ladder() {
    let team = Team::new().with("TEAM_GRACE", "10m");
    team.teamd(["start"]).ok();
    let pid = team.daemon_pid();
    team.spawn("carol", "/bash trap '' TERM; sleep 600");
    team.wait_for("carol", "working");
    let began = Instant::now();
    signal(pid, Signal::SIGTERM);
    team.wait_for("carol", "shutting_down");
    signal(pid, Signal::SIGTERM);
    team.until("the daemon to be gone", || !is_alive(pid));
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(team.status("carol"), "killed");
    team.until_no_process_is_left();
}

#[test]
fn a_stop_that_a_teammate_rejects_leaves_the_daemon_and_names_who() {
    let team = Team::new().with("TEAM_GRACE", "300ms");
    team.teamd(["start"]).ok();
    let pid = team.daemon_pid();
    team.spawn_rejecting("alice", "still writing");
    let said = team.teamd(["stop"]).exits(3);
    assert!(
        said.stderr.contains("alice") && said.stderr.contains("still writing"),
        "{said:?}"
    );
    assert_eq!(team.json(["status"])["daemon"]["pid"], pid);
    team.wait_for("alice", "working");
    // The daemon goes on as before.
    team.spawn("bob", "");
    // The first rejection is spent: a new one, which is overruled.
    team.send("alice", "/reject_shutdown still writing");
    team.teamd(["stop", "--force"]).ok();
    assert!(!is_alive(pid));
    assert!(team.status("alice") == "killed" || team.status("alice") == "shutdown");
    team.until_no_process_is_left();
}

#[test]
fn a_stop_leaves_no_process_and_the_files_say_so() {
    let team = Team::started();
    let pid = team.daemon_pid();
    team.spawn("alice", "");
    team.spawn(
        "bob",
        "/bash {\"command\": \"sleep 600\", \"run_in_background\": true}",
    );
    team.until("bob to have answered", || {
        team.inbox("lead").iter().any(|line| line["from"] == "bob")
    });
    team.teamd(["stop"]).ok();
    assert!(!is_alive(pid), "the daemon is gone when stop returns");
    team.until_no_process_is_left();
    for name in ["alice", "bob"] {
        let member = team.member(name);
        assert_eq!(member["status"], "shutdown", "{member}");
        assert_eq!(member["pid"], serde_json::Value::Null);
        assert_eq!(member["exit"]["code"], 0);
        let id = member["exit"]["request_id"].as_str().unwrap();
        assert_eq!(team.request(id)["status"], "approved");
    }
    assert!(team.roster()["daemon"].is_null(), "{}", team.roster());
    assert!(!team.path("run/teamd.sock").exists());
    let last = team.journal().pop().unwrap();
    assert_eq!(
        (&last["record"], &last["event"]),
        (&"team".into(), &"stopped".into())
    );
}

#[test]
fn status_is_told_with_and_without_a_daemon() {
    let team = Team::new();
    team.teamd(["status"]).exits(6);
    team.teamd(["start"]).ok();
    let pid = team.daemon_pid();
    team.spawn("alice", "");
    let said = team.teamd(["status"]).ok();
    assert!(said.stdout.contains(&pid.to_string()), "{said:?}");
    team.kill_daemon();
    // teamctl reads the files, and looks whether the processes are there.
    let status = team.json(["status"]);
    assert_eq!(status["daemon"]["running"], false);
    assert_eq!(status["members"][0]["name"], "alice");
    assert_eq!(status["members"][0]["status"], "idle");
    team.teamd(["status"]).exits(6);
    team.teamd(["start"]).ok();
    team.teamd(["stop"]).ok();
    team.teamd(["status"]).exits(6);
    team.teamd(["stop"]).exits(6);
    assert_eq!(team.json(["status"])["daemon"]["running"], false);
}

#[test]
fn without_a_daemon_commands_say_so_and_how_to_go_on() {
    let team = Team::started();
    team.spawn("alice", "");
    team.teamd(["stop"]).ok();
    for command in [
        &["spawn", "bob", "--no-start"][..],
        &["shutdown", "alice"],
        &["forget", "alice"],
        &["interrupt", "alice"],
    ] {
        let said = team.teamctl(command).exits(6);
        assert!(
            said.stderr.contains("hint: ") && said.stderr.contains("teamd start"),
            "{said:?}"
        );
        assert_eq!(said.stdout, "");
    }
}

#[test]
fn a_start_that_fails_says_why() {
    let team = Team::new().with("TEAM_GRACE", "soon");
    let said = team.teamd(["start"]).run_failed();
    assert!(said.stderr.contains("TEAM_GRACE=\"soon\""), "{said:?}");
    assert!(!team.path("run/teamd.sock").exists());
    assert!(team.processes().is_empty());
}

#[test]
fn everything_in_the_team_directory_is_for_the_user_alone() {
    let team = Team::new();
    let bare = |line: &str| {
        let out = team
            .command("sh", ["-c", &format!("umask 0; {line}")])
            .output()
            .unwrap();
        assert!(out.status.success(), "{out:?}");
    };
    bare(&format!("{} start", env!("CARGO_BIN_EXE_teamd")));
    bare(&format!(
        "{} spawn alice --prompt '/bash {{\"command\": \"echo hi\", \"run_in_background\": true}}'",
        env!("CARGO_BIN_EXE_teamctl")
    ));
    team.echo("alice", "no message");
    team.until("the quarantine to be told", || {
        team.path("inbox/alice.rejected.jsonl").exists()
    });
    team.teamctl(["shutdown", "alice"]).ok();
    bare(&format!("{} forget alice", env!("CARGO_BIN_EXE_teamctl")));
    let mut folders = vec![team.path("")];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        assert_eq!(
            folder.metadata().unwrap().permissions().mode() & 0o777,
            0o700,
            "{}",
            folder.display()
        );
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let mode = path.symlink_metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 8, "{seen} files");
    assert_eq!(team.file(".gitignore"), "*\n");
}
