//! Messages: each one arrives, once, in order, even if processes are killed or write nonsense in
//! between.

use std::io::Write;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::look::HELD;
use crate::support::process::{let_pass, stat};
use crate::support::{Team, signal};

/// A message without orders: the script model takes what other members send as text.
fn text(from: &str, content: &str) -> String {
    json!({ "type": "message", "from": from, "content": content }).to_string()
}

/// What a teammate has consumed from one sender, in order.
fn contents_from(team: &Team, name: &str, from: &str) -> Vec<String> {
    let messages = team
        .consumed(name)
        .into_iter()
        .filter(|message| message["from"] == from);
    messages
        .map(|message| message["content"].as_str().unwrap().to_owned())
        .collect()
}

/// Starts a shell that appends lines 0, 1, 2 … to an inbox, each with one write.
fn foreign_writer(team: &Team, name: &str, from: &str, count: usize) -> std::process::Child {
    let script = r#"for ((i = 0; i < $3; i++)); do
        echo '{"type":"message","from":"'"$2"'","content":"'"$i"'"}' >> ".team/inbox/$1.jsonl"
    done"#;
    let count = count.to_string();
    team.command("bash", ["-c", script, "writer", name, from, &count])
        .spawn()
        .unwrap()
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

#[test]
fn a_line_that_a_shell_echoed_is_carried_out() {
    let team = Team::started();
    team.spawn("alice", "");
    let echo = r#"echo '{"type":"message","from":"user","content":"/bash echo hi > out"}' >> .team/inbox/alice.jsonl"#;
    assert!(team.command("sh", ["-c", echo]).status().unwrap().success());
    team.until_finished("alice", 1);
    assert_eq!(team.text("out"), "hi\n");
}

#[test]
fn a_foreign_line_needs_no_id_receiver_or_time_and_keeps_what_it_has() {
    let team = Team::started();
    team.spawn("alice", "");
    team.echo(
        "alice",
        r#"{"type":"message","from":"bob","content":"bare"}"#,
    );
    team.echo(
        "alice",
        r#"{"id":"7","type":"message","from":"bob","content":"numbered"}"#,
    );
    team.echo(
        "alice",
        r#"{"id":"7","type":"message","from":"bob","content":"numbered again"}"#,
    );
    let full = json!({ "id": uuid::Uuid::now_v7(), "type": "message", "from": "bob", "to": "alice",
        "timestamp": 12.5, "content": "full", "mood": {"good": true} });
    team.echo("alice", &full.to_string());
    // The same line again is the same message.
    team.echo("alice", &full.to_string());
    team.echo("alice", &text("bob", "last"));
    team.until("the last one", || team.has_consumed("alice", "last"));
    assert_eq!(
        contents_from(&team, "alice", "bob"),
        ["bare", "numbered", "numbered again", "full", "last"]
    );
    assert!(team.consumed("alice").contains(&full));
}

#[test]
fn a_line_in_another_spelling_is_carried_out() {
    let team = Team::started();
    team.spawn("alice", "");
    team.echo(
        "alice",
        r#"{"type":"message","from":"user","text":"/bash echo spelled > out","ts":12}"#,
    );
    team.until_finished("alice", 1);
    assert_eq!(team.text("out"), "spelled\n");
    assert_eq!(team.consumed("alice")[0]["timestamp"], 12.0);
}

#[test]
fn an_unknown_type_is_delivered_as_text() {
    let team = Team::started();
    team.spawn("alice", "");
    let poll =
        json!({ "type": "poll", "from": "bob", "content": "tea?", "options": ["yes", "no"] });
    team.echo("alice", &poll.to_string());
    team.until_finished("alice", 1);
    assert_eq!(team.consumed("alice"), [poll]);
    team.wait_for("alice", "idle");
}

/// Failure 6 (CC#53896; 14–69 % lost by A, 30–72 % by B, 18–42 % by C).
#[test]
fn sixteen_writers_lose_nothing_and_keep_their_order() {
    const WRITERS: usize = 16;
    const LINES: usize = 2000;
    let team = Team::started();
    team.spawn("alice", "");
    let names: Vec<String> = (0..WRITERS).map(|number| format!("w{number}")).collect();
    let writers: Vec<_> = names
        .iter()
        .map(|name| foreign_writer(&team, "alice", name, LINES))
        .collect();
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    team.until_caught_up("alice");
    let consumed = team.consumed("alice");
    assert_eq!(consumed.len(), WRITERS * LINES);
    for name in names {
        let of_one = consumed
            .iter()
            .filter(|message| message["from"] == name.as_str());
        let contents: Vec<&str> = of_one
            .map(|message| message["content"].as_str().unwrap())
            .collect();
        assert_eq!(contents, numbers(LINES), "{name}");
    }
}

#[test]
fn a_torn_tail_takes_no_line_of_ours_with_it() {
    // A writer that is killed in its one write leaves half a line behind; ours would be glued to
    // it.
    let team = Team::started();
    team.spawn("alice", "");
    let mut inbox = std::fs::OpenOptions::new()
        .append(true)
        .open(team.path("inbox/alice.jsonl"))
        .unwrap();
    let sent: Vec<String> = (0..20).map(|number| format!("message {number}")).collect();
    for content in &sent {
        inbox
            .write_all(br#"{"type":"message","from":"bob","con"#)
            .unwrap();
        team.send("alice", content);
    }
    team.until("the last one", || team.has_consumed("alice", "message 19"));
    let consumed = team.consumed("alice");
    let contents: Vec<&str> = consumed
        .iter()
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    assert_eq!(contents, sent);
    assert_eq!(team.lines("inbox/alice.rejected.jsonl").len(), 20);
}

/// Failure 7 (CC#25383, CC#76500, CC#57487).
#[test]
fn a_worker_that_is_killed_while_it_reads_takes_every_line_in_once() {
    const LINES: usize = 1500;
    let team = Team::started();
    team.spawn("alice", "");
    for incarnation in 1..=3 {
        let from = format!("w{incarnation}");
        let mut writer = foreign_writer(&team, "alice", &from, LINES);
        team.until("alice to read", || {
            !contents_from(&team, "alice", &from).is_empty()
        });
        signal(team.pid("alice"), Signal::SIGKILL);
        team.until("the next incarnation", || {
            team.incarnation("alice") == incarnation + 1 && team.pid("alice") > 0
        });
        assert!(writer.wait().unwrap().success());
        team.until_caught_up("alice");
    }
    for incarnation in 1..=3 {
        assert_eq!(
            contents_from(&team, "alice", &format!("w{incarnation}")),
            numbers(LINES),
            "incarnation {incarnation}"
        );
    }
}

#[test]
fn an_inbox_that_a_foreign_reader_empties_is_read_from_its_new_beginning() {
    let team = Team::started();
    team.spawn("alice", "");
    team.echo(
        "alice",
        &text("bob", "a long message that will be cut away"),
    );
    team.until_finished("alice", 1);
    std::fs::File::create(team.path("inbox/alice.jsonl")).unwrap();
    team.echo("alice", &text("bob", "short"));
    team.until("the new beginning", || team.has_consumed("alice", "short"));
    assert_eq!(contents_from(&team, "alice", "bob").len(), 2);
    let told = team.entries("alice", "restarted");
    assert!(
        told.len() == 1 && told[0]["reason"].as_str().unwrap().contains("truncated"),
        "{told:?}"
    );
}

#[test]
fn an_inbox_that_was_emptied_and_refilled_is_read_from_its_beginning() {
    let team = Team::started();
    team.spawn("alice", "");
    team.echo("alice", &text("bob", "old"));
    team.until_finished("alice", 1);
    // Stopped: she looks only when the file is longer than before again.
    signal(team.pid("alice"), Signal::SIGSTOP);
    std::fs::File::create(team.path("inbox/alice.jsonl")).unwrap();
    for content in ["new one", "new two", "new three"] {
        team.echo("alice", &text("bob", content));
    }
    signal(team.pid("alice"), Signal::SIGCONT);
    team.until("the new lines", || team.has_consumed("alice", "new three"));
    assert_eq!(
        contents_from(&team, "alice", "bob"),
        ["old", "new one", "new two", "new three"]
    );
}

/// Failure 8 (CC#68410, CC#32276, CC#25694).
#[test]
fn a_message_to_an_unknown_name_is_refused_and_makes_no_file() {
    let team = Team::started();
    team.spawn("alice", "");
    let refused = team.teamctl(["send", "ghost", "hello"]).exits(4);
    assert!(
        refused.stderr.contains("error: ") && refused.stderr.contains("ghost"),
        "{refused:?}"
    );
    assert!(
        refused.stderr.contains("hint: ") && refused.stdout.is_empty(),
        "{refused:?}"
    );
    team.teamctl(["send", "--queue", "ghost", "hello"]).exits(4);
    for bad in ["../../x", "a/b", "", "Alice", "lead.rejected"] {
        assert_ne!(
            team.teamctl(["send", bad, "hello"]).code,
            Some(0),
            "{bad:?}"
        );
    }
    let mut files: Vec<_> = std::fs::read_dir(team.path("inbox"))
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    files.sort();
    assert_eq!(files, ["alice.jsonl", "lead.jsonl"]);
    assert!(!team.root().join("x.jsonl").exists() && !team.path("x.jsonl").exists());
}

/// Failure 8 (CC#68410, CC#32276, CC#25694).
#[test]
fn a_message_to_an_ended_member_is_refused_unless_it_may_be_queued() {
    let team = Team::started();
    team.spawn("alice", "");
    team.shutdown("alice", &[], 0);
    let before = team.inbox("alice").len();
    team.teamctl(["send", "alice", "too late"]).exits(7);
    assert_eq!(team.inbox("alice").len(), before);
    team.teamctl(["send", "--queue", "alice", "/bash echo later > out"])
        .ok();
    assert_eq!(team.inbox("alice").len(), before + 1);
    team.spawn("alice", "");
    team.until_finished("alice", 1);
    assert_eq!(team.text("out"), "later\n");
}

/// Failure 9 (CC#63684).
#[test]
fn five_thousand_messages_arrive_and_the_next_costs_what_the_first_did() {
    let team = Team::started();
    team.spawn("alice", "");
    // Nothing is behind him: what the machine does at the same time costs him as much.
    team.spawn("bob", "");
    let delivery = |name: &str| {
        let began = Instant::now();
        team.echo(name, &text("probe", "x"));
        team.until_caught_up(name);
        began.elapsed()
    };
    assert!(
        foreign_writer(&team, "alice", "bulk", 5000)
            .wait()
            .unwrap()
            .success()
    );
    team.until_caught_up("alice");
    assert_eq!(contents_from(&team, "alice", "bulk"), numbers(5000));
    let (mut after, mut first): (Vec<_>, Vec<_>) = (0..11)
        .map(|_| (delivery("alice"), delivery("bob")))
        .unzip();
    after.sort();
    first.sort();
    let after = after[5];
    let first = first[5];
    assert!(
        after < first * 5 + Duration::from_millis(50),
        "{first:?} for the first, {after:?} after"
    );
}

#[test]
fn a_message_over_the_limit_is_refused_with_its_size_and_the_limit() {
    let team = Team::started();
    team.spawn("alice", "");
    let refused = team
        .teamctl_with(["send", "alice", "-"], &"x".repeat(1 << 20))
        .exits(1);
    assert!(
        refused.stderr.contains("the limit is 1048576"),
        "{refused:?}"
    );
    let size: Vec<u64> = refused
        .stderr
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|n| n.parse().ok())
        .collect();
    assert!(
        size.iter()
            .any(|&size| size > 1 << 20 && size < (1 << 20) + 1000),
        "{refused:?}"
    );
    assert_eq!(std::fs::read(team.path("inbox/alice.jsonl")).unwrap(), b"");
    // One that fits arrives whole.
    let fits = "y".repeat(1_000_000);
    team.teamctl_with(["send", "alice", "-"], &fits).ok();
    team.until("the long message", || team.has_consumed("alice", &fits));
}

/// Failure 11 (CC#50779, CC#76500).
#[test]
fn a_message_reaches_the_model_between_two_tool_calls() {
    let team = Team::started();
    team.spawn(
        "alice",
        &format!("{HELD}\n/bash echo second\n/bash echo third"),
    );
    team.until_held();
    team.echo("alice", &text("bob", "a note"));
    team.send("alice", "/bash echo fourth");
    team.release();
    team.until_finished("alice", 1);
    let kinds: Vec<String> = team
        .transcript("alice")
        .iter()
        .map(|entry| entry["entry"].as_str().unwrap().to_owned())
        .filter(|kind| ["answer", "result", "messages"].contains(&kind.as_str()))
        .collect();
    assert_eq!(kinds[..4], ["answer", "result", "messages", "answer"]);
    assert!(team.has_consumed("alice", "a note"));
    // What was ordered in the middle belongs to the same piece of work.
    assert_eq!(
        team.results("alice")[3]["content"].as_str().unwrap().trim(),
        "fourth"
    );
    assert_eq!(team.notices("alice").len(), 1);
}

#[test]
fn a_client_that_may_miss_the_result_is_told_not_to_repeat_the_command() {
    let team = Team::started();
    team.spawn("alice", "");
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let teamctl = env!("CARGO_BIN_EXE_teamctl");
    let sent = team
        .command(teamctl, ["send", "alice", "once"])
        .stdout(full)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&sent.stderr);
    assert_eq!(sent.status.code(), Some(1), "{said}");
    assert!(said.contains("hint: the command was carried out"), "{said}");
    team.until("it to be read", || {
        team.consumed("alice")
            .iter()
            .any(|message| message["content"] == "once")
    });
}

