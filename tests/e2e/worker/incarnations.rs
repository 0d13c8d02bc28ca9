//! Births, work, messages, and how the daemon is lost and found.

use nix::sys::signal::Signal;
use serde_json::json;
use teamd_shared::clock::since_boot;
use teamd_shared::control::ToWorker;
use teamd_shared::member::Doing;
use teamd_shared::message::IdleReason;
use teamd_shared::team_dir::TeamPath;
use teamd_shared::transcript::Event;

use super::double::{Begin, Team, UNTIL_GO, alice};

#[test]
fn who_is_not_welcomed_leaves_without_a_trace() {
    let team = Team::new();
    team.write("hello");
    let mut worker = team.bear(1);
    worker.hang_up();
    worker.ends_well();
    assert!(team.transcript().is_empty() && team.lead("idle_notification").is_empty());
}

#[test]
fn a_second_process_for_the_same_life_says_why_it_cannot() {
    let team = Team::new();
    let _first = team.bear(1);
    assert!(!team.start(1).end().success());
    let log = String::from_utf8(team.dir.read(&TeamPath::log("alice")).unwrap()).unwrap();
    assert!(log.contains("transcript/alice.jsonl is locked"), "{log}");
}

#[test]
fn an_incarnation_without_a_prompt_is_idle_and_writes_only_that_it_began() {
    let team = Team::new();
    let worker = team.begin(&Begin::default());
    assert_eq!(
        (
            worker.state.doing,
            worker.state.applied_seq,
            worker.state.needs_waking
        ),
        (Doing::Idle, 1, false)
    );
    assert_eq!(team.entries(), ["incarnation"]);
}

#[test]
fn a_prompt_is_worked_on_and_the_lead_is_told_once() {
    let team = Team::new();
    let mut worker = team.work("/bash umask; echo hello > made; ls\nall done");
    worker.idle();
    assert_eq!(
        team.entries(),
        ["incarnation", "answer", "result", "answer", "idle"]
    );
    assert_eq!(team.results(), [("0027\nmade".to_owned(), false)]);
    let told = team.lead("idle_notification");
    assert_eq!(
        (told.len(), &told[0]["summary"], &told[0]["idle_reason"]),
        (1, &json!("all done"), &json!("available"))
    );
}

