//! What workers say: answers to a shutdown, their start, their connections, SIGTERM.

use teamd_shared::control::{ToWorker, WorkerState};
use teamd_shared::journal::{Record, RejectedLine, TeamEvent};
use teamd_shared::member::{Ending, Phase};
use teamd_shared::message::{AnsweredBy, Body, Message};
use teamd_shared::position::Position;
use teamd_shared::request::Status;
use uuid::Uuid;

use super::super::desk::{
    Desk, answer, environment, identity, idle, incarnation, name, nothing, order, recorded, refused,
    request_id, said,
};
use crate::daemon::core::event::{Action, Event};

#[test]
fn an_approval_is_recorded_with_the_plan_that_expires_and_then_told() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    let plan = desk.submits(&alice, "aaaa0001");
    let id = desk.asks("alice", None);
    let approved = desk.names(&alice, answer(&id, true));
    let [Record::Request(record)] = approved.records.as_slice() else { panic!("{approved:?}") };
    assert_eq!(record.expired, std::slice::from_ref(&plan));
    assert_eq!(
        (recorded(&approved), desk.status(&id), desk.status(&plan)),
        (Status::Approved, Status::Approved, Status::Expired)
    );
    assert_eq!(desk.request(&id).answered_by, Some(AnsweredBy::Model));
    assert_eq!(desk.team.pending_derived(), []);
}

#[test]
fn a_rejection_keeps_the_plan_and_the_reason() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    let plan = desk.submits(&alice, "aaaa0001");
    let id = desk.asks("alice", None);
    let rejected = desk.names(&alice, answer(&id, false));
    assert_eq!((recorded(&rejected), desk.status(&plan)), (Status::Rejected, Status::Pending));
    assert_eq!(desk.request(&id).reason.as_deref(), Some("still writing"));
    assert_eq!((rejected.records.len(), desk.member("alice").ending), (1, None));
}

#[test]
fn the_first_answer_stands_and_every_later_one_is_told_which_it_was() {
    for (first, status) in [(true, Status::Approved), (false, Status::Rejected)] {
        let mut desk = Desk::new();
        let alice = desk.runs("alice");
        let id = desk.asks("alice", None);
        desk.names(&alice, answer(&id, first));
        for approve in [true, false] {
            let again = desk.names(&alice, answer(&id, approve));
            assert_eq!((again.records.len(), recorded(&again)), (0, status));
        }
    }
}

#[test]
fn an_answer_counts_only_from_the_incarnation_that_was_asked() {
    let mut desk = Desk::new();
    let (alice, bob) = (desk.runs("alice"), desk.runs("bob"));
    let id = desk.asks("alice", None);
    refused(&desk.names(&bob, answer(&id, true)));
    let forged = Message::new(Uuid::from_u128(99), "alice", "lead", 0.0, answer(&id, true));
    refused(&desk.names_line(&bob, &forged));
    assert!(nothing(&desk.names(&incarnation("alice", 7), answer(&id, true))));
    assert_eq!(desk.status(&id), Status::Pending);
    // It is asked, is gone, and the next incarnation says yes to what the last one was asked.
    desk.ends(&alice);
    assert!(nothing(&desk.names(&alice, answer(&id, true))));
    desk.spawn(order("alice")).unwrap();
    let second = desk.starts("alice");
    refused(&desk.names(&second, answer(&id, true)));
    assert_eq!((desk.status(&id), desk.member("alice").phase), (Status::Expired, Phase::Running));
}

#[test]
fn an_answer_to_what_is_no_shutdown_is_refused() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    let plan = desk.submits(&alice, "aaaa0001");
    for id in [plan.clone(), request_id("nobody")] {
        assert!(!refused(&desk.names(&alice, answer(&id, true))).1);
    }
    let id = desk.asks("alice", None);
    let named =
        Event::Submitted { incarnation: alice, request_id: id.clone(), line: Err("no such line".to_owned()) };
    assert_eq!(refused(&desk.on(&named)).0, "no such line");
    assert_eq!((desk.status(&plan), desk.status(&id)), (Status::Pending, Status::Pending));
}

#[test]
fn a_process_is_journaled_before_it_is_welcomed() {
    let mut desk = Desk::new();
    desk.spawn(order("alice")).unwrap();
    let started = desk.on(&Event::Started {
        incarnation: incarnation("alice", 1),
        process: Ok(identity()),
        cgroup: None,
    });
    assert_eq!(
        (started.records.len(), started.actions.as_slice()),
        (1, [Action::Welcome(incarnation("alice", 1))].as_slice())
    );
    assert_eq!(
        (desk.member("alice").phase, desk.member("alice").process.clone()),
        (Phase::Running, Some(identity()))
    );
}

#[test]
fn a_process_of_another_incarnation_is_neither_journaled_nor_welcomed() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    desk.ends(&alice);
    desk.starts("alice");
    assert!(nothing(&desk.on(&Event::Started {
        incarnation: alice.clone(),
        process: Ok(identity()),
        cgroup: None
    })));
    assert!(nothing(&desk.on(&Event::Started {
        incarnation: alice,
        process: Err("gone".to_owned()),
        cgroup: None
    })));
    let second = incarnation("alice", 2);
    assert!(nothing(&desk.on(&Event::Started {
        incarnation: second.clone(),
        process: Ok(identity()),
        cgroup: None
    })));
    assert!(nothing(&desk.on(&Event::Started {
        incarnation: second,
        process: Err("too late".to_owned()),
        cgroup: None
    })));
    let present = desk.live.of(&incarnation("alice", 2)).expect("the present life is still known");
    assert!(present.connected && present.ready);
}