#[test]
fn a_broadcast_reaches_each_running_teammate_once() {
    let team = Team::started();
    for name in ["alice", "bob", "carol"] {
        team.spawn(name, "");
    }
    team.shutdown("carol", &[], 0);
    let of_carol = team.inbox("carol").len();
    team.teamctl(["broadcast", "stand up"]).ok();
    for name in ["alice", "bob"] {
        team.until("the broadcast", || team.has_consumed(name, "stand up"));
        let mut all = team.inbox(name);
        all.retain(|line| line["type"] == "broadcast");
        assert!(all.len() == 1 && all[0]["to"] == "all", "{all:?}");
    }
    assert_eq!(team.inbox("carol").len(), of_carol);
}

#[test]
fn a_teammate_sends_to_others_and_learns_when_it_cannot() {
    let team = Team::started();
    for name in ["alice", "bob", "carol"] {
        team.spawn(name, "");
    }
    team.shutdown("carol", &[], 0);
    let of_carol = team.inbox("carol").len();
    let results = team.does(
        "alice",
        "/send_message bob one\\ntwo\n/send_message ghost hi\n/send_message carol hi\n/send_message ../x hi\n\
         /send_message lead report\n/send_message user for you",
    );
    let errors: Vec<bool> = results
        .iter()
        .map(|result| result["is_error"].as_bool().unwrap())
        .collect();
    assert_eq!(
        errors,
        [false, true, true, true, false, false],
        "{results:?}"
    );
    assert!(
        results[1]["content"].as_str().unwrap().contains("ghost"),
        "{results:?}"
    );
    assert!(
        results[2]["content"]
            .as_str()
            .unwrap()
            .contains("not running"),
        "{results:?}"
    );
    team.until("the message", || team.has_consumed("bob", "one\ntwo"));
    assert_eq!(
        team.consumed("bob")
            .iter()
            .filter(|message| message["from"] == "alice")
            .count(),
        1
    );
    assert!(!team.path("inbox/ghost.jsonl").exists());
    assert_eq!(team.inbox("carol").len(), of_carol);
    let mut to_lead = team.inbox("lead");
    to_lead.retain(|line| line["type"] == "message" && line["from"] == "alice");
    let told: Vec<(&Value, &Value)> = to_lead
        .iter()
        .map(|line| (&line["to"], &line["content"]))
        .collect();
    assert_eq!(
        told,
        [
            (&json!("lead"), &json!("report")),
            (&json!("user"), &json!("for you"))
        ]
    );
}