#[test]
fn a_message_wakes_her_and_what_starts_no_turn_does_not() {
    let team = Team::new();
    let mut worker = team.begin(&Begin::default());
    team.echo(r#"{"type":"teammate_terminated","from":"teamd","name":"bob"}"#);
    team.until("the messages", || {
        team.entries() == ["incarnation", "messages"]
    });
    team.write("hi");
    team.until("an answer", || team.lead("idle_notification").len() == 1);
    worker.idle();
    assert_eq!(
        team.entries(),
        ["incarnation", "messages", "messages", "answer", "idle"]
    );
    let inbox = team.dir.read(&TeamPath::inbox(&alice())).unwrap();
    assert_eq!(
        team.transcript().last().unwrap().inbox.offset,
        inbox.len() as u64
    );
}

#[test]
fn who_may_not_watch_is_rung() {
    let team = Team::new();
    let mut worker = team.begin(&Begin {
        watch: false,
        ..Begin::default()
    });
    assert!(worker.state.needs_waking);
    team.write("hi");
    worker.send(ToWorker::Wake);
    team.until("an answer", || team.lead("idle_notification").len() == 1);
}

#[test]
fn messages_that_arrive_during_a_turn_reach_the_model_with_the_next_results() {
    let team = Team::new();
    let mut worker = team.work(UNTIL_GO);
    worker.waits_for_go();
    team.write("one more thing");
    team.go();
    worker.idle();
    assert_eq!(
        team.entries(),
        [
            "incarnation",
            "answer",
            "result",
            "messages",
            "answer",
            "idle"
        ]
    );
    assert_eq!(
        team.lead("idle_notification")[0]["content"],
        "one more thing"
    );
}

#[test]
fn a_line_that_is_no_message_is_kept_and_told_and_reading_goes_on() {
    let team = Team::new();
    let mut worker = team.begin(&Begin::default());
    team.echo("nonsense");
    team.write("hi");
    team.until("an answer", || team.lead("idle_notification").len() == 1);
    worker.idle();
    let kept = team.dir.read(&TeamPath::rejected(&alice())).unwrap();
    assert_eq!(kept.iter().filter(|&&byte| byte == b'\n').count(), 1);
    let told = team.lead("message");
    assert!(
        told.len() == 1 && told[0]["content"].as_str().unwrap().contains("offset 0"),
        "{told:?}"
    );
}

#[test]
fn what_arrives_while_a_call_runs_is_delivered_with_its_result_and_not_again() {
    let team = Team::new();
    let line = json!({"type": "message", "from": "bob", "content": "the build is red"});
    let mut worker = team.work(&format!(
        "/bash echo '{line}' >> .team/inbox/alice.jsonl\n/read_inbox"
    ));
    worker.idle();
    let entries = [
        "incarnation",
        "answer",
        "result",
        "messages",
        "answer",
        "result",
        "answer",
        "idle",
    ];
    assert_eq!(team.entries(), entries);
    assert_eq!(team.results()[1], ("no new messages".to_owned(), false));
}

#[test]
fn a_message_is_sent_to_who_runs_and_refused_to_who_does_not() {
    let team = Team::new();
    team.roster(&[("alice", "working"), ("bob", "idle"), ("carol", "crashed")]);
    let mut worker =
        team.work("/send_message bob hello\n/send_message carol hello\n/send_message dave hello");
    worker.idle();
    let results = team.results();
    assert_eq!(results[0], ("sent to bob".to_owned(), false));
    assert_eq!(
        results[1],
        ("carol is not running (crashed)".to_owned(), true)
    );
    assert_eq!(
        results[2],
        ("there is no teammate named dave".to_owned(), true)
    );
    assert_eq!(team.lines("bob")[0]["content"], "hello");
}

#[test]
fn unknown_tools_and_bad_input_are_results() {
    let team = Team::new();
    let mut worker = team.work("/fly away\n/sleep soon");
    worker.idle();
    let results = team.results();
    assert!(
        results.len() == 2 && results.iter().all(|(_, is_error)| *is_error),
        "{results:?}"
    );
}

#[test]
fn a_piece_of_work_ends_at_the_turn_limit_and_the_process_stays() {
    let team = Team::new();
    let mut worker = team.work(&"/read_inbox\n".repeat(20));
    worker.idle();
    assert_eq!(
        team.lead("idle_notification")[0]["idle_reason"],
        "max_turns"
    );
    assert_eq!(
        team.entries()
            .iter()
            .filter(|name| *name == "answer")
            .count(),
        12
    );
    assert!(worker.runs());
}

#[test]
fn an_interruption_ends_the_turn_and_not_the_teammate() {
    let team = Team::new();
    let mut worker = team.work("/bash sleep 600\n/bash echo never");
    worker.doing("bash: sleep 600");
    worker.send(ToWorker::Interrupt {
        asked_at: since_boot(),
    });
    worker.idle();
    assert_eq!(
        team.results(),
        [("[interrupted by the lead]".to_owned(), true)]
    );
    let last = team.transcript().pop().unwrap().event;
    assert!(
        matches!(
            last,
            Event::Idle {
                idle_reason: IdleReason::Interrupted,
                ..
            }
        ),
        "{last:?}"
    );
    team.write("still there?");
    team.until("an answer", || team.lead("idle_notification").len() == 2);
    assert_eq!(team.lead("idle_notification")[1]["content"], "still there?");
    // One that comes late, for work that is over, does not end what came after it.
    let asked_at = since_boot();
    team.write("/bash echo begun > begun; sleep 0.2; echo done");
    team.until("the next work", || team.workspace().join("begun").exists());
    worker.send(ToWorker::Interrupt { asked_at });
    team.until("its end", || team.lead("idle_notification").len() == 3);
    assert_eq!(
        team.lead("idle_notification")[2]["idle_reason"],
        "available"
    );
}

#[test]
fn a_command_that_floods_its_output_does_not_make_her_deaf() {
    let team = Team::new();
    let mut worker = team.work("/bash cat /dev/zero");
    worker.doing("bash: cat /dev/zero");
    for number in 1..=10 {
        worker.send(ToWorker::Ping { number });
        worker.answers(number);
    }
    worker.send(ToWorker::Interrupt {
        asked_at: since_boot(),
    });
    worker.idle();
    assert!(team.results()[0].0.ends_with("[interrupted by the lead]"));
}

#[test]
fn sigterm_ends_what_runs_and_the_incarnation() {
    let team = Team::new();
    let mut worker = team.work("/bash (setsid sleep 613 &) ; sleep 613");
    worker.doing("bash: (setsid sleep 613 &) ; sleep 613");
    worker.signal(Signal::SIGTERM);
    worker.leaves_with_a_word();
    worker.ends_well();
    assert_eq!(team.entries(), ["incarnation", "answer", "result", "left"]);
    let sleeping = std::fs::read_dir("/proc").unwrap().filter_map(|process| {
        std::fs::read(process.ok()?.path().join("cmdline"))
            .ok()
            .filter(|line| line.starts_with(b"sleep\x00613"))
    });
    assert_eq!(sleeping.count(), 0);
}

#[test]
fn sigterm_is_heeded_without_a_daemon_and_other_signals_of_a_terminal_are_not() {
    let team = Team::new();
    let mut worker = team.begin(&Begin::default());
    worker.hang_up();
    worker.signal(Signal::SIGHUP);
    worker.signal(Signal::SIGINT);
    team.write("hi");
    team.until("an answer", || team.lead("idle_notification").len() == 1);
    worker.signal(Signal::SIGTERM);
    worker.ends_well();
}

#[test]
fn without_a_daemon_she_works_on_and_tells_the_next_one_everything() {
    let team = Team::new();
    let mut worker = team.begin(&Begin::default());
    worker.hang_up();
    team.write("/sleep 0.1\nfinished");
    team.until("an answer", || team.lead("idle_notification").len() == 1);
    let listener = team.listen();
    let environment = worker.welcome_back(&listener).expect("her environment");
    assert_eq!((environment.umask, environment.variables.len()), (0o027, 1));
    worker.idle();
    worker.directive(|directive| directive.gate = teamd_shared::member::Gate::Closed);
    worker.acts();
}

#[test]
fn a_stranger_is_told_to_leave_and_does() {
    let team = Team::new();
    let mut worker = team.work("/bash sleep 600");
    worker.doing("bash: sleep 600");
    worker.send(ToWorker::Stranger {
        why: "the journal knows another incarnation".to_owned(),
    });
    worker.ends_well();
    assert_eq!(team.entries(), ["incarnation", "answer", "result", "left"]);
}

#[test]
fn a_team_that_is_deleted_leaves_no_worker_behind() {
    let team = Team::new();
    let mut worker = team.begin(&Begin::default());
    worker.hang_up();
    // A worker that looks for its daemon makes a folder again that is missing: the deletion must be
    // tried again.
    team.until("the deletion", || {
        std::fs::remove_dir_all(team.dir.root()).is_ok()
    });
    worker.ends_well();
}
