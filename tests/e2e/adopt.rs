//! The daemon dies, and the next one takes over: the workers, the requests, the files.

use std::collections::BTreeSet;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::process::{command_line, let_pass};
use crate::support::{Team, is_alive, signal};

/// The plan of a member that is pending, as the journal says.
fn pending_plan(team: &Team, name: &str) -> Option<String> {
    let id = team
        .journal()
        .into_iter()
        .rfind(|line| line["kind"] == "plan_approval" && line["from"] == name)?["request_id"]
        .as_str()
        .unwrap()
        .to_owned();
    (team.request(&id)["status"] == "pending").then_some(id)
}

fn wait_for_plan(team: &Team, name: &str) -> String {
    team.until("a plan to be pending", || {
        pending_plan(team, name).is_some()
    });
    pending_plan(team, name).unwrap()
}

/// Failure 17 (a vendor's CLI, measured; gastown#736 (142 processes, 56 GB)).
#[test]
fn an_idle_worker_outlives_the_daemon_and_is_adopted() {
    let team = Team::started();
    team.spawn("alice", "");
    let pid = team.pid("alice");
    team.kill_daemon();
    assert!(is_alive(pid));
    // It goes on meanwhile: mail is sent, consumed, carried out and reported.
    team.teamctl(["send", "alice", "/write_file meanwhile.txt yes"])
        .ok();
    team.until("alice to have worked", || team.made("meanwhile.txt"));
    team.until("alice to have reported", || {
        team.inbox("lead")
            .iter()
            .any(|line| line["from"] == "alice")
    });
    assert!(is_alive(pid));
    // It may not have said yet that its work is over.
    signal(pid, Signal::SIGSTOP);
    team.teamd(["start"]).ok();
    assert_eq!(
        team.status("alice"),
        "idle",
        "what it last said holds until it says it again"
    );
    assert_eq!(
        (team.pid("alice"), &team.member("alice")["incarnation"]),
        (pid, &json!(1))
    );
    assert_eq!(team.events("adopted"), 1);
    signal(pid, Signal::SIGCONT);
    team.teamctl(["shutdown", "alice"]).ok();
    assert!(!is_alive(pid));
    assert_eq!(team.member("alice")["status"], "shutdown");
    team.teamd(["stop"]).ok();
    team.until_no_process_is_left();
}

/// Failure 22 (CC#73670, CC#79569).
#[test]
fn a_working_worker_is_adopted_and_its_call_runs_once() {
    let team = Team::started();
    team.spawn(
        "alice",
        "/bash echo ran >> ran; until [ -e go ]; do sleep 0.02; done; echo done >> ran",
    );
    team.until("the call to run", || team.made("ran"));
    let pid = team.pid("alice");
    team.kill_daemon();
    team.teamd(["start"]).ok();
    team.wait_for("alice", "working");
    assert_eq!(team.pid("alice"), pid);
    drop(std::fs::File::create(team.root().join("go")).unwrap());
    team.wait_for("alice", "idle");
    assert_eq!(
        std::fs::read_to_string(team.root().join("ran")).unwrap(),
        "ran\ndone\n"
    );
}

/// Failure 14 (shareAI-lab/learn-claude-code#455; B).
#[test]
fn a_pending_plan_outlives_the_daemon_and_its_verdict_wakes_the_worker() {
    let team = Team::started();
    team.teamctl([
        "spawn",
        "alice",
        "--plan",
        "--prompt",
        "/plan_approval drop the cache\n/write_file after.txt x",
    ])
    .ok();
    let id = wait_for_plan(&team, "alice");
    let pid = team.pid("alice");
    team.kill_daemon();
    team.teamd(["start"]).ok();
    team.wait_for("alice", "awaiting_approval");
    assert_eq!(team.pid("alice"), pid);
    let plans = team.json(["plans"]);
    assert_eq!(plans[0]["request_id"], *id, "{plans}");
    team.teamctl(["approve", &id]).ok();
    team.until("alice to go on", || team.made("after.txt"));
    assert_eq!(team.request(&id)["status"], "approved");
    team.wait_for("alice", "idle");
    assert_eq!(team.member("alice")["gate"], "open");
    // The caller's own answer, said again, is no error; another one is.
    team.teamctl(["approve", &id]).ok();
    team.teamctl(["reject", &id]).exits(7);
}