#[test]
fn what_some_readers_take_for_the_end_of_a_line_is_escaped() {
    let team = Team::started();
    team.spawn("alice", "");
    let text = "a\u{85}b\u{2028}c\u{2029}d\ne";
    team.teamctl_with(["send", "alice", "-"], text).ok();
    team.until("the message", || team.has_consumed("alice", text));
    for file in [
        "inbox/alice.jsonl",
        "transcript/alice.jsonl",
        "inbox/lead.jsonl",
    ] {
        let raw = std::fs::read_to_string(team.path(file)).unwrap();
        assert!(
            !raw.contains(['\u{85}', '\u{2028}', '\u{2029}']),
            "{file}: {raw}"
        );
    }
    assert!(
        std::fs::read_to_string(team.path("inbox/alice.jsonl"))
            .unwrap()
            .contains("\\u2028")
    );
}

#[test]
fn each_piece_of_work_ends_with_one_notice() {
    let team = Team::started();
    team.spawn("alice", "first line\nsecond line");
    team.until_finished("alice", 1);
    team.does("alice", &"ä".repeat(300));
    let notices = team.notices("alice");
    assert_eq!(notices[0]["idle_reason"], "available");
    assert_eq!(notices[0]["summary"], "first line");
    assert_eq!(notices[0]["content"], "first line\nsecond line");
    assert_eq!(notices[1]["summary"], "ä".repeat(200));
    // An incarnation that begins with all work done says nothing.
    signal(team.pid("alice"), Signal::SIGKILL);
    team.until("the next incarnation", || {
        team.member("alice")["incarnation"] == 2 && team.status("alice") == "idle"
    });
    team.does("alice", "third");
    assert_eq!(team.notices("alice").len(), 3);
}

