//! Incarnations of the lead agent: it is killed, adopted, resumed, and its conversation goes on.

use nix::sys::signal::Signal;
use serde_json::Value;
use teamd_shared::member::Restart;

use super::{team, text};
use crate::support::{Team, is_alive, signal};

#[test]
fn a_lead_agent_that_is_killed_goes_on_with_its_conversation() {
    let team = team();
    team.lead_does("/bash echo one");
    team.kill_and_wait_for_restart("lead");
    team.lead_does(
        "/spawn_teammate {\"name\": \"alice\", \"role\": \"coder\", \"prompt\": \"hello\"}",
    );
    assert_eq!(team.results("lead").len(), 2);
    let incarnations = team.entries("lead", "incarnation");
    assert_eq!(
        incarnations
            .iter()
            .map(|incarnation| incarnation["conversation"].as_i64().unwrap())
            .collect::<Vec<_>>(),
        [1, 1]
    );
    team.wait_for("alice", "idle");
}

/// Rule 14: a shutdown asks one incarnation to leave, and does not concern the next one.
#[test]
fn a_shutdown_cut_off_by_a_crash_does_not_ask_the_next_incarnation() {
    let team = Team::started();
    team.start_lead_with(|order| order.terms.restart = Some(Restart::Never));
    team.spawn("alice", "");
    team.kill_daemon();
    team.send("lead", "/shutdown_request {\"teammate\": \"alice\"}");
    team.until("the call to begin", || team.answers("lead") == 1);
    signal(team.pid("lead"), Signal::SIGKILL);
    team.teamd(["start"]).ok();
    team.wait_for("lead", "crashed");
    team.teamctl(["shutdown", "alice"]).ok();
    team.spawn("alice", "");
    team.resume_lead();
    team.until_lead_ended(1);
    let results = team.results("lead");
    let (told, is_error) = text(&results[0]);
    assert!(
        is_error && told.contains("may have been carried out (list_teammates"),
        "{told}"
    );
    assert_eq!(
        (
            team.requests("shutdown").len(),
            team.status("alice").as_str()
        ),
        (1, "idle")
    );
    assert!(is_alive(team.pid("alice")));
}

#[test]
fn a_lead_agent_that_is_killed_in_a_call_does_nothing_twice() {
    let team = team();
    team.spawn("alice", "");
    let daemon = team.daemon_pid();
    let orders = [
        "/broadcast {\"content\": \"go on\"}",
        "/spawn_teammate {\"name\": \"bob\", \"role\": \"coder\", \"prompt\": \"hello\"}",
        "/shutdown_request {\"teammate\": \"alice\", \"reason\": \"done\"}",
    ];
    // Not its answers: what the others say at the end of their work is answered, too.
    let calls = || {
        let answers = team.entries("lead", "answer");
        answers
            .iter()
            .filter(|answer| answer["content"].to_string().contains("\"tool_use\""))
            .count()
    };
    for (made, order) in orders.into_iter().enumerate() {
        let incarnation = team.incarnation("lead");
        signal(daemon, Signal::SIGSTOP);
        team.send("lead", order);
        team.until("the call to begin", || calls() > made);
        signal(team.pid("lead"), Signal::SIGKILL);
        signal(daemon, Signal::SIGCONT);
        team.until("the next incarnation to go on", || {
            team.incarnation("lead") == incarnation + 1 && team.results("lead").len() > made
        });
        team.teamctl(["wait", "lead", "--for", "idle"]).ok();
    }
    let results = team.results("lead");
    // Whether the line was written before the kill is chance, too: the model is told which it was.
    let (told, is_error) = text(&results[0]);
    let before = "sent to alice before the worker was restarted, and not a second time";
    assert!(
        (told == "sent to alice" || told.starts_with(before)) && !is_error,
        "{told}"
    );
    assert_eq!(results.len(), 3);
    for result in &results[1..] {
        assert!(
            text(result).1 && text(result).0.contains("may have been carried out"),
            "{result}"
        );
    }
    // Whether the daemon had heard of it before is chance; that it has heard of it once is not.
    // A line that is written again has the same id, and its reader drops it.
    let lines = team.inbox("alice");
    let broadcasts = lines
        .iter()
        .filter(|line| line["type"] == "broadcast")
        .map(|line| line["id"].to_string());
    let broadcasts: std::collections::BTreeSet<String> = broadcasts.collect();
    assert_eq!(
        (broadcasts.len(), team.requests("shutdown").len() <= 1),
        (1, true)
    );
    assert!(team.incarnation("bob") <= 1);
    if team.requests("shutdown").len() == 1 {
        team.wait_for("alice", "shutdown");
    }
}

#[test]
fn a_lead_agent_is_adopted_and_its_team_hears_it_as_before() {
    let team = team();
    let pid = team.pid("lead");
    team.kill_daemon();
    team.send(
        "lead",
        "/spawn_teammate {\"name\": \"alice\", \"role\": \"coder\", \"prompt\": \"hello\"}",
    );
    team.until("the call to begin", || team.answers("lead") == 1);
    team.teamd(["start"]).ok();
    team.until_lead_ended(1);
    assert_eq!(team.pid("lead"), pid);
    assert_eq!(
        text(&team.results("lead")[0]).0,
        "alice has started (incarnation 1) and works on your prompt"
    );
    let alice = team.pid("alice");
    team.teamd(["stop"]).ok();
    assert!(!is_alive(pid) && !is_alive(alice));
    assert_eq!(
        (team.status("lead"), team.status("alice")),
        ("shutdown".into(), "shutdown".into())
    );
    team.until_no_process_is_left();
}

#[test]
fn the_lead_agent_leaves_the_quarantine_to_the_daemon() {
    let team = team();
    team.echo("lead", "no message");
    let notices = || {
        let told = |line: &Value| {
            line["content"]
                .as_str()
                .unwrap()
                .contains("could not be read")
        };
        team.inbox("lead").iter().filter(|line| told(line)).count()
    };
    team.until("the line to be kept, and told of", || notices() == 1);
    team.until_caught_up("lead");
    team.lead_does("hello");
    assert_eq!(
        (team.lines("inbox/lead.rejected.jsonl").len(), notices()),
        (1, 1)
    );
    assert!(team.entries("lead", "rejected").is_empty());
    // Its next incarnation finds it likewise.
    team.kill_and_wait_for_restart("lead");
    team.lead_does("hello again");
    assert_eq!(team.lines("inbox/lead.rejected.jsonl").len(), 1);
}

#[test]
fn a_resumed_lead_agent_reads_earlier_mail_and_a_fresh_one_does_not() {
    let team = Team::started();
    team.send("lead", "months ago");
    team.start_lead();
    team.lead_does("one");
    assert!(!team.has_consumed("lead", "months ago") && team.has_consumed("lead", "one"));
    team.teamctl(["shutdown", "lead"]).ok();
    team.send("lead", "between two incarnations");
    team.resume_lead();
    team.until("the mail to be read", || {
        team.has_consumed("lead", "between two incarnations")
    });
    team.teamctl(["shutdown", "lead"]).ok();
    team.send("lead", "between two others");
    team.start_lead();
    team.lead_does("two");
    assert!(!team.has_consumed("lead", "between two others"));
}

#[test]
fn sigterm_ends_the_lead_agent_like_any_worker() {
    let team = team();
    signal(team.pid("lead"), Signal::SIGTERM);
    team.wait_for("lead", "killed");
    assert_eq!(team.events("spawning"), 1, "it is not started again");
}
