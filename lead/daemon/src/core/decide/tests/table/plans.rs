//! Plans: submitted, answered, withdrawn, asked for.

use teamd_shared::control::{
    Command, Done, PlanApproval, RefusalCode, SpawnOrder, ToWorker, WorkerState,
};
use teamd_shared::journal::{MemberEvent, Record};
use teamd_shared::member::{self, Doing, Gate};
use teamd_shared::message::{Body, Message};
use teamd_shared::request::{Kind, Status};
use uuid::Uuid;

use super::super::harness::never_restarted;
use super::super::harness::{
    CLIENT, Harness, idle, incarnation, name, nothing, order, plan, plan_recorded, plan_request,
    refusal, refused, request_id, said, verdict,
};
use crate::core::caller::Actor;
use crate::core::event::Event;
use crate::core::status::status;

#[test]
fn a_plan_closes_the_gate_and_an_approval_opens_it_in_the_same_line() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let id = request_id("aaaa0001");
    let asked = harness.submit(&alice, plan(&id));
    assert_eq!(
        (asked.records.len(), plan_recorded(&asked)),
        (1, Status::Pending)
    );
    assert_eq!(
        (harness.member("alice").gate, harness.status(&id)),
        (Gate::Closed, Status::Pending)
    );
    let approved = harness.on(&Event::Command(CLIENT, Actor::Person, verdict(&id, true)));
    let [Record::Request(record)] = approved.records.as_slice() else {
        panic!("{approved:?}")
    };
    assert_eq!(
        (record.tell[0].to.as_str(), harness.member("alice").gate),
        ("alice", Gate::Open)
    );
    // What became true with a line of another record has one of its own.
    assert_eq!(harness.team.pending_derived(), []);
}

#[test]
fn a_hash_approves_the_plan_with_that_text_and_no_other() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let id = harness.submit_plan(&alice, "aaaa0001");
    let approve = |plan_sha256: &str| {
        Command::ApprovePlan(PlanApproval {
            request_id: id.clone(),
            plan_sha256: plan_sha256.to_owned(),
            feedback: String::new(),
            permissions: None,
        })
    };
    let own = harness.request(&id).plan_sha256().unwrap();
    for other in ["", &"0".repeat(64), &own[1..]] {
        let (code, message) = refusal(harness.ask(approve(other)));
        assert_eq!(code, RefusalCode::Conflict);
        assert!(message.contains("is another one"), "{message}");
    }
    assert_eq!(harness.status(&id), Status::Pending);
    let done = harness.ask(approve(&own));
    assert_eq!(done, Ok(Done::Answered { repeated: false }));
    assert_eq!(harness.member("alice").gate, Gate::Open);
    let leave = harness.request_shutdown("alice", None);
    let of_shutdown = Command::ApprovePlan(PlanApproval {
        request_id: leave,
        plan_sha256: own.clone(),
        feedback: String::new(),
        permissions: None,
    });
    assert_eq!(refusal(harness.ask(of_shutdown)).0, RefusalCode::Usage);
}

#[test]
fn a_rejection_leaves_the_gate_closed_and_keeps_the_feedback() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let id = harness.submit_plan(&alice, "aaaa0001");
    assert_eq!(
        harness.ask(verdict(&id, false)),
        Ok(Done::Answered { repeated: false })
    );
    assert_eq!(
        (harness.member("alice").gate, harness.status(&id)),
        (Gate::Closed, Status::Rejected)
    );
    assert_eq!(
        harness.request(&id).reason.as_deref(),
        Some("mind the tests")
    );
}

#[test]
fn the_first_verdict_stands_its_repetition_is_no_error_and_another_one_a_conflict() {
    for (first, status) in [(true, Status::Approved), (false, Status::Rejected)] {
        let mut harness = Harness::new();
        let alice = harness.runs("alice");
        let id = harness.submit_plan(&alice, "aaaa0001");
        harness.ask(verdict(&id, first)).unwrap();
        let before = harness.team.clone();
        assert_eq!(
            harness.ask(verdict(&id, first)),
            Ok(Done::Answered { repeated: true })
        );
        let (code, message) = refusal(harness.ask(verdict(&id, !first)));
        assert_eq!(code, RefusalCode::Conflict);
        assert!(message.contains(status.as_str()), "{message}");
        assert_eq!(harness.team, before);
    }
}

