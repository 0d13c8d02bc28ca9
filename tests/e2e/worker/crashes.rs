//! What an incarnation does that goes on after a crash.

use serde_json::json;
use teamd_shared::control::PlanVerdict;
use teamd_shared::inbox;
use teamd_shared::member::Gate;
use teamd_shared::message::{Body, Message};
use teamd_shared::name::Name;
use teamd_shared::request::Status;
use teamd_shared::team_dir::TeamPath;

use super::double::{Begin, Team, UNTIL_GO, alice, id};

#[test]
fn a_command_that_was_running_is_not_run_again() {
    let team = Team::new();
    let mut worker = team.work("/bash echo x >> runs; sleep 600\n/bash echo next");
    worker.doing("bash: echo x >> runs; sleep 600");
    let ran = || std::fs::read_to_string(team.workspace().join("runs")).unwrap_or_default();
    team.until("the command", || ran() == "x\n");
    worker.crash();
    team.resume().idle();
    let results = team.results();
    assert!(
        results[0].1 && results[0].0.contains("may have run"),
        "{results:?}"
    );
    assert_eq!(results[1], ("next".to_owned(), false));
    assert_eq!(ran(), "x\n");
    assert_eq!(
        team.entries()[..4],
        ["incarnation", "answer", "incarnation", "result"]
    );
}

#[test]
fn a_waiting_plan_is_named_again_under_the_same_ids_and_waits_on() {
    let team = Team::new();
    let begin = Begin {
        prompt: Some("/plan_approval Drop it\n/bash echo go"),
        gate: Gate::Closed,
        ..Begin::default()
    };
    let mut worker = team.begin(&begin);
    let (request_id, first) = worker.submitted();
    worker.record_plan(&request_id, Status::Pending);
    worker.crash();
    let mut next = team.begin(&Begin {
        incarnation: 2,
        ..begin
    });
    let (again, second) = next.submitted();
    assert_eq!(
        (&again, &second["id"], &second["plan"]),
        (&request_id, &first["id"], &first["plan"])
    );
    next.record_plan(&request_id, Status::Pending);
    next.doing("waiting for approval");
    next.directive(|directive| {
        directive.gate = Gate::Open;
        directive.verdict = Some(PlanVerdict {
            request_id,
            status: Status::Approved,
            feedback: String::new(),
        });
    });
    next.idle();
    assert_eq!(
        team.results(),
        [("approved".to_owned(), false), ("go".to_owned(), false)]
    );
}

#[test]
fn a_verdict_that_came_while_no_worker_ran_is_found() {
    let team = Team::new();
    let begin = Begin {
        prompt: Some("/plan_approval Drop it"),
        gate: Gate::Closed,
        ..Begin::default()
    };
    let mut worker = team.begin(&begin);
    let (request_id, _) = worker.submitted();
    worker.crash();
    let mut next = team.begin(&Begin {
        incarnation: 2,
        ..begin
    });
    next.record_plan(&request_id, Status::Rejected);
    next.idle();
    assert!(
        team.results()[0].0.starts_with("rejected"),
        "{:?}",
        team.results()
    );
}

/// As if the worker had died in a call that sends bob a message, before or behind its line. Returns
/// the id of the message.
fn broken_off_while_it_sent(team: &Team) -> uuid::Uuid {
    let sent = uuid::Uuid::now_v7();
    broken_off_in(
        team,
        &json!({"type": "tool_use", "id": "call-1-1", "name": "send_message",
            "input": {"to": "bob", "content": "hello"}, "message_id": sent}),
    );
    sent
}

/// As if the worker had died in this call.
fn broken_off_in(team: &Team, call: &serde_json::Value) {
    team.work("/bash true").idle();
    let transcript = team.dir.path(&TeamPath::transcript(&alice()));
    let lines = std::fs::read_to_string(&transcript).unwrap();
    let answer = lines.lines().nth(1).unwrap();
    let mut entry: serde_json::Value = serde_json::from_str(answer).unwrap();
    entry["content"] = json!([call]);
    let cut = format!("{}\n{entry}\n", lines.lines().next().unwrap());
    let file = std::fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&transcript)
        .unwrap();
    std::io::Write::write_all(&mut { file }, cut.as_bytes()).unwrap();
}

#[test]
fn a_message_that_was_being_sent_is_sent_under_the_same_id() {
    let team = Team::new();
    let sent = broken_off_while_it_sent(&team);
    team.resume().idle();
    assert_eq!(team.results()[0], ("sent to bob".to_owned(), false));
    assert_eq!(team.lines("bob")[0]["id"], json!(sent));
}

