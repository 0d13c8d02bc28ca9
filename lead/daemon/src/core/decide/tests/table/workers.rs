//! What workers say: answers to a shutdown, their start, their connections, SIGTERM.

use teamd_shared::control::{ToWorker, WorkerState};
use teamd_shared::journal::{Record, RejectedLine, TeamEvent};
use teamd_shared::member::{Ending, Phase};
use teamd_shared::message::{AnsweredBy, Body, Message};
use teamd_shared::position::Position;
use teamd_shared::request::Status;
use uuid::Uuid;

use super::super::harness::{
    Harness, answer, environment, identity, idle, incarnation, name, nothing, order, refused,
    request_id, said,
};
use crate::core::decide::Decision;
use crate::core::event::{Action, Event};

#[test]
fn an_approval_is_recorded_with_the_plan_that_expires() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let plan = harness.submit_plan(&alice, "aaaa0001");
    let id = harness.request_shutdown("alice", None);
    let approved = harness.submit(&alice, answer(&id, true));
    let [Record::Request(record)] = approved.records.as_slice() else {
        panic!("{approved:?}")
    };
    assert_eq!(record.expired, std::slice::from_ref(&plan));
    assert_eq!(
        (harness.status(&id), harness.status(&plan)),
        (Status::Approved, Status::Expired)
    );
    assert_eq!(harness.request(&id).answered_by, Some(AnsweredBy::Model));
    assert_eq!(harness.team.pending_derived(), []);
}

#[test]
fn a_rejection_keeps_the_plan_and_the_reason() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let plan = harness.submit_plan(&alice, "aaaa0001");
    let id = harness.request_shutdown("alice", None);
    let rejected = harness.submit(&alice, answer(&id, false));
    assert_eq!(
        (harness.status(&id), harness.status(&plan)),
        (Status::Rejected, Status::Pending)
    );
    assert_eq!(
        harness.request(&id).reason.as_deref(),
        Some("still writing")
    );
    assert_eq!(
        (rejected.records.len(), harness.member("alice").ending),
        (1, None)
    );
}

#[test]
fn the_first_answer_stands_and_a_later_one_changes_nothing() {
    for (first, status) in [(true, Status::Approved), (false, Status::Rejected)] {
        let mut harness = Harness::new();
        let alice = harness.runs("alice");
        let id = harness.request_shutdown("alice", None);
        harness.submit(&alice, answer(&id, first));
        for approve in [true, false] {
            let again = harness.submit(&alice, answer(&id, approve));
            assert_eq!((again, harness.status(&id)), (Decision::default(), status));
        }
    }
}

#[test]
fn an_answer_counts_only_from_the_incarnation_that_was_asked() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let bob = harness.runs("bob");
    let id = harness.request_shutdown("alice", None);
    refused(&harness.submit(&bob, answer(&id, true)));
    let forged = Message::new(Uuid::from_u128(99), "alice", "lead", 0.0, answer(&id, true));
    refused(&harness.submit_line(&bob, &forged));
    assert!(nothing(
        &harness.submit(&incarnation("alice", 7), answer(&id, true))
    ));
    assert_eq!(harness.status(&id), Status::Pending);
    // It is asked, is gone, and the next incarnation says yes to what the last one was asked.
    harness.ends(&alice);
    assert!(nothing(&harness.submit(&alice, answer(&id, true))));
    harness.spawn(order("alice")).unwrap();
    let second = harness.starts("alice");
    refused(&harness.submit(&second, answer(&id, true)));
    assert_eq!(
        (harness.status(&id), harness.member("alice").phase),
        (Status::Expired, Phase::Running)
    );
}

#[test]
fn an_answer_to_what_is_no_shutdown_is_refused() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let plan = harness.submit_plan(&alice, "aaaa0001");
    for id in [plan.clone(), request_id("unknown")] {
        assert!(!refused(&harness.submit(&alice, answer(&id, true))).1);
    }
    let id = harness.request_shutdown("alice", None);
    let submitted = Event::Submitted {
        incarnation: alice,
        request_id: id.clone(),
        line: Err("no such line".to_owned()),
    };
    assert_eq!(refused(&harness.on(&submitted)).0, "no such line");
    assert_eq!(
        (harness.status(&plan), harness.status(&id)),
        (Status::Pending, Status::Pending)
    );
}

