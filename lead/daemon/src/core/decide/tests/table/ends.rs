//! What follows from an end, in every state that it finds.

use std::time::Duration;

use teamd_shared::control::{Command, SpawnOrder, WorkerState};
use teamd_shared::inbox::UnreadMail;
use teamd_shared::journal::{Line, MemberRecord, Record};
use teamd_shared::member::{Emptied, Gate, Phase, RestartLimit};
use teamd_shared::message::returned_id;
use teamd_shared::name::Name;
use teamd_shared::request::Status;
use uuid::Uuid;

use super::super::harness::never_restarted;
use super::super::harness::{
    CLIENT, Harness, answer, ended, environment, idle, incarnation, name, nothing, order, verdict,
};
use crate::core::caller::Actor;
use crate::core::decide::Decision;
use crate::core::event::{Action, Ended, Event};
use crate::core::incarnation::Incarnation;
use crate::core::notices::messages;
use crate::core::runtime::Runtime;

fn note(harness: &Harness) -> Option<String> {
    harness
        .member("alice")
        .exit
        .as_ref()
        .and_then(|exit| exit.note.clone())
}

fn restarts(decision: &Decision) -> bool {
    decision
        .actions
        .iter()
        .any(|action| matches!(action, Action::Start(_, None)))
}

#[test]
fn the_status_of_an_end_is_a_function_of_the_journal() {
    type Before = fn(&mut Harness, &Incarnation);
    let cases: [(&str, Before, Phase); 5] = [
        (
            "approved",
            |harness, alice| {
                let id = harness.request_shutdown("alice", None);
                harness.submit(alice, answer(&id, true));
            },
            Phase::Shutdown,
        ),
        (
            "forced",
            |harness, _| {
                harness.request_shutdown("alice", Some(0.0));
                harness.advance(0);
            },
            Phase::Killed,
        ),
        (
            "approved, and overdue",
            |harness, alice| {
                let id = harness.request_shutdown("alice", None);
                harness.submit(alice, answer(&id, true));
                harness.advance(10);
            },
            Phase::Killed,
        ),
        (
            "told by a signal",
            |harness, alice| {
                harness.on(&Event::Leaving {
                    incarnation: alice.clone(),
                });
            },
            Phase::Killed,
        ),
        (
            "asked, and gone without an answer",
            |harness, _| drop(harness.request_shutdown("alice", None)),
            Phase::Crashed,
        ),
    ];
    for (case, before, phase) in cases {
        let mut harness = Harness::new();
        let alice = harness.runs("alice");
        before(&mut harness, &alice);
        let ended = harness.ends(&alice);
        assert_eq!(
            (harness.member("alice").phase, ended.records.len()),
            (phase, 1),
            "{case}"
        );
        assert!(!restarts(&ended), "{case}");
        let process = (
            &harness.member("alice").process,
            harness.member("alice").ending,
        );
        assert_eq!(process, (&None, None), "{case}");
    }
}

#[test]
fn an_exit_names_the_shutdown_that_was_agreed_to_and_no_other() {
    for (approve, agreed) in [(true, true), (false, false)] {
        let mut harness = Harness::new();
        let alice = harness.runs("alice");
        let id = harness.request_shutdown("alice", None);
        harness.submit(&alice, answer(&id, approve));
        harness.ends(&alice);
        let exit = harness.member("alice").exit.clone().unwrap();
        assert_eq!(exit.request_id, agreed.then_some(id));
        assert_eq!(
            (exit.signal, exit.unread, exit.inbox.offset),
            (Some(9), 2, 70)
        );
    }
}

#[test]
fn a_crash_and_the_next_incarnation_are_one_line() {
    let mut harness = Harness::new();
    harness.runs("bob");
    let alice = harness.runs_with_plan("alice");
    let plan = harness.submit_plan(&alice, "aaaa0001");
    let crashed = harness.ends(&alice);
    let [Record::Member(record)] = crashed.records.as_slice() else {
        panic!("{crashed:?}")
    };
    assert_eq!(
        (
            record.ended_incarnation,
            record.member.incarnation,
            record.member.phase
        ),
        (Some(1), 2, Phase::Spawning)
    );
    assert_eq!(
        (record.member.conversation, record.member.process.clone()),
        (1, None)
    );
    assert_eq!(
        (harness.status(&plan), record.expired.len()),
        (Status::Pending, 0)
    );
    assert_eq!(
        crashed.actions,
        [Action::Start(incarnation("alice", 2), None)]
    );
    let told: Vec<_> = record.tell.iter().map(|tell| tell.to.to_string()).collect();
    assert_eq!(told, ["lead", "bob"]);
}

