//! Force: what does not leave by itself is ended, with all that it started.

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::look::HELD;
use crate::support::process::stat;
use crate::support::{Team, signal};

/// A team that waits 300 ms between two steps of the ladder.
fn hurried() -> Team {
    let team = Team::new().with("TEAM_GRACE", "300ms");
    team.teamd(["start"]).ok();
    team
}

#[track_caller]
fn only_the_daemon_runs(team: &Team) {
    assert_eq!(team.processes(), [team.daemon_pid()]);
}

/// Failure 4 (CC#36222).
#[test]
fn a_stopped_worker_is_killed() {
    let team = hurried();
    team.spawn("alice", "");
    let pid = team.pid("alice");
    signal(pid, Signal::SIGSTOP);
    let result = team.shutdown("alice", &["--force", "--timeout", "200ms"], 0);
    assert_eq!(result["outcome"], "killed", "{result}");
    assert!(!crate::support::is_alive(pid));
    assert_eq!(team.status("alice"), "killed");
}

#[test]
fn a_busy_worker_is_ended_with_all_that_it_runs() {
    let team = hurried();
    team.spawn(
        "alice",
        "/bash trap '' TERM HUP; setsid sleep 300 & touch held; while :; do sleep 301; done",
    );
    team.until_held();
    let result = team.shutdown("alice", &["--force", "--timeout", "0"], 0);
    assert_eq!(result["outcome"], "killed", "{result}");
    only_the_daemon_runs(&team);
    // What the user ended is not started again.
    assert_eq!(
        (
            team.status("alice"),
            team.member("alice")["incarnation"].clone()
        ),
        ("killed".to_owned(), json!(1))
    );
}

#[test]
fn force_that_is_not_needed_is_not_used() {
    let team = Team::started();
    team.spawn("alice", "");
    assert_eq!(
        team.shutdown("alice", &["--force"], 0)["outcome"],
        "shutdown"
    );
}

#[test]
fn a_rejection_is_overruled() {
    let team = hurried();
    team.spawn(
        "alice",
        &format!("/reject_shutdown no\n{HELD}\n/bash sleep 300"),
    );
    team.until_held();
    let asking = team.start_teamctl(["--json", "shutdown", "alice", "--force", "--timeout", "20s"]);
    team.until_asked("alice");
    team.release();
    assert_eq!(
        asking.finish().ok().json()["results"][0]["outcome"],
        "killed"
    );
    only_the_daemon_runs(&team);
}

#[test]
fn a_joining_command_brings_its_force() {
    let team = hurried();
    team.spawn("alice", HELD);
    team.until_held();
    let patient = team.start_teamctl(["--json", "shutdown", "alice"]);
    team.until_asked("alice");
    let forced = team.shutdown("alice", &["--force", "--timeout", "100ms"], 0);
    assert_eq!(forced["outcome"], "killed");
    assert_eq!(
        patient.finish().ok().json()["results"][0]["outcome"],
        "killed"
    );
    assert_eq!(team.requests("shutdown").len(), 1);
}

/// Failure 2 (CC#60199, CC#49671, CC#74638).
#[test]
fn a_worker_that_was_released_and_stays_is_ended_without_force() {
    // Between her line and what she says of it, no disk is waited for.
    let team = Team::new()
        .with("TEAM_GRACE", "300ms")
        .with("TEAM_DURABILITY", "process");
    team.teamd(["start"]).ok();
    team.spawn("alice", "");
    let worker = team.pid("alice");
    let daemon = team.daemon_pid();
    signal(worker, Signal::SIGSTOP);
    let asking = team.start_teamctl(["--json", "shutdown", "alice"]);
    let id = team.until_asked("alice");
    // She answers while the daemon cannot hear it, and is stopped before it lets her go.
    signal(daemon, Signal::SIGSTOP);
    signal(worker, Signal::SIGCONT);
    team.until("her answer", || {
        team.inbox("lead")
            .iter()
            .any(|line| line["type"] == "shutdown_response")
    });
    let mut rests = 0;
    team.until("her to have told the daemon, and to wait for it", || {
        let sleeps = stat(worker).is_some_and(|stat| stat[0] == "S");
        rests = if sleeps { rests + 1 } else { 0 };
        rests == 10
    });
    signal(worker, Signal::SIGSTOP);
    signal(daemon, Signal::SIGCONT);
    assert_eq!(
        asking.finish().ok().json()["results"][0]["outcome"],
        "killed"
    );
    only_the_daemon_runs(&team);
    assert_eq!(team.request(&id)["status"], "approved");
}
