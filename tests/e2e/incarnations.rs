//! The incarnations of a teammate: spawn, crash, restart, resume, forget.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::process::let_pass;
use crate::support::{Team, is_alive, signal};

/// How often the text of each ordinary message was consumed by a member, over all its incarnations.
fn consumed(team: &Team, name: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for entry in team.transcript(name) {
        let messages = entry["messages"].as_array().into_iter().flatten();
        for message in messages.filter(|message| message["type"] == "message") {
            *counts
                .entry(message["content"].as_str().unwrap().to_owned())
                .or_default() += 1;
        }
    }
    counts
}

/// The incarnation entries of a transcript: incarnation and conversation.
fn incarnations(team: &Team, name: &str) -> Vec<(i64, i64)> {
    let entries = team
        .transcript(name)
        .into_iter()
        .filter(|entry| entry["entry"] == "incarnation");
    entries
        .map(|incarnation| {
            (
                incarnation["incarnation"].as_i64().unwrap(),
                incarnation["conversation"].as_i64().unwrap(),
            )
        })
        .collect()
}

/// What an inbox says of the end of a member, the last one.
fn terminated(team: &Team, inbox: &str, name: &str) -> Option<Value> {
    team.inbox(inbox)
        .into_iter()
        .rfind(|line| line["type"] == "teammate_terminated" && line["name"] == name)
}

/// Failure 16 (a vendor's CLI, measured).
#[test]
fn a_killed_worker_is_noticed_told_to_all_and_restarted() {
    let team = Team::started();
    team.spawn("bob", "");
    team.spawn("alice", "/bash echo once >> prompt-ran");
    team.until("alice to have answered", || {
        team.inbox("lead")
            .iter()
            .any(|line| line["from"] == "alice")
    });
    let first = team.pid("alice");
    team.kill_and_wait_for_restart("alice");
    assert_ne!(team.pid("alice"), first);
    for inbox in ["lead", "bob"] {
        team.until("the end to be told", || {
            terminated(&team, inbox, "alice").is_some()
        });
        let told = terminated(&team, inbox, "alice").unwrap();
        assert_eq!(told["exit"]["signal"], 9, "{told}");
        assert_eq!(told["exit"]["code"], Value::Null);
        assert_eq!(told["incarnation"], 1);
        assert_eq!(told["from"], "teamd");
    }
    assert_eq!(team.status("bob"), "idle", "the notice starts no turn");
    assert_eq!(
        incarnations(&team, "alice"),
        [(1, 1), (2, 1)],
        "the same conversation"
    );
    team.send("alice", "/bash echo again >> prompt-ran");
    team.until("alice to go on", || {
        std::fs::read_to_string(team.root().join("prompt-ran")).unwrap() == "once\nagain\n"
    });
}

/// Failure 7 (CC#25383, CC#76500, CC#57487).
#[test]
fn no_message_is_lost_or_consumed_twice_whatever_is_killed() {
    const MESSAGES: usize = 30;
    let team = Team::started();
    team.spawn("alice", "");
    let done = || std::fs::read_to_string(team.root().join("out")).unwrap_or_default();
    for number in 0..MESSAGES {
        // Some with the command, some as a foreign program does it: without id.
        if number % 2 == 0 {
            team.send("alice", &format!("/bash echo {number} >> out"));
        } else {
            team.echo(
                "alice",
                &format!(
                    r#"{{"type":"message","from":"user","content":"/bash echo {number} >> out"}}"#
                ),
            );
        }
        if number == 10 || number == 20 {
            let incarnation = number as i64 / 10;
            team.until("some of it to be done", || {
                done().lines().count() >= number / 2
            });
            team.until("its incarnation to be known", || {
                team.incarnation("alice") == incarnation && team.pid("alice") > 0
            });
            team.until("its incarnation to have begun", || {
                incarnations(&team, "alice").len() as i64 == incarnation
            });
            signal(team.pid("alice"), Signal::SIGKILL);
        }
    }
    team.until("all to be consumed", || {
        consumed(&team, "alice").len() == MESSAGES
    });
    // Not by the roster: it may not have heard yet that she works again.
    team.teamctl(["wait", "alice", "--for", "idle"]).ok();
    assert!(
        consumed(&team, "alice").values().all(|&count| count == 1),
        "{:?}",
        consumed(&team, "alice")
    );
    // What was being done when it died is not done again, and its result says so.
    let done = done();
    let lines: Vec<usize> = done.lines().map(|line| line.parse().unwrap()).collect();
    assert!(
        lines.is_sorted_by(|a, b| a < b),
        "each at most once, in order: {lines:?}"
    );
    let interrupted = team.transcript("alice").into_iter().filter(|entry| {
        entry["entry"] == "result" && entry["content"].as_str().unwrap().contains("interrupted")
    });
    let missing = MESSAGES - lines.len();
    assert!(
        missing <= interrupted.count(),
        "{missing} were not done: {lines:?}"
    );
    assert_eq!(incarnations(&team, "alice").len(), 3);
}