#[test]
fn the_verdict_on_another_members_plan_of_the_same_id_starts_no_work() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let bob = harness.runs("bob");
    let id = harness.submit_plan(&alice, "aaaa0001");
    harness.on(&Event::Said {
        incarnation: bob,
        state: WorkerState {
            awaits: Some(id.clone()),
            ..idle()
        },
    });
    harness.ask(verdict(&id, true)).unwrap();
    assert_eq!(
        status(&harness.team, &harness.runtime, harness.member("bob")),
        member::MemberStatus::Idle
    );
}

#[test]
fn what_is_no_pending_plan_is_not_answered() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let expired = harness.submit_plan(&alice, "aaaa0001");
    harness.submit_plan(&alice, "aaaa0002");
    let shutdown = harness.request_shutdown("alice", None);
    let before = harness.team.clone();
    for approve in [true, false] {
        assert_eq!(
            refusal(harness.ask(verdict(&request_id("unknown"), approve))).0,
            RefusalCode::NotFound
        );
        assert_eq!(
            refusal(harness.ask(verdict(&shutdown, approve))).0,
            RefusalCode::Conflict
        );
        assert_eq!(
            refusal(harness.ask(verdict(&expired, approve))).0,
            RefusalCode::Conflict
        );
    }
    assert_eq!(harness.team, before);
}

#[test]
fn a_plan_takes_the_place_of_the_one_before() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let first = harness.submit_plan(&alice, "aaaa0001");
    let second = harness.submit_plan(&alice, "aaaa0002");
    assert_eq!(
        (harness.status(&first), harness.status(&second)),
        (Status::Expired, Status::Pending)
    );
    assert_eq!(harness.team.pending_of(&name("alice")).count(), 1);
}

#[test]
fn the_same_line_submitted_again_says_where_its_plan_stands_and_changes_nothing() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let id = request_id("aaaa0001");
    let line = Message::new(Uuid::from_u128(99), "alice", "lead", 0.0, plan(&id));
    assert_eq!(
        plan_recorded(&harness.submit_line(&alice, &line)),
        Status::Pending
    );
    let again = harness.submit_line(&alice, &line);
    assert_eq!(
        (again.records.len(), plan_recorded(&again)),
        (0, Status::Pending)
    );
    harness.ask(verdict(&id, true)).unwrap();
    let again = harness.submit_line(&alice, &line);
    assert_eq!(
        (again.records.len(), plan_recorded(&again)),
        (0, Status::Approved)
    );
    assert_eq!(harness.member("alice").gate, Gate::Open);
}

#[test]
fn a_taken_id_is_refused_as_taken_also_if_another_member_has_it() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let bob = harness.runs("bob");
    let mine = harness.submit_plan(&alice, "aaaa0001");
    let theirs = harness.submit_plan(&bob, "bbbb0001");
    let shutdown = harness.request_shutdown("alice", None);
    for id in [mine, theirs, shutdown] {
        let (why, taken) = refused(&harness.submit(&alice, plan(&id)));
        assert!(taken && why.contains("taken"), "{why}");
    }
}

#[test]
fn a_plan_that_expired_with_an_earlier_incarnation_is_submitted_anew() {
    let mut harness = Harness::new();
    harness.spawn(never_restarted("alice")).unwrap();
    let alice = harness.starts("alice");
    let id = request_id("aaaa0001");
    let line = Message::new(Uuid::from_u128(99), "alice", "lead", 0.0, plan(&id));
    harness.submit_line(&alice, &line);
    harness.ends(&alice);
    harness
        .spawn(SpawnOrder {
            resume: true,
            ..order("alice")
        })
        .unwrap();
    let alice = harness.starts("alice");
    assert!(refused(&harness.submit_line(&alice, &line)).1);
    let again = harness.submit_plan(&alice, "aaaa0002");
    assert_eq!(
        (harness.status(&id), harness.status(&again)),
        (Status::Expired, Status::Pending)
    );
}

#[test]
fn a_plan_outlives_a_restart_and_is_answered_by_its_first_id() {
    let mut harness = Harness::new();
    let alice = harness.runs_with_plan("alice");
    let id = harness.submit_plan(&alice, "aaaa0001");
    harness.ends(&alice);
    assert_eq!(
        (harness.member("alice").incarnation, harness.status(&id)),
        (2, Status::Pending)
    );
    harness.ask(verdict(&id, true)).unwrap();
    assert_eq!(harness.member("alice").gate, Gate::Open);
}