/// Failure 27 (CC#47930, CC#76970; measured).
#[test]
fn the_end_of_a_teammate_is_told_to_all_and_starts_no_turn() {
    let team = Team::started();
    team.spawn("alice", "");
    team.teamctl(["spawn", "bob", "--restart", "never"]).ok();
    signal(team.pid("bob"), Signal::SIGKILL);
    let told =
        |message: &Value| message["type"] == "teammate_terminated" && message["name"] == "bob";
    team.until("alice to consume it", || {
        team.consumed("alice").iter().any(told)
    });
    team.until("the lead to be told", || {
        team.inbox("lead").iter().any(told)
    });
    let line = team.inbox("lead").into_iter().find(told).unwrap();
    assert_eq!(
        (&line["from"], &line["exit"]["signal"]),
        (&json!("teamd"), &json!(9)),
        "{line}"
    );
    assert_eq!((team.answers("alice"), team.notices("alice").len()), (0, 0));
    assert_eq!(team.status("alice"), "idle");
}

#[test]
fn a_line_that_was_written_twice_is_consumed_once() {
    let team = Team::started();
    team.spawn("alice", "");
    let line = r#"{"id":"01939b1e-0000-7000-8000-000000000001","type":"message","from":"user","content":"/bash echo once >> ran"}"#;
    team.echo("alice", line);
    team.until("her to have worked", || team.text("ran") == "once\n");
    team.wait_for("alice", "idle");
    // What she knows of it must be what her transcript says: it is read by the next incarnation,
    // too.
    signal(team.pid("alice"), Signal::SIGKILL);
    team.until("the next incarnation", || {
        team.member("alice")["incarnation"] == 2 && team.status("alice") == "idle"
    });
    team.echo("alice", line);
    team.teamctl(["wait", "alice", "--for", "idle"]).ok();
    assert_eq!(team.json(["status"])["members"][0]["unread"], 0);
    assert_eq!(team.text("ran"), "once\n");
}