/// Failure 16 (a vendor's CLI, measured).
#[test]
fn with_restart_never_a_killed_worker_stays_crashed() {
    let team = Team::started();
    team.teamctl(["spawn", "alice", "--restart", "never"]).ok();
    let pid = team.pid("alice");
    signal(pid, Signal::SIGKILL);
    team.wait_for("alice", "crashed");
    let member = team.member("alice");
    assert_eq!(member["exit"]["signal"], 9, "{member}");
    assert_eq!(member["exit"]["code"], Value::Null);
    assert_eq!(member["pid"], Value::Null);
    assert_eq!(member["incarnation"], 1);
    let lines = team.inbox("alice").len();
    // A message to a dead name is not sent, and not called sent.
    team.teamctl(["send", "alice", "hello"]).exits(7);
    assert_eq!(team.inbox("alice").len(), lines);
    team.teamctl(["shutdown", "alice"]).exits(7);
}

#[test]
fn after_three_restarts_in_a_minute_it_gives_up() {
    let team = Team::started();
    team.spawn("alice", "");
    for _ in 0..3 {
        team.kill_and_wait_for_restart("alice");
    }
    signal(team.pid("alice"), Signal::SIGKILL);
    team.wait_for("alice", "crashed");
    let member = team.member("alice");
    assert_eq!(member["incarnation"], 4, "{member}");
    assert!(
        team.teamctl(["status", "alice"])
            .ok()
            .stdout
            .contains("3 times"),
        "it says why"
    );
    // A person starts it again, with the same conversation.
    let resumed = team.json(["spawn", "alice", "--resume"]);
    assert_eq!(resumed["incarnation"], 5);
    assert_eq!(incarnations(&team, "alice").last(), Some(&(5, 1)));
}

/// Failure 3 (CC#45874; A).
#[test]
fn an_old_shutdown_request_cannot_end_a_later_incarnation() {
    let team = Team::started();
    team.spawn("alice", "/bash sleep 600");
    team.wait_for("alice", "working");
    team.teamctl(["shutdown", "alice", "--no-wait"]).ok();
    let id = team.last_request("shutdown");
    team.until("the request to be in the inbox", || {
        team.inbox("alice")
            .iter()
            .any(|line| line["request_id"] == *id)
    });
    signal(team.pid("alice"), Signal::SIGKILL);
    // Its shutdown was asked for: it is not started again.
    team.wait_for("alice", "crashed");
    assert_eq!(team.request(&id)["status"], "expired");
    let resumed = team.json(["spawn", "alice", "--resume"]);
    assert_eq!(resumed["incarnation"], 2);
    // It has read the old line, and a copy that names no incarnation at all.
    let old = team
        .inbox("alice")
        .into_iter()
        .find(|line| line["request_id"] == *id)
        .unwrap();
    let mut forged = old.clone();
    forged
        .as_object_mut()
        .unwrap()
        .retain(|field, _| field != "incarnation" && field != "id");
    team.echo("alice", &old.to_string());
    team.echo("alice", &forged.to_string());
    team.send("alice", "/write_file alive.txt yes");
    team.until("alice to go on", || team.root().join("alive.txt").exists());
    team.wait_for("alice", "idle");
    assert_eq!(team.member("alice")["pid"], resumed["pid"]);
    assert_eq!(team.request(&id)["status"], "expired");
    // A request for this incarnation does.
    team.teamctl(["shutdown", "alice"]).ok();
    assert_eq!(team.status("alice"), "shutdown");
}