#[test]
fn a_plan_that_was_submitted_while_no_daemon_ran_can_be_answered() {
    let team = Team::started();
    team.spawn("alice", "");
    team.kill_daemon();
    team.teamctl([
        "send",
        "alice",
        "/plan_approval drop the cache\n/write_file after.txt x",
    ])
    .ok();
    team.until("the plan to be in the lead's inbox", || {
        team.inbox("lead")
            .iter()
            .any(|line| line["type"] == "plan_approval_request")
    });
    assert_eq!(pending_plan(&team, "alice"), None);
    team.teamd(["start"]).ok();
    let id = wait_for_plan(&team, "alice");
    team.wait_for("alice", "awaiting_approval");
    assert_eq!(team.member("alice")["gate"], "closed");
    team.teamctl(["reject", &id, "--feedback", "keep it"]).ok();
    team.wait_for("alice", "idle");
    assert!(
        !team.made("after.txt"),
        "what came with a rejected plan is refused"
    );
    assert!(team.file("transcript/alice.jsonl").contains("keep it"));
}

#[test]
fn a_verdict_whose_daemon_died_right_after_still_reaches_the_worker() {
    let team = Team::started();
    team.spawn(
        "alice",
        "/plan_approval drop the cache\n/write_file after.txt x",
    );
    let id = wait_for_plan(&team, "alice");
    // The worker is held while the verdict is given and the daemon dies: it hears of it from the
    // next one.
    let pid = team.pid("alice");
    signal(pid, Signal::SIGSTOP);
    team.teamctl(["approve", &id]).ok();
    team.kill_daemon();
    // Nor does it read of it: the line of the verdict is lost, as if it had never been written.
    let lines: Vec<_> = team
        .inbox("alice")
        .into_iter()
        .filter(|line| line["request_id"] != *id)
        .collect();
    team.put(
        "inbox/alice.jsonl",
        &lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>(),
    );
    signal(pid, Signal::SIGCONT);
    team.teamd(["start"]).ok();
    team.until("alice to go on", || team.made("after.txt"));
    assert_eq!(team.pid("alice"), pid);
}

#[test]
fn a_pending_shutdown_and_its_waiting_command_outlive_the_daemon() {
    let team = Team::started();
    team.spawn("alice", "/bash until [ -e go ]; do sleep 0.02; done");
    team.wait_for("alice", "working");
    let pid = team.pid("alice");
    let waiting = team.start_teamctl(["--json", "shutdown", "alice"]);
    // The command that waits has been told by then, too: its answer came before.
    let id = team.until_asked("alice");
    team.kill_daemon();
    team.teamd(["start"]).ok();
    assert_eq!(
        (team.pid("alice"), team.status("alice")),
        (pid, "shutting_down".to_owned())
    );
    assert_eq!(team.request(&id)["status"], "pending");
    drop(std::fs::File::create(team.root().join("go")).unwrap());
    team.wait_for("alice", "shutdown");
    assert!(!is_alive(pid));
    assert_eq!(team.request(&id)["status"], "approved");
    // The command follows its request by id.
    let said = waiting.finish().ok().json();
    assert_eq!(
        (
            &said["results"][0]["request_id"],
            &said["results"][0]["outcome"]
        ),
        (&json!(id), &json!("shutdown"))
    );
}

#[test]
fn a_shutdown_that_is_forced_later_is_forced_by_the_next_daemon_too() {
    let team = Team::new().with("TEAM_GRACE", "300ms");
    team.teamd(["start"]).ok();
    team.spawn("alice", "/bash trap '' TERM; sleep 600");
    team.wait_for("alice", "working");
    let waiting = team.start_teamctl(["shutdown", "alice", "--force", "--timeout", "10s"]);
    team.until_asked("alice");
    team.kill_daemon();
    team.teamd(["start"]).ok();
    team.wait_for("alice", "killed");
    waiting.finish().ok();
    team.until("the tool to be gone", || {
        team.processes() == [team.daemon_pid()]
    });
}

/// A teammate that agreed to go comes back (a window that a search of a model of the protocol
/// found).
#[test]
fn an_approved_worker_that_left_while_no_daemon_ran_has_shut_down() {
    let team = Team::started();
    team.spawn("alice", "");
    team.spawn("bob", "");
    let pid = team.pid("alice");
    team.teamctl(["shutdown", "alice"]).ok();
    let id = team.last_request("shutdown");
    team.kill_daemon();
    // As if the daemon had died between the approval and the end of the worker.
    let journal = team.file("journal.jsonl");
    let approved = journal
        .lines()
        .position(|line| line.contains("\"event\":\"approved\""))
        .unwrap();
    team.put(
        "journal.jsonl",
        &journal
            .lines()
            .take(approved + 1)
            .map(|line| format!("{line}\n"))
            .collect::<String>(),
    );
    assert!(!is_alive(pid));
    team.teamd(["start"]).ok();
    team.wait_for("alice", "shutdown");
    let exit = &team.member("alice")["exit"];
    assert_eq!(
        (&exit["request_id"], &exit["code"], &exit["signal"]),
        (&json!(id), &Value::Null, &Value::Null)
    );
    assert_eq!(team.status("bob"), "idle");
    team.teamd(["stop"]).ok();
    team.until_no_process_is_left();
}