#[test]
fn an_open_gate_outlives_a_restart_and_not_the_end() {
    let mut harness = Harness::new();
    let alice = harness.runs_with_plan("alice");
    let plan = harness.submit_plan(&alice, "aaaa0001");
    harness.ask(verdict(&plan, true)).unwrap();
    harness.ends(&alice);
    assert_eq!(harness.member("alice").gate, Gate::Open);
    let second = harness.starts("alice");
    let id = harness.request_shutdown("alice", None);
    harness.submit(&second, answer(&id, true));
    harness.ends(&second);
    assert_eq!(
        (harness.member("alice").phase, harness.member("alice").gate),
        (Phase::Shutdown, Gate::Closed)
    );
}

#[test]
fn a_member_that_must_not_be_restarted_is_not() {
    type Before = fn(&mut Harness);
    let cases: [(&str, Before, &str); 3] = [
        (
            "asked to leave",
            |harness| drop(harness.request_shutdown("alice", None)),
            "its shutdown was asked for",
        ),
        (
            "stopping",
            |harness| {
                drop(harness.on(&Event::Command(
                    CLIENT,
                    Actor::Person,
                    Command::Stop { force: false },
                )))
            },
            "stopping",
        ),
        (
            "without environment",
            |harness| harness.runtime = Runtime::default(),
            "environment was lost",
        ),
    ];
    for (case, before, why) in cases {
        let mut harness = Harness::new();
        let alice = harness.runs("alice");
        before(&mut harness);
        let ended = harness.ends(&alice);
        assert_eq!(
            (harness.member("alice").phase, restarts(&ended)),
            (Phase::Crashed, false),
            "{case}"
        );
        assert!(
            note(&harness).unwrap().contains(why),
            "{case}: {:?}",
            note(&harness)
        );
    }
}

#[test]
fn a_crash_without_the_policy_is_the_end_and_needs_no_note() {
    let mut harness = Harness::new();
    harness.spawn(never_restarted("alice")).unwrap();
    let alice = harness.starts("alice");
    let plan = harness.submit_plan(&alice, "aaaa0001");
    assert!(!restarts(&harness.ends(&alice)));
    assert_eq!(
        (
            harness.member("alice").phase,
            note(&harness),
            harness.status(&plan)
        ),
        (Phase::Crashed, None, Status::Expired)
    );
}

#[test]
fn restarts_are_counted_within_their_window_and_a_spawn_begins_anew() {
    let mut harness = Harness::new();
    harness.runs("alice");
    for _ in 0..3 {
        let present = harness.starts("alice");
        assert!(restarts(&harness.ends(&present)));
        harness.skip_time(1.0);
    }
    harness.skip_time(60.0);
    let present = harness.starts("alice");
    assert!(restarts(&harness.ends(&present)));
    for _ in 0..2 {
        let present = harness.starts("alice");
        assert!(restarts(&harness.ends(&present)));
    }
    let present = harness.starts("alice");
    assert!(!restarts(&harness.ends(&present)));
    assert!(
        note(&harness).unwrap().contains("3 times in 60 s"),
        "{:?}",
        note(&harness)
    );
    assert_eq!(
        (
            harness.member("alice").restarted,
            harness.member("alice").restarts.len()
        ),
        (6, 3)
    );
    harness
        .spawn(SpawnOrder {
            resume: true,
            ..order("alice")
        })
        .unwrap();
    assert_eq!(harness.member("alice").restarted, 0);
    let present = harness.starts("alice");
    assert!(restarts(&harness.ends(&present)));
    assert_eq!(harness.member("alice").restarted, 1);
}

#[test]
fn how_often_it_is_restarted_and_in_which_time_is_a_setting() {
    let mut harness = Harness::new();
    harness.rules.restart = RestartLimit {
        max: 1,
        period: Duration::from_millis(500),
    };
    harness.runs("alice");
    for again in [true, false] {
        let present = harness.starts("alice");
        harness.skip_time(0.25);
        assert_eq!(restarts(&harness.ends(&present)), again);
    }
    assert_eq!(
        note(&harness).unwrap(),
        "not started again: it was 1 time in 0.5 s"
    );
    harness
        .spawn(SpawnOrder {
            resume: true,
            ..order("alice")
        })
        .unwrap();
    for _ in 0..5 {
        let present = harness.starts("alice");
        harness.skip_time(0.5);
        assert!(restarts(&harness.ends(&present)));
    }
}