/// Ends alice by force while `count` messages of hers are unread; one more is queued after her end.
fn end_with_unread(count: usize) -> Team {
    let team = Team::new().with("TEAM_GRACE", "300ms");
    team.teamd(["start"]).ok();
    team.spawn("bob", "");
    team.spawn("alice", "/sleep 600");
    team.wait_for("alice", "working");
    for number in 0..count {
        team.send("alice", &format!("/write_file old-{number}.txt x"));
    }
    let ended = team.json(["shutdown", "alice", "--force", "--timeout", "0"]);
    assert_eq!(ended["results"][0]["outcome"], "killed", "{ended}");
    // The asking command hears of it first.
    team.until("bob to be told", || {
        terminated(&team, "bob", "alice").is_some()
    });
    let told = terminated(&team, "bob", "alice").unwrap();
    assert_eq!(told["unread"], count, "{told}");
    team.teamctl(["send", "alice", "--queue", "/write_file queued.txt x"])
        .ok();
    team
}

#[test]
fn a_fresh_incarnation_skips_the_mail_of_the_old_one_and_tells_how_much() {
    let team = end_with_unread(3);
    let said = team.teamctl(["spawn", "alice"]).ok();
    assert!(
        format!("{}{}", said.stdout, said.stderr).contains('3'),
        "it tells the number: {said:?}"
    );
    team.until("what was sent since then to be read", || {
        team.root().join("queued.txt").exists()
    });
    team.wait_for("alice", "idle");
    assert!(!team.root().join("old-0.txt").exists());
    assert_eq!(incarnations(&team, "alice"), [(1, 1), (2, 2)]);
    assert_eq!(consumed(&team, "alice").len(), 1);
    assert_eq!(team.json(["status", "alice"])["members"][0]["unread"], 0);
}

#[test]
fn what_was_queued_waits_for_the_next_incarnation() {
    // Found by death at every system call: the daemon died between the fork and the welcome.
    let team = end_with_unread(1);
    team.teamd(["stop"]).ok();
    // A worker that ends at once.
    let mut broken = team.command(
        env!("CARGO_BIN_EXE_teamd"),
        ["start", "--allow-weak-sandbox"],
    );
    assert!(
        broken
            .env("TEAM_WORKER", "/bin/false")
            .status()
            .unwrap()
            .success()
    );
    team.teamctl(["spawn", "alice", "--restart", "never"])
        .exits(1);
    assert_eq!(
        team.member("alice")["exit"]["unread"],
        0,
        "what was queued is still to be read"
    );
    team.teamd(["stop"]).ok();
    team.teamd(["start"]).ok();
    team.teamctl(["spawn", "alice"]).ok();
    team.until("what was queued to be read", || {
        team.root().join("queued.txt").exists()
    });
    assert!(!team.root().join("old-0.txt").exists());
}

#[test]
fn nothing_is_queued_before_the_end_of_the_last_incarnation_is_recorded() {
    // Crash window S9: what stands in the inbox when the end is recorded is passed over by a fresh
    // incarnation.
    let team = Team::started();
    team.teamctl(["spawn", "alice", "--restart", "never"]).ok();
    let pid = team.pid("alice");
    team.kill_daemon();
    signal(pid, Signal::SIGKILL);
    team.until_gone("alice", pid);
    let before = team.inbox("alice").len();
    for args in [
        &["send", "alice", "lost"][..],
        &["send", "alice", "lost", "--queue"],
    ] {
        let refused = team.teamctl(args).exits(7);
        assert!(refused.stderr.contains("nothing was sent"), "{refused:?}");
        assert!(
            refused.stderr.contains("`teamd start` records its end"),
            "{refused:?}"
        );
    }
    assert_eq!(team.inbox("alice").len(), before);
    team.teamd(["start"]).ok();
    team.teamctl(["send", "alice", "--queue", "/write_file queued.txt x"])
        .ok();
    team.teamctl(["spawn", "alice"]).ok();
    team.until("what was queued to be read", || {
        team.root().join("queued.txt").exists()
    });
}