#[test]
fn an_approved_worker_is_released_by_the_next_daemon() {
    let team = Team::started();
    team.spawn("alice", "");
    let pid = team.pid("alice");
    signal(pid, Signal::SIGSTOP);
    team.teamctl(["shutdown", "alice", "--no-wait"]).ok();
    let id = team.last_request("shutdown");
    team.kill_daemon();
    // As if it had answered, and the daemon had died before its reply.
    let mut approved = team.request(&id);
    let seq = team.journal().last().unwrap()["seq"].as_u64().unwrap();
    for (field, value) in [
        ("seq", json!(seq + 1)),
        ("event", json!("approved")),
        ("status", json!("approved")),
        ("resolved_at", json!(1.0)),
        ("reason", json!("idle")),
        ("answered_by", json!("runtime")),
        ("tell", json!([])),
    ] {
        approved[field] = value;
    }
    team.put(
        "journal.jsonl",
        &format!("{}{approved}\n", team.file("journal.jsonl")),
    );
    team.teamd(["start"]).ok();
    assert_eq!(
        (team.pid("alice"), team.status("alice")),
        (pid, "shutting_down".to_owned())
    );
    signal(pid, Signal::SIGCONT);
    team.wait_for("alice", "shutdown");
    assert_eq!(team.request(&id)["status"], "approved");
    let told = team
        .inbox("lead")
        .into_iter()
        .filter(|line| line["type"] == "teammate_terminated")
        .count();
    assert_eq!(told, 1);
    assert_eq!(team.processes(), [team.daemon_pid()]);
}

#[test]
fn a_worker_that_died_while_no_daemon_ran_has_an_unknown_exit() {
    let team = Team::started();
    team.spawn("alice", "");
    team.spawn("bob", "");
    let pid = team.pid("alice");
    team.kill_daemon();
    signal(pid, Signal::SIGKILL);
    team.until_gone("alice", pid);
    team.teamd(["start"]).ok();
    team.wait_for("alice", "crashed");
    let member = team.member("alice");
    assert_eq!(
        (&member["exit"]["code"], &member["exit"]["signal"]),
        (&Value::Null, &Value::Null),
        "{member}"
    );
    // Its environment is gone with the daemon that had it: it is not started with a wrong one, and
    // the journal says why.
    assert_eq!(member["incarnation"], 1);
    assert!(
        team.teamctl(["status", "alice"])
            .ok()
            .stdout
            .contains("environment")
    );
    team.until("it to be told", || {
        ["lead", "bob"]
            .iter()
            .all(|name| team.inbox(name).iter().any(|line| line["name"] == "alice"))
    });
    let resumed = team.json(["spawn", "alice", "--resume"]);
    assert_eq!(resumed["incarnation"], 2);
}

#[test]
fn a_worker_ended_while_no_daemon_ran_is_recorded_as_its_transcript_says() {
    let team = Team::started();
    team.spawn("alice", "");
    let pid = team.pid("alice");
    team.kill_daemon();
    signal(pid, Signal::SIGTERM);
    team.until_gone("alice", pid);
    let run = team.teamd(["start"]).ok();
    assert_eq!(
        run.stdout.lines().nth(1),
        Some("ended meanwhile: alice"),
        "{run:?}"
    );
    assert_eq!(
        team.status("alice"),
        "killed",
        "the roster shows what the start has told"
    );
    let ending = team
        .journal()
        .into_iter()
        .find(|line| line["event"] == "ending")
        .unwrap();
    assert_eq!(ending["ending"], "sigterm", "the journal tells why");
    // A later incarnation that dies without a word of its own has crashed.
    team.teamctl(["spawn", "alice", "--resume", "--restart", "never"])
        .ok();
    signal(team.pid("alice"), Signal::SIGKILL);
    team.wait_for("alice", "crashed");
}

