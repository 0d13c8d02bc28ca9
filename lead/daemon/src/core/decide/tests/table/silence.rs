//! Workers that do not answer: asked, told of, ended, or back again.

use std::time::Duration;

use teamd_shared::control::{SpawnOrder, WorkerState};
use teamd_shared::journal::{MemberEvent, Record};
use teamd_shared::member::{Doing, Ending, Phase, TermsPatch};

use super::super::harness::{Harness, answer, idle, never_restarted, nothing, order};
use crate::core::decide::Decision;
use crate::core::event::{Action, Event};
use crate::core::incarnation::Incarnation;
use crate::core::notices::messages;

/// A member at work that can be asked.
fn works(harness: &mut Harness, who: &str) -> Incarnation {
    let incarnation = harness.runs(who);
    harness.on(&Event::Pong {
        incarnation: incarnation.clone(),
        number: 0,
    });
    let state = WorkerState {
        doing: Doing::Working,
        applied_seq: harness.team.seq,
        ..WorkerState::default()
    };
    harness.on(&Event::Said {
        incarnation: incarnation.clone(),
        state,
    });
    incarnation
}

fn event(decision: &Decision) -> MemberEvent {
    match decision.records.as_slice() {
        [Record::Member(record)] => record.event,
        other => panic!("{other:?}"),
    }
}

fn told(decision: &Decision) -> String {
    let line = teamd_shared::journal::Line {
        seq: 1,
        at: 1.0,
        version: None,
        done: 0,
        lead: None,
        record: decision.records[0].clone(),
    };
    let messages = messages(&line);
    assert!(
        messages
            .iter()
            .all(|(to, message)| to.as_str() == "lead" && message.from == "teamd")
    );
    assert_eq!(messages.len(), 1);
    messages[0].1.content.clone()
}

#[test]
fn an_idle_worker_is_not_asked_and_may_be_silent_for_ever() {
    let mut harness = Harness::new();
    let incarnation = works(&mut harness, "alice");
    let applied_seq = harness.team.seq;
    harness.on(&Event::Said {
        incarnation,
        state: WorkerState {
            applied_seq,
            ..idle()
        },
    });
    assert_eq!(harness.run_watchdog(10_000), (Vec::new(), Vec::new()));
    assert_eq!(
        harness.runtime.next_deadline(),
        None,
        "nothing wakes the daemon"
    );
}

#[test]
fn a_hung_worker_that_says_that_sigterm_ends_it_is_not_started_again() {
    let mut harness = Harness::new();
    let alice = works(&mut harness, "alice");
    harness.run_watchdog(300);
    assert_eq!(harness.member("alice").ending, Some(Ending::Hung));
    harness.on(&Event::Leaving {
        incarnation: alice.clone(),
    });
    harness.ends(&alice);
    let member = harness.member("alice");
    assert_eq!((member.phase, member.incarnation), (Phase::Killed, 1));
    let exit = member.exit.as_ref().unwrap();
    assert_eq!((exit.ending, &exit.note), (Some(Ending::Sigterm), &None));
}

#[test]
fn a_silent_worker_is_asked_reported_and_ended_as_crashed() {
    let mut harness = Harness::new();
    let alice = works(&mut harness, "alice");
    let (asked, decisions) = harness.run_watchdog(300);
    assert_eq!(asked, [1], "one open question is enough");
    let [silent, hung] = decisions.as_slice() else {
        panic!("{decisions:?}")
    };
    assert_eq!(
        (event(silent), silent.actions.as_slice()),
        (MemberEvent::Silent, [].as_slice())
    );
    let text = told(silent);
    assert!(
        text.starts_with("alice does not respond: it has not answered for 1m; if it"),
        "{text}"
    );
    assert!(text.contains("started again from its transcript"), "{text}");
    assert_eq!(
        (event(hung), hung.actions.as_slice()),
        (
            MemberEvent::Ending,
            [Action::Kill(alice.clone())].as_slice()
        )
    );
    assert_eq!(harness.member("alice").ending, Some(Ending::Hung));
    harness.ends(&alice);
    let member = harness.member("alice");
    assert_eq!(
        (member.phase, member.incarnation, member.restarted),
        (Phase::Spawning, 2, 1)
    );
    assert_eq!(
        (member.silent_since, member.ending, &member.ending_note),
        (None, None, &None)
    );
    let exit = member.exit.clone().unwrap();
    assert_eq!(exit.ending, Some(Ending::Hung));
    assert_eq!(
        exit.note.as_deref(),
        Some("it did not answer for 2m, and was killed")
    );
}

#[test]
fn a_hung_worker_that_must_not_be_restarted_has_crashed() {
    let mut harness = Harness::new();
    harness.spawn(never_restarted("alice")).unwrap();
    let alice = harness.starts("alice");
    harness.on(&Event::Pong {
        incarnation: alice.clone(),
        number: 0,
    });
    harness.on(&Event::Said {
        incarnation: alice.clone(),
        state: WorkerState {
            doing: Doing::Working,
            ..WorkerState::default()
        },
    });
    harness.run_watchdog(300);
    harness.ends(&alice);
    assert_eq!(harness.member("alice").phase, Phase::Crashed);
}