#[test]
fn an_inbox_that_was_replaced_is_read_from_its_beginning() {
    let team = Team::started();
    team.spawn("alice", "");
    team.echo("alice", &text("bob", "old"));
    team.until_finished("alice", 1);
    team.write("new.jsonl", &(text("bob", "in the new file") + "\n"));
    std::fs::rename(
        team.root().join("new.jsonl"),
        team.path("inbox/alice.jsonl"),
    )
    .unwrap();
    team.until("the new file", || {
        team.has_consumed("alice", "in the new file")
    });
    assert_eq!(
        contents_from(&team, "alice", "bob"),
        ["old", "in the new file"]
    );
}

#[test]
fn more_teammates_than_the_kernel_grants_watches_are_woken_all() {
    // Linux grants 128 inotify instances to a user: the first 32 workers take one, the daemon wakes
    // the others.
    let team = Team::started();
    let names: Vec<String> = (0..36).map(|number| format!("m{number}")).collect();
    for name in names.iter() {
        drop(team.spawn(name, ""));
    }
    team.teamctl(["broadcast", "wake up"]).ok();
    for name in &names {
        team.until_finished(name, 1);
    }
    team.teamctl(["shutdown", "--all"]).ok();
    assert_eq!(team.processes(), [team.daemon_pid()]);
}