/// Failure 28 (CC#23620).
#[test]
fn a_resumed_incarnation_reads_all_that_is_unread() {
    let team = end_with_unread(3);
    team.teamctl(["spawn", "alice", "--resume"]).ok();
    for file in ["old-0.txt", "old-1.txt", "old-2.txt", "queued.txt"] {
        team.until(file, || team.root().join(file).exists());
    }
    assert_eq!(incarnations(&team, "alice"), [(1, 1), (2, 1)]);
    assert_eq!(consumed(&team, "alice").len(), 4);
    // The call that was cut off is answered, so that the model can be asked again.
    let results = team
        .transcript("alice")
        .into_iter()
        .filter(|entry| entry["entry"] == "result");
    assert!(
        results
            .clone()
            .any(|result| result["content"].as_str().unwrap().contains("interrupted"))
    );
}

#[test]
fn a_prompt_is_the_next_message_of_a_conversation_that_goes_on() {
    let team = Team::started();
    team.spawn("alice", "/bash echo first >> said");
    team.teamctl(["wait", "alice"]).ok();
    team.teamctl(["shutdown", "alice"]).ok();
    team.teamctl(["send", "alice", "/bash echo second >> said", "--queue"])
        .ok();
    team.teamctl([
        "spawn",
        "alice",
        "--resume",
        "--prompt",
        "/bash echo third >> said",
    ])
    .ok();
    team.teamctl(["wait", "alice"]).ok();
    assert_eq!(team.text("said"), "first\nsecond\nthird\n");
    team.kill_and_wait_for_restart("alice");
    team.teamctl(["wait", "alice"]).ok();
    assert_eq!(team.text("said"), "first\nsecond\nthird\n");
}

#[test]
fn a_whole_team_goes_on_where_it_stopped() {
    let team = Team::started();
    for name in ["alice", "bob"] {
        team.spawn(name, &format!("/bash echo {name} >> said"));
        team.teamctl(["wait", name]).ok();
    }
    team.teamctl(["down"]).ok();
    assert!(team.teamctl(["down"]).ok().stdout.contains("not running"));
    let run = team.teamctl(["up"]).exits(4);
    assert!(run.stderr.contains("there is no team.toml"), "{run:?}");
    team.write(
        "team.toml",
        "[members.carl]\nprompt = '/bash echo carl >> said'\n",
    );
    let run = team.teamctl(["up", "--resume"]).ok();
    for name in ["alice", "bob", "carl"] {
        assert!(run.stdout.contains(&format!("{name} is ")), "{run:?}");
        team.teamctl(["wait", name]).ok();
    }
    assert_eq!(team.text("said"), "alice\nbob\ncarl\n");
    assert_eq!(team.member("alice")["incarnation"], 2);
}

#[test]
fn a_spawn_with_resume_needs_an_earlier_incarnation() {
    let team = Team::started();
    let said = team.teamctl(["spawn", "alice", "--resume"]).exits(4);
    assert!(said.stderr.contains("hint: "), "{said:?}");
    assert!(team.member("alice").is_null());
}