#[test]
fn a_worker_that_answers_again_goes_on_and_the_lead_is_told() {
    let mut harness = Harness::new();
    let alice = works(&mut harness, "alice");
    let (asked, decisions) = harness.run_watchdog(80);
    assert_eq!((asked.as_slice(), decisions.len()), ([1].as_slice(), 1));
    let back = harness.on(&Event::Pong {
        incarnation: alice.clone(),
        number: 1,
    });
    assert_eq!(event(&back), MemberEvent::Answering);
    assert_eq!(
        told(&back),
        "alice answers again, after 1m5s, and continues"
    );
    // The number of another question, or of none, is no answer; and a worker that answers all is
    // left alone.
    for number in [0, 1, 7] {
        assert!(nothing(&harness.on(&Event::Pong {
            incarnation: alice.clone(),
            number
        })));
    }
    for _ in 0..50 {
        let (asked, decisions) = harness.run_watchdog(20);
        assert_eq!(decisions, []);
        for number in asked {
            assert!(nothing(&harness.on(&Event::Pong {
                incarnation: alice.clone(),
                number
            })));
        }
    }
}

#[test]
fn a_directive_and_mail_are_reasons_to_ask_an_idle_worker() {
    let mut harness = Harness::new();
    let alice = works(&mut harness, "alice");
    let applied_seq = harness.team.seq;
    harness.on(&Event::Said {
        incarnation: alice.clone(),
        state: WorkerState {
            applied_seq,
            ..idle()
        },
    });
    harness
        .runtime
        .mail_arrived(&harness.team, &alice, harness.now, harness.rules);
    // What it says shows that it has seen the mail.
    harness.on(&Event::Said {
        incarnation: alice.clone(),
        state: WorkerState {
            applied_seq,
            ..idle()
        },
    });
    assert!(harness.run_watchdog(30).0.is_empty());
    harness
        .runtime
        .mail_arrived(&harness.team, &alice, harness.now, harness.rules);
    assert_eq!(harness.run_watchdog(30).0, [1]);
    harness.on(&Event::Pong {
        incarnation: alice.clone(),
        number: 1,
    });
    assert_eq!(harness.run_watchdog(100), (Vec::new(), Vec::new()));
    harness.request_shutdown("alice", None);
    let (asked, decisions) = harness.run_watchdog(300);
    assert_eq!((asked.as_slice(), decisions.len()), ([2].as_slice(), 2));
}

#[test]
fn a_worker_that_is_leaving_is_not_ended_as_hung() {
    let mut harness = Harness::new();
    let alice = works(&mut harness, "alice");
    harness.run_watchdog(100);
    harness.request_shutdown("alice", Some(600.0));
    assert_eq!(harness.run_watchdog(300).1, [], "its ladder runs");
    let mut harness = Harness::new();
    let bob = works(&mut harness, "bob");
    let id = harness.request_shutdown("bob", None);
    harness.submit(&bob, answer(&id, true));
    assert_eq!(harness.run_watchdog(300).1, []);
    drop(alice);
}

#[test]
fn a_new_daemon_counts_anew_and_tells_anew() {
    let mut harness = Harness::new();
    let alice = works(&mut harness, "alice");
    harness.run_watchdog(100);
    assert!(harness.member("alice").silent_since.is_some());
    harness.runtime = crate::core::runtime::Runtime::default();
    harness.on(&Event::Found {
        incarnation: alice.clone(),
    });
    assert_eq!(harness.member("alice").silent_since, None);
    // It does not come back: the lead is told, but a worker that could not be asked is not ended.
    let (asked, decisions) = harness.run_watchdog(1000);
    assert_eq!((asked, decisions.len()), (Vec::new(), 1));
    assert!(
        told(&decisions[0]).contains("it has no connection"),
        "{decisions:?}"
    );
}

#[test]
fn an_incarnation_ends_at_its_limit_of_time_and_is_not_started_again() {
    let mut harness = Harness::new();
    let terms = TermsPatch {
        max_time: Some(3600),
        ..TermsPatch::default()
    };
    harness
        .spawn(SpawnOrder {
            terms,
            ..order("alice")
        })
        .unwrap();
    let alice = harness.starts("alice");
    assert!(nothing(&harness.advance(3599)));
    let over = harness.advance(1);
    assert_eq!(
        (event(&over), over.actions.as_slice()),
        (
            MemberEvent::Ending,
            [Action::Terminate(alice.clone())].as_slice()
        )
    );
    assert_eq!(harness.advance(10).actions, [Action::Kill(alice.clone())]);
    harness.ends(&alice);
    let exit = harness.member("alice").exit.clone().unwrap();
    assert_eq!(
        (harness.member("alice").phase, exit.ending),
        (Phase::Killed, Some(Ending::Limit))
    );
    assert_eq!(exit.note.as_deref(), Some("it reached its time limit: 1h"));
}

#[test]
fn what_an_incarnation_has_lasted_counts_over_a_restart_of_the_daemon() {
    let mut harness = Harness::new();
    let terms = TermsPatch {
        max_time: Some(3600),
        ..TermsPatch::default()
    };
    harness
        .spawn(SpawnOrder {
            terms,
            ..order("alice")
        })
        .unwrap();
    let alice = harness.starts("alice");
    harness.runtime = crate::core::runtime::Runtime::default();
    harness.runtime.aged(&alice, Duration::from_secs(3590));
    harness.on(&Event::Found {
        incarnation: alice.clone(),
    });
    assert_eq!(harness.advance(9).actions, []);
    assert_eq!(harness.advance(1).actions, [Action::Terminate(alice)]);
}