#[test]
fn who_cannot_be_started_has_crashed_and_was_never_run() {
    let mut desk = Desk::new();
    desk.runs("bob");
    desk.spawn(order("alice")).unwrap();
    let id = desk.asks("alice", None);
    let failed = desk.on(&Event::Started {
        incarnation: incarnation("alice", 1),
        process: Err("no such directory".to_owned()),
        cgroup: None,
    });
    let alice = desk.member("alice");
    let note = alice.exit.as_ref().and_then(|exit| exit.note.clone()).unwrap();
    assert_eq!((alice.phase, note.contains("no such directory")), (Phase::Crashed, true));
    assert_eq!((desk.status(&id), failed.actions.len()), (Status::Expired, 0));
    let told: Vec<_> = failed.records[0].tell().iter().map(|tell| tell.to.to_string()).collect();
    assert_eq!(told, ["lead", "bob"]);
}

#[test]
fn who_was_to_be_ended_and_cannot_even_be_started_counts_as_killed() {
    let mut desk = Desk::new();
    desk.spawn(order("alice")).unwrap();
    desk.asks("alice", Some(0.0));
    desk.later(0);
    assert_eq!(desk.member("alice").ending, Some(Ending::Force));
    desk.on(&Event::Started {
        incarnation: incarnation("alice", 1),
        process: Err("no memory".to_owned()),
        cgroup: None,
    });
    assert_eq!(desk.member("alice").phase, Phase::Killed);
}

#[test]
fn a_worker_that_comes_back_is_told_the_word_and_gives_its_environment_back() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    let id = desk.asks("alice", None);
    desk.live = crate::daemon::core::live::Live::default();
    assert_eq!(desk.on(&Event::Found { incarnation: alice.clone() }).records.len(), 1);
    let connected = Event::Connected { incarnation: alice, environment: Some(environment(1)), state: idle() };
    let greeted = desk.on(&connected);
    let [ToWorker::Directive(directive)] = said(&greeted).as_slice() else { panic!("{greeted:?}") };
    assert_eq!(directive.shutdown.as_ref().map(|directive| &directive.request_id), Some(&id));
    assert_eq!((directive.seq, directive.release), (desk.team.seq, false));
    let given = desk.live.member(&name("alice")).and_then(|alive| alive.environment.clone());
    assert_eq!(given, Some(environment(1)));
}

#[test]
fn an_incarnation_that_is_found_with_a_signal_on_its_way_is_signalled_again() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    desk.asks("alice", Some(0.0));
    desk.later(0);
    let found = desk.on(&Event::Found { incarnation: alice.clone() });
    assert_eq!(
        (found.records.len(), found.actions.as_slice()),
        (1, [Action::Terminate(alice.clone())].as_slice())
    );
    desk.ends(&alice);
    assert!(nothing(&desk.on(&Event::Found { incarnation: alice })));
}

#[test]
fn sigterm_to_a_worker_is_recorded_unless_its_end_is_recorded_already() {
    let mut desk = Desk::new();
    let (alice, bob) = (desk.runs("alice"), desk.runs("bob"));
    let leaving = |incarnation| Event::Leaving { incarnation };
    assert_eq!(desk.on(&leaving(alice.clone())).records.len(), 1);
    assert_eq!(desk.member("alice").ending, Some(Ending::Sigterm));
    assert!(nothing(&desk.on(&leaving(alice.clone()))));
    let id = desk.asks("bob", None);
    desk.names(&bob, answer(&id, true));
    assert!(nothing(&desk.on(&leaving(bob))));
    desk.ends(&alice);
    assert!(nothing(&desk.on(&leaving(alice))));
    assert_eq!(desk.member("alice").phase, Phase::Killed);
}

#[test]
fn a_closed_connection_and_a_state_without_news_decide_nothing() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    assert!(nothing(&desk.on(&Event::Said { incarnation: alice.clone(), state: WorkerState::default() })));
    assert!(nothing(&desk.on(&Event::Disconnected { incarnation: alice })));
    let stranger = Event::Connected { incarnation: incarnation("bob", 1), environment: None, state: idle() };
    assert!(nothing(&desk.on(&stranger)));
}

#[test]
fn lines_that_are_no_messages_are_recorded_and_the_lead_is_told_once() {
    let mut desk = Desk::new();
    let bad = RejectedLine { offset: 12, reason: "no JSON".to_owned(), line: "{".to_owned() };
    let position = Position { offset: 14, tail: 0 };
    let read = desk.on(&Event::LeadRead { position, rejected: vec![bad.clone()] });
    let [Record::Team(record)] = read.records.as_slice() else { panic!("{read:?}") };
    assert_eq!((record.event, record.rejected.as_slice()), (TeamEvent::Read, [bad].as_slice()));
    assert_eq!((record.tell.len(), record.tell[0].to.as_str()), (1, "lead"));
}

#[test]
fn an_answer_without_its_author_is_the_models() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    let id = desk.asks("alice", None);
    let reason = String::new();
    desk.names(
        &alice,
        Body::ShutdownResponse { request_id: id.clone(), approve: true, reason, answered_by: None },
    );
    assert_eq!(desk.request(&id).answered_by, Some(AnsweredBy::Model));
}
