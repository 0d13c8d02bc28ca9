//! `--follow`: live, one record a line, and quiet when its reader goes away.

use std::sync::{Arc, Mutex};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{Running, Team, read_piece};

/// A `teamctl` that runs, and what it has printed so far.
struct Following {
    running: Running,
    printed: Arc<Mutex<String>>,
}

impl Following {
    fn start(team: &Team, args: &[&str]) -> Self {
        let mut running = team.start_teamctl(args);
        let mut stdout = running.stdout();
        let printed = Arc::new(Mutex::new(String::new()));
        let all = Arc::clone(&printed);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = read_piece(&mut stdout, &mut piece) {
                all.lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&piece[..length]));
            }
        });
        Self { running, printed }
    }

    fn text(&self) -> String {
        self.printed.lock().unwrap().clone()
    }

    fn until(&self, team: &Team, text: &str) {
        team.until(&format!("{text:?} to be shown"), || {
            self.text().contains(text)
        });
    }

    /// Ends it as Ctrl-C does.
    fn end(self) {
        self.running.signal(Signal::SIGINT);
        self.running.finish();
    }
}

#[test]
fn the_output_of_a_check_is_shown_while_it_runs() {
    let team = Team::started();
    team.teamctl(["spawn", "alice", "--auto"]).ok();
    team.write("n", "1");
    let check = "echo early $(cat n); until [ -e go ]; do sleep 0.02; done; printf late; exit 1";
    team.teamctl([
        "task",
        "add",
        "slow",
        "--check",
        check,
        "--max-attempts",
        "1",
    ])
    .ok();
    team.until("the output", || {
        team.teamctl(["task", "show", "1"])
            .ok()
            .stdout
            .contains("early 1")
    });
    assert!(
        team.teamctl(["task", "log", "1"])
            .ok()
            .stdout
            .ends_with("early 1\n")
    );
    let first = Following::start(&team, &["task", "log", "1", "-f"]);
    first.until(&team, "early 1\n");
    team.write("go", "");
    first.until(&team, "late\n[exit code 1]\n");
    first.running.finish().ok();
    // What stands there from an earlier check is not shown.
    std::fs::remove_file(team.root().join("go")).unwrap();
    team.write("n", "2");
    team.teamctl(["task", "retry", "1"]).ok();
    team.until("the next check", || {
        team.file("tasks/1.json").contains("\"in_review\"")
    });
    let second = Following::start(&team, &["--json", "task", "log", "1", "--follow"]);
    second.until(&team, "{\"line\":\"early 2\"}\n");
    team.write("go", "");
    second.until(&team, "[exit code 1]");
    assert!(!second.text().contains("early 1"), "{}", second.text());
    second.running.finish().ok();
    // Nothing runs: it is shown, and that is all.
    assert!(
        team.teamctl(["task", "log", "1", "-f"])
            .ok()
            .stdout
            .contains("early 2\nlate\n")
    );
}

#[test]
fn the_status_is_shown_again_after_each_change() {
    let team = Team::started();
    let watch = Following::start(&team, &["status", "--watch", "-o", "name,status"]);
    let objects = Following::start(&team, &["--json", "status", "--watch"]);
    team.spawn("alice", "");
    watch.until(&team, "NAME   STATUS\nalice  idle\n");
    team.shutdown("alice", &[], 0);
    watch.until(&team, "\n\nNAME   STATUS\nalice  shutdown\n");
    objects.until(&team, r#""status":"shutdown""#);
    assert!(
        objects
            .text()
            .lines()
            .all(|line| serde_json::from_str::<Value>(line).is_ok())
    );
    watch.end();
    objects.end();
}

#[test]
fn an_inbox_is_followed_also_when_it_is_truncated() {
    let team = Team::started();
    team.spawn("alice", "");
    team.send("alice", "zero");
    team.send("alice", "one");
    let following = Following::start(&team, &["inbox", "alice", "--last", "1", "--follow"]);
    following.until(&team, "one");
    assert!(!following.text().contains("zero"));
    team.send("alice", "two");
    following.until(&team, "two");
    team.until_caught_up("alice");
    std::fs::File::create(team.path("inbox/alice.jsonl")).unwrap();
    team.until("alice to notice", || {
        !team.entries("alice", "restarted").is_empty()
    });
    team.echo(
        "alice",
        r#"{"type":"message","from":"bob","content":"new"}"#,
    );
    following.until(&team, "new");
    assert_eq!(following.text().matches("one").count(), 1);
    following.end();
}

#[test]
fn with_json_each_record_is_one_line() {
    let team = Team::started();
    let events = Following::start(&team, &["--json", "events", "--follow"]);
    team.spawn("alice", "/bash echo hi");
    let transcript = Following::start(&team, &["--json", "transcript", "alice", "--follow"]);
    team.until_finished("alice", 1);
    team.shutdown("alice", &[], 0);
    let whole = |following: &Following| {
        let text = following.text();
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.collect::<Vec<_>>()
    };
    team.until("all events", || whole(&events) == team.journal());
    team.until("all entries", || {
        whole(&transcript) == team.transcript("alice")
    });
    events.end();
    transcript.end();
}

#[test]
fn a_log_is_followed() {
    let team = Team::started();
    let log = Following::start(&team, &["log", "teamd", "--follow"]);
    log.until(&team, "runs for");
    team.kill_daemon();
    team.teamd(["start"]).ok();
    team.until("the next daemon", || {
        log.text().matches("runs for").count() == 2
    });
    log.end();
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let team = Team::started();
    team.spawn("alice", "");
    for command in [
        &["inbox", "alice", "--follow"][..],
        &["--json", "events", "--follow"],
    ] {
        let mut running = team.start_teamctl(command);
        drop(running.stdout());
        team.send("alice", "hello");
        team.teamctl(["interrupt", "alice"]).ok();
        team.teamctl(["request-plan", "alice"]).ok();
        let run = running.finish().ok();
        assert_eq!(run.stderr, "");
    }
    // The same for one that prints much and ends.
    for _ in 0..50 {
        team.send("alice", &"x".repeat(3000));
    }
    let mut running = team.start_teamctl(["inbox", "alice", "--last", "100"]);
    drop(running.stdout());
    assert_eq!(running.finish().ok().stderr, "");
}
