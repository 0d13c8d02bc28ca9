//! Plans: submitted, answered, withdrawn, asked for.

use teamd_shared::control::{Done, RefusalCode, SpawnOrder, ToWorker, WorkerState};
use teamd_shared::journal::{MemberEvent, Record};
use teamd_shared::member::{self, Doing, Gate};
use teamd_shared::message::{Body, Message};
use teamd_shared::request::{Kind, Status};
use uuid::Uuid;

use super::super::desk::never_restarted;
use super::super::desk::{
    CLIENT, Desk, idle, incarnation, name, nothing, order, plan, plan_request, recorded, refusal, refused,
    request_id, said, verdict,
};
use crate::daemon::core::event::Event;
use crate::daemon::core::waiters::status;

#[test]
fn a_plan_closes_the_gate_and_an_approval_opens_it_in_the_same_line() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    let id = request_id("aaaa0001");
    let asked = desk.names(&alice, plan(&id));
    assert_eq!((asked.records.len(), recorded(&asked)), (1, Status::Pending));
    assert_eq!((desk.member("alice").gate, desk.status(&id)), (Gate::Closed, Status::Pending));
    let approved = desk.on(&Event::Command(CLIENT, verdict(&id, true)));
    let [Record::Request(record)] = approved.records.as_slice() else { panic!("{approved:?}") };
    assert_eq!((record.tell[0].to.as_str(), desk.member("alice").gate), ("alice", Gate::Open));
    // What became true with a line of another record has one of its own.
    assert_eq!(desk.team.pending_derived(), []);
}

#[test]
fn a_rejection_leaves_the_gate_closed_and_keeps_the_feedback() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    let id = desk.submits(&alice, "aaaa0001");
    assert_eq!(desk.ask(verdict(&id, false)), Ok(Done::Answered { repeated: false }));
    assert_eq!((desk.member("alice").gate, desk.status(&id)), (Gate::Closed, Status::Rejected));
    assert_eq!(desk.request(&id).reason.as_deref(), Some("mind the tests"));
}

#[test]
fn the_first_verdict_stands_its_repetition_is_no_error_and_another_one_a_conflict() {
    for (first, status) in [(true, Status::Approved), (false, Status::Rejected)] {
        let mut desk = Desk::new();
        let alice = desk.runs("alice");
        let id = desk.submits(&alice, "aaaa0001");
        desk.ask(verdict(&id, first)).unwrap();
        let before = desk.team.clone();
        assert_eq!(desk.ask(verdict(&id, first)), Ok(Done::Answered { repeated: true }));
        let (code, message) = refusal(desk.ask(verdict(&id, !first)));
        assert_eq!(code, RefusalCode::Conflict);
        assert!(message.contains(status.as_str()), "{message}");
        assert_eq!(desk.team, before);
    }
}

#[test]
fn the_verdict_on_another_ones_plan_of_the_same_id_puts_nobody_to_work() {
    let mut desk = Desk::new();
    let (alice, bob) = (desk.runs("alice"), desk.runs("bob"));
    let id = desk.submits(&alice, "aaaa0001");
    desk.on(&Event::Said { incarnation: bob, state: WorkerState { plan: Some(id.clone()), ..idle() } });
    desk.ask(verdict(&id, true)).unwrap();
    assert_eq!(status(&desk.team, &desk.live, desk.member("bob")), member::Status::Idle);
}

#[test]
fn what_is_no_pending_plan_is_not_answered() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    let expired = desk.submits(&alice, "aaaa0001");
    desk.submits(&alice, "aaaa0002");
    let shutdown = desk.asks("alice", None);
    let before = desk.team.clone();
    for approve in [true, false] {
        assert_eq!(refusal(desk.ask(verdict(&request_id("nobody"), approve))).0, RefusalCode::NotFound);
        assert_eq!(refusal(desk.ask(verdict(&shutdown, approve))).0, RefusalCode::Conflict);
        assert_eq!(refusal(desk.ask(verdict(&expired, approve))).0, RefusalCode::Conflict);
    }
    assert_eq!(desk.team, before);
}

#[test]
fn a_plan_takes_the_place_of_the_one_before() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    let first = desk.submits(&alice, "aaaa0001");
    let second = desk.submits(&alice, "aaaa0002");
    assert_eq!((desk.status(&first), desk.status(&second)), (Status::Expired, Status::Pending));
    assert_eq!(desk.team.pending_of(&name("alice")).count(), 1);
}

#[test]
fn the_same_line_named_again_says_where_its_plan_stands_and_changes_nothing() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    let id = request_id("aaaa0001");
    let line = Message::new(Uuid::from_u128(99), "alice", "lead", 0.0, plan(&id));
    assert_eq!(recorded(&desk.names_line(&alice, &line)), Status::Pending);
    let again = desk.names_line(&alice, &line);
    assert_eq!((again.records.len(), recorded(&again)), (0, Status::Pending));
    desk.ask(verdict(&id, true)).unwrap();
    let again = desk.names_line(&alice, &line);
    assert_eq!((again.records.len(), recorded(&again)), (0, Status::Approved));
    assert_eq!(desk.member("alice").gate, Gate::Open);
}

#[test]
fn a_taken_id_is_refused_as_taken_whoever_has_it() {
    let mut desk = Desk::new();
    let (alice, bob) = (desk.runs("alice"), desk.runs("bob"));
    let mine = desk.submits(&alice, "aaaa0001");
    let theirs = desk.submits(&bob, "bbbb0001");
    let shutdown = desk.asks("alice", None);
    for id in [mine, theirs, shutdown] {
        let (why, taken) = refused(&desk.names(&alice, plan(&id)));
        assert!(taken && why.contains("taken"), "{why}");
    }
}