#[test]
fn a_process_is_journaled_before_it_is_welcomed() {
    let mut harness = Harness::new();
    harness.spawn(order("alice")).unwrap();
    let started = harness.on(&Event::Started {
        incarnation: incarnation("alice", 1),
        process: Ok(identity()),
        cgroup: None,
    });
    assert_eq!(
        (started.records.len(), started.actions.as_slice()),
        (1, [].as_slice())
    );
    let greeted = harness.on(&Event::Greeted {
        incarnation: incarnation("alice", 1),
    });
    assert_eq!(greeted.actions, [Action::Welcome(incarnation("alice", 1))]);
    assert!(nothing(&harness.on(&Event::Greeted {
        incarnation: incarnation("alice", 2)
    })));
    assert_eq!(
        (
            harness.member("alice").phase,
            harness.member("alice").process.clone()
        ),
        (Phase::Running, Some(identity()))
    );
}

#[test]
fn a_process_of_another_incarnation_is_neither_journaled_nor_welcomed() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    harness.ends(&alice);
    harness.starts("alice");
    assert!(nothing(&harness.on(&Event::Started {
        incarnation: alice.clone(),
        process: Ok(identity()),
        cgroup: None
    })));
    assert!(nothing(&harness.on(&Event::Started {
        incarnation: alice,
        process: Err("gone".to_owned()),
        cgroup: None
    })));
    let second = incarnation("alice", 2);
    assert!(nothing(&harness.on(&Event::Started {
        incarnation: second.clone(),
        process: Ok(identity()),
        cgroup: None
    })));
    assert!(nothing(&harness.on(&Event::Started {
        incarnation: second,
        process: Err("too late".to_owned()),
        cgroup: None
    })));
    let present = harness
        .runtime
        .of(&incarnation("alice", 2))
        .expect("the present incarnation is still known");
    assert!(present.is_connected() && present.ready);
}

#[test]
fn a_member_that_cannot_be_started_has_crashed_and_never_ran() {
    let mut harness = Harness::new();
    harness.runs("bob");
    harness.spawn(order("alice")).unwrap();
    let id = harness.request_shutdown("alice", None);
    let failed = harness.on(&Event::Started {
        incarnation: incarnation("alice", 1),
        process: Err("no such directory".to_owned()),
        cgroup: None,
    });
    let alice = harness.member("alice");
    let note = alice
        .exit
        .as_ref()
        .and_then(|exit| exit.note.clone())
        .unwrap();
    assert_eq!(
        (alice.phase, note.contains("no such directory")),
        (Phase::Crashed, true)
    );
    assert_eq!(
        (harness.status(&id), failed.actions.len()),
        (Status::Expired, 0)
    );
    let told: Vec<_> = failed.records[0]
        .tell()
        .iter()
        .map(|tell| tell.to.to_string())
        .collect();
    assert_eq!(told, ["lead", "bob"]);
}

#[test]
fn a_member_that_was_being_ended_and_cannot_be_started_counts_as_killed() {
    let mut harness = Harness::new();
    harness.spawn(order("alice")).unwrap();
    harness.request_shutdown("alice", Some(0.0));
    harness.advance(0);
    assert_eq!(harness.member("alice").ending, Some(Ending::Force));
    harness.on(&Event::Started {
        incarnation: incarnation("alice", 1),
        process: Err("no memory".to_owned()),
        cgroup: None,
    });
    assert_eq!(harness.member("alice").phase, Phase::Killed);
}