#[test]
fn a_plan_without_a_message_id_is_refused() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let mut line = Message::new(
        Uuid::nil(),
        "alice",
        "lead",
        0.0,
        plan(&request_id("aaaa0001")),
    );
    line.id = None;
    refused(&harness.submit_line(&alice, &line));
    assert!(harness.team.requests.is_empty());
}

#[test]
fn a_plan_that_its_author_knows_of_and_does_not_wait_for_expires() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let id = harness.submit_plan(&alice, "aaaa0001");
    let applied_seq = harness.team.members[&name("alice")].seq;
    let mut says = |state| {
        harness.on(&Event::Said {
            incarnation: alice.clone(),
            state,
        })
    };
    let waits = |plan: &str| WorkerState {
        applied_seq,
        awaits: Some(request_id(plan)),
        ..idle()
    };
    assert!(nothing(&says(waits("aaaa0001"))));
    // It is on its way to this one, by the id that it had first.
    assert!(nothing(&says(waits("aaaa0002"))));
    // It has not heard of it yet, or does not know yet what it waits for.
    assert!(nothing(&says(WorkerState {
        applied_seq: applied_seq - 1,
        ..idle()
    })));
    assert!(nothing(&says(WorkerState {
        applied_seq,
        doing: Doing::Starting,
        ..idle()
    })));
    assert_eq!(
        says(WorkerState {
            applied_seq,
            ..idle()
        })
        .records
        .len(),
        1
    );
    assert_eq!(
        (harness.status(&id), harness.member("alice").gate),
        (Status::Expired, Gate::Closed)
    );
}

#[test]
fn a_worker_that_comes_back_hears_the_verdict_that_it_waits_for() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let id = harness.submit_plan(&alice, "aaaa0001");
    harness.on(&Event::Disconnected {
        incarnation: alice.clone(),
    });
    harness.ask(verdict(&id, true)).unwrap();
    let state = WorkerState {
        awaits: Some(id.clone()),
        ..idle()
    };
    let greeted = harness.on(&Event::Connected {
        incarnation: alice,
        environment: None,
        state,
    });
    let [ToWorker::Directive(directive)] = said(&greeted).as_slice() else {
        panic!("{greeted:?}")
    };
    let verdict = directive.verdict.as_ref().unwrap();
    assert_eq!(
        (&verdict.request_id, verdict.status, directive.gate),
        (&id, Status::Approved, Gate::Open)
    );
    assert_eq!(
        (directive.seq, verdict.feedback.as_str()),
        (harness.team.members[&name("alice")].seq, "mind the tests")
    );
}

#[test]
fn asking_for_a_plan_closes_the_gate_and_tells_in_one_line() {
    let mut harness = Harness::new();
    harness.runs("alice");
    let asked = harness.on(&Event::Command(
        CLIENT,
        Actor::Person,
        plan_request("alice"),
    ));
    let [Record::Member(record)] = asked.records.as_slice() else {
        panic!("{asked:?}")
    };
    assert_eq!(
        (record.event, record.tell[0].to.as_str()),
        (MemberEvent::GateClosed, "alice")
    );
    let done = super::super::harness::reply(&asked);
    assert_eq!(done, Ok(Done::Recorded { incarnation: 1 }));
    assert_eq!(harness.member("alice").gate, Gate::Closed);
    assert_eq!(
        harness.team.pending(&name("alice"), Kind::PlanApproval),
        None
    );
}

#[test]
fn a_line_of_another_kind_or_another_hand_opens_no_plan() {
    let mut harness = Harness::new();
    let (alice, _) = (harness.runs("alice"), harness.runs("bob"));
    let id = request_id("aaaa0001");
    let forged = Message::new(Uuid::from_u128(99), "bob", "lead", 0.0, plan(&id));
    assert!(
        refused(&harness.submit_line(&alice, &forged))
            .0
            .contains("bob")
    );
    let text = Message::new(Uuid::from_u128(98), "alice", "lead", 0.0, Body::Message);
    let submitted = |line| Event::Submitted {
        incarnation: incarnation("alice", 1),
        request_id: request_id("aaaa0001"),
        line,
    };
    refused(&harness.on(&submitted(Ok(Box::new(text)))));
    refused(&harness.on(&submitted(Err("the line was truncated".to_owned()))));
    let other = Message::new(
        Uuid::from_u128(97),
        "alice",
        "lead",
        0.0,
        plan(&request_id("aaaa0002")),
    );
    refused(&harness.on(&submitted(Ok(Box::new(other)))));
    assert!(harness.team.requests.is_empty());
}
