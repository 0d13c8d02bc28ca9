//! No process holds up another: not by one odd inbox, a flood, a stopped daemon, or a start beside
//! a stop.

use std::io::Write;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::hostile::make_fifo;
use crate::support::look::HELD;
use crate::support::process::{children, command_line};
use crate::support::{Team, is_alive, signal};

fn is_told(team: &Team, who: &str, kind: &str, about: &str) -> bool {
    team.inbox(who)
        .iter()
        .any(|line| line["type"] == kind && (about.is_empty() || line["name"] == about))
}

#[test]
fn feedback_that_fits_into_no_line_is_refused_with_size_and_limit() {
    let team = Team::started();
    team.spawn("alice", "/plan_approval p");
    let plan = team.until_planned("alice");
    // Within the limit as text; but the line carries it twice.
    let huge = "z".repeat(700_000);
    let refused = team.teamctl_with(["reject", &plan, "--feedback", "-"], &huge);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("1048576") && refused.stderr.contains("hint"),
        "{}",
        refused.stderr
    );
    assert_eq!(team.request(&plan)["status"], "pending");
    let escapes = "\u{1}".repeat(100_000);
    team.teamctl(["shutdown", "alice", "--no-wait", "--reason", &escapes])
        .exits(2);
    // What follows is told as ever.
    team.teamctl(["reject", &plan, "--feedback", "smaller"])
        .ok();
    team.until("the verdict to be told", || {
        is_told(&team, "alice", "plan_approval_response", "")
    });
}

#[test]
fn an_inbox_that_cannot_be_written_keeps_nothing_from_the_others() {
    let team = Team::started();
    for name in ["alice", "bob", "carol"] {
        team.spawn(name, "");
    }
    team.plant("inbox/alice.jsonl", make_fifo);
    team.teamctl(["request-plan", "alice", "please"]).ok();
    team.teamctl(["request-plan", "carol", "please"]).ok();
    team.until("carol to be told", || {
        is_told(&team, "carol", "plan_request", "")
    });
    team.teamctl(["shutdown", "bob"]).ok();
    team.until("carol to hear of bob", || {
        is_told(&team, "carol", "teammate_terminated", "bob")
    });
    // One odd inbox does not hide the others from people, either.
    let status = team.json(["status"]);
    assert_eq!(status["members"].as_array().unwrap().len(), 3);
    assert_eq!(status["members"][0]["unread"], Value::Null);
}

#[test]
fn a_lock_on_an_inbox_holds_up_no_command() {
    let team = Team::started();
    team.spawn("alice", "");
    let locked = ["alice", "lead"].map(|name| {
        let inbox = std::fs::File::open(team.path(&format!("inbox/{name}.jsonl"))).unwrap();
        inbox.lock().unwrap();
        inbox
    });
    team.send("alice", "hello").ok();
    team.until_caught_up("alice");
    team.teamctl(["shutdown", "alice"]).ok();
    team.until("the lead to be told", || {
        is_told(&team, "lead", "teammate_terminated", "alice")
    });
    drop(locked);
}

#[test]
fn a_flood_of_bad_lines_to_the_lead_keeps_no_command_waiting() {
    let team = Team::started();
    team.spawn("alice", "");
    let flood = "not a message\n".repeat(20_000);
    let mut inbox = std::fs::OpenOptions::new()
        .append(true)
        .open(team.path("inbox/lead.jsonl"))
        .unwrap();
    inbox.write_all(flood.as_bytes()).unwrap();
    team.teamctl(["shutdown", "alice"]).ok();
    team.until("all of them to be in quarantine", || {
        team.lines("inbox/lead.rejected.jsonl").len() == 20_000
    });
}

#[test]
fn sigterm_to_a_worker_counts_also_when_the_daemon_hears_of_its_end_first() {
    let team = Team::started();
    team.spawn("alice", "");
    let daemon = team.daemon_pid();
    let worker = team.pid("alice");
    signal(daemon, Signal::SIGSTOP);
    signal(worker, Signal::SIGTERM);
    team.until("alice to be gone", || !is_alive(worker));
    signal(daemon, Signal::SIGCONT);
    team.wait_for("alice", "killed");
    assert_eq!(team.incarnation("alice"), 1, "it was not started again");
}

/// As a terminal that is closed, or a machine that is shut down, does it.
#[test]
fn sigterm_to_all_processes_at_once_ends_all_and_restarts_none() {
    let team = Team::started();
    team.spawn("alice", "");
    team.spawn("bob", "/bash touch started; sleep 600");
    team.until("the command to run", || team.made("started"));
    let daemon = team.daemon_pid();
    let workers = ["alice", "bob"].map(|name| team.pid(name));
    for &pid in workers.iter().chain([&daemon]) {
        signal(pid, Signal::SIGTERM);
    }
    team.until("the daemon to be gone", || !is_alive(daemon));
    team.until_no_process_is_left();
    for name in ["alice", "bob"] {
        let status = team.status(name);
        assert!(
            ["killed", "shutdown"].contains(&status.as_str()),
            "{name} is {status}"
        );
        assert_eq!(team.incarnation(name), 1, "{name} was not started again");
    }
    assert_eq!(team.events("stopped"), 1);
}

/// Failure 18 (a vendor's CLI, measured).
#[test]
fn what_a_worker_and_its_shim_leave_when_both_are_killed_is_ended_before_the_status_says_so() {
    let team = Team::started();
    team.teamctl(["spawn", "alice", "--restart", "never"]).ok();
    team.send(
        "alice",
        "/bash setsid sleep 600 & (sleep 600 &) ; echo $$ > started; sleep 600",
    );
    team.until("the command to run", || !team.text("started").is_empty());
    let worker = team.pid("alice");
    let shim = children(worker)
        .into_iter()
        .find(|&pid| command_line(pid).contains(" shim "))
        .unwrap();
    signal(worker, Signal::SIGSTOP);
    signal(shim, Signal::SIGKILL);
    signal(worker, Signal::SIGKILL);
    team.wait_for("alice", "crashed");
    let sleeping = team
        .processes()
        .into_iter()
        .filter(|&pid| command_line(pid).contains("sleep 600"));
    assert_eq!(sleeping.collect::<Vec<_>>(), [] as [i32; 0]);
}

#[test]
fn a_start_beside_a_stop_ends_with_a_daemon_that_runs() {
    let team = Team::started();
    team.spawn("alice", HELD);
    team.until_held();
    let stop = team.start_teamd(["stop"]);
    team.wait_for("alice", "shutting_down");
    let start = team.start_teamd(["start"]);
    team.release();
    stop.finish().ok();
    start.finish().ok();
    team.teamd(["status"]).ok();
}

#[test]
fn a_daemon_that_does_not_answer_is_waited_for_no_longer_than_was_asked() {
    let team = Team::started();
    team.spawn("alice", "");
    let daemon = team.daemon_pid();
    signal(daemon, Signal::SIGSTOP);
    let asked = team.teamctl(["shutdown", "alice", "--timeout", "200ms"]);
    signal(daemon, Signal::SIGCONT);
    asked.exits(5);
}