#[test]
fn a_clock_that_jumps_takes_no_restart_away_and_adds_none() {
    for jump in [-3600.0, -1.0, 3600.0] {
        let mut harness = Harness::new();
        harness.runs("alice");
        for _ in 0..3 {
            let present = harness.starts("alice");
            assert!(restarts(&harness.ends(&present)));
            harness.skip_time(1.0);
            harness.now.wall += jump;
        }
        let present = harness.starts("alice");
        assert!(!restarts(&harness.ends(&present)), "{jump}");
    }
    // Of those of an earlier daemon only the time of day is known, whichever way it has jumped.
    for (jump, again) in [(-30.0, false), (-3600.0, true), (3600.0, true)] {
        let mut harness = Harness::new();
        harness.runs("alice");
        for _ in 0..3 {
            let present = harness.starts("alice");
            harness.ends(&present);
        }
        let present = harness.starts("alice");
        harness.runtime = Runtime::default();
        harness.now.wall += jump;
        let state = WorkerState {
            applied_seq: harness.team.seq,
            ..idle()
        };
        let environment = Some(environment(1));
        harness.on(&Event::Connected {
            incarnation: present.clone(),
            environment,
            state,
        });
        assert_eq!(restarts(&harness.ends(&present)), again, "{jump}");
    }
}

#[test]
fn no_member_is_restarted_in_an_unusable_workspace() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let why = "the workspace /home/u/web cannot be used: it does not answer".to_owned();
    let decision = harness.on(&Event::Ended {
        incarnation: alice,
        ended: Ended {
            unworkable: Some(why),
            ..ended()
        },
    });
    assert_eq!(
        (harness.member("alice").phase, restarts(&decision)),
        (Phase::Crashed, false)
    );
    assert_eq!(
        note(&harness).unwrap(),
        "not started again: the workspace /home/u/web cannot be used: it does not answer"
    );
}

#[test]
fn a_next_incarnation_that_cannot_be_run_is_tried_again_as_often_as_one_that_crashes() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    assert!(restarts(&harness.ends(&alice)));
    for (next, again) in [(2, true), (3, true), (4, false)] {
        let failed = harness.on(&Event::not_started(
            incarnation("alice", next),
            "no descriptor is left",
        ));
        assert_eq!(restarts(&failed), again, "{next}");
        let record = failed.records[0].clone();
        let line = Line {
            seq: 1,
            at: 1.0,
            version: None,
            done: 0,
            lead: None,
            record,
        };
        let (_, told) = messages(&line).remove(0);
        assert!(
            told.content
                .contains(": it was never run: no descriptor is left"),
            "{told:?}"
        );
    }
    assert_eq!(harness.member("alice").phase, Phase::Crashed);
    let why = "it was never run: no descriptor is left; not started again: it was 3 times in 60 s";
    assert_eq!(note(&harness).unwrap(), why);
}

#[test]
fn an_end_says_how_it_is_known_that_nothing_is_left() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    harness.ends(&alice);
    let exit = harness.member("alice").exit.clone().unwrap();
    assert_eq!(exit.emptied, Some(Emptied::Tree));
    // The next incarnation was decided, and had no process yet: nothing of it could be left.
    harness.ends(&incarnation("alice", 2));
    let exit = harness.member("alice").exit.clone().unwrap();
    assert_eq!(exit.emptied, None);
}

#[test]
fn an_incarnation_that_was_decided_and_never_begun_is_not_restarted() {
    let mut harness = Harness::new();
    harness.spawn(order("alice")).unwrap();
    assert!(!restarts(&harness.ends(&incarnation("alice", 1))));
    assert!(note(&harness).unwrap().contains("never run"));
}

#[test]
fn an_end_of_another_incarnation_or_an_unknown_member_decides_nothing() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    assert!(nothing(&harness.ends(&incarnation("alice", 2))));
    assert!(nothing(&harness.ends(&incarnation("bob", 1))));
    harness.ends(&alice);
    assert!(nothing(&harness.ends(&alice)));
    assert_eq!(harness.member("alice").incarnation, 2);
}

#[test]
fn the_lead_and_all_that_stay_are_told_of_an_end() {
    let mut harness = Harness::new();
    let incarnations = ["alice", "asked", "free", "forced", "stays"].map(|who| harness.runs(who));
    harness.spawn(order("starting")).unwrap();
    harness.request_shutdown("asked", None);
    let id = harness.request_shutdown("free", None);
    harness.submit(&incarnations[2], answer(&id, true));
    harness.request_shutdown("forced", Some(0.0));
    harness.advance(0);
    let ended = harness.ends(&incarnations[0]);
    let told: Vec<_> = ended.records[0]
        .tell()
        .iter()
        .map(|tell| tell.to.to_string())
        .collect();
    assert_eq!(told, ["lead", "stays"]);
    assert!(harness.team.members.contains_key(&name("starting")));
}

