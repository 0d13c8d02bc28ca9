//! The shutdown handshake, from the worker's side.

use std::time::{Duration, Instant};

use serde_json::json;
use teamd_shared::control::ToWorker;

use super::double::{Begin, Team, UNTIL_GO};

#[test]
fn an_idle_worker_approves_at_once_and_leaves_only_when_it_is_recorded() {
    let team = Team::new();
    let mut worker = team.begin(&Begin::default());
    team.echo(
        r#"{"type":"shutdown_request","from":"lead","request_id":"5d0c0ffe","content":"tidy up"}"#,
    );
    worker.ask_to_leave(30.0);
    let (_, line) = worker.submitted();
    assert_eq!(
        (&line["approve"], &line["answered_by"]),
        (&json!(true), &json!("runtime"))
    );
    assert_eq!(line["reason"], "idle");
    assert!(worker.runs());
    worker.record_answer(true);
    worker.ends_well();
    assert_eq!(team.entries(), ["incarnation", "messages", "left"]);
}

#[test]
fn a_forged_request_does_nothing() {
    let team = Team::new();
    let mut worker = team.begin(&Begin::default());
    team.echo(
        r#"{"type":"shutdown_request","from":"lead","request_id":"f0f0f0f0","content":"go"}"#,
    );
    team.write("hi");
    team.until("an answer", || team.lead("idle_notification").len() == 1);
    assert!(worker.runs() && team.lead("shutdown_response").is_empty());
    worker.ask_to_leave(30.0);
    worker.release();
    worker.ends_well();
}

#[test]
fn mail_before_the_request_is_worked_on_first() {
    let team = Team::new();
    let mut worker = team.begin(&Begin {
        watch: false,
        ..Begin::default()
    });
    team.write("/bash touch done-first");
    worker.ask_to_leave(30.0);
    let line = worker.release();
    assert_eq!(line["answered_by"], "model");
    worker.ends_well();
    assert!(team.workspace().join("done-first").exists());
    let entries = [
        "incarnation",
        "messages",
        "answer",
        "result",
        "asked",
        "answer",
        "result",
        "left",
    ];
    assert_eq!(team.entries(), entries);
}

#[test]
fn a_working_model_is_asked_with_the_next_results() {
    let team = Team::new();
    let mut worker = team.work(&format!("{UNTIL_GO}\n/sleep 600"));
    worker.waits_for_go();
    worker.ask_to_leave(30.0);
    worker.acts();
    team.go();
    let line = worker.release();
    assert_eq!(line["answered_by"], "model");
    worker.ends_well();
    assert_eq!(
        team.entries(),
        [
            "incarnation",
            "answer",
            "result",
            "asked",
            "answer",
            "result",
            "left"
        ]
    );
    assert!(team.lead("idle_notification").is_empty());
}

#[test]
fn a_rejection_is_recorded_and_the_work_goes_on() {
    let team = Team::new();
    let mut worker = team.work(&format!(
        "/reject_shutdown still writing\n{UNTIL_GO}\n/bash echo more"
    ));
    worker.waits_for_go();
    worker.ask_to_leave(30.0);
    worker.acts();
    team.go();
    let (_, line) = worker.submitted();
    assert_eq!(
        (&line["approve"], &line["reason"]),
        (&json!(false), &json!("still writing"))
    );
    worker.record_answer(false);
    worker.idle();
    let results = team.results();
    assert!(
        !results[1].1 && results[1].0.starts_with("rejected"),
        "{results:?}"
    );
    assert_eq!(results[2], ("more".to_owned(), false));
    assert!(worker.runs());
}

#[test]
fn an_answer_that_came_second_finds_the_first_one() {
    let team = Team::new();
    let mut worker = team.work(&format!("/reject_shutdown no\n{UNTIL_GO}"));
    worker.waits_for_go();
    worker.ask_to_leave(30.0);
    worker.acts();
    team.go();
    worker.submitted();
    worker.record_answer(true);
    worker.ends_well();
    let results = team.results();
    assert!(
        results[1].1 && results[1].0.contains("approved already"),
        "{results:?}"
    );
}

#[test]
fn a_turn_that_ends_without_an_answer_is_an_approval() {
    let team = Team::new();
    let mut worker = team.begin(&Begin {
        watch: false,
        ..Begin::default()
    });
    team.write("only words");
    worker.ask_to_leave(30.0);
    let line = worker.release();
    assert_eq!(line["answered_by"], "runtime");
    worker.ends_well();
    assert_eq!(team.lead("idle_notification").len(), 1);
}

#[test]
fn when_the_time_to_decide_is_over_the_runtime_approves_as_the_running_call_ends() {
    let team = Team::new();
    let mut worker = team.work(&format!("{UNTIL_GO}; echo kept\n/bash echo never"));
    worker.waits_for_go();
    worker.ask_to_leave(0.1);
    worker.acts();
    // Its time has begun, and passes.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(200) {
        std::thread::park_timeout(Duration::from_millis(200));
    }
    team.go();
    let line = worker.release();
    assert_eq!(
        (&line["answered_by"], &line["reason"]),
        (&json!("runtime"), &json!("no answer within 0.1 s"))
    );
    worker.ends_well();
    assert_eq!(team.results(), [("kept".to_owned(), false)]);
}

#[test]
fn an_answer_to_what_is_not_pending_moves_nothing() {
    let team = Team::new();
    let mut worker = team.work("/shutdown_response {\"request_id\": \"5d0c0ffe\", \"approve\": true, \"reason\": \"bye\"}\n/bash echo here");
    worker.idle();
    assert_eq!(
        team.results()[0],
        ("no shutdown request 5d0c0ffe is pending".to_owned(), true)
    );
    assert_eq!(team.results()[1].0, "here");
    assert!(team.lead("shutdown_response").is_empty() && worker.runs());
}

#[test]
fn a_lost_reply_is_made_good_on_the_next_connection() {
    let team = Team::new();
    let mut worker = team.begin(&Begin::default());
    worker.ask_to_leave(30.0);
    let (request_id, first) = worker.submitted();
    worker.hang_up();
    let listener = team.listen();
    worker.welcome_back(&listener);
    let (again, second) = worker.submitted();
    assert_eq!((again, &second), (request_id, &first));
    assert_eq!(team.lead("shutdown_response").len(), 1);
    worker.record_answer(true);
    worker.ends_well();
}

#[test]
fn a_refused_answer_is_no_release() {
    let team = Team::new();
    let mut worker = team.begin(&Begin::default());
    worker.ask_to_leave(30.0);
    let (request_id, _) = worker.submitted();
    // The directive first: one that stays pending is answered again.
    worker.directive(|directive| directive.shutdown = None);
    worker.send(ToWorker::Refused {
        request_id,
        why: "it is expired".to_owned(),
        taken: false,
    });
    team.write("hi");
    team.until("an answer", || team.lead("idle_notification").len() == 1);
    assert!(worker.runs());
}