#[test]
fn a_member_that_has_ended_can_be_forgotten_and_its_name_is_free() {
    let team = Team::started();
    team.spawn("alice", "remember this");
    team.until("alice to have answered", || {
        team.inbox("lead")
            .iter()
            .any(|line| line["from"] == "alice")
    });
    team.teamctl(["forget", "alice"]).exits(7);
    team.teamctl(["forget", "zoe"]).exits(4);
    team.teamctl(["shutdown", "alice"]).ok();
    let transcript = team.file("transcript/alice.jsonl");
    team.teamctl(["forget", "alice"]).ok();
    assert!(team.member("alice").is_null());
    for file in [
        "inbox/alice.jsonl",
        "transcript/alice.jsonl",
        "log/alice.log",
    ] {
        assert!(!team.path(file).exists(), "{file}");
    }
    let kept = std::fs::read_dir(team.path("archive"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let kept: Vec<_> = kept
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    assert!(kept.contains(&transcript), "{kept:?}");
    team.teamctl(["send", "alice", "hello"]).exits(4);
    assert!(!team.path("inbox/alice.jsonl").exists());
    // Another alice, which knows nothing of the first.
    team.spawn("alice", "");
    assert_eq!(incarnations(&team, "alice").len(), 1);
    assert!(consumed(&team, "alice").is_empty());
    // But what was written about the first one is not about her.
    assert_eq!(team.incarnation("alice"), 2);
    team.teamctl(["shutdown", "alice"]).ok();
    team.teamctl(["forget", "alice"]).ok();
    team.teamd(["stop"]).ok();
    team.teamd(["start"]).ok();
    team.spawn("alice", "");
    assert_eq!(
        team.incarnation("alice"),
        3,
        "also after a restart of the daemon"
    );
}

#[test]
fn sigterm_to_a_worker_ends_it_and_it_is_not_restarted() {
    let team = Team::started();
    team.spawn("alice", "");
    team.spawn("bob", "/sleep 0.1\n".repeat(300).as_str());
    team.wait_for("bob", "working");
    for name in ["alice", "bob"] {
        let pid = team.pid(name);
        signal(pid, Signal::SIGTERM);
        team.wait_for(name, "killed");
        assert!(!is_alive(pid));
        assert_eq!(team.incarnation(name), 1);
        assert_eq!(
            terminated(&team, "lead", name).unwrap()["exit"]["code"],
            0,
            "it left at a safe point"
        );
    }
    // He can go on with the same conversation, when he is told to: what he left is not begun again
    // by itself.
    team.teamctl(["spawn", "bob", "--resume"]).ok();
    team.send("bob", "/write_file bob.txt again");
    team.until("bob to go on", || team.root().join("bob.txt").exists());
    assert_eq!(incarnations(&team, "bob"), [(1, 1), (2, 1)]);
}

#[test]
fn a_stopped_worker_holds_up_no_command() {
    let team = Team::new().with("TEAM_GRACE", "300ms");
    team.teamd(["start"]).ok();
    team.spawn("alice", "");
    team.spawn("bob", "");
    let pid = team.pid("alice");
    signal(pid, Signal::SIGSTOP);
    for number in 0..20 {
        team.send("alice", &format!("message {number}"));
    }
    // Bob works, and is shut down, as if nothing were.
    team.send("bob", "/write_file bob.txt hi");
    team.until("bob to have worked", || {
        team.root().join("bob.txt").exists()
    });
    team.teamctl(["shutdown", "bob"]).ok();
    // Alice cannot answer: the shutdown times out, and then it is forced.
    team.teamctl(["shutdown", "alice", "--timeout", "200ms"])
        .exits(5);
    team.wait_for("alice", "shutting_down");
    let forced = team.json(["shutdown", "alice", "--force", "--timeout", "0"]);
    assert_eq!(forced["results"][0]["outcome"], "killed", "{forced}");
    assert!(!is_alive(pid));
    let_pass(Duration::from_millis(50));
    assert_eq!(team.incarnation("alice"), 1);
}

/// What is read is folded, line by line: a conversation may be longer than the memory of the
/// machine.
#[test]
fn a_resume_keeps_little_of_a_long_transcript_in_memory() {
    // How much of it is one piece of work is chance.
    let team = Team::new().with("TEAM_MAX_TURNS", "1000");
    team.teamd(["start"]).ok();
    team.spawn("alice", "");
    team.spawn("bob", "");
    let line = json!({"type": "message", "from": "user", "content": format!("/write_file x {}", "text ".repeat(20_000))});
    let mut inbox = std::fs::OpenOptions::new()
        .append(true)
        .open(team.path("inbox/alice.jsonl"))
        .unwrap();
    for round in 0..10 {
        let last = json!({"type": "message", "from": "user", "content": format!("/write_file done-{round} x")});
        inbox
            .write_all(format!("{}{last}\n", format!("{line}\n").repeat(30)).as_bytes())
            .unwrap();
        team.until("all of it to be done", || {
            team.made(&format!("done-{round}"))
        });
    }
    let long = std::fs::metadata(team.path("transcript/alice.jsonl"))
        .unwrap()
        .len();
    assert!(long > 2 * 300 * 100_000, "{long}");
    // At most, in kB, of what an incarnation has had at once (`proc_pid_status(5)`).
    let peak = |name: &str| -> u64 {
        team.kill_and_wait_for_restart(name);
        let status = std::fs::read_to_string(format!("/proc/{}/status", team.pid(name))).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let short = peak("bob");
    let resumed = peak("alice");
    assert!(
        (resumed - short) * 1024 < long / 2,
        "{resumed} kB, against {short} kB of a short transcript"
    );
}