#[test]
fn a_message_that_was_sent_is_not_sent_again_to_a_reader_that_may_have_forgotten_it() {
    let team = Team::new();
    let sent = broken_off_while_it_sent(&team);
    let bob = Name::new("bob").unwrap();
    let line = Message::new(sent, "alice", "bob", 1.5, Body::Message).with_content("hello");
    inbox::append(&team.dir, &bob, &line, inbox::Durability::Process).unwrap();
    team.resume().idle();
    let (told, is_error) = team.results().remove(0);
    assert!(
        told.starts_with("sent to bob before the worker was restarted") && !is_error,
        "{told}"
    );
    assert_eq!(team.lines("bob").len(), 1);
}

#[test]
fn a_notification_that_was_not_written_is_written_and_one_that_was_is_not_doubled() {
    for lost in [false, true] {
        let team = Team::new();
        let mut worker = team.work("all done");
        worker.idle();
        worker.crash();
        let told = team.lead("idle_notification");
        if lost {
            let path = team.dir.path(&TeamPath::inbox(&Name::lead()));
            drop(
                std::fs::OpenOptions::new()
                    .write(true)
                    .truncate(true)
                    .open(path)
                    .unwrap(),
            );
        }
        team.resume().idle();
        assert_eq!(team.lead("idle_notification")[0]["id"], told[0]["id"]);
        assert_eq!(team.lead("idle_notification").len(), 1, "lost: {lost}");
    }
}

/// Found by the simulation: the result of the broken call came first, and then no notice was
/// pending any more.
#[test]
fn a_notice_is_told_although_a_call_was_broken_off_in_the_same_moment() {
    let team = Team::new();
    team.work("/bash true").idle();
    let transcript = team.dir.path(&TeamPath::transcript(&alice()));
    let lines = std::fs::read_to_string(&transcript).unwrap();
    let begins = lines.lines().next().unwrap();
    let answer = lines.lines().nth(1).unwrap();
    let mut entry: serde_json::Value = serde_json::from_str(answer).unwrap();
    entry["content"] =
        json!([{"type": "tool_use", "id": "call-1-1", "name": "read_inbox", "input": {}}]);
    // The call has consumed a line that is no message, and the worker died before it told the lead.
    let id = uuid::Uuid::now_v7();
    let rejected = json!({"at": 1.5, "inbox": entry["inbox"], "entry": "rejected", "offset": 0,
        "reason": "not JSON", "message_id": id});
    let cut = format!("{begins}\n{entry}\n{rejected}\n");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&transcript)
        .unwrap();
    std::io::Write::write_all(&mut { file }, cut.as_bytes()).unwrap();
    team.resume().idle();
    assert!(
        team.results()[0].0.contains("may have run"),
        "{:?}",
        team.results()
    );
    assert_eq!(
        team.lead("message")
            .iter()
            .filter(|line| line["id"] == json!(id))
            .count(),
        1
    );
}

#[test]
fn a_message_is_consumed_once_across_incarnations() {
    let team = Team::new();
    let mut worker = team.begin(&Begin::default());
    team.write("/sleep 600");
    worker.doing("sleep: 600.0");
    worker.crash();
    team.write("second");
    team.resume().idle();
    let taken: Vec<usize> = team
        .transcript()
        .iter()
        .filter_map(|entry| match &entry.event {
            teamd_shared::transcript::Event::Messages { messages } => Some(messages.len()),
            _ => None,
        })
        .collect();
    assert_eq!(taken, [1, 1]);
}

#[test]
fn a_fresh_incarnation_knows_nothing_of_the_one_before() {
    let team = Team::new();
    let mut worker = team.work("/sleep 600");
    worker.doing("sleep: 600.0");
    worker.crash();
    let mut fresh = team.begin(&Begin {
        incarnation: 2,
        conversation: 2,
        prompt: Some("anew"),
        ..Begin::default()
    });
    fresh.idle();
    assert_eq!(
        team.entries(),
        ["incarnation", "answer", "incarnation", "answer", "idle"]
    );
    assert_eq!(team.lead("idle_notification")[0]["content"], "anew");
}

#[test]
fn a_conversation_whose_first_incarnation_wrote_nothing_begins_with_its_prompt() {
    let team = Team::new();
    let mut worker = team.begin(&Begin {
        incarnation: 3,
        conversation: 2,
        prompt: Some("from the start"),
        ..Begin::default()
    });
    worker.idle();
    assert_eq!(
        team.lead("idle_notification")[0]["content"],
        "from the start"
    );
}

#[test]
fn a_shutdown_of_an_earlier_incarnation_is_not_answered_in_the_next() {
    let team = Team::new();
    let mut worker = team.work(UNTIL_GO);
    worker.waits_for_go();
    worker.ask_to_leave(30.0);
    worker.acts();
    team.go();
    let (request_id, _) = worker.submitted();
    assert_eq!(request_id, id("5d0c0ffe"));
    worker.crash();
    team.resume().idle();
    let last = team.results().pop().unwrap();
    assert_eq!(
        last,
        ("no shutdown request 5d0c0ffe is pending".to_owned(), true)
    );
}