fn unread(id: u128, from: &str) -> UnreadMail {
    UnreadMail {
        id: Uuid::from_u128(id),
        from: from.to_owned(),
        text: format!("text {id}"),
    }
}

/// Ends an incarnation that has not read this mail; returns the record.
fn ends_with_mail(
    harness: &mut Harness,
    incarnation: &Incarnation,
    mail: &[UnreadMail],
) -> MemberRecord {
    let decision = harness.on(&Event::Ended {
        incarnation: incarnation.clone(),
        ended: Ended {
            mail: Some(mail.to_vec()),
            more_mail: 3,
            ..ended()
        },
    });
    match decision.records.as_slice() {
        [Record::Member(record)] => MemberRecord::clone(record),
        other => panic!("{other:?}"),
    }
}

/// Returns the messages of a record that come back, as they are written.
fn coming_back(record: MemberRecord) -> Vec<(Name, serde_json::Value)> {
    let line = Line {
        seq: 9,
        at: 1.0,
        version: None,
        done: 0,
        lead: None,
        record: Record::Member(Box::new(record)),
    };
    messages(&line)
        .into_iter()
        .map(|(to, message)| {
            (
                to,
                serde_json::from_slice(&message.to_line().unwrap()).unwrap(),
            )
        })
        .filter(|(_, message): &(Name, serde_json::Value)| message["type"] == "returned")
        .collect()
}

#[test]
fn what_was_not_read_comes_back_to_those_who_can_read_it() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    harness.runs("bob");
    let carol = harness.runs("carol");
    harness.request_shutdown("carol", Some(0.0));
    harness.advance(0);
    harness.request_shutdown("alice", None);
    assert!(
        harness.member("carol").ending.is_some(),
        "she is being ended"
    );
    let senders = ["user", "lead", "bob", "carol", "alice", "dave"];
    let mail: Vec<_> = (1..)
        .zip(senders)
        .map(|(id, from)| unread(id, from))
        .collect();
    let record = ends_with_mail(&mut harness, &alice, &mail);
    assert_eq!(record.not_returned, 3);
    let exit = harness.member("alice").exit.clone().unwrap();
    assert_eq!((exit.returned, exit.returned_up_to), (3, Some(exit.inbox)));
    let back = coming_back(record);
    let summary: Vec<_> = back
        .iter()
        .map(|(owner, it)| {
            let text = |field: &str| it[field].as_str().unwrap().to_owned();
            (owner.to_string(), text("to"), text("text"), text("why"))
        })
        .collect();
    let expected = [
        ("lead", "user", "text 1"),
        ("lead", "lead", "text 2"),
        ("bob", "bob", "text 3"),
    ]
    .map(|(owner, to, text)| {
        let why = "crashed".to_owned();
        (owner.to_owned(), to.to_owned(), text.to_owned(), why)
    });
    assert_eq!(summary, expected);
    let first = &back[0].1;
    let id = returned_id(Uuid::from_u128(1), &name("alice"));
    assert_eq!(first["id"], id.to_string());
    assert_eq!(first["message_id"], Uuid::from_u128(1).to_string());
    assert_eq!(
        (&first["name"], &first["from"]),
        (&"alice".into(), &"teamd".into())
    );
    let content = first["content"].as_str().unwrap();
    assert!(
        content.contains("text 1") && content.contains("spawn alice --resume"),
        "{content}"
    );
    ends_with_mail(&mut harness, &carol, &[]);
}

#[test]
fn nothing_comes_back_from_one_that_is_restarted_and_from_the_lead() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let record = ends_with_mail(&mut harness, &alice, &[unread(1, "user")]);
    assert_eq!(
        (record.ended_incarnation, record.not_returned),
        (Some(1), 0)
    );
    assert_eq!(coming_back(record), []);
    let exit = harness.member("alice").exit.clone().unwrap();
    assert_eq!((exit.returned, exit.returned_up_to), (0, None));
    let lead = harness.runs("lead");
    harness.request_shutdown("lead", None);
    let record = ends_with_mail(&mut harness, &lead, &[unread(1, "user")]);
    assert_eq!(coming_back(record), []);
}