#[test]
fn a_start_says_in_one_line_who_ended_what_expired_and_what_was_torn() {
    let team = Team::started();
    let planned = [
        "--plan",
        "--restart",
        "never",
        "--prompt",
        "/plan_approval Something",
    ];
    for name in ["alice", "bob"] {
        team.teamctl([&["spawn", name][..], &planned].concat()).ok();
        team.until_planned(name);
    }
    let pid = team.pid("alice");
    team.kill_daemon();
    signal(pid, Signal::SIGKILL);
    team.until_gone("alice", pid);
    team.put(
        "journal.jsonl",
        &format!("{}{}", team.file("journal.jsonl"), r#"{"seq":99"#),
    );
    let run = team.teamd(["start"]).ok();
    let said = "adopted bob; ended meanwhile: alice; 1 request expired with that; 1 request without an answer; \
                the torn end of journal.jsonl (9 bytes) is kept in journal.torn";
    assert_eq!(run.stdout.lines().nth(1), Some(said), "{run:?}");
    assert_eq!(run.stdout.lines().count(), 2, "{run:?}");
}

/// A worker is not dead because its lock is not seen: the lock went with its file.
fn is_adopted_and_runs_once(meddle: impl FnOnce(&Team)) {
    let team = Team::started();
    team.spawn("alice", "");
    let pid = team.pid("alice");
    team.kill_daemon();
    meddle(&team);
    let started = team.teamd(["--json", "start"]).ok().json();
    assert_eq!(started["adopted"], json!(["alice"]), "{started}");
    assert_eq!(
        (team.pid("alice"), team.status("alice").as_str()),
        (pid, "idle")
    );
    let refused = team.teamctl(["spawn", "alice"]).exits(7).stderr;
    assert!(refused.contains("alice is running already"), "{refused}");
    team.teamctl(["shutdown", "alice"]).ok();
    assert!(!is_alive(pid));
    // That the lock of another file is free, or of none, says nothing.
    assert_eq!(
        team.member("alice")["exit"]["emptied"],
        team.emptied(Value::Null)
    );
}

#[test]
fn a_worker_whose_transcript_was_moved_is_adopted_and_runs_once() {
    is_adopted_and_runs_once(|team| {
        std::fs::rename(
            team.path("transcript/alice.jsonl"),
            team.root().join("moved"),
        )
        .unwrap();
    });
}

/// As `sed -i` and editors do.
#[test]
fn a_worker_whose_transcript_was_replaced_is_adopted_and_runs_once() {
    is_adopted_and_runs_once(|team| {
        let transcript = team.path("transcript/alice.jsonl");
        let edited = team.root().join("edited");
        std::fs::copy(&transcript, &edited).unwrap();
        std::fs::rename(edited, transcript).unwrap();
    });
}

#[test]
fn a_stop_that_was_cut_off_is_no_stop_for_the_next_daemon() {
    let team = Team::started();
    team.spawn("alice", "/bash until [ -e go ]; do sleep 0.02; done");
    team.wait_for("alice", "working");
    let stop = team.start_teamd(["stop"]);
    team.wait_for("alice", "shutting_down");
    team.kill_daemon();
    stop.finish().run_failed();
    team.teamd(["start"]).ok();
    team.spawn("bob", "");
    drop(std::fs::File::create(team.root().join("go")).unwrap());
    // What was asked of alice is still asked.
    team.wait_for("alice", "shutdown");
    assert_eq!(team.status("bob"), "idle");
    assert_eq!(team.json(["status"])["daemon"]["running"], true);
}

/// The daemon is killed again and again, at any moment, while people spawn, send and shut down.
/// Failure 17 (a vendor's CLI, measured; gastown#736 (142 processes, 56 GB)).
#[test]
fn a_killed_daemon_starts_no_worker_twice_and_leaves_none_behind() {
    let team = Team::started();
    for round in 0..8_u64 {
        let name = format!("m{round}");
        let order = "/bash echo $$ >> pids; sleep 0.02";
        let spawn = team.start_teamctl(["spawn", &name, "--no-start", "--prompt", order]);
        let_pass(Duration::from_millis(3 * round));
        team.kill_daemon();
        team.teamd(["start"]).ok();
        // It is done, or it is not, and the roster says which.
        let _either = spawn.finish();
    }
    team.until("every incarnation to be decided", || {
        let roster = team.roster();
        roster["members"]
            .as_array()
            .unwrap()
            .iter()
            .all(|member| matches!(member["status"].as_str(), Some("idle" | "crashed")))
    });
    let roster = team.roster();
    let members = roster["members"].as_array().unwrap();
    let recorded: BTreeSet<i64> = members
        .iter()
        .filter_map(|member| member["pid"].as_i64())
        .collect();
    let workers = || -> BTreeSet<i64> {
        let workers = team
            .processes()
            .into_iter()
            .filter(|&pid| command_line(pid).contains("team-worker run "));
        workers.map(i64::from).collect()
    };
    team.until("the workers to be those of the roster", || {
        workers() == recorded
    });
    team.teamd(["stop"]).ok();
    team.until_no_process_is_left();
    // Every prompt ran once at the most.
    let ran = std::fs::read_to_string(team.root().join("pids"))
        .unwrap_or_default()
        .lines()
        .count();
    assert!(ran <= members.len(), "{ran} of {}", members.len());
}

#[test]
fn an_incarnation_that_never_began_is_not_begun_by_the_next_daemon() {
    let team = Team::started();
    team.spawn("alice", "/write_file ran.txt x");
    team.until("alice to have run", || team.made("ran.txt"));
    let pid = team.pid("alice");
    team.kill_daemon();
    signal(pid, Signal::SIGKILL);
    team.until_gone("alice", pid);
    std::fs::remove_file(team.root().join("ran.txt")).unwrap();
    // As if the daemon had died between its decision and the fork.
    let journal = team.file("journal.jsonl");
    let decided = journal
        .lines()
        .position(|line| line.contains("\"event\":\"spawning\""))
        .unwrap();
    let cut: String = journal
        .lines()
        .take(decided + 1)
        .map(|line| format!("{line}\n"))
        .collect();
    team.put("journal.jsonl", &cut);
    std::fs::remove_file(team.path("transcript/alice.jsonl")).unwrap();
    team.teamd(["start"]).ok();
    team.wait_for("alice", "crashed");
    assert!(
        team.teamctl(["status", "alice"])
            .ok()
            .stdout
            .contains("never run")
    );
    assert!(!team.made("ran.txt"));
    assert_eq!(team.processes(), [team.daemon_pid()]);
    let again = team.json(["spawn", "alice"]);
    assert_eq!(again["incarnation"], 2);
}

/// A line that follows from a decision is written by the next daemon, under the same id, if the one
/// that decided died before it was.
#[test]
fn an_inbox_line_that_a_killed_daemon_owed_is_written_by_the_next_one() {
    let team = Team::started();
    team.spawn("alice", "");
    let pid = team.pid("alice");
    signal(pid, Signal::SIGSTOP);
    let inbox = team.file("inbox/alice.jsonl");
    team.teamctl(["shutdown", "alice", "--no-wait"]).ok();
    let id = team.last_request("shutdown");
    team.kill_daemon();
    let notice = team.inbox("alice").pop().unwrap();
    team.put("inbox/alice.jsonl", &inbox);
    team.teamd(["start"]).ok();
    let of_the_request = || {
        team.inbox("alice")
            .into_iter()
            .filter(|line| line["request_id"] == *id)
            .collect::<Vec<_>>()
    };
    assert_eq!(of_the_request(), [notice]);
    // A further restart does not write it a second time.
    team.kill_daemon();
    team.teamd(["start"]).ok();
    assert_eq!(of_the_request().len(), 1);
    signal(pid, Signal::SIGCONT);
    team.wait_for("alice", "shutdown");
}

/// A worker that the journal does not know is told to leave: it must not stay outside of the roster
/// for ever.
#[test]
fn a_worker_that_the_journal_does_not_know_leaves() {
    let team = Team::started();
    team.spawn("alice", "");
    let pid = team.pid("alice");
    let transcript = std::fs::File::open(team.path("transcript/alice.jsonl")).unwrap();
    team.kill_daemon();
    std::fs::remove_file(team.path("journal.jsonl")).unwrap();
    team.teamd(["start"]).ok();
    // With all its threads: the last of them releases the lock.
    team.until("the unknown worker to leave", || {
        !is_alive(pid) && transcript.try_lock_shared().is_ok()
    });
    // Not by its end: what another test starts just then has a copy of this descriptor for a
    // moment.
    transcript.unlock().unwrap();
    assert!(team.member("alice").is_null());
    team.spawn("alice", "");
}

#[test]
fn a_waiting_command_goes_on_waiting_while_a_daemon_begins() {
    let team = Team::started();
    team.spawn("alice", "");
    team.kill_daemon();
    let wait = ["wait", "alice", "--for", "shutdown", "--timeout", "300ms"];
    team.teamctl(wait).exits(6);
    // It holds the lock, and has not written the roster yet.
    let lock = std::fs::File::open(team.path("")).unwrap();
    team.until("the lock to be free", || lock.try_lock().is_ok());
    team.teamctl(wait).exits(5);
}