#[test]
fn where_no_events_come_files_are_looked_at_on_a_timer() {
    let team = Team::new()
        .with("TEAM_POLL", "1")
        .with("TEAM_DURABILITY", "process");
    team.teamd(["start"]).ok();
    team.spawn("alice", "");
    team.echo(
        "alice",
        r#"{"type":"message","from":"user","content":"/bash echo polled > out"}"#,
    );
    team.until_finished("alice", 1);
    assert_eq!(team.text("out"), "polled\n");
    assert_eq!(team.shutdown("alice", &[], 0)["outcome"], "shutdown");
}

#[test]
fn an_idle_team_uses_no_processor_time() {
    let team = Team::started();
    team.spawn("alice", "hello");
    team.until_finished("alice", 1);
    team.wait_for("alice", "idle");
    let ticks = || -> u64 {
        let of = |pid: i32| {
            stat(pid).unwrap()[11..13]
                .iter()
                .map(|ticks| ticks.parse::<u64>().unwrap())
                .sum::<u64>()
        };
        of(team.daemon_pid()) + of(team.pid("alice"))
    };
    // A hundredth of a second is a tick; one may have been begun before. What follows the work may
    // not be over yet, and each looks at its files now and then; but a process that polls is never
    // quiet.
    let is_quiet = || {
        let before = ticks();
        let_pass(Duration::from_millis(700));
        ticks() <= before + 1
    };
    team.until("all processes to be quiet", is_quiet);
    assert!((0..4).filter(|_| is_quiet()).count() >= 3);
}

// A model error ended the teammate silently, as "Done." (a teaching system for agent teams, second
// generation).
/// Failure 29 (B).
#[test]
fn a_model_that_fails_is_reported_to_the_lead_and_the_teammate_stays() {
    let team = Team::started();
    team.spawn(
        "alice",
        "/fail_model the service is out of reach\n/bash echo never",
    );
    team.until_finished("alice", 1);
    let notice = team.notices("alice").remove(0);
    assert_eq!(notice["idle_reason"], "failed");
    assert!(
        notice["content"]
            .as_str()
            .unwrap()
            .contains("the service is out of reach"),
        "{notice}"
    );
    assert!(team.results("alice").is_empty(), "the work ended");
    team.does("alice", "/bash echo back");
    assert_eq!(team.incarnation("alice"), 1);
}