#[test]
fn a_worker_that_comes_back_is_told_the_directive_and_gives_its_environment_back() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let id = harness.request_shutdown("alice", None);
    harness.runtime = crate::core::runtime::Runtime::default();
    assert_eq!(
        harness
            .on(&Event::Found {
                incarnation: alice.clone()
            })
            .records
            .len(),
        1
    );
    let connected = Event::Connected {
        incarnation: alice,
        environment: Some(environment(1)),
        state: idle(),
    };
    let greeted = harness.on(&connected);
    let [ToWorker::Directive(directive)] = said(&greeted).as_slice() else {
        panic!("{greeted:?}")
    };
    assert_eq!(
        directive
            .shutdown
            .as_ref()
            .map(|directive| &directive.request_id),
        Some(&id)
    );
    assert_eq!(
        (directive.seq, directive.release),
        (harness.team.seq, false)
    );
    let given = harness
        .runtime
        .member(&name("alice"))
        .and_then(|worker| worker.environment.clone());
    assert_eq!(given, Some(environment(1)));
}

#[test]
fn an_incarnation_that_is_found_with_a_signal_on_its_way_is_signalled_again() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    harness.request_shutdown("alice", Some(0.0));
    harness.advance(0);
    let found = harness.on(&Event::Found {
        incarnation: alice.clone(),
    });
    assert_eq!(
        (found.records.len(), found.actions.as_slice()),
        (1, [Action::Terminate(alice.clone())].as_slice())
    );
    harness.ends(&alice);
    assert!(nothing(&harness.on(&Event::Found { incarnation: alice })));
}

#[test]
fn sigterm_to_a_worker_is_recorded_unless_its_end_is_recorded_already() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let bob = harness.runs("bob");
    let leaving = |incarnation| Event::Leaving { incarnation };
    assert_eq!(harness.on(&leaving(alice.clone())).records.len(), 1);
    assert_eq!(harness.member("alice").ending, Some(Ending::Sigterm));
    assert!(nothing(&harness.on(&leaving(alice.clone()))));
    let id = harness.request_shutdown("bob", None);
    harness.submit(&bob, answer(&id, true));
    assert!(nothing(&harness.on(&leaving(bob))));
    harness.ends(&alice);
    assert!(nothing(&harness.on(&leaving(alice))));
    assert_eq!(harness.member("alice").phase, Phase::Killed);
}

#[test]
fn a_closed_connection_and_an_unchanged_state_decide_nothing() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    assert!(nothing(&harness.on(&Event::Said {
        incarnation: alice.clone(),
        state: WorkerState::default()
    })));
    assert!(nothing(
        &harness.on(&Event::Disconnected { incarnation: alice })
    ));
    let stranger = Event::Connected {
        incarnation: incarnation("bob", 1),
        environment: None,
        state: idle(),
    };
    assert!(nothing(&harness.on(&stranger)));
}

/// A message has told it that the gate was closed: only the daemon knows its journal.
#[test]
fn a_worker_that_doubts_its_directive_is_told_again() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let doubts = WorkerState {
        doubts: 3,
        ..idle()
    };
    let answered = harness.on(&Event::Said {
        incarnation: alice,
        state: doubts,
    });
    let [ToWorker::Directive(directive)] = said(&answered).as_slice() else {
        panic!("{answered:?}")
    };
    assert_eq!((directive.settles, directive.seq), (3, harness.team.seq));
    assert!(answered.records.is_empty(), "{answered:?}");
}

#[test]
fn lines_that_are_no_messages_are_recorded_and_the_lead_is_told_once() {
    let mut harness = Harness::new();
    let bad = RejectedLine {
        offset: 12,
        reason: "no JSON".to_owned(),
        line: "{".to_owned(),
    };
    let position = Position {
        offset: 14,
        tail: 0,
    };
    let read = harness.on(&Event::LeadRead {
        position,
        rejected: vec![bad.clone()],
    });
    let [Record::Team(record)] = read.records.as_slice() else {
        panic!("{read:?}")
    };
    assert_eq!(
        (record.event, record.rejected.as_slice()),
        (TeamEvent::Read, [bad].as_slice())
    );
    assert_eq!((record.tell.len(), record.tell[0].to.as_str()), (1, "lead"));
}

#[test]
fn an_answer_without_its_author_is_the_models() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let id = harness.request_shutdown("alice", None);
    let reason = String::new();
    harness.submit(
        &alice,
        Body::ShutdownResponse {
            request_id: id.clone(),
            approve: true,
            reason,
            answered_by: None,
        },
    );
    assert_eq!(harness.request(&id).answered_by, Some(AnsweredBy::Model));
}