#[test]
fn a_plan_that_expired_with_an_earlier_incarnation_is_submitted_anew() {
    let mut desk = Desk::new();
    desk.spawn(never_restarted("alice")).unwrap();
    let alice = desk.starts("alice");
    let id = request_id("aaaa0001");
    let line = Message::new(Uuid::from_u128(99), "alice", "lead", 0.0, plan(&id));
    desk.names_line(&alice, &line);
    desk.ends(&alice);
    desk.spawn(SpawnOrder { resume: true, ..order("alice") }).unwrap();
    let alice = desk.starts("alice");
    assert!(refused(&desk.names_line(&alice, &line)).1);
    let again = desk.submits(&alice, "aaaa0002");
    assert_eq!((desk.status(&id), desk.status(&again)), (Status::Expired, Status::Pending));
}

#[test]
fn a_plan_outlives_a_restart_and_is_answered_by_its_first_id() {
    let mut desk = Desk::new();
    let alice = desk.runs_with_plan("alice");
    let id = desk.submits(&alice, "aaaa0001");
    desk.ends(&alice);
    assert_eq!((desk.member("alice").incarnation, desk.status(&id)), (2, Status::Pending));
    desk.ask(verdict(&id, true)).unwrap();
    assert_eq!(desk.member("alice").gate, Gate::Open);
}

#[test]
fn a_plan_without_a_message_id_is_refused() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    let mut line = Message::new(Uuid::nil(), "alice", "lead", 0.0, plan(&request_id("aaaa0001")));
    line.id = None;
    refused(&desk.names_line(&alice, &line));
    assert!(desk.team.requests.is_empty());
}

#[test]
fn a_plan_that_its_author_knows_of_and_does_not_wait_for_expires() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    let id = desk.submits(&alice, "aaaa0001");
    let applied_seq = desk.team.members[&name("alice")].seq;
    let mut says = |state| desk.on(&Event::Said { incarnation: alice.clone(), state });
    let waits = |plan: &str| WorkerState { applied_seq, plan: Some(request_id(plan)), ..idle() };
    assert!(nothing(&says(waits("aaaa0001"))));
    // It is on its way to this one, by the id that it had first.
    assert!(nothing(&says(waits("aaaa0002"))));
    // It has not heard of it yet, or does not know yet what it waits for.
    assert!(nothing(&says(WorkerState { applied_seq: applied_seq - 1, ..idle() })));
    assert!(nothing(&says(WorkerState { applied_seq, doing: Doing::Starting, ..idle() })));
    assert_eq!(says(WorkerState { applied_seq, ..idle() }).records.len(), 1);
    assert_eq!((desk.status(&id), desk.member("alice").gate), (Status::Expired, Gate::Closed));
}

#[test]
fn a_worker_that_comes_back_hears_the_verdict_that_it_waits_for() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    let id = desk.submits(&alice, "aaaa0001");
    desk.on(&Event::Disconnected { incarnation: alice.clone() });
    desk.ask(verdict(&id, true)).unwrap();
    let state = WorkerState { plan: Some(id.clone()), ..idle() };
    let greeted = desk.on(&Event::Connected { incarnation: alice, environment: None, state });
    let [ToWorker::Directive(directive)] = said(&greeted).as_slice() else { panic!("{greeted:?}") };
    let verdict = directive.verdict.as_ref().unwrap();
    assert_eq!((&verdict.request_id, verdict.status, directive.gate), (&id, Status::Approved, Gate::Open));
    assert_eq!(
        (directive.seq, verdict.feedback.as_str()),
        (desk.team.members[&name("alice")].seq, "mind the tests")
    );
}

#[test]
fn asking_for_a_plan_closes_the_gate_and_tells_in_one_line() {
    let mut desk = Desk::new();
    desk.runs("alice");
    let asked = desk.on(&Event::Command(CLIENT, plan_request("alice")));
    let [Record::Member(record)] = asked.records.as_slice() else { panic!("{asked:?}") };
    assert_eq!((record.event, record.tell[0].to.as_str()), (MemberEvent::GateClosed, "alice"));
    let done = super::super::desk::reply(&asked);
    assert_eq!(done, Ok(Done::Recorded { incarnation: 1 }));
    assert_eq!(desk.member("alice").gate, Gate::Closed);
    assert_eq!(desk.team.pending(&name("alice"), Kind::PlanApproval), None);
}

#[test]
fn a_line_of_another_kind_or_another_hand_opens_no_plan() {
    let mut desk = Desk::new();
    let (alice, _) = (desk.runs("alice"), desk.runs("bob"));
    let id = request_id("aaaa0001");
    let forged = Message::new(Uuid::from_u128(99), "bob", "lead", 0.0, plan(&id));
    assert!(refused(&desk.names_line(&alice, &forged)).0.contains("bob"));
    let text = Message::new(Uuid::from_u128(98), "alice", "lead", 0.0, Body::Message);
    let named = |line| Event::Submitted {
        incarnation: incarnation("alice", 1),
        request_id: request_id("aaaa0001"),
        line,
    };
    refused(&desk.on(&named(Ok(Box::new(text)))));
    refused(&desk.on(&named(Err("the line was truncated".to_owned()))));
    let other = Message::new(Uuid::from_u128(97), "alice", "lead", 0.0, plan(&request_id("aaaa0002")));
    refused(&desk.on(&named(Ok(Box::new(other)))));
    assert!(desk.team.requests.is_empty());
}
